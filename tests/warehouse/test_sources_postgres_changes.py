"""The changes of a PostgreSQL table: what they add up to is the table, whatever happens in between."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

import headgate as hg
from headgate.warehouse.sources import Limit, Offset, Range
from headgate.warehouse.sources.postgres.changes_offsets import ChangesOffset
from headgate.warehouse.sources.postgres.client import PostgresAddress
from headgate.warehouse.sources.postgres.follow import ChangesWatch
from headgate.warehouse.sources.postgres.slot import PostgresSlot
from tests.services.postgres import PostgresServer, Session

pytestmark = pytest.mark.services

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(10, 2), big text)"


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    uri = postgres.new_database()
    with Session(uri) as session:
        # Large values are stored beside their rows, so that the log does not repeat them.
        session.execute(ITEMS, "ALTER TABLE items ALTER big SET STORAGE EXTERNAL")
    yield uri
    with Session(uri) as session:
        session.rows(
            "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots "
            "WHERE database = current_database() AND NOT active"
        )


@pytest.fixture
def session(database: str) -> Iterator[Session]:
    with Session(database) as opened:
        yield opened


def changes(uri: str, **options: Any) -> hg.PostgresChanges:
    # slots are of the server, not of a database
    return hg.PostgresChanges(uri, "items", slot=f"s_{uri[-12:]}", in_background=False, **options)


class ChangeStream:
    """A stream reduced to what it has loaded, and a keyed table over it."""

    def __init__(self, source: hg.PostgresChanges) -> None:
        self.source = source
        self.offset: Offset = source.start()
        self.rows: list[dict[str, Any]] = []

    def load(self, limit: Limit | None = None, *, crash: bool = False) -> bool:
        """Load one range; False if there is none. With ``crash`` it is not committed."""
        found = self.source.next_range(self.offset, limit or Limit())
        if found is None:
            return False
        again: Any = Range.from_json(found.to_json())
        rows = [row for table in self.source.arrow(again) for row in table.to_pylist()]
        if not crash:
            self.rows += rows
            self.offset = Offset.from_json(self.source.advance(self.offset, again).to_json())
        return True

    def load_all(self) -> None:
        while self.load():
            pass

    @property
    def note(self) -> str:
        return self.source.latest(self.offset).note

    def changes(self) -> list[tuple[str, int | None]]:
        return [(row["_change"], row["id"]) for row in self.rows]

    def table(self) -> dict[int, dict[str, Any]]:
        """What ``current_rows`` computes."""
        kept: dict[int, dict[str, Any]] = {}
        for row in sorted(self.rows, key=lambda row: row["_position"]):
            assert row["_headgate_problem"] is None
            if row["_change"] == "truncate":
                kept.clear()
            elif row["_change"] == "delete":
                kept.pop(row["id"], None)
            else:
                before = kept.get(row["id"], {})
                skipped = row["_unchanged"] or ()
                columns = {name: value for name, value in row.items() if name[0] != "_"}
                kept[row["id"]] = columns | {name: before.get(name) for name in skipped}
        return kept


def in_the_database(session: Session) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in session.rows("SELECT id, name, price::text, big FROM items")}


def assert_in_step(stream: ChangeStream, session: Session) -> None:
    table = {
        key: (row["id"], row["name"], None if row["price"] is None else str(row["price"]), row["big"])
        for key, row in stream.table().items()
    }
    assert table == in_the_database(session)


def test_the_rows_that_are_there_come_first_and_then_what_changes(database: str, session: Session) -> None:
    session.execute("INSERT INTO items VALUES (1, 'a', 1.5), (2, 'b', 2)")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute(
        "INSERT INTO items VALUES (3, 'c', 3)",
        "UPDATE items SET name = 'A' WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
    )
    stream.load_all()
    assert stream.note == ""
    assert stream.changes() == [("snapshot", 1), ("snapshot", 2), ("insert", 3), ("update", 1), ("delete", 2)]
    assert_in_step(stream, session)


def watch(uri: str, rest: float) -> ChangesWatch:
    slot = PostgresSlot(PostgresAddress(uri, "test"), "items", f"s_{uri[-12:]}", f"s_{uri[-12:]}")
    return ChangesWatch(
        slot, lambda: ["id"], takes_new_columns=False, truncate="refuse", lost="refuse", start="contents",
        chunk_rows=10, rest=rest,
    )  # fmt: skip


def after_the_snapshot(watched: ChangesWatch) -> ChangesOffset:
    part = watched.look(ChangesOffset()).blocks[0].range
    assert part is not None
    return ChangesOffset().after(part)


def test_what_is_not_read_while_the_server_is_left_alone_does_not_count_as_known(
    database: str, session: Session
) -> None:
    watched = watch(database, rest=1e9)
    offset = after_the_snapshot(watched)
    session.execute("INSERT INTO items VALUES (1)")
    first = watched.look(offset)
    session.execute("INSERT INTO items VALUES (2)")
    committed = time.time()
    second = watched.look(offset)
    assert [row.values for block in second.blocks for row in block.rows] == [("1",)]
    assert second.known_until == first.known_until < committed


def test_a_look_at_a_log_that_has_not_grown_knows_all_that_was_committed_before_it(
    database: str, session: Session
) -> None:
    watched = watch(database, rest=0.0)
    offset = after_the_snapshot(watched)
    session.execute("INSERT INTO items VALUES (1)")
    assert len(watched.look(offset).blocks) == 1
    committed = time.time()
    assert watched.look(offset).known_until >= committed


def test_while_a_snapshot_is_loaded_nothing_counts_as_known(database: str, session: Session) -> None:
    source = changes(database)
    stream = ChangeStream(source)
    stream.load()
    session.execute("INSERT INTO items VALUES (1)")
    stream = ChangeStream(source)
    assert source.latest(stream.offset).looked_at == -math.inf
    stream.load()
    assert source.latest(stream.offset).chunks == 1


def test_a_change_arrived_when_it_was_committed_whatever_the_clock_of_the_server_says(
    database: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = time.time
    monkeypatch.setattr(time, "time", lambda: here() - 3600)  # as if the server were an hour ahead
    stream = ChangeStream(changes(database))
    stream.load_all()
    before = time.time()
    session.execute("INSERT INTO items VALUES (1)")
    after = time.time()
    oldest = stream.source.latest(stream.offset).oldest
    assert oldest is not None
    assert before - 60 < oldest <= after


def a_random_transaction(chance: random.Random, *, truncates: bool) -> list[str]:
    statements = []
    for _ in range(chance.choice([1, 1, 3, 12])):
        key, name = chance.randrange(12), chance.choice(["NULL", "'a'", "'ü'", "'it''s'", r"'b\c'"])
        big = f"repeat('{chance.choice('xyz')}', {chance.choice([3, 9000])})"
        upsert = (
            f"INSERT INTO items VALUES ({key}, {name}, {chance.randrange(999)}.25, {big}) ON CONFLICT (id) DO UPDATE"
        )
        statements += chance.choices(
            [
                f"{upsert} SET name = excluded.name, big = excluded.big",
                f"{upsert} SET price = excluded.price",
                f"DELETE FROM items WHERE id = {key}",
                "TRUNCATE items" if truncates else f"UPDATE items SET price = NULL WHERE id > {key}",
            ],
            [6, 6, 4, 1],
        )
    return ["BEGIN", *statements, chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])]


@pytest.mark.parametrize(("identity", "seed"), [("DEFAULT", 1), ("FULL", 2)])
def test_after_any_history_and_any_crash_the_changes_add_up_to_the_table(
    database: str, session: Session, identity: str, seed: int
) -> None:
    chance = random.Random(seed)
    session.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}")
    options: dict[str, Any] = {"chunk_rows": chance.choice([1, 4, 1000]), "truncate": "row"}
    stream = ChangeStream(changes(database, **options))
    with Session(database) as other:
        for step in range(40):
            # a truncation would wait for the other transaction
            session.execute(*a_random_transaction(chance, truncates=not 10 < step <= 20))
            if step == 10:
                other.execute("BEGIN", "INSERT INTO items VALUES (100, 'slow')")
            if step == 20:
                other.execute("COMMIT")
            what = chance.choice(["nothing", "load", "load", "crash", "restart"])
            limit = Limit(chunks=chance.choice([None, 1, 3]))
            if what in ("load", "crash"):
                stream.load(limit, crash=what == "crash")
            if what in ("crash", "restart"):
                stream.source = changes(database, **options)
    stream.load_all()
    assert stream.note == ""
    assert_in_step(stream, session)
    numbers = [row["_position"] for row in stream.rows if row["_change"] != "snapshot"]
    assert numbers == list(range(2, 2 + len(numbers))), "every change once, in order"


@pytest.mark.parametrize("restarts", [False, True], ids=["", "with a restart"])
def test_what_is_committed_around_the_snapshot_is_in_it_or_follows_it(
    database: str, session: Session, restarts: bool
) -> None:
    stream = ChangeStream(changes(database))
    with Session(database) as slow:
        session.execute("INSERT INTO items VALUES (1)")
        stream.source.latest(stream.offset)  # slot and snapshot are there
        slow.execute("BEGIN", "INSERT INTO items VALUES (2)")
        session.execute("INSERT INTO items VALUES (3)")
        if restarts:
            stream = ChangeStream(changes(database))
            assert not stream.load()
            assert "waiting for transactions" in stream.note
        slow.execute("COMMIT")
    stream.load_all()
    how = "snapshot" if restarts else "insert"
    assert sorted(stream.changes()) == sorted([("snapshot", 1), (how, 2), (how, 3)])


@pytest.mark.parametrize("loss", ["nothing", "restart", "truncated"])
def test_a_snapshot_in_parts_is_the_table_also_if_it_is_lost_on_the_way(
    database: str, session: Session, loss: str
) -> None:
    options: dict[str, Any] = {"part_bytes": 1, "truncate": "row"}
    session.execute(
        "INSERT INTO items SELECT i, repeat('x', 500), i, repeat('y', 9000) FROM generate_series(1, 60) AS i"
    )
    stream = ChangeStream(changes(database, **options))
    stream.load(Limit(chunks=1))
    stream.load(Limit(chunks=2))
    assert 0 < len(stream.rows) < 60
    # rows of all pages change, some go to other pages, and large values stay as they are
    session.execute(
        "UPDATE items SET price = 7 WHERE id % 5 = 0",
        "DELETE FROM items WHERE id % 4 = 1",
        "VACUUM items",
        "UPDATE items SET price = 8 WHERE id > 50",
    )
    if loss == "truncated":
        session.execute("BEGIN", "TRUNCATE items", "INSERT INTO items VALUES (1000, 'z')", "COMMIT")
    if loss != "nothing":
        stream.source = changes(database, **options)
    stream.load_all()
    session.execute("UPDATE items SET price = 9 WHERE id % 3 = 0")
    stream.load_all()
    assert stream.note == ""
    assert_in_step(stream, session)
    assert loss != "nothing" or sum(row["_change"] == "snapshot" for row in stream.rows) == 60


def test_a_large_transaction_is_loaded_in_parts(database: str, session: Session) -> None:
    options = {"chunk_rows": 100}
    stream = ChangeStream(changes(database, **options))
    stream.load_all()
    session.execute(
        "INSERT INTO items SELECT i, 'x' FROM generate_series(1, 1000) AS i", "INSERT INTO items VALUES (0)"
    )
    for _ in range(4):
        assert stream.load(Limit(chunks=2))
    assert len(stream.rows) == 800
    stream.source = changes(database, **options)
    stream.load_all()
    assert [row["id"] for row in stream.rows] == [*range(1, 1001), 0]


def test_the_server_may_forget_what_was_committed_here_and_nothing_else(database: str, session: Session) -> None:
    def confirmed() -> Any:
        return session.rows(
            f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's_{database[-12:]}'"
        )

    stream = ChangeStream(changes(database))
    stream.load_all()
    before = confirmed()
    session.execute("INSERT INTO items VALUES (1)")
    stream.load(crash=True)
    stream.source.latest(stream.offset)
    assert confirmed() == before
    stream.load_all()
    assert confirmed() != before


def test_a_log_without_changes_of_the_table_is_not_kept_for_ever(database: str, session: Session) -> None:
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute("CREATE TABLE other AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
    stream.load_all()
    ((kept,),) = session.rows(
        "SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots "
        f"WHERE slot_name = 's_{database[-12:]}'"
    )
    assert kept < 1_000_000
    assert stream.rows == []


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_key_that_changes_is_a_delete_and_an_insert(database: str, session: Session, identity: str) -> None:
    session.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}", "INSERT INTO items VALUES (1, 'a')")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute("UPDATE items SET id = 2, name = 'b'")
    stream.load_all()
    assert stream.changes() == [("snapshot", 1), ("delete", 1), ("insert", 2)]
    assert_in_step(stream, session)


def test_a_large_value_that_moves_to_another_key_is_rejected_unless_the_log_has_it(
    database: str, session: Session
) -> None:
    session.execute("INSERT INTO items VALUES (1, 'a', 1, repeat('x', 9000))")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute("UPDATE items SET id = 2", "ALTER TABLE items REPLICA IDENTITY FULL", "UPDATE items SET id = 3")
    stream.load_all()
    first, second = (row for row in stream.rows if row["_change"] == "insert")
    assert "REPLICA IDENTITY FULL" in first["_headgate_problem"]
    assert second["_headgate_problem"] is None and len(second["big"]) == 9000


def test_a_truncated_table_is_waited_at_until_it_is_said_what_to_do(database: str, session: Session) -> None:
    session.execute("INSERT INTO items VALUES (1)")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute("INSERT INTO items VALUES (2)", "TRUNCATE items", "INSERT INTO items VALUES (3)")
    stream.load_all()
    assert stream.changes() == [("snapshot", 1), ("insert", 2)]
    assert "truncate='row'" in stream.note
    assert stream.source.latest(stream.offset).missing
    stream.source = changes(database, truncate="row")
    stream.load_all()
    assert_in_step(stream, session)


def test_a_new_column_is_waited_for_unless_columns_are_declared(database: str, session: Session) -> None:
    declared = "id int, name string, price decimal(10, 2), big string"
    stream, fixed = ChangeStream(changes(database)), ChangeStream(changes(database, schema=declared))
    stream.load_all()
    fixed.offset = stream.offset
    session.execute("ALTER TABLE items ADD COLUMN size int", "INSERT INTO items VALUES (1, 'a', 1, 'b', 7)")
    assert fixed.load(crash=True)
    assert not stream.load()
    assert "new column 'size'" in stream.note
    stream.source = changes(database)
    stream.load_all()
    assert [row["size"] for row in stream.rows] == [7]
    session.execute("INSERT INTO items VALUES (2, 'a', 1, 'b', 7)", "ALTER TABLE items DROP COLUMN size")
    stream.source = changes(database)
    stream.load_all()
    assert stream.note == ""
    assert [row["id"] for row in stream.rows] == [1, 2]


LOSSES = {
    "dropped": ("SELECT pg_drop_replication_slot('{slot}')", "is not there any more"),
    "made anew": (
        "SELECT pg_drop_replication_slot('{slot}'); SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "made anew by somebody else",
    ),
}


@pytest.mark.parametrize(("loss", "said"), LOSSES.values(), ids=LOSSES)
def test_a_lost_log_is_named_and_a_new_snapshot_goes_on(database: str, session: Session, loss: str, said: str) -> None:
    session.execute("INSERT INTO items VALUES (1), (2)")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute("DELETE FROM items WHERE id = 1", "INSERT INTO items VALUES (3)")
    for statement in loss.split("; "):
        session.execute(statement.format(slot=f"s_{database[-12:]}"))
    session.execute("DELETE FROM items WHERE id = 2")
    assert not stream.load()
    assert said in stream.note and "lost='snapshot'" in stream.note
    stream.source = changes(database, lost="snapshot")
    stream.load_all()
    session.execute("INSERT INTO items VALUES (4)")
    stream.load_all()
    assert_in_step(stream, session)
    assert len(stream.rows) == 2 + 1 + 1 + 1


ANOTHER_TABLE = {
    "made anew": (("DROP TABLE items", ITEMS), "another table"),
    "swapped by renaming": (
        ("ALTER TABLE items RENAME TO before", ITEMS.replace("items", "later"), "ALTER TABLE later RENAME TO items"),
        "another table",
    ),
    "moved to another schema": (
        ("CREATE SCHEMA other", "ALTER TABLE items SET SCHEMA other", ITEMS),
        "another table",
    ),
    "published anew": (
        ("ALTER PUBLICATION {slot} DROP TABLE items", "{change}", "ALTER PUBLICATION {slot} ADD TABLE items"),
        "got the table",
    ),
    "of a publication made anew": (
        ("DROP PUBLICATION {slot}", "{change}", "CREATE PUBLICATION {slot} FOR TABLE items"),
        "was made anew",
    ),
    "of a dropped publication": (("DROP PUBLICATION {slot}", "{change}"), "not there any more"),
    "half published for a while": (
        (
            "ALTER PUBLICATION {slot} SET (publish = 'insert')",
            "{change}",
            "ALTER PUBLICATION {slot} SET (publish = 'insert, update, delete, truncate')",
        ),
        "were changed and put back",
    ),
    "of another type": (
        ("ALTER TABLE items ALTER name TYPE varchar(40) USING name || '!'",),
        "type of the column 'name'",
    ),
    "with another column": (
        ("ALTER TABLE items DROP COLUMN name", "ALTER TABLE items ADD COLUMN name text"),
        "column 'name' of \"items\" is another one",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize(("statements", "said"), ANOTHER_TABLE.values(), ids=ANOTHER_TABLE)
def test_a_table_that_is_not_the_one_that_was_followed_is_as_a_lost_log(
    database: str, session: Session, statements: tuple[str, ...], said: str, restarts: bool
) -> None:
    session.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    stream = ChangeStream(changes(database))
    stream.load_all()
    for statement in statements:
        session.execute(statement.format(slot=f"s_{database[-12:]}", change="UPDATE items SET name = 'x' WHERE id = 1"))
    session.execute("INSERT INTO items (id, name) VALUES (50, 'later')")
    if restarts:
        stream.source = changes(database)
    for _ in range(2):
        assert not stream.load()
        assert said in stream.note and "lost='snapshot'" in stream.note
        assert stream.source.latest(stream.offset).missing
    stream.source = changes(database, lost="snapshot")
    stream.load_all()
    session.execute("INSERT INTO items (id, name) VALUES (51, 'after')", "UPDATE items SET name = 'c' WHERE id = 50")
    stream.load_all()
    assert stream.note == ""
    assert [change for change, _ in stream.changes()].count("truncate") == 1
    changed = {key: row["name"] for key, row in stream.table().items()}
    assert changed == dict(session.rows("SELECT id, name FROM items"))


NOT_FOLLOWED = {
    "dropped": (("DROP TABLE items",), "is not there any more"),
    "not published": (("ALTER PUBLICATION {slot} DROP TABLE items",), 'ADD TABLE "items"'),
    "half published": (
        ("ALTER PUBLICATION {slot} SET (publish = 'insert')",),
        "does not publish update and delete and truncate any more",
    ),
    "filtered": (("ALTER PUBLICATION {slot} SET TABLE items WHERE (id < 10)",), "some rows"),
    "some columns": (("ALTER PUBLICATION {slot} SET TABLE items (id, name)",), "some columns"),
}


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["refuse", "snapshot"])
@pytest.mark.parametrize(("statements", "said"), NOT_FOLLOWED.values(), ids=NOT_FOLLOWED)
def test_a_table_whose_changes_are_not_published_any_more_is_waited_at(
    database: str, session: Session, statements: tuple[str, ...], said: str, lost: str
) -> None:
    session.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    stream = ChangeStream(changes(database))
    stream.load_all()
    for statement in statements:
        session.execute(statement.format(slot=f"s_{database[-12:]}"))
    for source in (stream.source, changes(database, lost=lost)):
        stream.source = source
        assert not stream.load()
        assert said in stream.note


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "CLUSTER items USING items_pkey",
        "ALTER TABLE items ALTER price TYPE numeric(12, 2)",
        "ALTER TABLE items ALTER name TYPE varchar",
        "ALTER PUBLICATION {slot} ADD TABLE others",
        "ALTER TABLE items ADD CHECK (id > 0)",
        "ALTER TABLE items ALTER name SET DEFAULT 'none'",
    ],
)
def test_what_changes_no_row_is_passed(database: str, session: Session, statement: str) -> None:
    session.execute("INSERT INTO items VALUES (1, 'a', 1)", "CREATE TABLE others (id int PRIMARY KEY)")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute(statement.format(slot=f"s_{database[-12:]}"), "INSERT INTO items VALUES (2, 'b', 2)")
    stream.load_all()
    assert stream.note == ""
    assert_in_step(stream, session)


def test_an_offset_that_does_not_say_which_table_it_is_of_says_so_after_the_next_commit(
    database: str, session: Session
) -> None:
    session.execute("INSERT INTO items VALUES (1)")
    stream = ChangeStream(changes(database))
    stream.load_all()
    before = stream.offset.to_json()
    assert before.pop("followed")
    stream.offset = Offset.from_json(before)
    session.execute("INSERT INTO items VALUES (2)")
    stream.load_all()
    assert "followed" in stream.offset.to_json()
    session.execute("DROP TABLE items", ITEMS)
    stream.source = changes(database)
    assert not stream.load()
    assert "another table" in stream.note


def test_a_table_whose_rows_cannot_be_told_apart_is_not_published(database: str, session: Session) -> None:
    session.execute("ALTER TABLE items DROP CONSTRAINT items_pkey")
    stream = ChangeStream(changes(database))
    assert not stream.load()
    assert "REPLICA IDENTITY FULL" in stream.note
    session.execute("INSERT INTO items VALUES (1)", "UPDATE items SET id = 2")


def test_values_that_do_not_fit_are_named(database: str, session: Session) -> None:
    session.execute("ALTER TABLE items ADD COLUMN until timestamptz")
    stream = ChangeStream(changes(database))
    stream.load_all()
    session.execute("INSERT INTO items (id, until) VALUES (1, 'infinity'), (2, '2026-01-01 00:00:00.25+01')")
    stream.load_all()
    bad, good = stream.rows
    assert bad["_headgate_problem"] == "column until: 'infinity' is not a timestamp of Spark"
    assert good["_headgate_problem"] is None and good["until"].isoformat() == "2025-12-31T23:00:00.250000+00:00"
