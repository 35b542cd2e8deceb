"""Rows for queries with states: those of each bucket of keys in one partition, by event time and then by arrival.

What rows are sorted by beside their time are two integers, which Spark shuffles and sorts at a fraction of the price
of paths, and which do not go on to the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    frame: DataFrame,
    keys: Sequence[str],
    time: str | None,
    buckets: int,
    arrival: Arrival = Arrival.COMMIT,
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
        added |= _marks(arrival)
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


def _marks(arrival: Arrival) -> dict[str, str]:
    """When a row arrived: a file lies in a folder named after the update that wrote it, so paths tell the order of
    commits. Files of one update came at once; any order of theirs will do that is always the same."""
    row = {ARRIVED_ROW: "_metadata.row_index"}
    if arrival is Arrival.ROW:
        return row
    path = "_metadata.file_path"
    if arrival is Arrival.FILE:
        return {ARRIVED_FILE: f"xxhash64({path})", **row}
    folder = f"substring_index(substring_index({path}, '/', -2), '/', 1)"
    number = f"substring_index(substring({folder}, 2, 20), '-', 1)"
    # A cast that fails costs more than all the rest, so only what looks like a number is tried: files that maintenance
    # has put together, whose rows came before all others, lie in other folders.
    looks_right = f"startswith({folder}, 'u') AND substring({folder}, 2, 1) BETWEEN '0' AND '9'"
    update = f"CASE WHEN {looks_right} THEN try_cast({number} AS BIGINT) END"
    file = f"pmod(xxhash64({path}), {1 << _FILE_BITS}L)"
    return {ARRIVED_FILE: f"shiftleft(coalesce({update}, 0L), {_FILE_BITS}) + {file}", **row}
