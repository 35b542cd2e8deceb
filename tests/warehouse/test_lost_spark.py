"""What the scheduler does about updates that do not end, and about a Spark that was lost; nobody runs the updates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.schedule.limits import LEAST_TIME_LIMITS
from headgate.warehouse.schedule.scheduler import RunOptions, Scheduler
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

NAMES = ("a", "b", "c")


@pytest.fixture
def warehouse(tmp_path: Path) -> OpenWarehouse:
    """Three streams, each with a file that has landed."""
    declared = Warehouse("small", path=tmp_path / "warehouse")
    for name in NAMES:
        landing = tmp_path / name
        landing.mkdir()
        (landing / "1.json").write_text(json.dumps({"ts": "2026-01-01T00:00:00Z", "v": 1}) + "\n", encoding="utf-8")
        source = Files(str(landing), format="json", schema="ts timestamp, v long", settle=0)
        declared.stream(name, source, time="ts")
    spec = declared.spec()
    nodes = {
        stream.name: StreamNode(stream, TableStore(tmp_path / "t" / stream.name, "ts"), TableStore(tmp_path / "r"))
        for stream in spec.streams
    }
    return OpenWarehouse(spec, spec.graph(), nodes)


def begun(scheduler: Scheduler, now: float) -> dict[str, Update]:
    """The updates that begin now, by table, as they would on tracks."""
    scheduler.poll(now)
    updates = {update.table: update for (update,) in scheduler.decide(now)}
    for update in updates.values():
        update.began = now
    return updates


def fail(scheduler: Scheduler, updates: dict[str, Update], now: float) -> None:
    for update in updates.values():
        update.fails(ConnectionError("Spark is gone"), transient=True)
        scheduler.ended(update, now)


def state_of(scheduler: Scheduler, table: str) -> str:
    return next(row.state for row in scheduler.statistics(1e6) if row.name == table)


def test_the_table_that_spark_dies_of_is_found_and_held_and_no_other(warehouse: OpenWarehouse) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=3), 100.0)
    running = begun(scheduler, 100.0)
    assert set(running) == set(NAMES)
    now, deaths, finished = 100.0, 0, set[str]()
    while state_of(scheduler, "b") != "held":
        if "b" in running:  # Spark dies whenever b is updated
            deaths += 1
            scheduler.spark_lost(now)
            fail(scheduler, running, now)
        else:
            for table, update in running.items():
                update.commits(0.1)
                scheduler.ended(update, now)
                finished.add(table)
        now += 120.0
        running = begun(scheduler, now)
        assert len(running.keys() - finished) <= 1, "those that may be guilty are tried one by one"
        assert deaths <= 2
    assert {table for table in NAMES if state_of(scheduler, table) == "held"} == {"b"}
    scheduler.resume("b", now)
    assert state_of(scheduler, "b") != "held"


def test_an_update_that_does_not_end_keeps_its_table_busy_and_its_track_free(warehouse: OpenWarehouse) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=1), 100.0)
    (stuck,) = begun(scheduler, 100.0).values()
    limit = LEAST_TIME_LIMITS["live"]
    assert scheduler.overdue(100.0 + limit) == []
    assert scheduler.overdue(100.5 + limit) == [(stuck, limit)]
    scheduler.give_up(stuck.track, 300.0)
    assert scheduler.overdue(300.0) == []
    (other,) = begun(scheduler, 300.0).values()
    assert other.table != stuck.table
    assert scheduler.is_running(stuck)
    assert not scheduler.is_idle
    stuck.fails(TimeoutError("stopped at last"))
    scheduler.ended(stuck, 301.0)
    assert not scheduler.is_running(stuck)
    assert scheduler.is_running(other), "the end of the other one is still to come"


def test_the_time_limit_of_an_update_follows_from_the_longest_one_and_grows_with_failures(
    warehouse: OpenWarehouse,
) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=1), 100.0)
    (update,) = begun(scheduler, 100.0).values()
    update.fails(TimeoutError("too long"))
    scheduler.ended(update, 300.0)
    again = update.table
    now, limit = 300.0, LEAST_TIME_LIMITS["live"]
    while (updates := begun(scheduler, now)) and again not in updates:
        (other,) = updates.values()
        other.fails(TimeoutError("too long"))
        scheduler.ended(other, now)
        now += 2.0
    assert scheduler.overdue(now + 2 * limit - 1.0) == []
    assert scheduler.overdue(now + 2 * limit + 1.0) == [(updates[again], 2 * limit)]
