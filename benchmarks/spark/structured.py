"""The contender of 24 streaming queries: `python -m benchmarks.spark.structured`, options as in `task`.

Every table is a query of Structured Streaming with a sink of its own, all in one session, as one would write it who
wants each table to be independent of the others:

- A base table takes the files that land and writes Parquet with Spark's own file sink, exactly once.
- A derived table takes the files that land as well, since its base table holds just the same rows: streaming from the
  base table would be one more micro-batch to wait for. `--source base` does that, through the log of the file sink.
- Tables of rows use the file sink as well. Tables of windows aggregate with state in *update* mode, so that a reader
  sees windows that are still open: every micro-batch writes the groups that it changed into a folder `batch=N`, and a
  reader takes the newest row of each group. (In *append* mode, which the file sink needs, a window would appear only
  when the watermark has passed its end. Replacing the older rows in place would cost more than this.)

Each micro-batch tells Spark the greatest event time among the rows it took in; that, and the time at which the sink had
the batch, is all that the log needs. Spark keeps both, and they are read once at the end: a listener in Python would
cost a core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarks.spark.log import LogWriter, Visible
from benchmarks.spark.session import STREAMING, open_session, run_until_end
from benchmarks.spark.task import Task, task_from, task_parser
from benchmarks.spark.workload import SCHEMA, STREAMS, TABLES, TIME, Table
from benchmarks.spark.writing import BATCH, WRITERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SETTINGS = {
    **STREAMING,
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    # One: with more queries than cores, a second task and a second store of state for each query only cost.
    "spark.sql.shuffle.partitions": "1",
}
SOURCES = ("landing", "base")
#: Data comes in order; a minute is what one would allow for. It decides only how long state is kept.
LATENESS = "1 minute"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = task_parser("structured")
    parser.add_argument("--source", choices=SOURCES, default=SOURCES[0], help="what derived tables stream from")
    options = parser.parse_args(arguments)
    task = task_from(options)
    spark = open_session("structured", task, SETTINGS)
    queries = [_base(spark, task, stream.name) for stream in STREAMS]
    by_priority = sorted(TABLES, key=lambda table: -table.priority)
    queries += [_derived(spark, task, table, options.source) for table in by_priority]
    run_until_end(spark, task)
    with LogWriter(task.log) as log:
        log.write(_updates(queries))
    for query in queries:
        query.stop()
    spark.stop()


def _base(spark: SparkSession, task: Task, name: str) -> StreamingQuery:
    return _to_files(_writer(task, name, _observed(_landed(spark, task, name))), task, name)


def _derived(spark: SparkSession, task: Task, table: Table, source: str) -> StreamingQuery:
    rows = _landed(spark, task, table.stream) if source == "landing" else _loaded(spark, task, table.stream)
    rows = _observed(rows)
    if table.kind == "rows":
        return _to_files(_writer(task, table.name, table.function(rows)), task, table.name)
    writer = _writer(task, table.name, table.function(rows.withWatermark(TIME, LATENESS)))
    write = WRITERS[task.writer]

    def write_changes(groups: DataFrame, number: int) -> None:
        write(groups, task.out / table.name / f"{BATCH}={number}")

    return writer.outputMode("update").foreachBatch(write_changes).start()


def _landed(spark: SparkSession, task: Task, stream: str) -> DataFrame:
    folder = task.landing / stream
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(SCHEMA).json(str(folder))


def _loaded(spark: SparkSession, task: Task, stream: str) -> DataFrame:
    folder = task.out / stream
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(SCHEMA).parquet(str(folder))


def _observed(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.observe("taken", F.max(F.unix_micros(TIME)).alias("micros"))


def _writer(task: Task, name: str, frame: DataFrame) -> DataStreamWriter:
    return frame.writeStream.queryName(name).option("checkpointLocation", str(task.out / "_checkpoints" / name))


def _to_files(writer: DataStreamWriter, task: Task, name: str) -> StreamingQuery:
    return writer.format("parquet").start(str(task.out / name))


def _updates(queries: Iterable[StreamingQuery]) -> Iterator[Visible]:
    for query in queries:
        for progress in query.recentProgress:
            taken = progress.observedMetrics.get("taken")
            if taken is not None and taken.micros is not None:
                yield Visible(query.name, _visible(progress), taken.micros / 1e6)


def _visible(progress: StreamingQueryProgress) -> float:
    """When the sink had the batch: its start and all it took but the note in the checkpoint that it is done."""
    start = datetime.fromisoformat(progress.timestamp).timestamp()
    took = progress.durationMs
    return start + (took["triggerExecution"] - took.get("commitOffsets", 0)) / 1000


if __name__ == "__main__":
    main()
