"""Rows for queries with states: each bucket of keys in a partition of its own, by event time and then by arrival.

What rows are sorted by beside their time are two integers, which Spark shuffles and sorts at a fraction of the price
of paths, and which do not go on to the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET = "headgate_bucket"
ARRIVED_FILE, ARRIVED_ROW = "headgate_file", "headgate_row"
#: of the number that says in which file a row arrived, the bits that tell files of one update apart
_FILE_BITS = 36


def in_order(frame: DataFrame, keys: Sequence[str], time: str | None, buckets: int) -> DataFrame:
    """The frame with its rows in order."""
    from pyspark.sql import functions as F

    bucket = F.pmod(F.hash(*keys), F.lit(buckets)) if keys and buckets > 1 else F.lit(0)
    arrival = _arrival() if _knows_files(frame) else []
    order = [*([time] if time else []), *((ARRIVED_FILE, ARRIVED_ROW) if arrival else ())]
    marked = frame.select("*", bucket.alias(BUCKET), *arrival)
    parted = marked.repartitionById(buckets, BUCKET)
    ordered = parted.sortWithinPartitions(*order) if order else parted
    return ordered.select(*(F.col(f"`{name.replace('`', '``')}`") for name in frame.columns))


def _knows_files(frame: DataFrame) -> bool:
    """Whether rows can still tell which file they are from; after an aggregation, say, their order is Spark's."""
    return "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" ")


def _arrival() -> list[Column]:
    """When a row arrived: a file lies in a folder named after the update that wrote it, so paths tell the order of
    commits. Files of one update came at once; any order of theirs will do that is always the same."""
    from pyspark.sql import functions as F

    path = F.col("_metadata.file_path")
    folder = F.substring_index(F.substring_index(path, "/", -2), "/", 1)
    number = F.substring_index(F.substring(folder, 2, 20), "-", 1)
    # A cast that fails costs more than all the rest, so only what looks like a number is tried: files that maintenance
    # has put together, whose rows came before all others, lie in other folders.
    looks_right = folder.startswith("u") & F.substring(folder, 2, 1).between("0", "9")
    update = F.when(looks_right, number.try_cast("long"))
    file = F.pmod(F.xxhash64(path), F.lit(1 << _FILE_BITS))
    return [
        (F.shiftleft(F.coalesce(update, F.lit(0)), _FILE_BITS) + file).alias(ARRIVED_FILE),
        F.col("_metadata.row_index").alias(ARRIVED_ROW),
    ]
