"""A table published to PostgreSQL is equal to the table, with its version and freshness, whatever fails in between."""

from __future__ import annotations

import queue
import random
from pathlib import Path
from typing import Any

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
from headgate.warehouse.sources import ServerUnreachable
from tests.services.postgres import PostgresServer, Session
from tests.warehouse.written import Row, Written, table_of

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
    node = PublishNode(written, [hg.PostgresSink(uri, key="id")])
    written.becomes([(1, "bern", 1.0)])
    node.update(None)  # type: ignore[arg-type]
    postgres.kill()
    try:
        written.becomes([(2, "paris", 2.0)], replace=False)
        with pytest.raises(ServerUnreachable):
            node.update(None)  # type: ignore[arg-type]
        assert node.plan() is not None
    finally:
        postgres.start()
    written.becomes([(3, "rom", 3.0)], replace=False)
    node.update(None)  # type: ignore[arg-type]
    assert published(uri) == [(1, "bern", 1.0), (2, "paris", 2.0), (3, "rom", 3.0)]


def test_a_place_that_fails_does_not_keep_another_from_being_published_to(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    away = hg.PostgresSink("postgresql://me:hush@127.0.0.1:1/db", key="id")
    with pytest.raises(ServerUnreachable) as failed:
        publish(written, away, hg.PostgresSink(database, key="id"))
    assert "hush" not in str(failed.value) + repr(away)
    assert published(database) == [(1, "bern", 1.0)]


def test_two_that_publish_to_one_place_are_told_apart(database: str, written: Written) -> None:
    written.becomes([(1, "bern", 1.0)])
    sink = hg.PostgresSink(database, key="id")
    publish(written, sink)
    changes = TableChanges(PublishedVersion(9, "x"), PublishedVersion(8, "y"), table_of([]), table_of([]), None)
    with pytest.raises(PublishError, match="somebody else publishes to it"):
        sink.publish("sums", changes)


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
            update = ended.get(timeout=240)
            if update.layer == "publish":
                assert update.table == "means" and update.transient, "the place that is away is tried again"
                with Session(database) as session:
                    found = session.rows("SELECT sensor, n FROM shop_means ORDER BY sensor")
        run.wait_until_fresh()
    assert expected
