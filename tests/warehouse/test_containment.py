"""One table never takes another down: not by never returning, not by a damaged log, not by a lost Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run import late_updates
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.sources import Generator
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.test_runtime import PATIENCE, Watch, warehouse_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def declared(folder: Path) -> Warehouse:
    wh = Warehouse("small", path=str(folder / "warehouse"))
    start = datetime.now(UTC).timestamp() - 60
    source = Generator(every="1 second", rows_per_chunk=20, seed=3, start=start)
    wh.stream("readings", source, time="ts", period="1 second", partition="1 min")
    wh.sql("hot", "select ts, sensor, temp from readings where temp > 20", time="ts", partition="1 min")
    return wh


@pytest.mark.long
@pytest.mark.parametrize("place", ["in the function of the table", "in a function of Spark's rows"])
def test_functions_that_never_return_are_ended_and_other_tables_go_on(
    tmp_path: Path, spark: SparkSession, place: str
) -> None:
    wh = declared(tmp_path)
    on_driver = place == "in the function of the table"
    analysed: set[str] = set()
    over = threading.Event()  # a thread that went on would slow down all tests after this one

    def never_returns(name: str, readings: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        def loop(value):  # type: ignore[no-untyped-def]  # Spark would take types for something else
            import time

            while True:  # in a process of its own: whether it computes or waits matters to other tests only
                time.sleep(3600)

        if not on_driver:
            return readings.select("ts", F.udf(loop, "double")("temp").alias("temp"))
        if name in analysed:  # the first call is that of the analysis, when the warehouse is opened
            while not over.is_set():
                pass
        analysed.add(name)
        return readings.select("ts", "temp")

    @wh.table(time="ts", partition="1 min", priority=100, mode="append")
    def endless(readings: DataFrame) -> DataFrame:
        return never_returns("endless", readings)

    @wh.table(time="ts", partition="1 min", priority=100, mode="append")
    def endless_too(readings: DataFrame) -> DataFrame:
        return never_returns("endless_too", readings)

    watch = Watch()
    runtime = Runtime(open_warehouse(wh.spec(), spark), spark, RunOptions(tracks=2, time_limit=20.0), watch.note)
    runtime.start()
    try:
        watch.until(lambda good, bad: bad["endless"] >= 1 and bad["endless_too"] >= 1)
        before = Counter(made.name for made in watch.made if made.committed)
        watch.until(lambda good, bad: good["hot"] >= before["hot"] + 2)
        runtime.stop(grace=0.0)
    finally:
        over.set()
    (failure, *_) = (made for made in watch.made if not made.committed)
    assert failure.error == "it took longer than its time limit of 20 s, and was cancelled"


def test_stop_ends_in_its_grace_period_whatever_an_update_does(tmp_path: Path, spark: SparkSession) -> None:
    wh = declared(tmp_path)
    entered, released = threading.Event(), threading.Event()

    @wh.table(time="ts", partition="1 min", priority=100, mode="append")
    def waits(readings: DataFrame) -> DataFrame:
        if entered.is_set():
            released.wait()  # a call that an exception cannot interrupt
        return readings.select("ts", "temp")

    opened = open_warehouse(wh.spec(), spark)
    entered.set()
    watch = Watch()
    runtime = Runtime(opened, spark, RunOptions(tracks=2), watch.note)
    runtime.start()
    try:
        watch.until(lambda good, bad: good["hot"] >= 1)
        runtime.stop(grace=0.0)
        assert not runtime.is_running
    finally:
        released.set()


@pytest.mark.long
def test_an_update_that_does_not_end_keeps_no_other_table_from_new_declarations(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_updates, "CANCEL_SECONDS", 0.0)
    wh = declared(tmp_path)
    entered, released = threading.Event(), threading.Event()
    entered.set()

    @wh.table(time="ts", partition="1 min", priority=100, mode="append")
    def waits(readings: DataFrame) -> DataFrame:
        if not entered.is_set():
            entered.set()
            released.wait()  # a call that an exception cannot interrupt
        return readings.select("ts", "temp")

    def opened() -> OpenWarehouse:
        return open_warehouse(wh.spec(), spark)

    first = opened()
    entered.clear()
    watch = Watch()
    options = RunOptions(tracks=2, time_limit=10.0)
    runtime = Runtime(first, spark, options, watch.note, on_notice=watch.notice, reopen=lambda spark: opened())
    runtime.start()
    try:
        assert entered.wait(PATIENCE)  # or the tables could not be analysed
        watch.until_told("does not end although it was cancelled", "waits")
        wh.sql("cold", "select ts, sensor, temp from readings where temp <= 20", time="ts", partition="1 min")
        runtime.replace_warehouse(opened)
        watch.until(lambda good, bad: good["cold"] >= 1)
        assert not any(made.name == "waits" for made in watch.made)
        released.set()  # then it ends after all, and its table goes on
        watch.until(lambda good, bad: good["waits"] >= 1)
    finally:
        released.set()
        runtime.stop(grace=0.0)


def test_a_table_that_cannot_be_opened_keeps_no_other_from_it_and_is_opened_when_it_is_mended(
    tmp_path: Path, spark: SparkSession
) -> None:
    first = declared(tmp_path)
    first.sql("hotter", "select ts, temp from hot where temp > 21", time="ts", partition="1 min")
    first.sql("cold", "select ts, temp from readings where temp < 20", time="ts", partition="1 min")
    before = open_warehouse(first.spec(), spark)
    while before.nodes["hot"].store.version < 1:
        before.bring_up_to_date(spark)
    entry = tmp_path / "warehouse" / "tables" / "hot" / "_delta_log" / f"{0:020}.json"
    away = entry.rename(tmp_path / "entry")  # without its beginning, a log cannot be read

    spec = first.spec()
    watch = Watch()
    runtime = Runtime(
        open_warehouse(spec, spark),
        spark,
        RunOptions(tracks=2),
        watch.note,
        reopen=lambda spark: open_warehouse(spec, spark),
    )
    runtime.start()
    watch.until(lambda good, bad: good["cold"] >= 2)
    rows = {row.name: row for row in runtime.statistics()}
    assert (rows["hot"].state, rows["hotter"].state) == ("waiting", "waiting")
    assert "it cannot be opened, so it is not updated" in rows["hot"].note
    assert "its source 'hot' cannot be opened" in rows["hotter"].note
    away.rename(entry)
    watch.until(lambda good, bad: good["hotter"] >= 1)
    runtime.stop(grace=PATIENCE)


def test_an_observer_that_fails_is_reported_and_nothing_stops(tmp_path: Path, spark: SparkSession) -> None:
    watch = Watch()

    def note(made: Update) -> None:
        watch.note(made)
        raise ValueError("no room for my log")

    runtime = Runtime(warehouse_with(tmp_path, spark), spark, RunOptions(tracks=1), note)
    runtime.start()
    watch.until(lambda good, bad: good["hot"] >= 2)
    texts = [notice.text for notice in runtime.notices()]
    runtime.stop(grace=PATIENCE)
    assert "what is called after every update has failed: ValueError: no room for my log" in texts


LOSES_SPARK = """
import os, signal, sys, time
from datetime import UTC, datetime
import headgate as hg
from pyspark import SparkContext

wh = hg.Warehouse("lost", sys.argv[1])
start = datetime.now(UTC).timestamp() - 60
wh.stream("readings", hg.Generator(every="1 second", rows_per_chunk=20, seed=3, start=start), time="ts",
          period="1 second", partition="1 min")
wh.sql("minutes", "select date_trunc('minute', ts) as minute, count(*) as n from readings group by 1", time="minute",
       partition="1 min")

def updates(run):
    return {row.name: row.updates for row in run.statistics()}

def wait_for_more(run, before):
    end = time.monotonic() + 1200
    while any(updates(run)[name] <= before[name] for name in before):
        assert time.monotonic() < end, run.statistics()
        time.sleep(0.1)

with wh.start(master="local[2]") as run:
    wait_for_more(run, {"readings": 0, "minutes": 0})
    for _ in range(int(sys.argv[2])):
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        killed, before = time.monotonic(), updates(run)
        # One more than those that needed no Spark any more when it was killed.
        wait_for_more(run, {name: count + 1 for name, count in before.items()})
        print(f"first commits {time.monotonic() - killed:.1f} s after the kill")
    assert {row.state for row in run.statistics()} <= {"ok", "updating"}, run.statistics()
print("survived")
"""


#: each takes the time to start Spark; HEADGATE_KILLS=4 for more of them
KILLS = int(os.environ.get("HEADGATE_KILLS", "1"))


@pytest.mark.long
def test_a_run_survives_the_death_of_the_java_process(tmp_path: Path) -> None:
    script = tmp_path / "loses_spark.py"
    script.write_text(LOSES_SPARK)
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "warehouse"), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.endswith("survived\n"), (ended.stdout, ended.stderr[-3000:])
