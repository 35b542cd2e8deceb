"""A table in an object store or in HDFS is what it is in a folder: commits are atomic, once, and by one writer."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.places.object_path import ObjectPath
from headgate.places.place import path_from, relative
from headgate.warehouse.reading import NotAWarehouseError, tables
from headgate.warehouse.storage.errors import (
    AlreadyCommittedError,
    ForeignCommitError,
    StorageError,
    TableVanishedError,
)
from headgate.warehouse.storage.files import ALL
from headgate.warehouse.storage.history import entry_path
from headgate.warehouse.storage.log import CHECKPOINT_INTERVAL
from headgate.warehouse.storage.parquet import read_file, read_rows
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.object_copies import ObjectCopies
from tests.services.hdfs import HdfsServer
from tests.services.object_store import ObjectStoreServer
from tests.services.rough_proxy import RoughProxy
from tests.warehouse.storage_helpers import (
    CLICKS,
    HOUR,
    SECOND,
    changes,
    clicks,
    hours,
    load,
    rows_of,
    seen_by_delta,
    values,
)

pytestmark = [pytest.mark.services, pytest.mark.slow]

#: HEADGATE_RACES=250 for more of them
RACES = int(os.environ.get("HEADGATE_RACES", "10"))


@pytest.fixture(params=["object store", "HDFS"])
def table(request: pytest.FixtureRequest) -> ObjectPath:
    if request.param == "HDFS":
        hadoop: HdfsServer = request.getfixturevalue("hdfs")
        return hadoop.place() / "wh" / "tables" / "clicks"
    store: ObjectStoreServer = request.getfixturevalue("object_store")
    return store.bucket() / "wh" / "tables" / "clicks"


@pytest.fixture
def store(table: ObjectPath) -> TableStore:
    return TableStore(table, "ts")


def data_objects(store: TableStore) -> set[str]:
    return {relative(path, store.directory) for path in (store.directory / "data").rglob("*")}


# --- objects ----------------------------------------------------------------------------------------------------


def test_an_object_is_created_once_and_replaced_only_as_it_was_read(object_store: ObjectStoreServer) -> None:
    lock = object_store.bucket() / "lock"
    tag = lock.create(b"one")
    assert tag is not None and lock.create(b"two") is None
    assert lock.read_with_tag() == (b"one", tag)
    newer = lock.replace(b"three", tag)
    assert newer is not None and lock.replace(b"four", tag) is None
    assert lock.read_bytes() == b"three"
    lock.unlink()
    assert lock.replace(b"five", newer) is None and not lock.exists()


def test_of_many_that_create_a_file_one_succeeds_and_what_it_wrote_is_whole(table: ObjectPath) -> None:
    lock = table / "lock"
    together = threading.Barrier(4)

    def create(writer: int) -> bool:
        together.wait()
        return lock.create(bytes([writer]) * 1000) is not None

    with ThreadPoolExecutor(4) as writers:
        done = list(writers.map(create, range(4)))
    assert done.count(True) == 1 and lock.create(b"") is None
    assert lock.read_bytes() == bytes([done.index(True)]) * 1000
    assert lock.stat().tag == lock.read_with_tag()[1] == next(table.iterdir()).stat().tag
    assert lock.write_bytes(b"over it") == 7 and lock.read_range(5, 2) == b"it"
    assert [path.name for path in table.rglob("*")] == ["lock"], "nothing else is left"


def test_folders_are_what_names_have_in_common(table: ObjectPath) -> None:
    assert not table.is_dir() and list(table.iterdir()) == []
    for name in ("a.json", "b.json", "below/c.json"):
        (table / name).write_text(name)
    assert [path.name for path in table.glob("*.json")] == ["a.json", "b.json"]
    assert {path.name for path in table.iterdir()} == {"a.json", "b.json", "below"}
    assert {relative(path, table) for path in table.rglob("*")} == {"a.json", "b.json", "below/c.json"}
    assert table.is_dir() and (table / "below").is_dir() and not (table / "bel").is_dir()


def test_an_object_that_is_not_there_is_a_file_that_is_not_there(table: ObjectPath) -> None:
    for look in (table.stat, table.read_bytes, table.read_with_tag):
        with pytest.raises(FileNotFoundError, match=str(table)):
            look()


def test_secrets_are_neither_printed_nor_lost_on_the_way_to_a_worker(table: ObjectPath) -> None:
    assert "testing-secret" not in f"{table!r} {table}"
    (table / "x").write_text("there")
    assert pickle.loads(pickle.dumps(table / "x")).read_text() == "there"


# --- commits ----------------------------------------------------------------------------------------------------


def test_a_commit_makes_the_table_and_another_reader_sees_its_rows(store: TableStore) -> None:
    assert not store.exists
    assert load(store, 1, clicks(1, HOUR + 1), state={"freshness": 5}) == 0
    assert seen_by_delta(store) == values(clicks(1, HOUR + 1)) == values(store.arrow())
    again = TableStore(store.directory, "ts")
    assert (again.files(), again.state, again.schema) == (store.files(), {"freshness": 5}, CLICKS)
    assert values(again.rows(again.files())) == values(clicks(1, HOUR + 1))


@pytest.mark.parametrize(
    ("replaced", "left"),
    [(None, [1, 2, HOUR, 2 * HOUR]), (hours(0), [HOUR, 2 * HOUR]), (hours(0, 2), [HOUR]), (ALL, [])],
    ids=["append", "one partition", "two partitions", "everything"],
)
def test_exactly_the_partitions_named_are_replaced(store: TableStore, replaced: object, left: list[int]) -> None:
    load(store, 1, clicks(1, HOUR))
    load(store, 2, clicks(2, 2 * HOUR))
    load(store, 3, clicks(3, 5 * HOUR), replaced)
    assert seen_by_delta(store) == values(clicks(*left, 3, 5 * HOUR)) == values(store.arrow())
    assert rows_of(store, changes(store, 1).added) == values(clicks(3, 5 * HOUR))


def test_an_update_is_committed_once(store: TableStore) -> None:
    load(store, 3, clicks(1))
    for again in (store, TableStore(store.directory, "ts")):
        with pytest.raises(AlreadyCommittedError):
            load(again, 3, clicks(9))
    assert seen_by_delta(store) == values(clicks(1))


def test_a_commit_of_somebody_else_is_noticed_loaded_and_then_built_upon(store: TableStore) -> None:
    load(store, 1, clicks(1))
    other = TableStore(store.directory, "ts")
    load(other, 2, clicks(2))
    with pytest.raises(ForeignCommitError):
        load(store, 2, clicks(3))
    assert (store.version, store.files()) == (1, other.files())
    load(store, 3, clicks(3))
    assert seen_by_delta(store) == values(clicks(1, 2, 3))


def test_files_that_are_not_there_or_are_others_are_refused(store: TableStore) -> None:
    load(store, 1, clicks(1))
    [new] = store.write_arrow(2, clicks(2), HOUR)
    content = store.path_of(new.file).read_bytes()
    for broken, complaint in ((content[:-1], "bytes; expected"), (None, "does not exist")):
        if broken is None:
            store.path_of(new.file).unlink()
        else:
            store.path_of(new.file).write_bytes(broken)
        with pytest.raises(StorageError, match=complaint):
            store.commit(2, [new], state={}, schema=CLICKS)
    assert store.version == 0


def test_a_table_that_was_deleted_is_noticed_by_its_next_commit_and_made_anew(store: TableStore) -> None:
    load(store, 1, clicks(1))
    TableStore(store.directory, "ts").drop()
    assert not store.directory.is_dir()
    with pytest.raises(TableVanishedError):
        load(store, 2, clicks(2))
    load(store, 1, clicks(2))
    assert seen_by_delta(store) == values(clicks(2))


def test_files_that_spark_wrote_are_adopted_with_their_partitions(store: TableStore) -> None:
    directory = store.stage(1)
    for hour in (0, 1):
        content = pa.BufferOutputStream()
        pq.write_table(clicks(hour * HOUR + 1), content, store_schema=False)
        folder = directory / f"_partition={hours(hour)[0].replace(':', '%3A')}"
        (folder / "part-00000-a.c000.snappy.parquet").write_bytes(content.getvalue())  # type: ignore[union-attr]
    (directory / "_SUCCESS").write_bytes(b"")
    store.commit(1, store.adopt(directory), state={}, schema=CLICKS)
    assert store.partitions() == tuple(hours(0, 1))
    assert seen_by_delta(store) == values(clicks(1, HOUR + 1))
    assert TableStore(store.directory, "ts").files() == store.files()
    assert not (directory / "_SUCCESS").exists()


def test_maintenance_changes_files_and_never_rows(store: TableStore) -> None:
    for update in range(1, 6):
        load(store, update, clicks(update, HOUR + update))
    expected = values(store.arrow())
    store.compact()
    store.roll_up(9 * HOUR * SECOND, 4 * HOUR)
    assert (len(store.files()), seen_by_delta(store)) == (1, expected)
    store.write_arrow(9, clicks(9), HOUR)  # of an update that died
    again = TableStore(store.directory, "ts")
    assert len(again.sweep(0)) == 1 and again.vacuum(0) > 0
    assert data_objects(again) == {file.path for file in again.files()}
    assert seen_by_delta(again) == expected


def test_the_log_is_summed_up_and_no_older_entry_is_needed_to_open_it(store: TableStore) -> None:
    for update in range(1, CHECKPOINT_INTERVAL + 3):
        store.commit(update, (), state={"update": update}, schema=CLICKS)
    log = store.directory / "_delta_log"
    assert [path.name for path in log.glob("*.checkpoint.parquet")] == [f"{49:020}.checkpoint.parquet"]
    for path in list(log.glob("*.json"))[: CHECKPOINT_INTERVAL - 1]:
        path.unlink()
    assert TableStore(store.directory, "ts").state == {"update": CHECKPOINT_INTERVAL + 2}


def test_a_copy_that_cannot_be_made_leaves_no_others_behind(table: ObjectPath) -> None:
    objects = [table / f"{number}.parquet" for number in range(4)]
    for path in (objects[0], *objects[2:]):
        path.write_bytes(b"rows")
    copies = ObjectCopies(most_bytes=0)
    with pytest.raises(FileNotFoundError):
        copies.use(objects)
    assert list(copies.folder().iterdir()) == [], "what is not in use is deleted"
    objects[1].write_bytes(b"rows")
    made = copies.use(objects)
    assert [path.read_bytes() for path in made] == [b"rows"] * 4
    copies.release(objects)
    assert list(copies.folder().iterdir()) == []


def test_a_place_without_a_warehouse_is_named(object_store: ObjectStoreServer) -> None:
    bucket = object_store.bucket()
    missing = path_from("s3://there-is-none/city", dict(bucket.bucket.options))
    for place in (bucket / "city", missing):
        with pytest.raises(NotAWarehouseError, match=str(place)):
            tables(place)


# --- two processes, and a store in trouble ----------------------------------------------------------------------


def test_of_two_that_commit_at_once_one_wins_and_the_other_knows(store: TableStore) -> None:
    load(store, 1, clicks(0))
    stores = [store, TableStore(store.directory, "ts")]
    together = threading.Barrier(2)
    committed: list[int] = []

    def commit(writer: int) -> None:
        for number in range(RACES):
            value = 1 + writer * 1000 + number
            together.wait()
            while True:
                try:
                    load(stores[writer], stores[writer].state["update"] + 1, clicks(value))  # type: ignore[operator]
                    committed.append(value)
                    break
                except (ForeignCommitError, AlreadyCommittedError):
                    continue

    threads = [threading.Thread(target=commit, args=(writer,)) for writer in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = TableStore(store.directory, "ts")
    assert seen_by_delta(last) == values(clicks(0, *committed)) and len(committed) == 2 * RACES
    assert last.version == 2 * RACES


def test_cleaning_again_asks_for_new_entries_only(object_store: ObjectStoreServer) -> None:
    with RoughProxy(object_store.port) as proxy:
        store = TableStore(object_store.bucket(proxy.port) / "clicks", "ts")
        for update in range(1, 31):
            load(store, update, clicks(update), replace=ALL)
        asked = []
        store = TableStore(store.directory, "ts")
        for _ in range(2):
            before = proxy.requests()
            assert store.sweep(0) == [] and store.vacuum(86_400) == 0
            asked.append(proxy.requests() - before - 1)
        assert asked[0] < 30 + 10, "every entry is read"
        assert asked[1] < 10, "and never again"
        assert store.vacuum(0) == 29


@pytest.fixture(params=["refuses", "loses answers", "late"])
def rough(request: pytest.FixtureRequest, object_store: ObjectStoreServer) -> Iterator[RoughProxy]:
    faults = {
        "refuses": {"refuses": 10},
        "loses answers": {"loses_answers": 7},
        "late": {"refuses": 10, "late": 5, "delay": 0.05},
    }
    with RoughProxy(object_store.port, **faults[request.param]) as proxy:  # type: ignore[arg-type]
        yield proxy


def test_a_store_that_refuses_loses_answers_or_is_late_loses_no_commit_and_doubles_none(
    rough: RoughProxy, object_store: ObjectStoreServer
) -> None:
    store = TableStore(object_store.bucket(rough.port) / "clicks", "ts")
    for update in range(1, 11):
        for _ in range(20):
            with suppress(StorageError, OSError):
                load(store, update, clicks(update))
                break
    assert seen_by_delta(store) == values(clicks(*range(1, 11)))
    assert (store.version, rough.requests() > 50) == (9, True)
    entry = entry_path(store.directory, 9).read_text()
    assert sum("add" in json.loads(line) for line in entry.splitlines()) == 1


def test_a_store_that_does_not_answer_does_not_make_its_files_damaged(object_store: ObjectStoreServer) -> None:
    store = TableStore(object_store.bucket() / "clicks", "ts")
    load(store, 1, clicks(1))
    (file,) = store.files()
    with RoughProxy(object_store.port, refuses=1) as proxy:
        path = path_from(str(store.path_of(file)), object_store.options(proxy.port))
        assert isinstance(path, ObjectPath)
        path = path.with_patience(1.0)
        for read in (lambda: read_file(path), lambda: read_rows([path], store.schema)):
            with pytest.raises(OSError) as raised:
                read()
            assert not isinstance(raised.value, FileNotFoundError)
