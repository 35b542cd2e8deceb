"""The contender written by hand: `python -m benchmarks.spark.handmade`, options as in `task`.

One streaming query per stream, whose `foreachBatch` refreshes the base table and then its five derived tables, the most
important first. What a careful engineer would write who knows all tables and may put them into one program:

- The batch goes into the base table first, into a folder `batch=N`; the files' statistics tell of which event times.
- A table of rows gets the new rows computed from the new files, in a folder `batch=N`.
- A table of windows is computed again for the minutes that the batch touches, mostly one, from the base table's files
  of that minute, read once and kept in memory for all four tables. The result goes into a folder for the minute and in
  it `batch=N`; then the minute's earlier result is deleted. A reader takes the newest batch of every minute, so results
  are complete and correct at any moment.

Every folder is written whole under the number of its batch, so a batch that Spark repeats after a crash does no harm.
Which batch holds which minutes is kept in memory only: a restart would have to read the statistics again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.spark.log import LogWriter, Visible
from benchmarks.spark.session import STREAMING, open_session, run_until_end
from benchmarks.spark.task import Task, parse_task
from benchmarks.spark.workload import SCHEMA, STREAMS, TIME, Stream, Table, derived
from benchmarks.spark.writing import BATCH, MINUTE_FOLDER, WRITERS, parquet_files, time_span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE = 60


def main(arguments: Sequence[str] | None = None) -> None:
    task = parse_task("handmade", arguments)
    spark = open_session("handmade", task, STREAMING)
    with LogWriter(task.log) as log:
        queries = []
        for stream in STREAMS:
            folder = task.landing / stream.name
            folder.mkdir(parents=True, exist_ok=True)
            rows = spark.readStream.schema(SCHEMA).json(str(folder))
            writer = rows.writeStream.queryName(stream.name).foreachBatch(Refresh(spark, stream, task, log))
            queries.append(writer.option("checkpointLocation", str(task.out / "_checkpoints" / stream.name)).start())
        run_until_end(spark, task)
    for query in queries:
        query.stop()
    spark.stop()


class Refresh:
    """Takes one batch of a stream into all of its tables. Called by one thread at a time, with growing numbers."""

    def __init__(self, spark: SparkSession, stream: Stream, task: Task, log: LogWriter) -> None:
        self._spark = spark
        self._base = stream.name
        self._tables = derived(stream.name)
        self._out = task.out
        self._write = WRITERS[task.writer]
        self._log = log
        #: minute: all files of the base table with rows of it; a minute is its number since the epoch
        self._files_of: dict[int, list[Path]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        folder = self._out / self._base / f"{BATCH}={number}"
        self._write(batch, folder)
        new = parquet_files(folder)
        span = time_span(new, TIME)
        if span is None:
            return
        first, last = span
        self._note(self._base, last)
        minutes = range(int(first // MINUTE), int(last // MINUTE) + 1)
        for minute in minutes:
            self._files_of.setdefault(minute, []).extend(new)
        touched = {minute: self._rows_of(minute).persist() for minute in minutes}
        for table in self._tables:
            if table.kind == "rows":
                self._write(table.function(self._read(new)), self._out / table.name / f"{BATCH}={number}")
            else:
                for minute, rows in touched.items():
                    self._replace(table, minute, rows, number)
            self._note(table.name, last)
        for rows in touched.values():
            rows.unpersist()

    def _replace(self, table: Table, minute: int, rows: DataFrame, number: int) -> None:
        label = datetime.fromtimestamp(minute * MINUTE, UTC).strftime("%Y-%m-%dT%H%M")
        folder = self._out / table.name / f"{MINUTE_FOLDER}={label}"
        old = list(folder.glob(f"{BATCH}=*"))
        self._write(table.function(rows), folder / f"{BATCH}={number}")
        for each in old:
            if each.name != f"{BATCH}={number}":
                shutil.rmtree(each)

    def _rows_of(self, minute: int) -> DataFrame:
        """The base table's rows of one minute. The condition, and with it the code that Spark generates, stays the same
        from batch to batch of a minute."""
        from pyspark.sql import functions as F

        start, end = (F.timestamp_seconds(F.lit(each * MINUTE)) for each in (minute, minute + 1))
        return self._read(self._files_of[minute]).where((F.col(TIME) >= start) & (F.col(TIME) < end))

    def _read(self, files: Sequence[Path]) -> DataFrame:
        return self._spark.read.schema(SCHEMA).parquet(*map(str, files))

    def _note(self, table: str, fresh: float) -> None:
        self._log.write([Visible(table, time.time(), fresh)])


if __name__ == "__main__":
    main()
