"""One process runs a warehouse in an object store: the others wait, and take over when it does not live any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headgate.core import DeclarationError
from headgate.places.object_path import ObjectPath
from headgate.warehouse.run.lease import LEASE_SECONDS, WarehouseLease, lease_of
from headgate.warehouse.run.lock import FILE_NAME, WarehouseInUseError, holder
from headgate.warehouse.storage.errors import ForeignCommitError
from headgate.warehouse.storage.fence import LeaseLostError
from headgate.warehouse.storage.history import FENCE_KEY, entry_path
from headgate.warehouse.storage.store import TableStore
from tests.services.object_store import ObjectStoreServer
from tests.warehouse.storage_helpers import clicks, load, values

pytestmark = [pytest.mark.services, pytest.mark.slow]


class Hands:
    """A clock that is set by hand. Who waits lets time pass, and others do something meanwhile."""

    def __init__(self) -> None:
        self.time = 0.0
        self.meanwhile = lambda: None
        self.waited_for: list[threading.Event] = []

    def now(self) -> float:
        return self.time

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name == "headgate-lease":
            self.waited_for.append(event)
            return event.wait()  # nothing is renewed by itself: the test does it
        self.time += seconds
        self.meanwhile()
        return event.is_set()


@pytest.fixture
def warehouse(object_store: ObjectStoreServer) -> ObjectPath:
    return object_store.bucket() / "city"


@pytest.fixture
def hands() -> Iterator[Hands]:
    hands = Hands()
    yield hands
    for event in hands.waited_for:  # threads of owners that have vanished
        event.set()


def test_a_lease_says_who_has_it_and_is_free_when_given_back(warehouse: ObjectPath, hands: Hands) -> None:
    assert holder(warehouse) is None
    with WarehouseLease(warehouse, timer=hands) as lease:
        found = lease_of(warehouse)
        assert found is not None and (found.fence, found.seconds) == (1, LEASE_SECONDS) == (lease.number, 30.0)
        assert holder(warehouse) is not None
    assert holder(warehouse) is None
    with WarehouseLease(warehouse, timer=hands) as lease:
        assert lease.number == 2
    assert hands.time == 0.0


def test_an_owner_that_lives_is_not_replaced(warehouse: ObjectPath, hands: Hands) -> None:
    with WarehouseLease(warehouse, timer=hands) as owner:
        hands.meanwhile = owner.renew
        with pytest.raises(WarehouseInUseError, match="is being run by process"):
            WarehouseLease(warehouse, timer=hands).acquire()
        owner.check()


def test_an_owner_that_vanished_is_replaced_after_the_stated_time(warehouse: ObjectPath, hands: Hands) -> None:
    gone = WarehouseLease(warehouse, timer=hands)
    gone.acquire()
    told: list[str] = []
    with WarehouseLease(warehouse, timer=hands, on_message=told.append) as lease:
        assert lease.number == 2
        assert LEASE_SECONDS <= hands.time <= LEASE_SECONDS + 2
        assert len(told) == 1 and "within 30 s" in told[0]
        with pytest.raises(LeaseLostError, match="could not be renewed for 30 s"):
            gone.check()
        gone.renew()
        lease.check()
    gone.release()


def test_who_was_replaced_learns_it_by_its_next_renewal_and_tells_once(warehouse: ObjectPath, hands: Hands) -> None:
    paused = WarehouseLease(warehouse, timer=hands)
    paused.acquire()
    lost: list[LeaseLostError] = []
    paused.on_lost = lost.append
    with WarehouseLease(warehouse, timer=hands):
        hands.time -= LEASE_SECONDS  # its own clock stood still
        paused.renew()
        paused.renew()
    assert len(lost) == 1 and "has taken" in str(lost[0])
    paused.release()


def test_of_many_that_take_a_dead_ones_place_at_once_one_succeeds(warehouse: ObjectPath, hands: Hands) -> None:
    WarehouseLease(warehouse, timer=hands).acquire()
    outcomes: list[object] = []

    def take() -> None:
        lease = WarehouseLease(warehouse, seconds=LEASE_SECONDS, timer=Hands())
        try:
            lease.acquire()
        except WarehouseInUseError as error:
            outcomes.append(error)
        else:
            outcomes.append(lease)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [each for each in outcomes if isinstance(each, WarehouseLease)]
    fences = sorted(lease.number for lease in won)
    found = lease_of(warehouse)
    # Those who lost go on watching; by their own clocks the winner, which renews nothing here, is dead in its turn.
    assert len(outcomes) == 6 and fences == sorted(set(fences)) and found is not None and found.fence == fences[-1]
    for lease in won:
        lease.release()


def test_a_commit_carries_the_fencing_number(warehouse: ObjectPath, hands: Hands) -> None:
    with WarehouseLease(warehouse, timer=hands) as lease:
        store = TableStore(warehouse / "tables" / "clicks", "ts", fence=lease)
        load(store, 1, clicks(1))
    assert f'"{FENCE_KEY}":1' in entry_path(store.directory, 0).read_text().replace(" ", "")


def test_who_may_have_been_replaced_does_not_even_try_to_commit(warehouse: ObjectPath, hands: Hands) -> None:
    owner = WarehouseLease(warehouse, timer=hands)
    owner.acquire()
    store = TableStore(warehouse / "tables" / "clicks", "ts", fence=owner)
    load(store, 1, clicks(1))
    hands.time += LEASE_SECONDS
    with pytest.raises(LeaseLostError, match="Nothing is committed any more"):
        load(store, 2, clicks(2))
    assert not entry_path(store.directory, 1).exists()
    owner.release()


def test_who_finds_a_commit_of_its_successor_stops(warehouse: ObjectPath, hands: Hands) -> None:
    old = WarehouseLease(warehouse, timer=Hands())
    old.acquire()
    lost: list[LeaseLostError] = []
    old.on_lost = lost.append
    before = TableStore(warehouse / "tables" / "clicks", "ts", fence=old)
    load(before, 1, clicks(1))
    with WarehouseLease(warehouse, timer=hands) as new:
        after = TableStore(before.directory, "ts", fence=new)
        load(after, 2, clicks(2))
        with pytest.raises(ForeignCommitError):
            load(before, 2, clicks(3))
        with pytest.raises(LeaseLostError, match="fencing number 2, this process has 1"):
            load(before, 3, clicks(3))
        assert len(lost) == 1
        load(after, 3, clicks(4))
        assert values(after.arrow()) == values(clicks(1, 2, 4))
    old.release()


def test_a_late_commit_of_a_predecessor_is_taken_in_by_its_successor(warehouse: ObjectPath, hands: Hands) -> None:
    old = WarehouseLease(warehouse, timer=Hands())
    old.acquire()
    before = TableStore(warehouse / "tables" / "clicks", "ts", fence=old)
    load(before, 1, clicks(1))
    with WarehouseLease(warehouse, timer=hands) as new:
        after = TableStore(before.directory, "ts", fence=new)
        load(before, 2, clicks(2))  # its request was on its way for longer than the lease
        with pytest.raises(ForeignCommitError):
            load(after, 2, clicks(3))
        load(after, 3, clicks(3))
        assert values(after.arrow()) == values(clicks(1, 2, 3))
    old.release()


def test_an_object_that_is_no_lease_is_not_overwritten(warehouse: ObjectPath, hands: Hands) -> None:
    (warehouse / FILE_NAME).write_text("mine")
    with pytest.raises(DeclarationError, match="is not the lease of a warehouse"):
        WarehouseLease(warehouse, timer=hands).acquire()
    assert (warehouse / FILE_NAME).read_text() == "mine"


def test_a_bucket_that_is_not_there_is_named(object_store: ObjectStoreServer, hands: Hands) -> None:
    nowhere = ObjectPath(object_store.bucket().bucket, "").bucket
    missing = ObjectPath(type(nowhere)("s3://there-is-none", nowhere.options), "city")
    with pytest.raises(DeclarationError, match="s3://there-is-none/city"):
        WarehouseLease(missing, timer=hands).acquire()
