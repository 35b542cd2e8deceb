"""One process runs a warehouse in an object store: the others wait, and take over when it does not live any more."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.core import DeclarationError
from headgate.places.hdfs_path import HdfsPath
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath
from headgate.warehouse.run.lease import LEASE_SECONDS, SystemLeaseTimer, WarehouseLease, lease_of
from headgate.warehouse.run.lease_folder import FOLDER_NAME, LeaseFolder
from headgate.warehouse.run.lock import FILE_NAME, WarehouseInUseError, WarehouseLock, holder
from headgate.warehouse.storage.errors import ForeignCommitError
from headgate.warehouse.storage.fence import LeaseLostError
from headgate.warehouse.storage.files import DATA_DIRECTORY
from headgate.warehouse.storage.history import FENCE_KEY, LOG_DIRECTORY, entry_path
from headgate.warehouse.storage.store import TableStore
from tests.services.hdfs import HdfsServer
from tests.services.object_store import ObjectStoreServer
from tests.warehouse.storage_helpers import CLICKS, HOUR, Ends, clicks, load, values

pytestmark = [pytest.mark.services, pytest.mark.slow]


class Hands:
    """A clock that is set by hand. Who waits lets time pass, and others do something meanwhile."""

    def __init__(self) -> None:
        self.time = 0.0
        #: how far the wall clock is ahead
        self.ahead = 1e9
        self.meanwhile = lambda: None
        self.waited_for: list[threading.Event] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + self.ahead

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name == "headgate-lease":
            self.waited_for.append(event)
            return event.wait()  # nothing is renewed by itself: the test does it
        self.time += seconds
        self.meanwhile()
        return event.is_set()


@pytest.fixture(params=["object store", "HDFS", "shared folder"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    if request.param == "shared folder":
        return tmp_path / "city"
    if request.param == "HDFS":
        hadoop: HdfsServer = request.getfixturevalue("hdfs")
        return hadoop.place() / "city"
    store: ObjectStoreServer = request.getfixturevalue("object_store")
    return store.bucket() / "city"


def lease_object(warehouse: AnyPath) -> ObjectPath | LeaseFolder:
    is_folder = isinstance(warehouse, Path | HdfsPath)
    return LeaseFolder(warehouse / FOLDER_NAME) if is_folder else warehouse / FILE_NAME


def delete_lease(warehouse: AnyPath) -> None:
    if isinstance(warehouse, Path):
        shutil.rmtree(warehouse / FOLDER_NAME)
    elif isinstance(warehouse, HdfsPath):
        (warehouse / FOLDER_NAME).delete_below()
    else:
        (warehouse / FILE_NAME).unlink()


@pytest.fixture
def hands() -> Iterator[Hands]:
    hands = Hands()
    yield hands
    for event in hands.waited_for:  # threads of owners that have vanished
        event.set()


def test_a_lease_says_who_has_it_and_is_free_when_given_back(warehouse: AnyPath, hands: Hands) -> None:
    assert holder(warehouse) is None
    with WarehouseLease(warehouse, timer=hands) as lease:
        found = lease_of(warehouse)
        assert found is not None and (found.fence, found.seconds) == (1, LEASE_SECONDS) == (lease.number, 30.0)
        assert holder(warehouse) is not None
    assert holder(warehouse) is None
    with WarehouseLease(warehouse, timer=hands) as lease:
        assert lease.number == 2
    assert hands.time == 0.0


def test_an_owner_that_lives_is_not_replaced(warehouse: AnyPath, hands: Hands) -> None:
    with WarehouseLease(warehouse, timer=hands) as owner:
        hands.meanwhile = owner.renew
        with pytest.raises(WarehouseInUseError, match="is being run by process"):
            WarehouseLease(warehouse, timer=hands).acquire()
        owner.check()


def test_an_owner_that_vanished_is_replaced_after_the_stated_time(warehouse: AnyPath, hands: Hands) -> None:
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


class Stalls(Hands):
    """The next thing that is begun takes long: ``stall`` happens meanwhile."""

    stall: Callable[[], None] | None = None

    def now(self) -> float:
        begun, stall, self.stall = self.time, self.stall, None
        if stall is not None:
            stall()
        return begun


def test_an_owner_that_renews_during_a_long_first_look_is_not_replaced_before_its_lease_ends(
    warehouse: AnyPath, hands: Hands
) -> None:
    owner = WarehouseLease(warehouse, timer=hands)
    owner.acquire()
    watching = Stalls()

    def stall() -> None:
        hands.time = 10.0
        owner.renew()
        hands.time = watching.time = 25.0

    def together() -> None:
        hands.time = watching.time

    watching.stall, watching.meanwhile = stall, together
    try:
        with WarehouseLease(warehouse, timer=watching), pytest.raises(LeaseLostError, match="could not be renewed"):
            owner.check()
        assert 25.0 + LEASE_SECONDS <= watching.time <= 25.0 + LEASE_SECONDS + 2
    finally:
        for event in watching.waited_for:
            event.set()
        owner.release()


def test_who_was_replaced_learns_it_by_its_next_renewal_and_tells_once(warehouse: AnyPath, hands: Hands) -> None:
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


def test_of_many_that_take_a_dead_ones_place_at_once_one_succeeds(warehouse: AnyPath, hands: Hands) -> None:
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


def test_a_commit_carries_the_fencing_number(warehouse: AnyPath, hands: Hands) -> None:
    with WarehouseLease(warehouse, timer=hands) as lease:
        store = TableStore(warehouse / "tables" / "clicks", "ts", fence=lease)
        load(store, 1, clicks(1))
    assert f'"{FENCE_KEY}":1' in entry_path(store.directory, 0).read_text().replace(" ", "")


def test_who_may_have_been_replaced_does_not_even_try_to_commit(warehouse: AnyPath, hands: Hands) -> None:
    owner = WarehouseLease(warehouse, timer=hands)
    owner.acquire()
    store = TableStore(warehouse / "tables" / "clicks", "ts", fence=owner)
    load(store, 1, clicks(1))
    hands.time += LEASE_SECONDS
    with pytest.raises(LeaseLostError, match="Nothing is committed any more"):
        load(store, 2, clicks(2))
    assert not entry_path(store.directory, 1).exists()
    owner.release()


@pytest.mark.parametrize(
    "delete",
    [lambda store: store.vacuum(-60), lambda store: store.sweep(-60), TableStore.drop],
    ids=["vacuum", "sweep", "drop"],
)
def test_who_may_have_been_replaced_deletes_nothing(
    warehouse: AnyPath, hands: Hands, delete: Callable[[TableStore], object]
) -> None:
    asleep = Hands()
    old = WarehouseLease(warehouse, timer=asleep)
    old.acquire()
    before = TableStore(warehouse / "tables" / "clicks", "ts", fence=old)
    load(before, 1, clicks(1))
    with WarehouseLease(warehouse, timer=hands) as new:
        after = TableStore(before.directory, "ts", fence=new)
        load(after, 2, clicks(2))
        files = after.write_arrow(3, clicks(3), HOUR)
        asleep.time += LEASE_SECONDS
        with pytest.raises(LeaseLostError):
            delete(before)
        after.commit(3, files, state={}, schema=CLICKS)
        assert values(TableStore(before.directory, "ts").arrow()) == values(clicks(1, 2, 3))
    old.release()


@pytest.mark.parametrize("deleted", [0, 2, 3])
def test_who_is_replaced_while_it_deletes_a_table_stops_there(object_store: ObjectStoreServer, deleted: int) -> None:
    fence = Ends()
    store = TableStore(object_store.bucket() / "clicks", "ts", fence=fence)
    for update in (1, 2, 3):
        load(store, update, clicks(update))
    fence.looks = deleted
    with pytest.raises(LeaseLostError):
        store.drop()
    left = sorted(path.name for path in (store.directory / LOG_DIRECTORY).rglob("*.json"))
    assert left == [entry_path(store.directory, version).name for version in range(3 - deleted)]
    assert len(list((store.directory / DATA_DIRECTORY).rglob("*.parquet"))) == 3


def test_who_was_stopped_unnoticed_renews_before_it_commits(warehouse: AnyPath, hands: Hands) -> None:
    asleep = Hands()
    old = WarehouseLease(warehouse, timer=asleep)
    old.acquire()
    store = TableStore(warehouse / "tables" / "clicks", "ts", fence=old)
    load(store, 1, clicks(1))
    asleep.ahead += 60.0  # the clock was set
    load(store, 2, clicks(2))
    with WarehouseLease(warehouse, timer=hands):
        asleep.ahead += 3600.0  # a virtual machine was paused for an hour, and its own clock with it
        with pytest.raises(LeaseLostError, match="has taken"):
            load(store, 3, clicks(3))
    assert not entry_path(store.directory, 2).exists()
    old.release()


def test_time_in_which_the_machine_sleeps_counts() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        now = SystemLeaseTimer().now()
        assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_who_finds_a_commit_of_its_successor_stops(warehouse: AnyPath, hands: Hands) -> None:
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


def test_a_late_commit_of_a_predecessor_is_taken_in_by_its_successor(warehouse: AnyPath, hands: Hands) -> None:
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


def test_an_owner_does_not_lose_its_lease_to_a_renewal_of_its_own(warehouse: AnyPath, hands: Hands) -> None:
    with WarehouseLease(warehouse, timer=hands) as lease:
        lost: list[LeaseLostError] = []
        lease.on_lost = lost.append
        there = lease_of(warehouse)
        assert there is not None
        # A renewal was written, and its answer was lost. The next one has another content.
        late = replace(there, renewed=there.renewed + 1, control="/tmp/control")
        where = lease_object(warehouse)
        assert where.replace(late.to_bytes(), where.read_with_tag()[1]) is not None
        hands.time += LEASE_SECONDS - 1
        lease.announce_page("http://here")
        hands.time += LEASE_SECONDS - 1
        lease.check()
        found = lease_of(warehouse)
        assert not lost and found is not None and found.page == "http://here"


def test_a_new_lease_has_a_larger_number_than_all_commits(warehouse: AnyPath, hands: Hands) -> None:
    for update in range(1, 4):  # three owners
        with WarehouseLease(warehouse, timer=hands) as lease:
            for table in ("clicks", "views") if update == 1 else ("clicks",):
                load(TableStore(warehouse / "tables" / table, "ts", fence=lease), update, clicks(update))
    delete_lease(warehouse)  # or the warehouse was copied without it
    with WarehouseLease(warehouse, timer=hands) as lease:
        assert lease.number == 4
        store = TableStore(warehouse / "tables" / "clicks", "ts", fence=lease)
        load(store, 4, clicks(4))
        assert values(store.arrow()) == values(clicks(1, 2, 3, 4))


def test_an_object_that_is_no_lease_is_not_overwritten(warehouse: AnyPath, hands: Hands) -> None:
    where = lease_object(warehouse)
    assert where.create(b"mine") is not None
    with pytest.raises(DeclarationError, match="is not the lease of a warehouse"):
        WarehouseLease(warehouse, timer=hands).acquire()
    assert where.read_with_tag()[0] == b"mine"


def test_a_bucket_that_is_not_there_is_named(object_store: ObjectStoreServer, hands: Hands) -> None:
    nowhere = ObjectPath(object_store.bucket().bucket, "").bucket
    missing = ObjectPath(type(nowhere)("s3://there-is-none", nowhere.options), "city")
    with pytest.raises(DeclarationError, match="s3://there-is-none/city"):
        WarehouseLease(missing, timer=hands).acquire()


# --- a folder that machines share -------------------------------------------------------------------------------


class LateListing(LeaseFolder):
    """Has listed its files before the oldest was removed."""

    def _versions(self) -> list[int]:
        return [0, *super()._versions()]


def test_an_old_version_that_is_removed_meanwhile_does_not_hide_the_lease(tmp_path: Path) -> None:
    where = LeaseFolder(tmp_path)
    tag = where.create(b"0")
    for number in range(1, 20):
        assert tag is not None
        tag = where.replace(str(number).encode(), tag)
    assert not (tmp_path / f"{0:012}").exists()
    assert LateListing(tmp_path).written_at() == where.written_at()
    with pytest.raises(FileNotFoundError):
        LeaseFolder(tmp_path / "none").written_at()


def test_of_many_that_write_over_the_same_version_one_succeeds(tmp_path: Path) -> None:
    where = LeaseFolder(tmp_path / FOLDER_NAME)
    tag = where.create(b"0")
    assert tag is not None and where.create(b"another") is None
    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            found = list(
                pool.map(
                    lambda name, over=tag: LeaseFolder(tmp_path / FOLDER_NAME).replace(name, over),
                    [b"a", b"b", b"c", b"d"],
                )
            )
        (tag,) = [each for each in found if each is not None]
        assert where.read_with_tag()[1] == tag
    assert where.replace(b"late", "1") is None, "version 2 was there, and was removed"
    assert len(list((tmp_path / FOLDER_NAME).iterdir())) < 10


def test_a_folder_is_not_shared_with_a_process_that_only_has_its_lock(tmp_path: Path, hands: Hands) -> None:
    with (
        WarehouseLock(tmp_path),
        pytest.raises(WarehouseInUseError, match=f"process id {os.getpid()} on {socket.gethostname()}"),
    ):
        WarehouseLease(tmp_path, timer=hands).acquire()
    assert holder(tmp_path) is None
    with WarehouseLease(tmp_path, timer=hands):
        found = holder(tmp_path)
        assert found is not None and (found.process, found.host) == (os.getpid(), socket.gethostname())
