"""What the scheduler does about updates that do not end, and about a Spark that was lost; nobody runs the updates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.schedule.limits import LEAST_TIME_LIMITS, TIME_LIMIT_TIMES
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.transient import DEATHS
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.warehouse.test_scheduler import scheduler_of

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


def test_the_file_that_spark_dies_of_is_found_and_set_aside_and_no_other(warehouse: OpenWarehouse) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=3), 100.0)
    now, deaths, finished = 100.0, 0, set[str]()
    aside: dict[str, bool] = {}
    while len(aside) < len(NAMES) or deaths < DEATHS:
        running = begun(scheduler, now)
        if deaths:
            assert len(running.keys() - finished) <= 1, "those that may be guilty are tried one by one"
        aside |= {table: bool(update.plan.range.aside) for table, update in running.items()}
        if "b" in running and not aside["b"]:  # Spark dies whenever the file of b is loaded
            deaths += 1
            aside.clear()
            scheduler.spark_lost(now)
            fail(scheduler, running, now)
            scheduler = Scheduler(warehouse, RunOptions(tracks=3), now, before=scheduler)  # as when it is back
        else:
            for table, update in running.items():
                update.commits(0.1)
                scheduler.ended(update, now)
                finished.add(table)
        now += 120.0
    assert deaths == DEATHS
    assert aside == {"a": False, "b": True, "c": False}


def test_an_update_that_does_not_end_keeps_its_table_busy_and_its_track_free(warehouse: OpenWarehouse) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=1), 100.0)
    (stuck,) = begun(scheduler, 100.0).values()
    scheduler.give_up(stuck.track, 300.0)
    assert scheduler.running.on_tracks() == []
    (other,) = begun(scheduler, 300.0).values()
    assert other.table != stuck.table
    assert stuck in scheduler.running
    assert not scheduler.is_idle
    stuck.fails(TimeoutError("stopped at last"))
    scheduler.ended(stuck, 301.0)
    assert stuck not in scheduler.running
    assert other in scheduler.running, "the end of the other one is still to come"


def test_the_time_limit_of_an_update_follows_from_the_longest_one_and_grows_with_failures(
    warehouse: OpenWarehouse,
) -> None:
    scheduler = Scheduler(warehouse, RunOptions(tracks=3), 100.0)
    least = LEAST_TIME_LIMITS["live"]
    first, second, third = begun(scheduler, 100.0).values()
    assert scheduler.time_limit(first) == least
    first.commits(1000.0)
    scheduler.ended(first, 1100.0)
    assert scheduler.time_limit(first) == TIME_LIMIT_TIMES * 1000.0
    second.fails(TimeoutError("too long"))
    scheduler.ended(second, 1100.0)
    assert scheduler.time_limit(second) == 2 * least
    assert scheduler.time_limit(third) == least


# --- derived tables ---------------------------------------------------------------------------------------------


def lose_spark(scheduler: Scheduler, updates: list[Update], now: float) -> Scheduler:
    """Spark is lost while ``updates`` run; the scheduler after it is back, and all tables were opened again."""
    scheduler.spark_lost(now)
    for update in updates:
        update.fails(ConnectionError("Spark is gone"), transient=True)
        scheduler.ended(update, now)
    return Scheduler(scheduler.warehouse, RunOptions(tracks=2), now, before=scheduler)


def test_a_table_that_spark_was_lost_with_again_and_again_stays_held_when_spark_is_back(tmp_path: Path) -> None:
    scheduler, _ = scheduler_of(tmp_path, group=None, tracks=1)
    scheduler.pause("cold", 100.0)
    for now in (100.0, 300.0, 600.0):
        scheduler.poll(now)
        ((update,),) = scheduler.decide(now)
        assert update.table == "hot", "twice may be chance"
        scheduler = lose_spark(scheduler, [update], now)
    assert state_of(scheduler, "hot") == "held"
    scheduler.poll(900.0)
    assert scheduler.decide(900.0) == []
    scheduler.resume("hot", 900.0)
    assert state_of(scheduler, "hot") == "new"


def test_tables_of_a_group_that_spark_was_lost_with_are_tried_one_by_one(tmp_path: Path) -> None:
    scheduler, _ = scheduler_of(tmp_path, group="all")
    (together,) = scheduler.decide(100.0)
    assert [update.table for update in together] == ["hot", "cold"]
    scheduler = lose_spark(scheduler, together, 100.0)
    scheduler.pause("cold", 100.0)
    for now in (300.0, 600.0):
        scheduler.poll(now)
        ((alone,),) = scheduler.decide(now)
        scheduler = lose_spark(scheduler, [alone], now)
    scheduler.resume("cold", 600.0)
    other = {"hot": "cold", "cold": "hot"}[alone.table]
    assert (state_of(scheduler, alone.table), state_of(scheduler, other)) == ("held", "new")
