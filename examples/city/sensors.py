"""Where the city's lines come from: RIoTBench's generator of SenML as a source of a warehouse.

When chunks arrive, and that the same ones come again after a crash, is the business of the warehouse's own Generator;
which lines are in them is the workload's. A line's number follows from that of its chunk, so whoever knows when the
stream began can make every line again: that is how ``check.py`` finds out whether one was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

import headgate as hg
from headgate.warehouse import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN, GeneratorRange, Range, expect_kind
from workloads.riot import City

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: when a line was sent, its number, who sent it (what would be the topic of a message queue), and the line as it came
SCHEMA = "ts timestamp, msgid long, source string, line string"


class SensorLines(hg.Generator):
    """Every ``every`` seconds, the lines that the city's sensors have sent since. ``city.start`` does not count."""

    def __init__(self, city: City, every: int = 2, clock: Callable[[], float] = time.time) -> None:
        rows = round(city.rows_per_second * every)
        super().__init__(SCHEMA, rows_per_chunk=rows, every=every, seed=city.seed, clock=clock)
        self.city = city
        self._rows = rows
        self._every = every

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        run = expect_kind(wanted, GeneratorRange, self)
        # What arrives first was sent in the time before.
        city = replace(self.city, start=run.began // 1000 - 1000 * self._every)
        rows = landed(city, run.first * self._rows, run.chunks * self._rows)
        chunks = pa.array([f"chunk {run.first + row // self._rows}" for row in range(rows.num_rows)], pa.string())
        rows = rows.append_column(FILE_COLUMN, chunks).append_column(RAW_COLUMN, rows.column("line"))
        rows = rows.append_column(ERROR_COLUMN, pa.nulls(rows.num_rows, pa.string()))
        added = "".join(f", {name} string" for name in (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN))
        return spark.createDataFrame(rows, SCHEMA + added)


def landed(city: City, first: int, count: int) -> pa.Table:
    """Lines ``first`` to ``first + count - 1`` as they land, malformed ones among them."""
    readings = city.readings(first, count)
    sent = readings.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    line = city.lines(first, count).column("line")
    columns = [sent, readings.column("msgid"), readings.column("source"), line]
    return pa.table(columns, names=["ts", "msgid", "source", "line"])
