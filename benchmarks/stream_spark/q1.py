"""Q1 inside a table, in updates of so many rows, and where their time goes:
`python -m benchmarks.stream_spark.q1 OPTIONS`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.stream_spark.hosted_table import HostedTable
from benchmarks.stream_spark.process import answer
from benchmarks.stream_spark.rows import SECONDS_BEFORE_EPOCH, land, stamped
from benchmarks.stream_spark.session import spark_session
from benchmarks.stream_spark.ticket_pairs import KEY, SCHEMA, swallowed, top_pairs, top_pairs_table, with_hour
from headgate.stream import on_spark
from workloads.tpcxbb import q1
from workloads.tpcxbb.batch import oracle_sql
from workloads.tpcxbb.dims import Dims
from workloads.tpcxbb.sales import store_sales

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def measure(
    rows: int, updates: int, warm_up: int, buckets: int, seed: int, reps: int, packet_rows: int | None = None
) -> dict[str, Any]:
    """Seconds of each update, whether the table is right, and the seconds up to each step of an update."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sales = stamped(store_sales(rows * (warm_up + updates), seed=seed))
        with spark_session(folder) as spark:
            query = partial(top_pairs_table, buckets, packet_rows)
            table = HostedTable(folder / "q1", spark, SCHEMA, query, time="hour", partition="3650 days")
            found = []
            for number in range(warm_up + updates):
                table.land(sales.slice(number * rows, rows))
                took = table.update()
                if number >= warm_up:
                    found.append({"load": took.load, "table": took.table})
            checked = _checked(spark, sales.slice(0, rows), table.rows(), seed)
            one = str(land(sales.slice(0, rows), folder / "steps", "rows"))
            steps = _steps(spark, one, buckets, reps)
    return {"updates": found, "hours checked": checked, "steps": steps}


def _checked(spark: SparkSession, sales: pa.Table, found: pa.Table, seed: int) -> int:
    """Compares all hours that lie in the first update with the batch query; how many they are."""
    seconds = "unix_seconds(ts) + " + str(SECONDS_BEFORE_EPOCH)
    spark.createDataFrame(sales).selectExpr(f"{seconds} AS ts", "ticket", "item", "store").createOrReplaceTempView(
        "store_sales"
    )
    spark.createDataFrame(Dims(seed).item_table()).createOrReplaceTempView("item")
    expected = spark.sql(oracle_sql(q1.NAME, q1.PAPER)).toArrow()
    hours = expected.column("hour").to_numpy()
    # the last hour may go on in the next update
    wanted = _as_rows(expected, ("hour", "place", "a", "b", "tickets"), hours < hours.max())
    known = found.column(KEY).to_numpy()
    have = _as_rows(found, (KEY, "rank", "a", "b", "count"), np.isin(known, np.unique(hours[hours < hours.max()])))
    out = np.isin(wanted[:, 0], have[:, 0])
    if not np.array_equal(wanted[out], have):
        raise RuntimeError("Q1 inside the table differs from the batch query")
    return len(np.unique(have[:, 0]))


def _as_rows(table: pa.Table, columns: tuple[str, ...], chosen: Any) -> Any:
    cells = np.column_stack([table.column(name).to_numpy().astype(np.int64) for name in columns])[chosen]
    return cells[np.lexsort((cells[:, 1], cells[:, 0]))]


def _steps(spark: SparkSession, file: str, buckets: int, reps: int) -> dict[str, float]:
    """Median seconds up to each step of an update of the table, every step with all those before it."""
    lines = spark.read.schema(SCHEMA).parquet(file)

    def sorted_lines(order: list[str]) -> DataFrame:
        return with_hour(lines).repartition(buckets, KEY).sortWithinPartitions(*order)

    frames: dict[str, Callable[[], DataFrame]] = {
        "read": lambda: lines,
        "partition by hour, sort by time": lambda: sorted_lines(["ts"]),
        "order of arrival, to Python": lambda: on_spark(
            with_hour(lines), swallowed, keys=[KEY], time="ts", buckets=buckets
        ),
        "engine, back to Spark": lambda: on_spark(with_hour(lines), top_pairs, keys=[KEY], time="ts", buckets=buckets),
    }
    times: dict[str, list[float]] = {name: [] for name in frames}
    # without repetitions, as in a smoke run, the only run of each counts, cold as it is
    for rep in range(reps + 1):
        for name, frame in frames.items():
            began = time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            if rep or not reps:
                times[name].append(time.perf_counter() - began)
    return {name: median(each) for name, each in times.items()}


if __name__ == "__main__":
    answer(measure)
