"""A running warehouse: fresh tables without anybody asking, and one table's trouble is its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.core.errors import ParameterError, UnknownNameError
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import RunNotice
from headgate.core.update import Update
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.schedule.kept_costs import read_costs
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.sources import Files, Generator
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: how long a test waits for something that should happen at once on an idle machine
PATIENCE = 900.0


class Watch:
    """Waits for updates; never sleeps, and gives up after ``PATIENCE``."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.made: list[Update] = []
        self.told: list[RunNotice] = []

    def note(self, made: Update) -> None:
        with self._news:
            self.made.append(made)
            self._news.notify_all()

    def notice(self, notice: RunNotice) -> None:
        with self._news:
            self.told.append(notice)
            self._news.notify_all()

    def until_told(self, what: str, table: str) -> None:
        """Wait until a notice of a table has these words."""

        def is_told() -> bool:
            return any(what in notice.text and notice.table == table for notice in self.told)

        with self._news:
            assert self._news.wait_for(is_told, PATIENCE), self.told

    def until(self, fulfilled: Callable[[Counter[str], Counter[str]], bool]) -> None:
        """Wait until ``fulfilled(updates by table, failures by table)``."""

        def holds() -> bool:
            good = Counter(m.name for m in self.made if m.committed)
            return fulfilled(good, Counter(m.name for m in self.made if not m.committed))

        with self._news:
            assert self._news.wait_for(holds, PATIENCE), self.made[-5:]


def warehouse_with(folder: Path, spark: SparkSession, broken: bool = False, group: str | None = None) -> OpenWarehouse:
    wh = Warehouse("small", path=str(folder / "warehouse"))
    start = datetime.now(UTC).timestamp() - 60
    source = Generator(every="1 second", rows_per_chunk=20, seed=3, start=start)
    wh.stream("readings", source, time="ts", period="1 second", partition="1 min")
    hot = "select ts, sensor, temp from readings where temp > 20"
    wh.sql("hot", hot, time="ts", partition="1 min", priority=50, group=group)

    @wh.table(time="minute", partition="1 min", priority=5, group=group)
    def minutes(readings: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        minute = F.date_trunc("minute", "ts").alias("minute")
        counted = readings.groupBy(minute).agg(F.count("*").alias("n"))
        return counted.withColumn("bad", F.raise_error(F.lit("my own mistake")).cast("string")) if broken else counted

    return open_warehouse(wh.spec(), spark)


def test_whoever_is_told_of_an_update_may_ask_back(tmp_path: Path, spark: SparkSession) -> None:
    told = threading.Event()
    asked = []

    def note(made: Update) -> None:
        asked.append(runtime.statistics())
        told.set()

    runtime = Runtime(warehouse_with(tmp_path, spark), spark, RunOptions(tracks=1), note)
    runtime.start()
    assert told.wait(PATIENCE)
    runtime.stop(grace=PATIENCE)
    assert {table.name for table in asked[0]} >= {"readings", "hot", "minutes"}


def test_tables_are_kept_fresh_and_rows_add_up(tmp_path: Path, spark: SparkSession) -> None:
    opened = warehouse_with(tmp_path, spark)
    watch = Watch()
    runtime = Runtime(opened, spark, RunOptions(tracks=2), watch.note)
    runtime.start()
    watch.until(lambda good, _: good["hot"] >= 2 and good["minutes"] >= 2)
    runtime.replace_policy(policy_from("fifo"))
    before = len(watch.made)
    watch.until(lambda good, _: sum(good.values()) >= before + 2)
    assert "readings" in str(runtime.explain("readings"))
    runtime.stop(grace=PATIENCE)
    statistics = {row.name: row for row in runtime.statistics()}
    assert all(row.state == "ok" and row.staleness is not None for row in statistics.values())
    for name, row in statistics.items():
        assert opened.nodes[name].store.arrow().num_rows == row.rows
    assert statistics["minutes"].written >= statistics["minutes"].rows, "minutes are computed again and again"
    opened.bring_up_to_date(spark)
    counted = opened.nodes["minutes"].store.arrow().column("n").to_pylist()
    assert sum(counted) == opened.nodes["readings"].store.arrow().num_rows


def test_a_backlog_is_loaded_in_parts_that_can_be_read_at_once_and_costs_are_kept(
    tmp_path: Path, spark: SparkSession
) -> None:
    landing, rows = tmp_path / "landing", 30_000
    landing.mkdir()
    for number in range(4):  # of 2.4 MB each
        lines = (f'{{"ts": "2026-11-01T0{number}:00:00Z", "key": "{row:040}"}}\n' for row in range(rows))
        (landing / f"{number}.json").write_text("".join(lines), "utf-8")
    wh = Warehouse("behind", path=str(tmp_path / "warehouse"))
    wh.stream("readings", Files(landing, schema="ts timestamp, key string", settle=0), time="ts")
    opened = open_warehouse(wh.spec(), spark)
    watch = Watch()
    runtime = Runtime(opened, spark, RunOptions(tracks=1), watch.note)
    runtime.start()
    watch.until(lambda good, _: sum(made.rows for made in watch.made) == 4 * rows)
    runtime.stop(grace=PATIENCE)
    first = watch.made[0]
    assert (first.rows, first.left) == (rows, 3), "a second file would be more than 4 MB"
    assert (watch.made[-1].left, runtime.statistics()[0].updates_left) == (0, 0)
    assert opened.nodes["readings"].store.arrow().num_rows == 4 * rows
    unit, cost = read_costs(tmp_path / "warehouse")["readings"]
    assert (unit, cost.largest >= (landing / "0.json").stat().st_size) == ("bytes", True)


def test_a_paused_table_is_left_alone_until_it_is_resumed_and_priorities_change_while_running(
    tmp_path: Path, spark: SparkSession
) -> None:
    watch = Watch()
    runtime = Runtime(warehouse_with(tmp_path, spark), spark, RunOptions(tracks=1), watch.note)
    runtime.pause("minutes")
    runtime.start()
    watch.until(lambda good, _: good["hot"] >= 3)
    assert {row.name: row.state for row in runtime.statistics()}["minutes"] == "paused"
    assert not any(made.name == "minutes" for made in watch.made)
    runtime.set_priority("minutes", 1000)
    runtime.resume("minutes")
    watch.until(lambda good, _: good["minutes"] >= 1)
    runtime.stop(grace=PATIENCE)
    assert {row.name: row.priority for row in runtime.statistics()}["minutes"] == 1000
    with pytest.raises(UnknownNameError, match=r"'minute'.*'minutes'"):
        runtime.pause("minute")
    with pytest.raises(ParameterError, match=r"'hot'.*-1"):
        runtime.set_priority("hot", -1)


def test_tracks_policy_and_placement_change_while_running_and_a_backfill_runs_behind(
    tmp_path: Path, spark: SparkSession
) -> None:
    watch = Watch()
    changes: list[Mapping[str, object]] = []
    opened = warehouse_with(tmp_path, spark)
    runtime = Runtime(opened, spark, RunOptions(tracks=1), watch.note, lambda _, what: changes.append(what))
    runtime.start()
    watch.until(lambda good, _: good["minutes"] >= 1)
    runtime.set_tracks(3)
    runtime.replace_placement(placement_from("anywhere"))
    now = round(datetime.now(UTC).timestamp() * 1_000_000)
    runtime.backfill("minutes", now - 3600_000_000, now, chunk=60)
    watch.until(lambda good, _: good["minutes (backfill)"] >= 1)
    watch.until(lambda good, _: len({made.track for made in watch.made}) == 3)
    runtime.set_tracks(1)
    runtime.refresh("minutes")
    seen = len(watch.made)
    watch.until(lambda good, _: len(watch.made) >= seen + 4)
    runtime.stop(grace=PATIENCE)
    assert [next(iter(change)) for change in changes] == ["tracks", "placement", "backfill", "tracks", "refresh"]
    # a track that is too many finishes the update that it is in, however long that takes
    elsewhere = [made.track for made in watch.made[seen:] if made.track != 0]
    assert len(elsewhere) == len(set(elsewhere)) <= 2
    with pytest.raises(ParameterError, match=r"readings.*loaded from a source"):
        runtime.backfill("readings", 0, 1)
    with pytest.raises(ParameterError, match="from 1 to 1000 tracks"):
        runtime.set_tracks(0)
    opened.bring_up_to_date(spark)
    counted = opened.nodes["minutes"].store.arrow().column("n").to_pylist()
    assert sum(counted) == opened.nodes["readings"].store.arrow().num_rows


def test_tables_of_a_group_are_updated_together_and_one_that_fails_does_not_stop_the_other(
    tmp_path: Path, spark: SparkSession
) -> None:
    watch = Watch()
    opened = warehouse_with(tmp_path, spark, broken=True, group="all")
    runtime = Runtime(opened, spark, RunOptions(tracks=2), watch.note)
    runtime.start()
    watch.until(lambda good, bad: good["hot"] >= 2 and bad["minutes"] >= 2)
    runtime.stop(grace=PATIENCE)
    derived = [made for made in watch.made if made.table in ("hot", "minutes")]
    first = next(i for i, made in enumerate(derived) if made.table == "minutes")
    leader, companion = sorted(derived[: first + 1], key=lambda made: made.began)[-2:]
    assert (leader.table, companion.table, leader.track) == ("hot", "minutes", companion.track)


def test_a_held_table_goes_on_when_its_declaration_is_mended(tmp_path: Path, spark: SparkSession) -> None:
    watch = Watch()
    runtime = Runtime(warehouse_with(tmp_path, spark, broken=True), spark, RunOptions(tracks=1), watch.note)
    runtime.start()
    watch.until(lambda good, bad: bad["minutes"] >= 1 and good["hot"] >= 1)
    runtime.replace_warehouse(lambda: warehouse_with(tmp_path, spark, broken=False))
    watch.until(lambda good, _: good["minutes"] >= 1)
    runtime.stop(grace=PATIENCE)
    assert {row.name: row.state for row in runtime.statistics()} == {"readings": "ok", "hot": "ok", "minutes": "ok"}


def test_a_table_that_fails_backs_off_with_the_users_own_words_and_the_others_go_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    watch = Watch()
    runtime = Runtime(warehouse_with(tmp_path, spark, broken=True), spark, RunOptions(tracks=1), watch.note)
    runtime.start()
    watch.until(lambda good, bad: bad["minutes"] >= 2 and good["hot"] >= 2)
    runtime.stop(grace=PATIENCE)
    statistics = {row.name: row for row in runtime.statistics()}
    assert statistics["minutes"].state == "failing"
    assert any("my own mistake" in m.traceback for m in watch.made if not m.committed)
    assert statistics["hot"].state == "ok"


def test_to_cancel_a_run_leaves_the_users_own_jobs_on_the_same_spark_alone(tmp_path: Path, spark: SparkSession) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType

    def wait_for(path):  # type: ignore[no-untyped-def]  # Spark cannot read annotations that are texts
        import os
        import time

        while not os.path.exists(path):  # in a worker of Spark, which nobody can wake
            time.sleep(0.05)
        return 1

    wait = F.udf(wait_for, LongType())
    wh = Warehouse("small", path=str(tmp_path / "warehouse"))
    wh.stream("readings", Generator(every="1 second", start=datetime.now(UTC).timestamp() - 60), time="ts")

    @wh.table(time="ts")
    def endless(readings: DataFrame) -> DataFrame:
        return readings.limit(1).select("ts", wait(F.lit(str(tmp_path / "never"))).alias("n"))

    runtime = Runtime(open_warehouse(wh.spec(), spark), spark, RunOptions(tracks=1))
    runtime.start()
    _until(lambda: _has_jobs(spark, "headgate endless"))
    found: list[int] = []

    def users_job() -> None:
        spark.sparkContext.setJobGroup("mine", "a job of the user")
        found.append(spark.range(1).select(wait(F.lit(str(tmp_path / "soon"))).alias("n")).first()["n"])  # type: ignore[index]

    theirs = threading.Thread(target=users_job)
    theirs.start()
    _until(lambda: _has_jobs(spark, "mine"))
    runtime.stop(cancel=True)
    assert not runtime.is_running
    (tmp_path / "soon").touch()
    theirs.join(PATIENCE)
    assert found == [1]


def _has_jobs(spark: SparkSession, group: str) -> bool:
    tracker = spark.sparkContext.statusTracker()
    return not {*tracker.getActiveJobsIds()}.isdisjoint(tracker.getJobIdsForGroup(group))


def _until(holds: Callable[[], bool]) -> None:
    """Wait for something that nobody tells of."""
    tick, ticks = threading.Event(), 0
    while not holds():
        ticks += 1
        assert ticks < 20 * PATIENCE
        tick.wait(0.05)
