"""PostgreSQL as a source: rows are loaded once each, whatever the order in which they are committed."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse.sources import Limit, Offset, Range, ServerUnreachable, SourceError
from headgate.warehouse.sources.postgres.client import PostgresAddress, relation
from headgate.warehouse.sources.postgres.offsets import PostgresContents
from headgate.warehouse.transient import is_transient
from tests.services.postgres import PostgresServer, Session

pytestmark = pytest.mark.services

ORDERS = "CREATE TABLE orders (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), what text)"


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    uri = postgres.new_database()
    with Session(uri) as session:
        session.execute(ORDERS, "CREATE INDEX ON orders (at)")
    return uri


@pytest.fixture
def sessions(database: str) -> Iterator[Any]:
    """Makes connections of other programs."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Session(database))


def orders(uri: str, **options: Any) -> hg.Postgres:
    by = {"key": "id"} if "time" not in options and "key" not in options else {}
    return hg.Postgres(uri, "orders", in_background=False, **by, **options)


class StreamOfRows:
    """A stream reduced to what it has loaded."""

    def __init__(self, source: hg.Postgres) -> None:
        self.source = source
        self.offset: Offset = source.start()
        self.rows: list[str] = []

    def load(self, limit: Limit | None = None) -> int:
        """Load what can be loaded now; the number of ranges."""
        ranges = 0
        while (found := self.source.next_range(self.offset, limit or Limit())) is not None:
            again = Range.from_json(found.to_json())
            self.rows += read(self.source, again)
            self.offset = Offset.from_json(self.source.advance(self.offset, again).to_json())
            ranges += 1
        return ranges


def read(source: hg.Postgres, found: Range) -> list[str]:
    """The column ``what`` of a range."""
    part: Any = found
    condition = source._grows.between(part.after, part.upto, source._watch.kind)
    rows = source._reading.query(f"SELECT what FROM {source._rows} WHERE {condition} ORDER BY id")
    texts: list[str] = rows.column("what").to_pylist()
    return texts


def insert(*what: str) -> str:
    return f"INSERT INTO orders (what) VALUES {', '.join(f'({text!r})' for text in what)}"


# --- a table that grows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [{"key": "id"}, {"time": "at", "late": 0}], ids=["by key", "by time"])
def test_a_row_that_is_committed_after_a_later_one_is_not_missed(
    database: str, sessions: Any, by: dict[str, Any]
) -> None:
    slow, quick = sessions(), sessions()
    stream = StreamOfRows(orders(database, **by))
    slow.execute("BEGIN", insert("first"))
    quick.execute(insert("second"))
    assert stream.load() == 0, "the first may still come"
    slow.execute("COMMIT")
    stream.load()
    assert stream.rows == ["first", "second"]


def test_a_key_that_was_taken_before_anything_was_inserted_is_waited_for(database: str, sessions: Any) -> None:
    slow, quick = sessions(), sessions()
    stream = StreamOfRows(orders(database))
    slow.execute("BEGIN")
    (key,) = slow.rows("SELECT nextval('orders_id_seq')")[0]
    quick.execute(insert("second"))
    assert stream.load() == 0
    slow.execute(f"INSERT INTO orders (id, what) VALUES ({key}, 'first')", "COMMIT")
    stream.load()
    assert stream.rows == ["first", "second"]


def test_a_transaction_that_began_before_it_touched_the_table_is_waited_for_by_time(
    database: str, sessions: Any
) -> None:
    slow, quick = sessions(), sessions()
    stream = StreamOfRows(orders(database, time="at", late=0))
    slow.execute("BEGIN", "SELECT now()")
    quick.execute(insert("second"))
    assert stream.load() == 0
    slow.execute(insert("first"), "COMMIT")
    stream.load()
    assert sorted(stream.rows) == ["first", "second"]


def test_others_go_on_while_a_transaction_is_open(database: str, sessions: Any) -> None:
    slow, quick = sessions(), sessions()
    stream = StreamOfRows(orders(database))
    quick.execute(insert("one"))
    assert stream.load() == 1
    slow.execute("BEGIN", insert("two"))
    quick.execute(insert("three"))
    stream.load()
    slow.execute("ROLLBACK")
    stream.load()
    assert stream.rows == ["one", "three"]


def test_transactions_that_have_nothing_to_do_with_the_table_are_not_waited_for_by_key(
    database: str, sessions: Any
) -> None:
    other, quick = sessions(), sessions()
    other.execute("CREATE TABLE other (x int)", "BEGIN", "INSERT INTO other VALUES (1)")
    quick.execute(insert("one"))
    stream = StreamOfRows(orders(database))
    stream.load()
    assert stream.rows == ["one"]


def test_rows_of_partitions_are_waited_for(database: str, sessions: Any) -> None:
    slow, quick = sessions(), sessions()
    quick.execute(
        "CREATE TABLE parts (id bigserial, what text) PARTITION BY LIST (what)",
        "CREATE TABLE part_a PARTITION OF parts FOR VALUES IN ('a')",
        "CREATE TABLE part_b PARTITION OF parts FOR VALUES IN ('b')",
    )
    source = hg.Postgres(database, "parts", key="id", in_background=False)
    stream = StreamOfRows(source)
    slow.execute("BEGIN", "INSERT INTO part_a (what) VALUES ('a')")
    quick.execute("INSERT INTO parts (what) VALUES ('b')")
    assert stream.load() == 0
    slow.execute("COMMIT")
    stream.load()
    assert stream.rows == ["a", "b"]


@pytest.mark.parametrize("by", [{"key": "id"}, {"time": "at", "late": 0}], ids=["by key", "by time"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_every_row_is_loaded_once_in_any_order_of_transactions(
    database: str, sessions: Any, by: dict[str, Any], seed: int
) -> None:
    chance = random.Random(seed)
    others = [sessions() for _ in range(4)]
    open_rows: dict[int, list[str]] = {}
    expected: list[str] = []
    stream = StreamOfRows(orders(database, chunk_rows=chance.choice([1, 3, 100]), **by))
    for step in range(120):
        number = chance.randrange(len(others))
        session, rows = others[number], open_rows.get(number)
        match chance.choice(["begin", "insert", "insert", "commit", "rollback", "load", "restart"]):
            case "begin" if rows is None:
                session.execute("BEGIN")
                open_rows[number] = []
            case "insert":
                session.execute(insert(f"row {step}"))
                (expected if rows is None else rows).append(f"row {step}")
            case "commit" if rows is not None:
                session.execute("COMMIT")
                expected += open_rows.pop(number)
            case "rollback" if rows is not None:
                session.execute("ROLLBACK")
                del open_rows[number]
            case "load":
                stream.load(Limit(chunks=chance.choice([None, 1, 2])))
            case "restart":
                stream.source = orders(database, chunk_rows=chance.choice([1, 3, 100]), **by)
    for number, rows in open_rows.items():
        others[number].execute("COMMIT")
        expected += rows
    stream.load()
    assert sorted(stream.rows) == sorted(expected)
    assert expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param("beginning", ["a", "b", "c"], id="beginning"),
        pytest.param("now", ["c"], id="now"),
        pytest.param(1, ["b", "c"], id="a key"),
    ],
)
def test_a_stream_begins_where_it_is_declared_to(database: str, sessions: Any, start: Any, expected: list[str]) -> None:
    session = sessions()
    session.execute(insert("a", "b"))
    stream = StreamOfRows(orders(database, start=start))
    session.execute(insert("c"))
    stream.load()
    assert stream.rows == expected


def test_a_stream_by_time_can_begin_at_a_time(database: str, sessions: Any) -> None:
    session = sessions()
    session.execute("INSERT INTO orders (at, what) VALUES ('2026-01-01Z', 'old'), ('2026-01-02Z', 'new')")
    stream = StreamOfRows(orders(database, time="at", start=datetime(2026, 1, 1, 12, tzinfo=UTC)))
    stream.load()
    assert stream.rows == ["new"]


def test_rows_of_the_same_time_are_not_torn_apart(database: str, sessions: Any) -> None:
    sessions().execute(insert(*(f"row {i}" for i in range(20))))
    stream = StreamOfRows(orders(database, time="at", late=0, chunk_rows=3))
    stream.load(Limit(chunks=1))
    assert sorted(stream.rows) == sorted(f"row {i}" for i in range(20))


def test_a_long_backlog_is_loaded_in_parts(database: str, sessions: Any) -> None:
    sessions().execute("INSERT INTO orders (what) SELECT 'x' FROM generate_series(1, 1000)")
    stream = StreamOfRows(orders(database, chunk_rows=10))
    assert stream.source.latest(stream.offset).chunks == 64
    assert stream.load(Limit(chunks=20)) == 5
    assert len(stream.rows) == 1000


def test_a_query_can_grow_too(database: str, sessions: Any) -> None:
    session = sessions()
    session.execute(insert("a", "b"))
    source = hg.Postgres(
        database, query="SELECT id, upper(what) AS what FROM orders WHERE what <> 'b';", key="id", in_background=False
    )
    stream = StreamOfRows(source)
    stream.load()
    assert stream.rows == ["A"]


def test_keys_that_begin_again_are_told(database: str, sessions: Any) -> None:
    session = sessions()
    session.execute(insert("a", "b"))
    stream = StreamOfRows(orders(database))
    stream.load()
    session.execute("TRUNCATE orders RESTART IDENTITY", insert("c"))
    assert "declare the stream under a new name" in stream.source.latest(stream.offset).note


# --- what cannot be read ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def standby(postgres: PostgresServer) -> Iterator[str]:
    """The address of a server that follows another one, with the table."""
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-") as folder:
        os.chmod(folder, 0o755)
        with PostgresServer(Path(folder) / "server") as server:
            with Session(server.uri("postgres")) as session:
                session.execute(ORDERS)
            server.kill()
            (Path(folder) / "server" / "data" / "standby.signal").touch()
            server.start()
            yield server.uri("postgres")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"key": "id"}, {"time": "at"}], ids=["by key", "by time"])
def test_a_standby_server_is_refused(standby: str, options: dict[str, Any]) -> None:
    source = orders(standby, **options)
    assert "is read from a standby server" in source.latest(source.start()).note


def test_a_sequence_that_gives_keys_out_in_blocks_is_refused(database: str, sessions: Any) -> None:
    sessions().execute("ALTER SEQUENCE orders_id_seq CACHE 20")
    source = orders(database)
    pending = source.latest(source.start())
    assert pending.missing and "CACHE 20" in pending.note


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"key": "what"}, "key= takes a whole number", id="a text as key"),
        pytest.param({"time": "id"}, "time= takes a timestamp", id="a number as time"),
        pytest.param({"key": "nothing"}, 'column "nothing" does not exist', id="no such column"),
    ],
)
def test_a_column_that_cannot_be_followed_is_named(database: str, options: dict[str, Any], said: str) -> None:
    source = orders(database, **options)
    pending = source.latest(source.start())
    assert pending.missing and said in pending.note


def test_a_stream_without_a_key_is_refused_with_what_to_do(database: str) -> None:
    source = hg.Postgres(database, "orders", in_background=False)
    with pytest.raises(SourceError, match="key= or time="):
        source.latest(source.start())


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        pytest.param(("mysql://x/y", "t"), {}, "needs the URI", id="another database"),
        pytest.param(("postgresql://x/y",), {}, "a table or a query", id="nothing to read"),
        pytest.param(("postgresql://x/y", "t"), {"query": "SELECT 1"}, "a table or a query", id="both"),
        pytest.param(("postgresql://x/y", "t"), {"key": "a", "time": "b"}, "got both", id="key and time"),
        pytest.param(("postgresql://x/y", "t"), {"key": "a", "start": "noon"}, "start takes", id="start"),
        pytest.param(("postgresql://x/y", "t"), {"time": "a", "start": 3}, "of the kind", id="start of another kind"),
    ],
)
def test_a_wrong_declaration_is_named(arguments: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        hg.Postgres(*arguments, **options)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:hush%40hush@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=hush%40hush",
        "postgresql://me:hush hush@127.0.0.1:1/db",
    ],
)
def test_a_password_is_never_shown(uri: str) -> None:
    source = hg.Postgres(uri, "orders", key="id", schema="id bigint", in_background=False)
    pending = source.latest(source.start())
    shown = [repr(source), pending.note, str(PostgresAddress(uri, "x"))]
    with pytest.raises(ServerUnreachable) as failed:
        source._reading.query("SELECT 1")
    shown.append(str(failed.value))
    assert failed.value.__cause__ is None and failed.value.__suppress_context__
    assert all("hush" not in text for text in shown) and all("127.0.0.1:1" in text for text in shown)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("orders", '"orders"'),
        ("shop.Orders", '"shop"."Orders"'),
        ('"a.b".c', '"a.b"."c"'),
        ("it's", '"it\'s"'),
    ],
)
def test_names_of_tables_are_quoted(name: str, written: str) -> None:
    assert relation(name) == written


# --- a server that comes and goes -------------------------------------------------------------------------------


def test_a_server_that_was_killed_is_waited_for_with_nothing_lost_and_nothing_twice(postgres: PostgresServer) -> None:
    uri = postgres.new_database()
    with Session(uri) as session:
        session.execute(ORDERS, insert("a", "b"))
    stream = StreamOfRows(orders(uri, schema="id bigint, what text".replace("text", "string")))
    stream.load()
    postgres.kill()
    try:
        pending = stream.source.latest(stream.offset)
        assert "cannot be reached" in pending.note and pending.chunks == 0
        with pytest.raises(ServerUnreachable) as failed:
            stream.source._reading.query("SELECT 1")
        assert is_transient(failed.value)
    finally:
        postgres.start()
    with Session(uri) as session:
        session.execute(insert("c"))
    stream.load()
    assert stream.rows == ["a", "b", "c"]


# --- dimensions -------------------------------------------------------------------------------------------------


def contents(source: hg.Postgres, loaded: PostgresContents | None = None) -> PostgresContents | None:
    source._compared = (source._compared[0], 0.0)  # as if it had rested
    return source.contents(loaded)[0]


def test_a_dimension_changes_when_its_rows_do(database: str, sessions: Any) -> None:
    session = sessions()
    source = hg.Postgres(database, query="SELECT id, what FROM orders", in_background=False)
    assert contents(source) is None, "there are no rows yet"
    session.execute(insert("a", "b"))
    first = contents(source)
    assert first is not None and first.rows == 2
    session.execute("CREATE TABLE other (x int)")
    same = contents(source, first)
    assert same is not None and same.names_the_same_as(first)
    session.execute("UPDATE orders SET what = 'c' WHERE what = 'b'")
    second = contents(source, first)
    assert second is not None and not second.names_the_same_as(first)
    session.execute("DELETE FROM orders")
    third = contents(source, second)
    assert third is not None and third.rows == 0, "all rows were removed"


def test_contents_are_known_again_after_a_restart(database: str, sessions: Any) -> None:
    sessions().execute(insert("a", "b"))
    first = contents(hg.Postgres(database, "orders", in_background=False))
    assert first is not None
    stored = Range.from_json(first.to_json())
    again = contents(hg.Postgres(database, "orders", in_background=False))
    assert again is not None and again.names_the_same_as(stored)


# --- types ------------------------------------------------------------------------------------------------------

TYPES = {
    "a smallint": "smallint",
    "b integer": "int",
    "c bigint": "bigint",
    "d real": "float",
    "e double precision": "double",
    "f numeric(10, 2)": "decimal(10, 2)",
    "g numeric": "string",
    "h text": "string",
    "i varchar(3)": "string",
    "j boolean": "boolean",
    "k date": "date",
    "l timestamptz": "timestamp",
    "m timestamp": "timestamp_ntz",
    "n bytea": "binary",
    "o uuid": "string",
    "p jsonb": "string",
    "q integer[]": "array<int>",
    "r inet": "string",
}
VALUES = (
    "1, 2, 3, 1.5, 2.5, 12345678.25, 1.125, 'é', 'abc', true, '2026-11-16', '2026-11-16 12:00+01', "
    r"'2026-11-16 12:00', '\x00ff', '00000000-0000-0000-0000-000000000001', '{}', '{1,2}', '10.0.0.1'"
)


def test_every_column_is_declared_by_its_type(database: str, sessions: Any) -> None:
    sessions().execute(f"CREATE TABLE types ({', '.join(TYPES)})")
    expected = ", ".join(f"`{name.partition(' ')[0]}` {kind}" for name, kind in TYPES.items())
    assert hg.Postgres(database, "types", key="c").schema == expected


@pytest.mark.spark
@pytest.mark.slow
def test_values_of_every_type_reach_spark(database: str, sessions: Any, spark: Any) -> None:
    session = sessions()
    session.execute(f"CREATE TABLE types ({', '.join(TYPES)})")
    session.execute(f"INSERT INTO types VALUES ({VALUES})", "INSERT INTO types (c) VALUES (4)")
    source = hg.Postgres(database, "types", key="c", in_background=False)
    found = source.next_range(source.start(), Limit())
    assert found is not None
    full, empty = sorted(source.read(spark, found).drop("_file", "_raw", "_error").collect(), key=lambda row: row.c)
    assert [str(value) for value in full[:11]] == [
        *("1", "2", "3", "1.5", "2.5", "12345678.25", "1.125", "é", "abc", "True", "2026-11-16")
    ]
    assert full.l.timestamp() == datetime(2026, 11, 16, 11, tzinfo=UTC).timestamp()
    assert (bytes(full.n), full.q, full.r) == (b"\x00\xff", [1, 2], "10.0.0.1/32")
    assert [value for value in empty if value is not None] == [4]
