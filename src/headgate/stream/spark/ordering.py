"""Rows for queries with states: each bucket of keys in a partition of its own, by event time and then by arrival.

What rows are sorted by beside their time are two integers, which Spark shuffles and sorts at a fraction of the price
of paths, and which do not go on to the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET = "headgate_bucket"
ARRIVED_FILE, ARRIVED_ROW = "headgate_file", "headgate_row"
#: of the number that says in which file a row arrived, the bits that tell files of one update apart
_FILE_BITS = 36


class Arrival(Enum):
    """What tells the order in which rows of the same time arrived."""

    #: the commit that brought them, then their file, then their place in it
    COMMIT = "commit"
    #: all came with one commit, in several files
    FILE = "file"
    #: all are in one file
    ROW = "row"

    @classmethod
    def of(cls, paths: Iterable[str]) -> Arrival:
        """Of rows in these files, each in a folder named after the update that wrote it."""
        files = set(paths)
        if len(files) <= 1:
            return cls.ROW
        return cls.FILE if len({path.rpartition("/")[0] for path in files}) == 1 else cls.COMMIT


def in_order(
    frame: DataFrame, keys: Sequence[str], time: str | None, buckets: int, arrival: Arrival = Arrival.COMMIT
) -> DataFrame:
    """The frame with its rows in order."""
    from pyspark.sql import functions as F

    bucket = F.pmod(F.hash(*keys), F.lit(buckets)) if keys and buckets > 1 else F.lit(0)
    marks = _marks(arrival) if _knows_files(frame) else {}
    order = [*([time] if time else []), *marks]
    marked = frame.select("*", bucket.alias(BUCKET), *(mark.alias(name) for name, mark in marks.items()))
    parted = marked.repartitionById(buckets, BUCKET)
    ordered = parted.sortWithinPartitions(*order) if order else parted
    return ordered.select(*(F.col(f"`{name.replace('`', '``')}`") for name in frame.columns))


def _knows_files(frame: DataFrame) -> bool:
    """Whether rows can still tell which file they are from; after an aggregation, say, their order is Spark's."""
    return "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" ")


def _marks(arrival: Arrival) -> dict[str, Column]:
    """When a row arrived: a file lies in a folder named after the update that wrote it, so paths tell the order of
    commits. Files of one update came at once; any order of theirs will do that is always the same."""
    from pyspark.sql import functions as F

    row = {ARRIVED_ROW: F.col("_metadata.row_index")}
    if arrival is Arrival.ROW:
        return row
    path = F.col("_metadata.file_path")
    if arrival is Arrival.FILE:
        return {ARRIVED_FILE: F.xxhash64(path), **row}
    folder = F.substring_index(F.substring_index(path, "/", -2), "/", 1)
    number = F.substring_index(F.substring(folder, 2, 20), "-", 1)
    # A cast that fails costs more than all the rest, so only what looks like a number is tried: files that maintenance
    # has put together, whose rows came before all others, lie in other folders.
    looks_right = folder.startswith("u") & F.substring(folder, 2, 1).between("0", "9")
    update = F.when(looks_right, number.try_cast("long"))
    file = F.pmod(F.xxhash64(path), F.lit(1 << _FILE_BITS))
    return {ARRIVED_FILE: F.shiftleft(F.coalesce(update, F.lit(0)), _FILE_BITS) + file, **row}
