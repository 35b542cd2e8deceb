"""What operators inside a table did comes back to the driver: statistics, trace and report say the same."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.core.update import Update, added_up
from headgate.stream import Stream, on_spark
from headgate.warehouse.report.figures import figures_of
from headgate.warehouse.run.run import SparkOptions, WarehouseRun
from headgate.warehouse.run.trace import read_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: how long a test waits for something that should happen at once on an idle machine
PATIENCE = 600.0


def warm(rows: Stream) -> Stream:
    return rows.filter(pc.field("temp") > 20, name="warm").key_by("sensor").running(n="count", ts=("max", "ts"))


def warehouse(folder: Path) -> hg.Warehouse:
    wh = hg.Warehouse("figures", folder / "warehouse")
    start = datetime.now(UTC).timestamp() - 60
    source = hg.Generator(every="1 second", rows_per_chunk=20, seed=3, start=start)
    wh.stream("readings", source, time="ts", period="1 second", partition="1 min")

    @wh.table(time="ts", mode="append", partition="1 min")
    def counts(readings: DataFrame) -> DataFrame:
        return on_spark(readings, warm, keys=["sensor"], time="ts", buckets=2)

    return wh


def test_statistics_trace_and_report_of_a_run_tell_the_same_of_its_operators(
    spark: SparkSession, tmp_path: Path
) -> None:
    made: list[Update] = []
    enough = threading.Event()

    def note(update: Update) -> None:
        made.append(update)
        if sum(each.name == "counts" and each.committed for each in made) >= 2:
            enough.set()

    run = WarehouseRun(warehouse(tmp_path).spec(), spark=SparkOptions(session=spark), observer=note)
    with run:
        assert enough.wait(PATIENCE), made[-5:]
        run.runtime.stop()
        told = {table.name: table for table in run.runtime.statistics()}
    outcomes = [each for each in made if each.name == "counts" and each.committed]
    operators = {operator.name: operator for operator in told["counts"].operators}

    assert told["readings"].operators == ()
    assert list(operators) == ["source", "warm", "running", "sink"]
    assert operators["sink"].rows_in == told["counts"].rows == sum(outcome.rows for outcome in outcomes) > 0
    assert operators["warm"].rows_out == operators["running"].rows_in < operators["warm"].rows_in
    assert 0 < operators["running"].cost < 1
    assert all(0 <= operator.utilisation <= 1 and operator.processor > 0 for operator in operators.values())

    assert run.trace is not None
    trace = read_trace(run.trace)
    assert [update.operators for update in trace.updates_of("counts")] == [outcome.operators for outcome in outcomes]
    reported = {table.name: table.operators for table in figures_of(trace).tables}
    expected = added_up(operator for outcome in outcomes for operator in outcome.operators)
    assert reported == {"readings": (), "counts": expected}
    assert [(o.name, o.rows_in) for o in told["counts"].operators] == [(o.name, o.rows_in) for o in expected]
