"""Compares a contender's tables with what the queries give on all files at once.

    python -m benchmarks.spark.verify --landing F --tables D

Only tables that have caught up can be right: end arrivals some time before the contender (`contest --drain`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark.workload import SCHEMA, STREAMS, TABLES
from benchmarks.spark.writing import BATCH, MINUTE_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def visible(spark: SparkSession, folder: Path, identity: Sequence[str]) -> DataFrame:
    """What a reader sees of the table in `folder`; of several rows with the same `identity` the newest batch's."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = spark.read.parquet(str(folder))
    if BATCH not in rows.columns:
        return rows
    if identity:
        newest = F.max(BATCH).over(Window.partitionBy(*identity))
        rows = rows.withColumn("_newest", newest).where(F.col(BATCH) == F.col("_newest")).drop("_newest")
    return rows.drop(BATCH, MINUTE_FOLDER)


def differences(spark: SparkSession, landing: Path, tables: Path) -> dict[str, int]:
    """The number of rows that are wrong, missing or too many, of every table."""
    found = {}
    for stream in STREAMS:
        base = spark.read.schema(SCHEMA).json(str(landing / stream.name)).persist()
        found[stream.name] = _different(base, visible(spark, tables / stream.name, ()))
        for table in TABLES:
            if table.stream == stream.name:
                identity = (table.time, *table.group) if table.kind == "windows" else ()
                there = visible(spark, tables / table.name, identity)
                found[table.name] = _different(table.function(base), there)
        base.unpersist()
    return found


def _different(expected: DataFrame, got: DataFrame) -> int:
    columns = expected.columns
    pairs = [sorted(map(tuple, frame.select(*columns).collect())) for frame in (expected, got)]
    if len(pairs[0]) != len(pairs[1]):
        return max(abs(len(pairs[0]) - len(pairs[1])), 1)
    return sum(not _alike(one, other) for one, other in zip(*pairs, strict=True))


def _alike(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Equal but for the last digits of means, which depend on the order of adding."""
    return all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) else a == b for a, b in zip(one, other, strict=True)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description="Compare a contender's tables with the queries on all files.")
    parser.add_argument("--landing", type=Path, required=True)
    parser.add_argument("--tables", type=Path, required=True, help="what was --out for the contender")
    options = parser.parse_args(arguments)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    for key, value in (("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false")):
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    wrong = {name: count for name, count in differences(spark, options.landing, options.tables).items() if count}
    spark.stop()
    print(f"{len(wrong)} of {len(STREAMS) + len(TABLES)} tables differ: {wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
