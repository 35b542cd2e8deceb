"""A warehouse with one stream of Parquet files and one table that holds a query, updated step by step and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

import headgate as hg
from benchmarks.stream_spark.rows import land
from headgate.warehouse.updates.open_warehouse import open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM, TABLE = "landed", "made"


@dataclass(frozen=True)
class Took:
    """Seconds of one update: landed files into the stream's table, and that table's new files into the query's."""

    load: float
    table: float

    @property
    def both(self) -> float:
        return self.load + self.table


class HostedTable:
    """`schema` are the landed columns as Spark writes them, with the event time `ts`; `query` makes the table.

    A warehouse that is in `folder` already goes on.
    """

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        schema: str,
        query: Callable[[DataFrame], DataFrame],
        *,
        time: str,
        partition: str,
    ) -> None:
        self._landing = folder / "landing"
        self._landing.mkdir(parents=True, exist_ok=True)
        self._spark = spark
        self._files = len(list(self._landing.iterdir()))
        warehouse = hg.Warehouse("benchmark", folder / "warehouse")
        source = hg.Files(str(self._landing), format="parquet", schema=schema, settle=0)
        warehouse.stream(STREAM, source, time="ts", partition=partition, period=2.0, max_future=None)

        def made(landed: DataFrame) -> DataFrame:
            return query(landed)

        warehouse.table(name=TABLE, time=time, partition=partition, mode="append")(made)
        self._opened = open_warehouse(warehouse.spec(), spark)

    def land(self, rows: pa.Table) -> None:
        land(rows, self._landing, f"{self._files:06d}")
        self._files += 1

    def update(self) -> Took:
        """Bring both tables up to date with what has landed, in one update each."""
        load, table = (self._updated(name) for name in (STREAM, TABLE))
        return Took(load, table)

    def _updated(self, name: str) -> float:
        began = time.perf_counter()
        if self._opened.nodes[name].update(self._spark) is None:
            raise RuntimeError(f"table {name!r} of the benchmark has nothing to do, although rows have landed")
        seconds = time.perf_counter() - began
        self._opened.updated(name)
        return seconds

    @property
    def directory(self) -> Path:
        """Where the query's table lies."""
        return self._opened.nodes[TABLE].store.directory

    @property
    def bytes_read(self) -> int:
        """What the newest files of the stream's table hold, as stored: what the query's last update has read."""
        files = self._opened.nodes[STREAM].store.files()
        newest = max(file.arrived for file in files)
        return sum(file.size for file in files if file.arrived == newest)

    def rows(self) -> pa.Table:
        """What is in the query's table."""
        store = self._opened.nodes[TABLE].store
        return store.rows(store.files())
