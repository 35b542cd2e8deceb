"""Event times that are still to be recomputed: who says so, and that reading does not pass them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.read import query as query_command
from headgate.cli.read import status as status_command
from headgate.warehouse import reading as disk
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.scheduler import Scheduler
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.partitions import format_time
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from headgate.warehouse.updates.repairs import Repairs, repairs_in
from headgate.warehouse.updates.spans import Span
from tests.warehouse.test_opened import arrive, assert_all_as_batch, reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
#: a partition of every table here, in seconds
PARTITION = 10


def micros(span: tuple[int, int]) -> Span:
    """From the first second to the last, both whole."""
    return span[0] * SECOND, (span[1] + 1) * SECOND - 1


@pytest.mark.parametrize(
    ("dirty", "freshness", "expected"),
    [
        pytest.param([], 100, None, id="nothing is dirty"),
        pytest.param([(0, 9)], None, None, id="there is no data yet"),
        pytest.param([(110, 119)], 100, None, id="what lies beyond the freshness is not there yet, so no repair"),
        pytest.param([(10, 19)], 100, (10, 19, 10.0), id="one span"),
        pytest.param([(10, 19), (50, 54)], 100, (10, 54, 15.0), id="several spans, and what lies between is done"),
        pytest.param([(90, 109)], 99, (90, 99, 9.000001), id="the part up to the freshness"),
    ],
)
def test_repairs_are_what_is_dirty_up_to_the_freshness(
    dirty: list[tuple[int, int]], freshness: int | None, expected: tuple[int, int, float] | None
) -> None:
    found = repairs_in([micros(span) for span in dirty], None if freshness is None else freshness * SECOND)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.first // SECOND, found.last // SECOND, found.seconds) == expected
    assert found.complete == found.first - 1


def test_a_table_that_is_dirty_from_before_all_times_can_still_be_written_down() -> None:
    found = repairs_in([(-(1 << 61), 1 << 61)], 60 * SECOND)
    assert str(found) == "all event times up to 1970-01-01T00:01:00.000000Z"
    assert found is not None
    assert format_time(found.complete).startswith("0001-01-01")
    assert str(Repairs(0, 90 * SECOND - 1, 30.0)) == (
        "30 s of event time between 1970-01-01T00:00:00.000000Z and 1970-01-01T00:01:29.999999Z"
    )


# ---- reading ---------------------------------------------------------------------------------------------------


def commit(
    warehouse: Path,
    name: str,
    freshness: int,
    dirty: list[tuple[int, int]] | None = None,
    sources: dict[str, int] | None = None,
) -> int:
    """Commit a row for every new second up to ``freshness``; returns the table's version."""
    store = TableStore(warehouse / "tables" / name, "ts")
    before = CommitState.from_json(store.state)
    seconds = range(0 if before.freshness is None else before.freshness // SECOND + 1, freshness + 1)
    moments = pa.array([second * SECOND for second in seconds], pa.timestamp("us", tz="UTC"))
    rows = pa.table({"ts": moments, "v": pa.array(seconds, pa.int64())})
    number = before.update + 1
    spans = tuple(micros(span) for span in dirty or ())
    state = CommitState(
        number, "recompute", freshness * SECOND, rows.num_rows, sources=sources or {}, dirty=spans, time="ts"
    )
    files = store.write_arrow(number, rows, PARTITION) if rows.num_rows else []
    store.commit(number, files, state=state.to_json(), schema=rows.schema)
    return store.version


def last_second(rows: pa.Table) -> int | None:
    return max(rows.column("v").to_pylist(), default=None)


def test_a_table_is_read_up_to_the_first_repair_and_with_incomplete_up_to_its_freshness(tmp_path: Path) -> None:
    commit(tmp_path, "clicks", 100)
    commit(tmp_path, "minutes", 95, dirty=[(30, 39), (60, 69)])
    rows = disk.read(tmp_path, ["clicks", "minutes"])
    assert [last_second(table) for table in rows.values()] == [29, 29]
    assert last_second(disk.read(tmp_path, ["clicks"])["clicks"]) == 100, "nothing is to be repaired in clicks"
    rows = disk.read(tmp_path, ["clicks", "minutes"], incomplete=True)
    assert [last_second(table) for table in rows.values()] == [95, 95]
    (_, minutes) = disk.tables(tmp_path)
    assert (minutes.freshness, minutes.complete) == (95 * SECOND, 30 * SECOND - 1)
    assert minutes.repairs == Repairs(30 * SECOND, 70 * SECOND - 1, 20.0)
    with pytest.raises(disk.BeyondTheEdgeError, match="because what follows is still to be recomputed"):
        disk.read(tmp_path, ["minutes"], at=50 * SECOND)
    commit(tmp_path, "minutes", 95)
    assert last_second(disk.read(tmp_path, ["minutes"])["minutes"]) == 95, "the repairs are done"


def test_a_table_is_incomplete_as_long_as_it_was_computed_from_a_source_with_repairs(tmp_path: Path) -> None:
    stream = commit(tmp_path, "clicks", 100)
    unrepaired = commit(tmp_path, "minutes", 100, dirty=[(35, 39)], sources={"clicks": stream})
    hours = commit(tmp_path, "hours", 100, sources={"minutes": unrepaired})
    commit(tmp_path, "days", 100, sources={"hours": hours})

    def read_up_to(name: str) -> int | None:
        return last_second(disk.read(tmp_path, [name])[name])

    assert read_up_to("minutes") == 34
    assert read_up_to("hours") == 29, "the row that tells of the partition with the repair is left out"
    assert read_up_to("days") == 29
    repaired = commit(tmp_path, "minutes", 100, sources={"clicks": stream})
    assert read_up_to("minutes") == 100
    assert read_up_to("hours") == 29, "it has not seen the repaired rows yet"
    hours = commit(tmp_path, "hours", 100, sources={"minutes": repaired})
    assert (read_up_to("hours"), read_up_to("days")) == (100, 29)
    commit(tmp_path, "days", 100, sources={"hours": hours})
    assert read_up_to("days") == 100


def test_a_source_that_is_gone_does_not_keep_a_table_from_being_read(tmp_path: Path) -> None:
    commit(tmp_path, "hours", 100, sources={"minutes": 3})
    assert last_second(disk.read(tmp_path, ["hours"])["hours"]) == 100


# ---- the command line ------------------------------------------------------------------------------------------


def ran(command: object, *arguments: str) -> tuple[str, str]:
    app = typer.Typer()
    app.command()(command)  # type: ignore[type-var]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


def test_status_shows_what_is_to_be_repaired_and_how_far_a_table_is_complete(tmp_path: Path) -> None:
    commit(tmp_path, "clicks", 100)
    commit(tmp_path, "minutes", 95, dirty=[(30, 39), (60, 69)])
    table, _ = ran(status_command, str(tmp_path))
    minutes = next(line for line in table.splitlines() if line.startswith("minutes "))
    assert "20 s" in minutes
    assert minutes.endswith("1970-01-01T00:00:29.999999Z")
    assert "minutes: still to be recomputed: 20 s of event time between 1970-01-01T00:00:30" in table
    printed = json.loads(ran(status_command, str(tmp_path), "--json")[0])
    clicks, minutes_json = printed["tables"]
    assert (clicks["repairs"], clicks["complete"]) == (None, 100 * SECOND)
    assert minutes_json["repairs"] == {"first": 30 * SECOND, "last": 70 * SECOND - 1, "seconds": 20.0}


def test_query_says_that_it_reads_less_because_of_repairs(tmp_path: Path) -> None:
    commit(tmp_path, "minutes", 95, dirty=[(30, 39)])
    count = "select count(*) as n from minutes"
    rows, notes = ran(query_command, str(tmp_path), count)
    assert rows.split() == ["n", "30"]
    assert "read up to 1970-01-01T00:00:29.999999Z; minutes has rows up to 1970-01-01T00:01:35.000000Z, but" in notes
    rows, notes = ran(query_command, str(tmp_path), count, "--incomplete")
    assert rows.split() == ["n", "96"]
    assert "rows of minutes may be missing or old" in notes


# ---- a run -----------------------------------------------------------------------------------------------------


def late_warehouse(folder: Path, spark: SparkSession) -> OpenWarehouse:
    """Readings of two hours, tables by minute and by ten minutes, and then late readings of 40 old minutes."""
    wh = Warehouse("late", path=str(folder / "warehouse"))
    source = Files(str(folder / "readings"), schema="ts timestamp, sensor string, temp double", settle=0)
    wh.stream("readings", source, time="ts", partition="1 minute")
    by = "select date_trunc('minute', ts) as ts, sum(temp) as temp from {} group by 1"
    wh.sql("minutes", by.format("readings"), time="ts", partition="1 minute", mode="blocks")
    wh.sql("again", by.format("minutes"), time="ts", partition="1 minute", mode="blocks")
    arrive(folder, "readings", "1", [reading(minute) for minute in (0, 30, 120)])
    warehouse = open_warehouse(wh.spec(), spark)
    warehouse.bring_up_to_date(spark)
    arrive(folder, "readings", "2", [reading(minute + 0.5) for minute in range(40)])
    return warehouse


@pytest.mark.spark
def test_repairs_are_shown_and_merged_into_a_few_updates(tmp_path: Path, spark: SparkSession) -> None:
    warehouse = late_warehouse(tmp_path, spark)
    scheduler, now = Scheduler(warehouse, RunOptions(tracks=1), 1000.0), 1000.0
    made: list[str] = []
    states: set[str] = set()
    most_left = 0.0
    while made[-1:] != [""]:
        scheduler.poll(now)
        begun = scheduler.decide(now)
        for update in (update for updates in begun for update in updates):
            scheduler.node_of(update).run(update, spark)
            update.commits(0.1)
            scheduler.ended(update, now)
            made.append(update.name)
            rows = {row.name: row for row in scheduler.statistics(now)}
            states.add(rows["minutes"].state)
            if update.table == "minutes":
                most_left = max(most_left, update.repairs)
                if rows["minutes"].repairs is not None:
                    assert "to be recomputed:" in str(scheduler.explain("minutes", now))
                    assert "its source minutes is still to be repaired" in str(scheduler.explain("again", now))
        now += 0.2
        if not begun:
            made.append("")
    assert_all_as_batch(warehouse, spark)
    assert most_left == 32 * 60.0, "the first update takes the newest 8 of 40"
    assert states == {"ok", "repairing"}
    assert made.count("minutes (backfill)") <= 8, "not one for each of 32 minutes"
    assert made.count("again") + made.count("again (backfill)") <= 20, "nor here"
