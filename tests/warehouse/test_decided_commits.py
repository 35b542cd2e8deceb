"""Commits to a store that ignores the conditions of writes: a database decides, and the store holds what it decided."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate.core import DeclarationError
from headgate.places.object_path import ObjectPath, delete_objects
from headgate.places.place import AnyPath
from headgate.warehouse.run.lease import WarehouseLease, lease_of
from headgate.warehouse.run.lock import FILE_NAME, WarehouseInUseError, holder
from headgate.warehouse.run.lock_table import TABLE, LockTable
from headgate.warehouse.storage.decided_entries import DecidedEntries, DecidedEntry
from headgate.warehouse.storage.errors import (
    AlreadyCommittedError,
    ForeignCommitError,
    StorageError,
    TableVanishedError,
)
from headgate.warehouse.storage.fence import GuardedObject, LeaseLostError
from headgate.warehouse.storage.history import LOG_DIRECTORY, entry_path
from headgate.warehouse.storage.store import TableStore
from tests.services.object_store import SECRET, ObjectStoreServer
from tests.services.postgres import PostgresServer, Session
from tests.services.rough_proxy import RoughProxy
from tests.warehouse.storage_helpers import HOUR, clicks, hours, load, seen_by_delta, values
from tests.warehouse.test_lease import Hands, hands  # noqa: F401

pytestmark = [pytest.mark.services, pytest.mark.slow]

#: HEADGATE_RACES=250 for more of them
RACES = int(os.environ.get("HEADGATE_RACES", "10"))


@pytest.fixture(scope="module")
def heedless(object_store: ObjectStoreServer) -> Iterator[RoughProxy]:
    """The store as one that ignores conditions."""
    with RoughProxy(object_store.port, unconditional=SECRET) as proxy:
        yield proxy


@pytest.fixture
def city(object_store: ObjectStoreServer, heedless: RoughProxy) -> ObjectPath:
    return object_store.bucket(heedless.port) / "city"


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


class Decides:
    """The right to commit, of a process that nobody replaces: only the database decides."""

    number = 1

    def __init__(self, uri: str) -> None:
        self._table = LockTable(uri)

    def check(self) -> None:
        pass

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        return LeaseLostError(where)

    def decider(self, table: AnyPath) -> GuardedObject:
        return self._table.row(f"{table}/{LOG_DIRECTORY}")


@pytest.fixture
def store(city: ObjectPath, database: str) -> TableStore:
    return TableStore(city / "tables" / "clicks", "ts", fence=Decides(database))


def another(store: TableStore, database: str) -> TableStore:
    return TableStore(store.directory, "ts", fence=Decides(database))


def test_the_store_ignores_conditions_and_the_database_does_not(city: ObjectPath, database: str) -> None:
    there, row = city / "object", LockTable(database).row("object")
    tag = there.create(b"1")
    assert tag is not None and there.create(b"2") is not None and there.replace(b"3", tag) is not None
    with pytest.raises(FileNotFoundError):
        row.read_with_tag()
    tag = row.create(b"1\0")
    assert tag is not None and row.create(b"2") is None and row.read_with_tag() == (b"1\0", tag)
    new = row.replace(b"3", tag)
    assert new is not None and row.replace(b"4", tag) is None and row.read_with_tag() == (b"3", new)


def test_a_table_is_what_it_is_elsewhere(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1, HOUR + 1))
    load(store, 2, clicks(2), replace=hours(0))
    wide = clicks(5).append_column("more", pa.array(["x"]))
    files = store.write_arrow(3, wide, HOUR)
    store.commit(3, files, replace=hours(0), state={"update": 3}, schema=wide.schema)
    load(store, 4, clicks(HOUR + 7).append_column("more", pa.array(["y"])))
    assert store.version == 3 and store.schema.names == ["ts", "v", "more"]
    assert seen_by_delta(store) == values(clicks(5, HOUR + 1, HOUR + 7))
    assert seen_by_delta(store, 1) == values(clicks(2, HOUR + 1))
    opened = TableStore(store.directory, "ts")
    assert (opened.table_id, opened.state, opened.files()) == (store.table_id, store.state, store.files())
    made = json.loads(entry_path(store.directory, 0).read_text().splitlines()[0])["commitInfo"]
    assert made["operationParameters"]["location"] == str(store.directory), "not the place of the stand-in"
    with pytest.raises(AlreadyCommittedError):
        load(another(store, database), 4, clicks(9))


def test_the_same_commits_give_the_same_entries_as_without(
    store: TableStore, object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    """Apart from what is random or a moment."""
    plain = TableStore(object_store.bucket() / "clicks", "ts")
    for each in (plain, store):
        load(each, 1, clicks(1, HOUR + 1))
        wide = clicks(5).append_column("more", pa.array(["x"]))
        files = each.write_arrow(2, wide, HOUR)
        each.commit(2, files, replace=hours(0), state={"update": 2}, schema=wide.schema)
        load(each, 3, wide, replace=hours(1))

    def told(table: TableStore, version: int) -> list[object]:
        actions = [json.loads(line) for line in entry_path(table.directory, version).read_text().splitlines()]
        for action in actions:
            info = action.pop("commitInfo", {})
            info.get("operationParameters", {}).pop("metadata", None)
            info.get("operationParameters", {}).pop("location", None)
            action["info"] = {key: info.get(key) for key in ("operation", "operationParameters", "headgate")}
            for kind in ("add", "remove", "metaData"):
                for moment in ("path", "modificationTime", "deletionTimestamp", "id", "createdTime", "size"):
                    action.get(kind, {}).pop(moment, None)
        return sorted(actions, key=str)

    for version in range(3):
        assert told(store, version) == told(plain, version)


def test_of_drivers_that_race_nobody_loses_a_commit_and_nobody_doubles_one(store: TableStore, database: str) -> None:
    load(store, 1, clicks(0))
    stores = [another(store, database) for _ in range(2)]
    together = threading.Barrier(len(stores))
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

    with ThreadPoolExecutor(len(stores)) as threads:
        list(threads.map(commit, range(len(stores))))
    last = TableStore(store.directory, "ts")
    assert seen_by_delta(last) == values(clicks(0, *committed)) and len(committed) == 2 * RACES
    assert last.version == 2 * RACES


def test_without_the_database_such_a_store_loses_commits(city: ObjectPath) -> None:
    """Why it is refused: of two that commit after the same version, both succeed, and one is lost."""
    stores = [TableStore(city / "tables" / "clicks", "ts") for _ in range(2)]
    load(stores[0], 1, clicks(1))
    stores[1].look()
    assert stores[1].version == 0
    entry = entry_path(stores[0].directory, 1)
    load(stores[0], 2, clicks(2))
    first = entry.read_text()
    assert entry.create(b"{}") is not None and entry.read_text() != first  # type: ignore[union-attr]


class Interrupted(Exception):  # noqa: N818 - it stands for the end of a process
    pass


class Dying:
    """A decider whose process ends, or sleeps, right after it has decided."""

    def __init__(self, row: GuardedObject) -> None:
        self._row = row

    def read_with_tag(self) -> tuple[bytes, str]:
        return self._row.read_with_tag()

    def create(self, content: bytes) -> str | None:
        self._row.create(content)
        raise Interrupted

    def replace(self, content: bytes, tag: str) -> str | None:
        self._row.replace(content, tag)
        raise Interrupted


def test_what_was_decided_and_not_written_is_written_by_whoever_comes_next(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1))
    load(store, 2, clicks(2))
    entry = entry_path(store.directory, 1)
    content = entry.read_bytes()
    entry.unlink()  # type: ignore[union-attr]
    row = Decides(database).decider(store.directory)
    noted, tag = row.read_with_tag()
    assert noted == b'{"version": 1, "written": true}\n', "what is in the store is not kept in the database, too"
    assert row.replace(DecidedEntry(1, content).to_bytes(), tag) is not None
    assert TableStore(store.directory, "ts").version == 0, "as a reader sees it that knows nothing of the database"
    late = another(store, database)
    assert late.version == 1 and entry.read_bytes() == content
    load(late, 3, clicks(3))
    entry.write_bytes(content)  # of one that wakes up now, and does what it was about to do
    assert seen_by_delta(another(store, database)) == values(clicks(1, 2, 3))


def test_an_entry_that_is_in_the_store_is_never_written_over(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1))
    load(store, 2, clicks(2))
    entry = entry_path(store.directory, 1)
    content = entry.read_bytes()
    row = Decides(database).decider(store.directory)
    # A killed process had decided another entry, and the warehouse went on with another database meanwhile.
    assert row.replace(DecidedEntry(1, b"of a killed process").to_bytes(), row.read_with_tag()[1]) is not None
    assert another(store, database).version == 1 and entry.read_bytes() == content


def test_a_process_that_is_paused_in_a_transaction_does_not_keep_its_row_from_others(
    store: TableStore, database: str
) -> None:
    with pytest.raises(OSError, match="Input/output error"), LockTable(database).transaction("a row") as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(7)::text")
        cursor.fetchall()
        # Another one waits for it: until the server has ended the session of the one that does nothing.
        with LockTable(database).transaction("a row") as other:
            other.execute("SET LOCAL statement_timeout = '60s'")
            other.execute("SELECT pg_advisory_xact_lock(7)::text")
            other.fetchall()


def test_one_that_dies_after_the_decision_has_committed_and_one_that_dies_before_has_not(
    store: TableStore, database: str
) -> None:
    load(store, 1, clicks(1))
    row = Decides(database).decider(store.directory)
    dead = DecidedEntries(store.directory, Dying(row))
    content = entry_path(store.directory, 0).read_bytes().replace(b'"headgateToken":"', b'"headgateToken":"dead')
    content = b"\n".join(line for line in content.splitlines() if b"commitInfo" in line) + b"\n"
    with pytest.raises(Interrupted):
        dead.append(1, content)
    assert not entry_path(store.directory, 1).exists()
    with pytest.raises(ForeignCommitError):
        load(store, 2, clicks(2))
    assert entry_path(store.directory, 1).read_bytes() == content
    load(store, 2, clicks(2))
    assert store.version == 2 and seen_by_delta(store) == values(clicks(1, 2))


def test_one_that_was_replaced_after_the_decision_leaves_the_entry_to_its_successor(
    store: TableStore, database: str
) -> None:
    load(store, 1, clicks(1))
    row, before = Decides(database).decider(store.directory), row_of(store, database)
    looks = iter(["it holds"])

    def check() -> None:
        if next(looks, "replaced") == "replaced":
            raise LeaseLostError("replaced")

    with pytest.raises(LeaseLostError):
        DecidedEntries(store.directory, row, check).append(1, b'{"commitInfo":{}}\n')
    assert not entry_path(store.directory, 1).exists() and row_of(store, database) != before
    assert another(store, database).version == 1


def test_drivers_that_die_at_any_moment_lose_nothing_and_double_nothing(
    store: TableStore, database: str, object_store: ObjectStoreServer
) -> None:
    """The store refuses requests and loses answers, so commits end anywhere between the decision and its note."""
    chance = random.Random(14)
    with RoughProxy(object_store.port, refuses=6, loses_answers=9, unconditional=SECRET) as rough:
        bucket = store.directory.bucket  # type: ignore[union-attr]
        options = {**dict(bucket.options), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{rough.port}"}
        there = ObjectPath(type(bucket)(bucket.url, tuple(sorted(options.items())), 0.2), store.directory.key)  # type: ignore[union-attr]
        for update in range(1, 9):
            for _ in range(600):
                driver = TableStore(there, "ts", fence=Decides(database))
                with suppress(StorageError, OSError):
                    if driver.version >= 0 and driver.state["update"] == update:
                        break
                    load(driver, update, clicks(update, chance.randrange(100, 200)))
                    break
    last = another(store, database)
    assert last.state == {"update": 8}
    found = seen_by_delta(last)
    assert all(found[update * 1_000_000] == 1 for update in range(1, 9)) and sum(found.values()) == 16


def test_a_table_that_was_deleted_begins_anew_and_does_not_come_back(store: TableStore, database: str) -> None:
    for update in (1, 2, 3):
        load(store, update, clicks(update))
    assert isinstance(store.directory, ObjectPath)
    delete_objects(list(store.directory.rglob("*")))
    begun = another(store, database)
    assert begun.version == -1
    load(begun, 1, clicks(7))
    assert (begun.version, seen_by_delta(begun)) == (0, values(clicks(7)))


class Vanishing(Decides):
    """Somebody deletes the table right after a commit to it was decided."""

    def decider(self, table: AnyPath) -> GuardedObject:
        assert isinstance(table, ObjectPath)
        return DeletingRow(super().decider(table), table)


class DeletingRow:
    def __init__(self, row: GuardedObject, table: ObjectPath) -> None:
        self._row = row
        self._table = table

    def read_with_tag(self) -> tuple[bytes, str]:
        return self._row.read_with_tag()

    def create(self, content: bytes) -> str | None:
        return self._row.create(content)

    def replace(self, content: bytes, tag: str) -> str | None:
        new = self._row.replace(content, tag)
        if not DecidedEntry.from_bytes(content, self._row).is_written:
            delete_objects(list(self._table.rglob("*")))
        return new


def test_a_commit_to_a_table_that_was_deleted_after_the_decision_is_none(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1))
    late = TableStore(store.directory, "ts", fence=Vanishing(database))
    with pytest.raises(TableVanishedError):
        load(late, 2, clicks(2))
    begun = another(store, database)
    assert late.version == begun.version == -1
    load(begun, 1, clicks(7))
    assert (begun.version, seen_by_delta(begun)) == (0, values(clicks(7)))


def test_an_entry_that_was_not_written_does_not_bring_a_dropped_table_back(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1))
    entry, row = entry_path(store.directory, 0), Decides(database).decider(store.directory)
    assert isinstance(entry, ObjectPath)
    assert row.replace(DecidedEntry(0, entry.read_bytes()).to_bytes(), row.read_with_tag()[1]) is not None
    entry.unlink()  # the store did not take it
    store.drop()
    begun = another(store, database)
    assert begun.version == -1
    load(begun, 1, clicks(7))
    assert (begun.version, seen_by_delta(begun)) == (0, values(clicks(7)))


def test_one_that_was_replaced_does_not_give_up_an_entry_of_its_successor(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1))
    row = Decides(database).decider(store.directory)
    undelivered = DecidedEntry(1, b'{"commitInfo":{}}\n')
    assert row.replace(undelivered.to_bytes(), row.read_with_tag()[1]) is not None

    def check() -> None:
        raise LeaseLostError("replaced")

    with pytest.raises(LeaseLostError):
        DecidedEntries(store.directory, row, check).forget()
    assert row.read_with_tag()[0] == undelivered.to_bytes() and another(store, database).version == 1


def test_a_database_that_is_away_commits_nothing_and_is_asked_again(postgres: PostgresServer, city: ObjectPath) -> None:
    uri = postgres.new_database()
    store = TableStore(city / "tables" / "clicks", "ts", fence=Decides(uri))
    load(store, 1, clicks(1))
    gone = TableStore(store.directory, "ts", fence=Decides(uri.replace(str(postgres.port), "1")))
    with pytest.raises(OSError, match="cannot be reached"):
        gone.check_readable()
    load(store, 2, clicks(2))
    assert seen_by_delta(store) == values(clicks(1, 2))


# --- the lease, and who may run the warehouse -------------------------------------------------------------------


def test_such_a_store_is_refused_without_a_database_and_the_lease_is_kept_there(
    city: ObjectPath,
    database: str,
    hands: Hands,  # noqa: F811
) -> None:
    with pytest.raises(DeclarationError, match=r"does not support conditional writes.*lock='postgresql://"):
        WarehouseLease(city, timer=hands).acquire()
    assert holder(city) is None, "who was refused does not keep others out"
    with WarehouseLease(city, timer=hands, lock=database) as lease:
        found = lease_of(city)
        assert found is not None and found.fence == lease.number == 1, "those who only look need no database"
        hands.meanwhile = lease.renew
        with pytest.raises(WarehouseInUseError, match="is being run by process"):
            WarehouseLease(city, timer=hands, lock=database).acquire()
        with pytest.raises(DeclarationError, match="are decided by a database, postgresql://"):
            WarehouseLease(city, timer=hands).acquire()
        lease.check()
    assert holder(city) is None
    with WarehouseLease(city, timer=hands, lock=database) as lease:
        assert lease.number == 2


def test_one_that_was_paused_is_replaced_and_commits_nothing_any_more(
    city: ObjectPath,
    database: str,
    hands: Hands,  # noqa: F811
) -> None:
    paused = WarehouseLease(city, timer=Hands(), lock=database)
    paused.acquire()
    old = TableStore(city / "tables" / "clicks", "ts", fence=paused)
    load(old, 1, clicks(1))
    told: list[str] = []
    with WarehouseLease(city, timer=hands, lock=database, on_message=told.append) as new:
        assert new.number == 2 and hands.time >= 30.0 and len(told) == 1
        store = TableStore(old.directory, "ts", fence=new)
        load(store, 2, clicks(2))
        with pytest.raises(ForeignCommitError):
            load(old, 2, clicks(9))
        with pytest.raises(LeaseLostError, match="with the fencing number 2, this process has 1"):
            load(old, 2, clicks(9))
        paused.renew()
        with pytest.raises(LeaseLostError):
            paused.check()
        assert seen_by_delta(store) == values(clicks(1, 2))
    paused.release()


class Line:
    """A way to a server on this machine that can be cut: what was sent is taken, and nobody answers."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._is_whole = True
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = [self._server]
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_whole = False

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._server.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while sent := source.recv(65536):
                if self._is_whole:
                    target.sendall(sent)


@pytest.fixture
def line(postgres: PostgresServer) -> Iterator[Line]:
    line = Line(postgres.port)
    yield line
    line.close()


def test_a_run_whose_database_does_not_answer_learns_that_its_lease_has_run_out_and_ends(
    city: ObjectPath,
    database: str,
    postgres: PostgresServer,
    line: Line,
    hands: Hands,  # noqa: F811
) -> None:
    lock = database.replace(str(postgres.port), str(line.port))
    lease = WarehouseLease(city, seconds=1.0, timer=hands, lock=lock)
    lost: list[LeaseLostError] = []
    lease.on_lost = lost.append
    lease.acquire()
    line.cut()
    hands.time += 0.5
    lease.renew()
    assert not lost
    hands.time += 0.5
    lease.renew()
    assert len(lost) == 1 and "could not be renewed" in str(lost[0])
    lease.announce(None)
    lease.release()


def test_a_run_that_ends_does_not_wait_for_a_database_that_does_not_answer(
    city: ObjectPath,
    database: str,
    postgres: PostgresServer,
    line: Line,
    hands: Hands,  # noqa: F811
) -> None:
    lease = WarehouseLease(city, seconds=1.0, timer=hands, lock=database.replace(str(postgres.port), str(line.port)))
    lease.acquire()
    line.cut()
    lease.announce(None)
    lease.release()
    assert json.loads((city / FILE_NAME).read_bytes())["owner"], "it was not given back, and runs out by itself"


def test_another_database_is_refused_and_secrets_are_shown_nowhere(
    city: ObjectPath,
    postgres: PostgresServer,
    hands: Hands,  # noqa: F811
) -> None:
    first = postgres.new_database().replace("headgate@", "headgate:pass-word@")
    with WarehouseLease(city, timer=hands, lock=first):
        pass
    with pytest.raises(DeclarationError, match="decided by another database") as raised:
        WarehouseLease(city, timer=hands, lock=postgres.new_database()).acquire()
    assert "pass-word" not in str(raised.value) + (city / FILE_NAME).read_text()
    with WarehouseLease(city, timer=hands, lock=first) as lease:
        assert lease.number == 2


def test_one_that_was_replaced_before_the_decision_decides_nothing(store: TableStore, database: str) -> None:
    load(store, 1, clicks(1))
    row, before = Decides(database).decider(store.directory), row_of(store, database)

    def check() -> None:
        raise LeaseLostError("replaced")

    with pytest.raises(LeaseLostError):
        DecidedEntries(store.directory, row, check).append(1, b'{"commitInfo":{}}\n')
    assert row_of(store, database) == before


def row_of(store: TableStore, database: str) -> tuple[bytes, str]:
    return Decides(database).decider(store.directory).read_with_tag()


def test_a_lock_is_the_uri_of_a_database_and_for_object_stores_only() -> None:
    wh = hg.Warehouse("city", "s3://bucket/city", lock="mysql://user:pass-word@host/db")
    with pytest.raises(DeclarationError, match="lock= needs the URI of a database") as raised:
        wh.spec()
    assert "pass-word" not in str(raised.value)
    for place in ("city.warehouse", "file:///city.warehouse", "hdfs://node:8020/city"):
        with pytest.raises(DeclarationError, match="leave it out"):
            hg.Warehouse("city", place, lock="postgresql://host/db").spec()
    good = hg.Warehouse("city", "s3://bucket/city", lock="postgresql://me:pass-word@host/db").spec()
    assert "pass-word" not in repr(good)


def test_the_table_is_made_by_many_at_once_and_needs_no_right_to_make_it_when_it_is_there(
    postgres: PostgresServer,
) -> None:
    uri = postgres.new_database()
    with ThreadPoolExecutor(4) as threads:
        ids = set(threads.map(lambda _: LockTable(uri).id(), range(4)))
    assert len(ids) == 1
    with Session(uri) as session:
        session.execute(
            "CREATE ROLE modest LOGIN",
            f"GRANT SELECT, INSERT, UPDATE ON {TABLE} TO modest",
            "REVOKE CREATE ON SCHEMA public FROM public",
        )
    assert LockTable(uri.replace("headgate@", "modest@")).id() in ids
