"""Rows for queries with states: those of each bucket of keys in one partition, by event time and then by arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.stream.spark.arrival import Arrival

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET = "headgate_bucket"


def in_order(
    frame: DataFrame,
    keys: Sequence[str],
    time: str | None,
    buckets: int,
    arrival: Arrival,
    together: bool = False,
) -> DataFrame:
    """The frame with its rows in order, each bucket in a partition of its own; or all buckets ``together`` in one
    partition, one after the other, with the bucket as a further column if there are several.

    What is added is written as SQL: every column that is built from Python costs calls into the JVM, and this is done
    for every update.
    """
    several = bool(keys) and buckets > 1
    bucket = f"pmod(hash({', '.join(map(_quoted, keys))}), {buckets})" if several else "0"
    marks = arrival.marks() if _knows_files(frame) else {}
    marked = frame.selectExpr("*", f"{bucket} AS {BUCKET}", *(f"{text} AS {name}" for name, text in marks.items()))
    order = [*([_quoted(time)] if time else []), *marks]
    if together and several:
        return marked.coalesce(1).sortWithinPartitions(BUCKET, *order).drop(*marks)
    parted = marked.coalesce(1) if together else marked.repartitionById(buckets, BUCKET)
    ordered = parted.sortWithinPartitions(*order) if order else parted
    return ordered.drop(BUCKET, *marks)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _knows_files(frame: DataFrame) -> bool:
    """Whether rows can still tell which file they are from; after an aggregation, say, their order is Spark's."""
    return "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" ")
