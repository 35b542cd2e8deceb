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
    named = ", ".join(_quoted(key) for key in keys)
    added = {BUCKET: f"pmod(hash({named}), {buckets})" if several else "0"}
    if _knows_files(frame):
        added |= arrival.marks()
    marked = frame.selectExpr("*", *(f"{text} AS {name}" for name, text in added.items()))
    order = [*([_quoted(time)] if time else []), *(name for name in added if name != BUCKET)]
    if together:
        order = [BUCKET, *order] if several else order
        added = {name: text for name, text in added.items() if not (several and name == BUCKET)}
        parted = marked.coalesce(1)
    else:
        parted = marked.repartitionById(buckets, BUCKET)
    ordered = parted.sortWithinPartitions(*order) if order else parted
    return ordered.drop(*added)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _knows_files(frame: DataFrame) -> bool:
    """Whether rows can still tell which file they are from; after an aggregation, say, their order is Spark's."""
    return "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" ")
