"""A table published to PostgreSQL is equal to the table, with its version and freshness, whatever fails in between."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.core import DeclarationError, Update, placement_from, policy_from
from headgate.warehouse import (
    PublishedVersion,
    PublishError,
    RunOptions,
    SparkOptions,
    TableChanges,
    WarehouseRun,
)
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.publish.postgres import longest_statement
from headgate.warehouse.sources import ServerUnreachable
from tests.services.postgres import PostgresServer, Session
from tests.warehouse.written import Row, Written, rows_of

pytestmark = pytest.mark.services


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def published(uri: str) -> list[Row]:
    with Session(uri) as session:
        return [(a, b, c) for a, b, c in session.rows("SELECT id, city, amount FROM sums ORDER BY id")]


def publish(written: Written, *places: Any) -> Update | None:
    update: Update | None = PublishNode(written, places).update(None)  # type: ignore[arg-type]
    return update


def test_every_version_is_published_with_its_number_and_freshness(database: str, written: Written) -> None:
    node = PublishNode(written, [hg.PostgresSink(database, key="id")])
    assert node.plan() is None, "there is no table yet"
    written.becomes([(1, "bern", 1.5), (2, None, None)])
    node.update(None)  # type: ignore[arg-type]
    assert published(database) == [(1, "bern", 1.5), (2, None, None)]
    written.becomes([(2, "paris", 2.0), (3, "rom", 3.0)])
    node.update(None)  # type: ignore[arg-type]
    assert published(database) == [(2, "paris", 2.0), (3, "rom", 3.0)]
    assert node.plan() is None, "all is published"
    with Session(database) as session:
        query = "SELECT name, version, extract(epoch FROM freshness)::int FROM headgate_published"
        assert session.rows(query) == [("sums", 1, 2)]


def test_rows_that_did_not_change_are_not_written_again(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0), (2, "paris", 2.0)])
    publish(written, hg.PostgresSink(database, key="id"))
    with Session(database) as session:
        before = session.rows("SELECT id, xmin::text FROM sums ORDER BY id")
        written.becomes([(3, "rom", 3.0)], replace=False)
        publish(written, hg.PostgresSink(database, key="id"))
        assert session.rows("SELECT id, xmin::text FROM sums ORDER BY id")[:2] == before


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_the_place_is_equal_to_the_table_after_any_history(database: str, written: Written, seed: int) -> None:
    chance = random.Random(seed)
    rows: dict[int, Row] = {}
    sink: Any = hg.PostgresSink(database, key="id")
    for step in range(25):
        for _ in range(chance.randint(0, 3)):
            number = chance.randrange(8)
            rows[number] = (number, chance.choice(["a", "b", None]), float(step))
        if rows and chance.random() < 0.4:
            del rows[chance.choice(sorted(rows))]
        written.becomes(list(rows.values()))
        match chance.choice(["publish", "later", "compact", "restart"]):
            case "publish":
                publish(written, sink)
                assert published(database) == sorted(rows.values())
            case "compact":
                written.store.compact()
            case "restart":
                sink = hg.PostgresSink(database, key="id")
    publish(written, sink)
    assert published(database) == sorted(rows.values())


def test_a_version_is_published_beside_a_reader_that_takes_its_time(database: str, written: Written) -> None:
    sink = hg.PostgresSink(database, key="id")
    written.becomes([(1, "bern", 1.0)])
    publish(written, sink)
    with Session(database) as reader:
        reader.execute("BEGIN")
        assert reader.rows("SELECT id FROM sums") == [(1,)]
        written.becomes([(2, "rom", 2.0)], replace=False)
        publish(written, sink)
        reader.execute("COMMIT")
    assert published(database) == [(1, "bern", 1.0), (2, "rom", 2.0)]


def test_columns_that_a_table_there_lacks_are_added(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    publish(written, hg.PostgresSink(database, key="id"))
    with Session(database) as session:
        session.execute('ALTER TABLE sums DROP COLUMN city, ADD COLUMN "note" text')
    written.becomes([(2, "rom", 2.0)])
    publish(written, hg.PostgresSink(database, key="id"))
    assert published(database) == [(2, "rom", 2.0)]


@pytest.mark.parametrize(
    ("columns", "rows", "said"),
    [
        ("id bigint PRIMARY KEY, city text, amount double precision", ["(7, 'mine', 1)"], "with rows, and nothing"),
        (
            "id bigint PRIMARY KEY, other text",
            ["(7, 'mine')"],
            r"with rows and other columns \(other\) and no",
        ),
        ("id bigint PRIMARY KEY, city text, amount real, other text", [], r"with other columns \(other\), and nothing"),
    ],
    ids=["rows", "rows and columns", "columns"],
)
def test_a_table_that_was_somebody_elses_stays_as_it_is_unless_it_is_taken_over(
    database: str, written: Written, columns: str, rows: list[str], said: str
) -> None:
    written.becomes([(1, "bern", 1.0)])
    with Session(database) as session:
        session.execute(f"CREATE TABLE sums ({columns})", *(f"INSERT INTO sums VALUES {row}" for row in rows))
        everything = "SELECT to_jsonb(s)::text FROM sums s"
        before = session.rows(everything)
        with pytest.raises(PublishError, match=f"sums is there already, {said}.*another table=.*take_over=True"):
            publish(written, hg.PostgresSink(database, key="id"))
        assert session.rows(everything) == before
        names = "SELECT string_agg(attname, ',') FROM pg_attribute WHERE attrelid = 'sums'::regclass AND attnum > 0"
        assert len(session.rows(names)[0][0].split(",")) == len(columns.split(","))
    publish(written, hg.PostgresSink(database, key="id", take_over=True))
    assert published(database) == [(1, "bern", 1.0)]


def test_an_empty_table_with_the_columns_is_published_to(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    with Session(database) as session:
        session.execute("CREATE TABLE sums (amount real, city varchar(9), id integer UNIQUE)")
    publish(written, hg.PostgresSink(database, key="id"))
    assert published(database) == [(1, "bern", 1.0)]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("CREATE VIEW sums AS SELECT 1 AS id", "sums is a view there.*another table="),
        (
            "CREATE TABLE sums (id bigint, city text, amount real)",
            r'no unique index of the key \("id"\).*ADD PRIMARY KEY \("id"\)',
        ),
        (
            "CREATE TABLE sums (id bigint PRIMARY KEY, city integer, amount double precision)",
            "sums has columns of other types: city is integer there and text here.*ALTER TABLE",
        ),
        (
            "CREATE TABLE sums (id bigint PRIMARY KEY, city text NOT NULL, amount double precision)",
            'sums demands a value.*"city".*',
        ),
    ],
    ids=["view", "no index", "types", "not null"],
)
def test_a_table_that_rows_cannot_be_written_to_is_told_why(
    database: str, written: Written, made: str, said: str
) -> None:
    written.becomes([(1, None, 1.0)])
    with Session(database) as session:
        session.execute(made)
    with pytest.raises(PublishError, match=said):
        publish(written, hg.PostgresSink(database, key="id"))


def test_a_lock_of_somebody_else_is_said(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    sink = hg.PostgresSink(database, key="id")
    publish(written, sink)
    written.becomes([(2, "rom", 2.0)])
    sink.longest_lock = 0.05
    with Session(database) as session:
        session.execute("BEGIN", "LOCK TABLE sums IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ServerUnreachable, match=r"sums is locked by another session.*pg_stat_activity"):
            publish(written, sink)
        session.execute("ROLLBACK")
    publish(written, sink)
    assert published(database) == [(2, "rom", 2.0)]


@pytest.mark.slow
def test_a_table_of_several_batches_and_files_is_published(database: str, written: Written) -> None:
    rows: list[Row] = [(number, None if number % 3 else f"x{number}", number / 2) for number in range(50_000)]
    written.becomes(rows[:49_000])
    written.becomes(rows[49_000:], replace=False)
    publish(written, hg.PostgresSink(database, key="id"))
    assert published(database) == rows


def test_files_that_were_cleaned_up_mean_the_whole_table(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    publish(written, hg.PostgresSink(database, key="id"))
    for number in range(2, 5):
        written.becomes([(number, "rom", 2.0)])
    assert written.store.vacuum(-1) > 0
    publish(written, hg.PostgresSink(database, key="id"))
    assert published(database) == [(4, "rom", 2.0)]


def test_a_statement_may_take_longer_for_more_rows() -> None:
    def seconds(rows: int) -> int:
        many = replace(rows_of([]), num_rows=rows)
        return longest_statement(TableChanges(PublishedVersion(1, "x"), None, many, rows_of([]), None))

    assert (seconds(10), seconds(100_000_000)) == (60, 100_060)


def test_a_process_that_is_paused_while_it_publishes_keeps_its_locks_no_longer_than_a_statement_may_take(
    database: str, written: Written
) -> None:
    written.becomes([(1, "bern", 1.0)])
    publish(written, hg.PostgresSink(database, key="id"))
    with Session(database) as session:
        session.execute(  # what counts in the transaction that writes the rows
            "CREATE TABLE seen (patience text)",
            "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen "
            "VALUES (current_setting('idle_in_transaction_session_timeout')); RETURN NULL; END $$",
            "CREATE TRIGGER look AFTER INSERT ON sums FOR EACH STATEMENT EXECUTE FUNCTION look()",
        )
        written.becomes([(2, "rom", 2.0)], replace=False)
        publish(written, hg.PostgresSink(database, key="id"))
        assert session.rows("SELECT patience FROM seen") == [("1min",)]


@pytest.mark.parametrize("has_some", [False, True], ids=["never published to", "published to"])
def test_a_whole_table_that_was_prepared_before_somebody_else_published_is_refused(
    database: str, written: Written, has_some: bool
) -> None:
    sink, successor = hg.PostgresSink(database, key="id"), hg.PostgresSink(database, key="id")
    written.becomes([(1, "bern", 1.0)])
    if has_some:
        publish(written, sink)
    found, old = sink.last("sums"), rows_of([(1, "bern", 1.0)])
    written.becomes([(2, "rom", 2.0)], replace=False)

    def overtaken() -> Iterator[pa.RecordBatch]:
        publish(written, successor)  # which does not wait for a lock, either
        yield from old.batches()

    slow = replace(old, _read=overtaken)
    whole = TableChanges(PublishedVersion(0, "x/y"), None, slow, rows_of([]), None, found)
    had = "version 0" if has_some else "no version"
    with pytest.raises(PublishError, match=f"from {had} to version 0, but it has version 1: somebody else publishes"):
        sink.publish("sums", whole)
    assert published(database) == [(1, "bern", 1.0), (2, "rom", 2.0)]
    sink.publish("sums", replace(whole, added=old, found=sink.last("sums")))
    assert published(database) == [(1, "bern", 1.0)]


def test_a_place_that_has_lost_its_table_gets_all_of_it(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    publish(written, hg.PostgresSink(database, key="id"))
    with Session(database) as session:
        session.execute("DROP TABLE sums")
    written.becomes([(2, "paris", 2.0)], replace=False)
    publish(written, hg.PostgresSink(database, key="id"))
    assert published(database) == [(1, "bern", 1.0), (2, "paris", 2.0)]


def test_a_table_that_was_made_anew_replaces_what_was_published(
    database: str, written: Written, tmp_path: Path
) -> None:
    for number in range(3):
        written.becomes([(number, "bern", 1.0)], replace=False)
        publish(written, hg.PostgresSink(database, key="id"))
    anew = Written(tmp_path / "anew")
    anew.becomes([(7, "rom", 7.0)])
    publish(anew, hg.PostgresSink(database, key="id"))
    assert published(database) == [(7, "rom", 7.0)]


def test_a_server_that_was_killed_gets_what_it_has_missed(postgres: PostgresServer, written: Written) -> None:
    uri = postgres.new_database()
    now = 0.0
    node = PublishNode(written, [hg.PostgresSink(uri, key="id")], clock=lambda: now)
    written.becomes([(1, "bern", 1.0)])
    node.update(None)  # type: ignore[arg-type]
    postgres.kill()
    try:
        written.becomes([(2, "paris", 2.0)], replace=False)
        with pytest.raises(ServerUnreachable):
            node.update(None)  # type: ignore[arg-type]
        assert node.plan() is None, "it is tried again later"
        now += node.waits()
        assert node.plan() is not None
    finally:
        postgres.start()
    written.becomes([(3, "rom", 3.0)], replace=False)
    node.update(None)  # type: ignore[arg-type]
    assert published(uri) == [(1, "bern", 1.0), (2, "paris", 2.0), (3, "rom", 3.0)]


def test_a_place_that_fails_does_not_keep_another_from_being_published_to(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    away = hg.PostgresSink("postgresql://me:hush@127.0.0.1:1/db", key="id")
    with pytest.raises(PublishError, match=r"1 of 2 places: .*cannot be reached") as failed:
        publish(written, away, hg.PostgresSink(database, key="id"))
    assert "hush" not in str(failed.value) + repr(away)
    assert published(database) == [(1, "bern", 1.0)]


def test_two_that_publish_to_one_place_are_told_apart(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    sink = hg.PostgresSink(database, key="id")
    publish(written, sink)
    changes = TableChanges(PublishedVersion(9, "x"), PublishedVersion(8, "y"), rows_of([]), rows_of([]), None)
    with pytest.raises(PublishError, match="somebody else publishes to it"):
        sink.publish("sums", changes)


def test_a_table_of_another_warehouse_is_refused_unless_it_is_taken_over(
    database: str, written: Written, tmp_path: Path
) -> None:
    with Session(database) as session:  # as earlier versions made it
        session.execute(
            "CREATE TABLE headgate_published (name text PRIMARY KEY, version bigint NOT NULL, "
            "version_id text NOT NULL, freshness timestamptz, published timestamptz NOT NULL)"
        )
    other = Written(tmp_path / "other")
    written.becomes([(1, "bern", 1.0)])
    other.becomes([(7, "rom", 7.0)])
    PublishNode(written, [hg.PostgresSink(database, key="id")], lambda: "shop-1").update(None)  # type: ignore[arg-type]
    with pytest.raises(PublishError, match="of another warehouse, 'shop-1'; this one is 'shop-2'"):
        PublishNode(other, [hg.PostgresSink(database, key="id")], lambda: "shop-2").update(None)  # type: ignore[arg-type]
    late = TableChanges(PublishedVersion(0, "x", "shop-2"), None, rows_of([]), rows_of([]), None)
    with pytest.raises(PublishError, match="of another warehouse, 'shop-1'"):  # also of one that came in between
        hg.PostgresSink(database, key="id").publish("sums", late)
    assert published(database) == [(1, "bern", 1.0)]
    taken = hg.PostgresSink(database, key="id", take_over=True)
    PublishNode(other, [taken], lambda: "shop-2").update(None)  # type: ignore[arg-type]
    assert published(database) == [(7, "rom", 7.0)]


def test_a_key_that_is_no_column_is_named(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    with pytest.raises(PublishError, match="no column 'name'"):
        publish(written, hg.PostgresSink(database, key=["name"]))


def test_a_sink_needs_a_key() -> None:
    with pytest.raises(DeclarationError, match="key names the columns"):
        hg.PostgresSink("postgresql://x/y", key=[])


def test_what_is_published_must_be_declared() -> None:
    wh = hg.Warehouse("shop")
    wh.stream("readings", hg.Generator(), time="ts")
    wh.publish("reading", to=hg.PostgresSink("postgresql://x/y", key="id"))
    wh.publish("readings", to="postgresql://x/y")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError) as failed:
        wh.spec()
    assert "did you mean 'readings'?" in str(failed.value) and "a place such as" in str(failed.value)


@pytest.mark.spark
@pytest.mark.slow
def test_a_running_warehouse_publishes_behind_its_updates_and_goes_on_beside_a_place_that_is_away(
    database: str, spark: Any, tmp_path: Path
) -> None:
    wh = hg.Warehouse("shop", path=tmp_path / "wh", sync=False)
    columns = "ts timestamp, sensor string, temp double"
    rows = hg.Generator(columns, rows_per_chunk=20, every="1 day", start="2026-11-01T00:00:00Z")
    wh.stream("readings", rows, time="ts")
    wh.sql("means", "SELECT sensor, count(*) AS n FROM readings GROUP BY sensor", time=None, key="sensor")
    wh.publish("means", to=hg.PostgresSink("postgresql://me@127.0.0.1:1/away", key="sensor"))
    wh.publish("means", to=hg.PostgresSink(database, "shop_means", key="sensor"))
    ended: queue.Queue[Update] = queue.Queue()
    options = RunOptions(tracks=2, policy=policy_from("max-benefit"), placement=placement_from("proportional"))
    where = SparkOptions("local[2]", {}, spark)
    with WarehouseRun(wh.spec(), options, where, observer=ended.put) as run:
        run.wait_until_fresh()
        expected = sorted((row["sensor"], row["n"]) for row in wh.read("means").to_pylist())
        found: list[tuple[Any, ...]] = []
        while found != expected:
            update = ended.get(timeout=900)
            if update.layer == "publish":
                assert update.table == "means" and update.transient, "the place that is away is tried again"
                with Session(database) as session:
                    found = session.rows("SELECT sensor, n FROM shop_means ORDER BY sensor")
        run.wait_until_fresh()
        notes = {row.name: row.note for row in run.statistics()}
        assert "publishing fails at 1 of 2 places: PostgresSink('postgresql://me@127.0.0.1:1/away'" in notes["means"]
    assert expected
    with Session(database) as session:
        own_id = (tmp_path / "wh" / "headgate.id").read_text().strip()
        assert session.rows("SELECT warehouse FROM headgate_published") == [(own_id,)]
