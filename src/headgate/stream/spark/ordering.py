"""Rows for queries with states: those of each bucket of keys in one partition, by event time and then by arrival.

Rows of the same event time are sorted by the commit that brought them, then by file and place in the file. Storage
knows the commit of each file. Files of one commit came at once, so any order of theirs will do that is always the same.
What rows are sorted by beside their time are two integers, which Spark shuffles and sorts at a fraction of the price of
paths, and which do not go on to the workers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET = "headgate_bucket"
ARRIVED_FILE, ARRIVED_ROW = "headgate_file", "headgate_row"
_PATH = "headgate_path"
#: more files than this are not looked up in a list, which is gone through for every row
_MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """A file that an update reads: where it lies, its bytes, and the number of the commit that brought its rows."""

    path: str
    size: int
    commit: int


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """What tells the order of arrival.

    ``sizes`` are the bytes of the files, oldest first, if that tells them apart: to look up a number in a short list
    costs Spark next to nothing. Otherwise ``paths`` gives each file its place, and rows are joined to it.
    """

    by: Literal["row", "file", "commit"] = "commit"
    sizes: tuple[int, ...] = ()
    paths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Collection[ArrivedFile]) -> ArrivalOrder:
        """Of rows in these files."""
        if len(files) <= 1:
            return cls("row")
        if len({file.commit for file in files}) == 1:
            return cls("file")
        oldest_first = sorted(files, key=lambda file: (file.commit, file.path))
        sizes = tuple(file.size for file in oldest_first)
        if len(set(sizes)) == len(sizes) <= _MOST_LISTED:
            return cls("commit", sizes)
        return cls("commit", paths={file.path: place for place, file in enumerate(oldest_first, 1)})

    def columns(self) -> dict[str, str]:
        """The columns to sort by, as SQL over the metadata that Spark has of every row's file."""
        row = {ARRIVED_ROW: "_metadata.row_index"}
        if self.by == "row":
            return row
        if self.by == "commit" and self.sizes:
            listed = ", ".join(f"{size}L" for size in self.sizes)
            place = f"array_position(array({listed}), _metadata.file_size)"
            # Rows of other files than the update's own still stand in some fixed order.
            return {ARRIVED_FILE: f"coalesce(nullif({place}, 0L), xxhash64(_metadata.file_path))", **row}
        if self.by == "commit":
            return {_PATH: "_metadata.file_path", **row}
        return {ARRIVED_FILE: "xxhash64(_metadata.file_path)", **row}


#: outside of any table there are no commits: rows of one file stay in their order, and files come in some fixed one
NO_COMMITS = ArrivalOrder("file")


def in_order(
    frame: DataFrame,
    keys: Sequence[str],
    time: str | None,
    buckets: int,
    arrival: ArrivalOrder,
    together: bool = False,
) -> DataFrame:
    """The frame with its rows in order, each bucket in a partition of its own; or all buckets ``together`` in one
    partition, one after the other, with the bucket as a further column if there are several.

    What is added is written as SQL: every column that is built from Python costs calls into the JVM, and this is done
    for every update.
    """
    several = bool(keys) and buckets > 1
    bucket = f"pmod(hash({', '.join(map(_quoted, keys))}), {buckets})" if several else "0"
    marked, marks = _marked(frame, f"{bucket} AS {BUCKET}", arrival.columns())
    if _PATH in marks:
        marked = _with_places(marked, arrival.paths)
        marks = {ARRIVED_FILE: "", ARRIVED_ROW: ""}
    order = [*([_quoted(time)] if time else []), *marks]
    if together and several:
        return marked.coalesce(1).sortWithinPartitions(BUCKET, *order).drop(*marks)
    parted = marked.coalesce(1) if together else marked.repartitionById(buckets, BUCKET)
    ordered = parted.sortWithinPartitions(*order) if order else parted
    return ordered.drop(BUCKET, *marks)


def _marked(frame: DataFrame, bucket: str, marks: dict[str, str]) -> tuple[DataFrame, dict[str, str]]:
    """The frame with the bucket and with those of ``marks`` that it has; after an aggregation, say, rows do not know
    their file any more, and their order is Spark's."""
    from pyspark.errors import AnalysisException

    if "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" "):
        try:
            return frame.selectExpr("*", bucket, *(f"{text} AS {name}" for name, text in marks.items())), marks
        except AnalysisException:
            pass  # a Python function lies in between: Spark says that there are files, and does not hand them on
    return frame.selectExpr("*", bucket), {}


def _with_places(marked: DataFrame, paths: Mapping[str, int]) -> DataFrame:
    """Each row with the place of its file in the order of arrival, in place of the file's path."""
    from pyspark.sql import functions as F

    spark = marked.sparkSession
    # Spark writes a path as Hadoop does, with some characters escaped: only Hadoop knows which.
    hadoop_path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr] # there is one: it has a frame
    places = pa.table(
        {
            _PATH: [hadoop_path(f"file:{path}").toUri().toString() for path in paths],
            ARRIVED_FILE: pa.array(paths.values(), pa.int64()),
        }
    )
    return marked.join(F.broadcast(spark.createDataFrame(places)), on=_PATH, how="left").drop(_PATH)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
