"""Every kind of object store does the same: objects, conditions, listings, leases, commits, traces, whole runs."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import headgate as hg
from headgate.core.trace import TraceHeader
from headgate.places.object_path import ObjectPath, delete_objects
from headgate.places.place import delta_table
from headgate.warehouse import reading
from headgate.warehouse.run.lease import WarehouseLease, lease_of
from headgate.warehouse.run.lock import WarehouseInUseError, holder
from headgate.warehouse.run.trace import TraceWriter, newest_trace, read_trace, runs_folder
from headgate.warehouse.run.trace_copy import TraceCopy
from headgate.warehouse.storage.errors import AlreadyCommittedError, ForeignCommitError
from headgate.warehouse.storage.fence import LeaseLostError
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import HOUR, clicks, hours, load, seen_by_delta, values
from tests.warehouse.test_lease import Hands, hands  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.slow]

#: {scheme: the fixture of its server}
SERVERS = {"s3": "object_store", "gs": "google_store", "abfss": "azure_store"}


@pytest.fixture(params=list(SERVERS))
def place(request: pytest.FixtureRequest) -> ObjectPath:
    found: ObjectPath = request.getfixturevalue(SERVERS[request.param]).bucket() / "city"
    assert str(found).startswith(f"{request.param}://")
    return found


def test_an_object_is_created_once_and_replaced_only_as_it_was_read(place: ObjectPath) -> None:
    there = place / "lock"
    tag = there.create(b"one")
    assert tag and there.create(b"two") is None
    assert there.read_with_tag() == (b"one", tag) and there.stat().tag == tag
    new = there.replace(b"three", tag)
    assert new and new != tag and there.replace(b"four", tag) is None
    assert there.replace(b"four", there.foreign_tag) is None
    assert there.read_with_tag() == (b"three", new)
    again = there.replace(b"three", new)
    assert again, "the same content, written once more"
    there.unlink()
    assert there.replace(b"five", again) is None and not there.exists()


def test_of_many_that_create_or_replace_at_once_one_succeeds(place: ObjectPath) -> None:
    there, together = place / "lock", threading.Barrier(4, timeout=300)

    def create(number: int) -> str | None:
        together.wait()
        return there.create(str(number).encode())

    def replace(number: int) -> str | None:
        content, tag = there.read_with_tag()
        together.wait()
        return there.replace(content + str(number).encode(), tag)

    with ThreadPoolExecutor(4) as threads:
        for act in (create, replace, replace, replace):
            assert sum(tag is not None for tag in threads.map(act, range(4))) == 1
    assert len(there.read_bytes()) == 4


def test_objects_are_written_read_listed_and_deleted(place: ObjectPath) -> None:
    for name in ("a/one.txt", "a/b/two.txt", "three.json", "a=1/x y%20.txt"):
        (place / name).write_text(name)
    assert sorted(path.name for path in place.iterdir()) == ["a", "a=1", "three.json"]
    assert sorted(path.key for path in place.rglob("*.txt")) == [
        "city/a/b/two.txt", "city/a/one.txt", "city/a=1/x y%20.txt"
    ]  # fmt: skip
    assert [path.name for path in (place / "a").glob("*.txt")] == ["one.txt"]
    assert (place / "a=1" / "x y%20.txt").read_text() == "a=1/x y%20.txt"
    assert (place / "a").is_dir() and not (place / "b").is_dir() and not (place / "a").is_file()
    assert (place / "three.json").read_range(2, 4) == b"ree."
    assert (place / "three.json").stat().st_size == 10
    large = bytes(range(256)) * 40_000
    (place / "large").write_bytes(large)  # in parts
    assert (place / "large").stat().st_size == len(large) and (place / "large").read_bytes() == large
    delete_objects([*place.rglob("*"), place / "never"])
    assert not place.is_dir()
    with pytest.raises(FileNotFoundError):
        (place / "three.json").read_bytes()


def test_a_lease_is_held_renewed_taken_over_and_given_back(place: ObjectPath, hands: Hands) -> None:  # noqa: F811
    gone = WarehouseLease(place, timer=Hands())
    gone.acquire()
    with WarehouseLease(place, timer=hands) as lease:
        assert lease.number == 2 and hands.time >= 30.0
        lease.renew()
        lease.check()
        hands.meanwhile = lease.renew
        with pytest.raises(WarehouseInUseError):
            WarehouseLease(place, timer=hands).acquire()
        gone.renew()
        with pytest.raises(LeaseLostError):
            gone.check()
        assert holder(place) is not None
    assert holder(place) is None
    gone.release()


def test_a_table_is_committed_to_read_by_others_and_swept(place: ObjectPath) -> None:
    store = TableStore(place / "tables" / "clicks", "ts")
    load(store, 1, clicks(1, HOUR + 1))
    load(store, 2, clicks(2), replace=hours(0))
    store.write_arrow(3, clicks(9), HOUR)  # of an update that died
    again = TableStore(store.directory, "ts")
    assert (again.version, again.state) == (1, {"update": 2})
    assert seen_by_delta(again) == values(clicks(2, HOUR + 1)) and seen_by_delta(again, 0) == values(
        clicks(1, HOUR + 1)
    )
    assert len(again.sweep(0)) == 1 and again.vacuum(0) == 1
    table, options = delta_table(again.directory)
    assert DeltaTable(table, **options).to_pyarrow_table().num_rows == 2


def test_of_two_that_commit_at_once_one_wins_and_the_other_knows(place: ObjectPath) -> None:
    load(TableStore(place / "clicks", "ts"), 1, clicks(0))
    stores = [TableStore(place / "clicks", "ts") for _ in range(2)]
    together, committed = threading.Barrier(2, timeout=300), list[int]()

    def commit(writer: int) -> None:
        for number in range(5):
            value = 1 + writer * 100 + number
            together.wait()
            while True:
                try:
                    load(stores[writer], stores[writer].state["update"] + 1, clicks(value))  # type: ignore[operator]
                    committed.append(value)
                    break
                except (ForeignCommitError, AlreadyCommittedError):
                    continue

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(commit, range(2)))
    assert seen_by_delta(TableStore(place / "clicks", "ts")) == values(clicks(0, *committed))
    assert len(committed) == 10


def test_a_trace_is_kept_with_the_warehouse(place: ObjectPath, tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, TraceHeader("city", 1e9, 1, "fifo", "anywhere", "none", None, ()))
    writer.close(1e9 + 1)
    TraceCopy(writer.path, runs_folder(place) / writer.path.name, piece_bytes=50).close()
    found = newest_trace(place)
    assert found is not None and read_trace(found) == read_trace(writer.path)


@pytest.mark.spark
def test_a_warehouse_runs_goes_on_and_is_read(
    spark: SparkSession, place: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "landing").mkdir()
    for number in range(2):
        wh = hg.Warehouse("shop", str(place), storage=dict(place.bucket.options))
        source = hg.Files(str(tmp_path / "landing"), format="json", schema="ts timestamp, user long", settle=0)
        wh.stream("clicks", source, time="ts", partition="1 hour", period=2.0)
        wh.sql("counts", "select user, count(*) as n from clicks group by user", time=None)
        rows = (json.dumps({"ts": f"2026-01-01T00:{number:02d}:{n:02d}Z", "user": n % 2}) for n in range(20))
        (tmp_path / "landing" / f"{number}.json").write_text("".join(f"{row}\n" for row in rows))
        with wh.start(spark=spark) as run:
            run.wait_until_fresh("30 min")
            held = lease_of(place)
            assert held is not None and held.fence == number + 1
        assert holder(place) is None
        assert {row["user"]: row["n"] for row in wh.read("counts").to_pylist()} == dict.fromkeys(
            (0, 1), 10 * number + 10
        )
        assert reading.query(place, "select count(*) as n from clicks").rows.to_pylist() == [{"n": 20 * number + 20}]
        assert run.kept_trace is not None and read_trace(run.kept_trace).end is not None
