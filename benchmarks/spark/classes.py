"""Three tables that matter and ten that do not (Haren, section 7.4): `python -m benchmarks.spark.classes PART ...`.

Every stream of files has a base table with its rows and a table of means over them; the lag is that of the means. The
parts are processes of their own: *arrivals* lands files, *structured* keeps both tables of a stream fresh with one
streaming query each, *warehouse* with Headgate and the policy that puts the higher class first. In *bursts*, the
streams that matter have files for five seconds, many of them, and then none for fifteen.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import headgate as hg
from benchmarks.spark.log import LogWriter, Visible
from headgate.core import Update, placement_from, policy_from
from headgate.warehouse.run.run import SparkOptions, WarehouseRun
from headgate.warehouse.schedule.run_options import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HIGH, LOW = 3, 10
SCHEMA = "ts timestamp, key string, value double"
#: rows of a file, of the streams that matter and of the others
HIGH_ROWS, LOW_ROWS = 400, 4000
#: a file every so many seconds: of those that matter, steady and in a burst; of the others
STEADY_PERIOD, BURST_PERIOD, LOW_PERIOD = 1.0, 0.25, 2.0
BURST_ON, BURST_OFF = 5.0, 15.0
QUERY = "select date_trunc('minute', ts) as minute, key, avg(value) as mean, count(*) as n from {stream} group by 1, 2"


@dataclass(frozen=True)
class Stream:
    """A stream and the table over it, which is called as the stream with `_table` behind."""

    name: str
    high: bool

    def times(self, start: float, bursts: bool) -> Iterator[float]:
        """When its files come, without end."""
        if not self.high or not bursts:
            period = STEADY_PERIOD if self.high else LOW_PERIOD
            number = 0
            while True:
                number += 1
                yield start + number * period
        cycle = 0
        while True:
            begin = start + cycle * (BURST_ON + BURST_OFF)
            for number in range(round(BURST_ON / BURST_PERIOD)):
                yield begin + (number + 1) * BURST_PERIOD
            cycle += 1


STREAMS = (
    *(Stream(f"high_{number}", True) for number in range(HIGH)),
    *(Stream(f"low_{number}", False) for number in range(LOW)),
)


def table_of(stream: str) -> str:
    return f"{stream}_table"


def arrivals(options: argparse.Namespace) -> None:
    """Lands files on time and notes when, and up to which event time, in `landed.jsonl`."""
    start, end = time.time(), time.time() + options.seconds
    for stream in STREAMS:
        (options.landing / stream.name).mkdir(parents=True, exist_ok=True)
    coming = [(next(times), number, times) for number, times in _schedules(start, options.bursts)]
    heapq.heapify(coming)
    rows = [f'", "key": "k{row % 20}", "value": {row % 97}.5}}\n' for row in range(max(HIGH_ROWS, LOW_ROWS))]
    with (options.landing / "landed.jsonl").open("w", encoding="utf-8") as log:
        while coming[0][0] < end:
            due, number, times = heapq.heappop(coming)
            time.sleep(max(0.0, due - time.time()))
            last = time.time()
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(last)) + f".{int(last % 1 * 1e6):06d}Z"
            name, count = STREAMS[number].name, HIGH_ROWS if STREAMS[number].high else LOW_ROWS
            hidden = options.landing / name / f".{due:.3f}.json"
            hidden.write_text("".join(f'{{"ts": "{moment}{row}' for row in rows[:count]), encoding="utf-8")
            hidden.rename(hidden.with_name(hidden.name[1:]))
            log.write(json.dumps({"stream": name, "landed": time.time(), "last": int(last * 1e6) / 1e6}) + "\n")
            log.flush()
            heapq.heappush(coming, (next(times), number, times))


def _schedules(start: float, bursts: bool) -> Iterator[tuple[int, Iterator[float]]]:
    # not all at the same moment
    for number, stream in enumerate(STREAMS):
        yield number, stream.times(start + number / len(STREAMS), bursts)


def structured(options: argparse.Namespace) -> None:
    """One streaming query for each table. Both tables of a stream read the landed files, since streaming from the base
    table would be one more micro-batch to wait for."""
    from pyspark.sql import functions as F

    from benchmarks.spark.session import STREAMING, open_session, run_until_end
    from benchmarks.spark.task import Task, Writer
    from benchmarks.spark.writing import WRITERS

    end = time.time() + options.seconds
    writer: Writer = "spark" if options.installed else "driver"
    task = Task(options.landing, options.out, options.log, end, "local[2]", writer, options.installed)
    options.out.mkdir(parents=True)
    spark = open_session("structured", task, STREAMING)
    write = WRITERS[writer]
    with LogWriter(options.log) as log:
        queries = []

        def begin(stream: Stream) -> None:
            folder = options.landing / stream.name
            folder.mkdir(parents=True, exist_ok=True)
            rows = spark.readStream.schema(SCHEMA).json(str(folder))
            base = rows.writeStream.queryName(stream.name).format("parquet")
            base = base.option("checkpointLocation", str(options.out / "_checkpoints" / stream.name))
            queries.append(base.start(str(options.out / stream.name)))
            rows = rows.withWatermark("ts", "1 minute")
            minute = F.date_trunc("minute", "ts").alias("minute")
            means = rows.groupBy(minute, "key").agg(
                F.avg("value").alias("mean"), F.count("*").alias("n"), F.max("ts").alias("last")
            )

            def refresh(batch: DataFrame, number: int) -> None:
                folder = options.out / table_of(stream.name) / f"batch={number}"
                write(batch, folder)
                fresh = _last(spark, folder)
                if fresh is not None:
                    log.write([Visible(table_of(stream.name), time.time(), fresh)])

            place = str(options.out / "_checkpoints" / table_of(stream.name))
            derived = means.writeStream.queryName(table_of(stream.name)).option("checkpointLocation", place)
            queries.append(derived.outputMode("update").foreachBatch(refresh).start())

        for stream in STREAMS:
            begin(stream)
        run_until_end(spark, task)
    for query in queries:
        query.stop()
    spark.stop()


def _last(spark: SparkSession, folder: Path) -> float | None:
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.dataset as ds  # type: ignore[import-untyped]

    if not folder.exists():
        return None
    last = pc.max(ds.dataset(folder, format="parquet").to_table(columns=["last"]).column("last")).as_py()
    return None if last is None else float(last.timestamp())


def warehouse(options: argparse.Namespace) -> None:
    """The same tables in a warehouse."""
    wh = hg.Warehouse("classes", options.out / "warehouse")
    for stream in STREAMS:
        source = hg.Files(str(options.landing / stream.name), format="json", schema=SCHEMA, settle=0)
        important = {"importance_class": int(stream.high), "priority": 100.0 if stream.high else 1.0}
        period = STEADY_PERIOD if stream.high else LOW_PERIOD
        wh.stream(stream.name, source, time="ts", period=period, partition="1 minute", **important)
        query = QUERY.format(stream=stream.name)
        wh.sql(table_of(stream.name), query, time="minute", partition="1 minute", **important)
    settings = RunOptions(tracks=2, policy=policy_from(options.policy), placement=placement_from("anywhere"))
    with LogWriter(options.log) as log:

        def note(update: Update) -> None:
            if update.committed and update.freshness is not None and update.table.endswith("_table"):
                log.write([Visible(update.table, update.ended, update.freshness / 1e6)])

        spark = SparkOptions("local[2]", {"spark.driver.memory": "2g"})
        end = time.time() + options.seconds
        with WarehouseRun(wh.spec(), settings, spark, note):
            time.sleep(max(0.0, end - time.time()))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.classes")
    parser.add_argument("part", choices=("arrivals", "structured", "warehouse"))
    parser.add_argument("--landing", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--bursts", action="store_true")
    parser.add_argument("--policy", default="multi-class:default=max-benefit")
    parser.add_argument("--installed", action="store_true", help="structured: native sinks and file system")
    options = parser.parse_args(arguments)
    {"arrivals": arrivals, "structured": structured, "warehouse": warehouse}[options.part](options)


if __name__ == "__main__":
    main()
