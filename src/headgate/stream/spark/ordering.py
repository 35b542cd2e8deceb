"""Rows for queries with states: each bucket of keys in a partition of its own, by event time and then by arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET = "headgate_bucket"
ARRIVED_IN, ARRIVED_FILE, ARRIVED_ROW = "headgate_update", "headgate_file", "headgate_row"


def in_order(frame: DataFrame, keys: Sequence[str], time: str | None, buckets: int) -> DataFrame:
    """The frame with its rows in order, and columns added that say what the order is."""
    from pyspark.sql import functions as F

    bucket = F.pmod(F.hash(*keys), F.lit(buckets)) if keys and buckets > 1 else F.lit(0)
    arrival = _arrival() if _knows_files(frame) else []
    order = [*([time] if time else []), *((ARRIVED_IN, ARRIVED_FILE, ARRIVED_ROW) if arrival else ())]
    marked = frame.select("*", bucket.alias(BUCKET), *arrival)
    if not order:
        return marked.repartitionById(buckets, BUCKET)
    return marked.repartitionById(buckets, BUCKET).sortWithinPartitions(*order)


def _knows_files(frame: DataFrame) -> bool:
    """Whether rows can still tell which file they are from; after an aggregation, say, their order is Spark's."""
    return "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" ")


def _arrival() -> list[Column]:
    """When a row arrived: a file lies in a folder named after the update that wrote it, so paths tell the order of
    commits."""
    from pyspark.sql import functions as F

    path = F.col("_metadata.file_path")
    number = F.regexp_extract(path, r"/u(\d+)-[^/]*/[^/]*$", 1)
    return [
        F.lpad(number, 20, "0").alias(ARRIVED_IN),
        path.alias(ARRIVED_FILE),
        F.col("_metadata.row_index").alias(ARRIVED_ROW),
    ]
