"""Reading the files of tables, once for several tables of a group that need the same ones.

Tables of one group are updated one after the other by one track. What they read is kept in Spark's memory as long as
that takes: on two cores, five small tables over the same files took 280 ms in place of 520.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class FileReader:
    """Data frames over Parquet files; with ``keep``, each list of files is read once. Closed when used as a context."""

    def __init__(self, spark: SparkSession, keep: bool = False) -> None:
        self._spark = spark
        self._keep = keep
        self._kept: dict[tuple[str, ...], DataFrame] = {}
        self._others: list[DataFrame] = []

    def parquet(self, schema: StructType, paths: Sequence[str]) -> DataFrame:
        """The rows of the files, with the columns of ``schema``."""
        key = tuple(paths)
        if key in self._kept:
            return self._kept[key]
        frame = self._spark.read.schema(schema).parquet(*paths)
        if self._keep:
            self._kept[key] = frame.persist()
        return frame

    def release_at_the_end(self, frames: Iterable[DataFrame]) -> None:
        """Frames that Spark has been told to keep, to be let go of when the reader is closed."""
        self._others.extend(frames)

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for frame in (*self._kept.values(), *self._others):
            frame.unpersist()
        self._kept.clear()
        self._others.clear()
