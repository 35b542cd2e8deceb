"""The order of rows for queries with states: each bucket of keys in one partition, by event time and then by arrival.

Rows of the same event time are sorted by the commit that added them, then by file and position in the file. Storage
knows the commit of each file. Files of one commit arrived together, so any fixed order of them will do. The order is
expressed in two integer columns: Spark shuffles and sorts integers much faster than paths. They are dropped before the
rows go to the workers.
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
#: up to this many files are looked up in a list, which Spark searches for every row
_MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """A file that an update reads: its path, its size, and the number of the commit that added its rows."""

    path: str
    size: int
    commit: int


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """How the order of arrival is found.

    If all files have different sizes, ``sizes`` are these, oldest first: looking up a number in a short list costs
    Spark very little. Otherwise ``paths`` has the position of each file, and rows are joined to it.
    """

    by: Literal["row", "file", "commit"] = "commit"
    sizes: tuple[int, ...] = ()
    paths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Collection[ArrivedFile]) -> ArrivalOrder:
        """The order of the rows in these files."""
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
            # Rows of files that are not in the list are in some fixed order.
            return {ARRIVED_FILE: f"coalesce(nullif({place}, 0L), xxhash64(_metadata.file_path))", **row}
        if self.by == "commit":
            return {_PATH: "_metadata.file_path", **row}
        return {ARRIVED_FILE: "xxhash64(_metadata.file_path)", **row}


#: outside of any table there are no commits: rows of a file stay in their order, files are in some fixed order
NO_COMMITS = ArrivalOrder("file")


def in_order(
    frame: DataFrame,
    keys: Sequence[str],
    time: str | None,
    buckets: int,
    arrival: ArrivalOrder,
    together: bool = False,
) -> DataFrame:
    """The frame with its rows in order, each bucket in its own partition; or all buckets ``together`` in one partition,
    one after the other, with the bucket as a further column if there are several.

    Columns are written as SQL, because building them in Python costs calls into the JVM for every update.
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
    """The frame with the bucket, and with ``marks`` if its rows come from files.

    After an aggregation, for example, they do not; then rows of the same time are in Spark's order.
    """
    from pyspark.errors import AnalysisException

    if "_metadata" in frame._jdf.queryExecution().analyzed().metadataOutput().mkString(" "):
        try:
            return frame.selectExpr("*", bucket, *(f"{text} AS {name}" for name, text in marks.items())), marks
        except AnalysisException:
            pass  # behind a Python function Spark still reports the metadata, but does not pass it on
    return frame.selectExpr("*", bucket), {}


def _with_places(marked: DataFrame, paths: Mapping[str, int]) -> DataFrame:
    """The rows with the position of their file in the order of arrival, instead of its path."""
    from pyspark.sql import functions as F

    spark = marked.sparkSession
    # Spark writes paths like Hadoop, with some characters escaped, so Hadoop escapes ours.
    hadoop_path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr] # there is one: it has a frame
    places = pa.table(
        {
            _PATH: [hadoop_path(path if "://" in path else f"file:{path}").toUri().toString() for path in paths],
            ARRIVED_FILE: pa.array(paths.values(), pa.int64()),
        }
    )
    return marked.join(F.broadcast(spark.createDataFrame(places)), on=_PATH, how="left").drop(_PATH)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
