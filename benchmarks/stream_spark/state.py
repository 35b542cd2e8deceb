"""Updates of a table whose query holds very many keys: `python -m benchmarks.stream_spark.state OPTIONS`.

*grow* fills a warehouse with the keys, then times updates that touch few of them against the same rows on empty states,
in turn. *restore* opens such a warehouse in another process and times the first update, for which workers must take the
states up from files, against later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.stream_spark.hosted_table import HostedTable
from benchmarks.stream_spark.process import answer
from benchmarks.stream_spark.running_totals import SCHEMA, rows_of, some_keys, totals_table
from benchmarks.stream_spark.session import spark_session
from headgate.stream.spark.update import state_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP = 4


def measure(part: str, **options: Any) -> Any:
    parts: dict[str, Callable[..., Any]] = {"grow": grow, "restore": restore}
    return parts[part](**options)


def grow(folder: str, keys: int, loads: int, touched: int, buckets: int, updates: int) -> dict[str, Any]:
    """Seconds of the table's updates: those that bring the keys, and pairs of those that touch few."""
    root = Path(folder)
    with spark_session(root / "session") as spark:
        _warm_up(spark, root / "warm-1", buckets, touched)
        full = _table(root / "full", spark, buckets)
        filling = []
        share = keys // loads
        for number in range(loads):
            full.land(rows_of(np.arange(number * share, (number + 1) * share, dtype=np.int64), number))
            filling.append(full.update().table)
        pairs = []
        for number in range(updates + 1):
            rows = rows_of(some_keys(touched, keys, number * touched), loads + number)
            empty = _table(root / f"empty-{number}", spark, buckets)
            seconds = {}
            for name, table in (("empty", empty), ("full", full)):
                table.land(rows)
                seconds[name] = table.update().table
            # the first comes after the largest update of all
            if number:
                pairs.append(seconds)
        _check(full, touched, 2, "brought once and touched once")
        size = sum(path.stat().st_size for path in state_folder(full.directory).iterdir())
    return {"filling": filling, "pairs": pairs, "state bytes": size}


def restore(folder: str, keys: int, touched: int, buckets: int, after: int, updates: int) -> dict[str, Any]:
    """Seconds of the first update of workers that have not seen the states, and of those after it."""
    root = Path(folder)
    with spark_session(root / "session") as spark:
        _warm_up(spark, root / "warm-2", buckets, touched)
        began = time.perf_counter()
        full = _table(root / "full", spark, buckets)
        opened = time.perf_counter() - began
        seconds = []
        for number in range(updates + 1):
            full.land(rows_of(some_keys(touched, keys, number * touched), after + number))
            seconds.append(full.update().table)
        _check(full, touched, 3, "brought once, and touched once before and once after the states were taken up")
    return {"opened": opened, "first": seconds[0], "later": seconds[1:]}


def _table(folder: Path, spark: SparkSession, buckets: int) -> HostedTable:
    return HostedTable(folder, spark, SCHEMA, partial(totals_table, buckets), time="ts", partition="1 day")


def _check(table: HostedTable, touched: int, count: int, why: str) -> None:
    """The rows of the last update tell of all that their keys have been through."""
    rows = table.rows()
    newest = np.argsort(rows.column("ts").cast(pa.int64()).to_numpy())[-touched:]
    found = np.unique(rows.column("n").to_numpy()[newest])
    if found.tolist() != [count]:
        raise RuntimeError(f"keys were {why}, so their rows must count {count}; got {found.tolist()}")


def _warm_up(spark: SparkSession, folder: Path, buckets: int, rows: int) -> None:
    """Have the JVM compile what it will run, and workers started, with another table."""
    table = _table(folder, spark, buckets)
    for number in range(WARM_UP):
        table.land(rows_of(some_keys(rows, 1 << 40, number * rows), number))
        table.update()


if __name__ == "__main__":
    answer(measure)
