"""A source whose rows a query computes from files, or from nothing: what a project's tables read that no stream feeds.

Its rows change as a whole, when the files or the query do. So it is the source of a dimension.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headgate.core import HeadgateError
from headgate.warehouse.declare.code_text import code_text
from headgate.warehouse.sources import Delta, Limit, Offset, Pending, Range, SourceChanged
from headgate.warehouse.sources.protocol import ERROR_COLUMN, FILE_COLUMN, RAW_COLUMN, expect_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ComputedRange(Range, kind="computed"):
    """The rows of a query over the files as they are: ``stamp`` changes with the files and the query."""

    stamp: str
    oldest: float
    newest: float
    size: int = 0

    @property
    def chunks(self) -> int:
        return 1

    @property
    def bytes(self) -> int:
        return self.size

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, ComputedRange) and other.stamp == self.stamp

    def _content(self) -> dict[str, object]:
        return {"stamp": self.stamp, "oldest": self.oldest, "newest": self.newest, "size": self.size}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(str(content["stamp"]), float(content["oldest"]), float(content["newest"]), int(content["size"]))


@dataclass(frozen=True, slots=True)
class ComputedOffset(Offset, kind="computed"):
    """Whether the rows have been loaded is told by the range alone."""

    def _content(self) -> dict[str, object]:
        return {}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls()


@dataclass(frozen=True)
class Computed:
    """The rows that ``compute`` gives. ``paths`` are the files and folders that it reads, absolute.

    ``tables`` are the Delta tables that it reads, whose versions tell when they change.
    """

    compute: Callable[[SparkSession], DataFrame] = field(compare=False)
    paths: tuple[str, ...] = ()
    code: str = ""
    tables: tuple[Delta, ...] = ()
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    _known: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def schema(self) -> str:
        """The columns of the result, which only Spark can tell: it must run."""
        if "schema" not in self._known:
            from pyspark.sql import SparkSession

            session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
            if session is None:
                raise HeadgateError("the columns of a computed table are known when Spark runs: start it first")
            fields = self.compute(session).schema.fields
            self._known["schema"] = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in fields)
        return self._known["schema"]

    def resolve(self, base: Path) -> Computed:
        return self

    def start(self) -> ComputedOffset:
        return ComputedOffset()

    def latest(self, offset: Offset) -> Pending:
        return self.contents(None)[1]

    def next_range(self, offset: Offset, limit: Limit) -> ComputedRange | None:
        return self.contents(None)[0]

    def advance(self, offset: Offset, loaded: Range) -> Offset:
        return offset

    def contents(self, loaded: Range | None) -> tuple[ComputedRange | None, Pending]:
        missing = [path for path in self.paths if not glob.glob(path)]
        if missing:
            return None, Pending(note=f"waiting for {missing[0]}, which does not exist", missing=True)
        for table in self.tables:
            found, pending = table.contents(None)
            if found is None:
                return None, pending
        stamp, size = self._stamp()
        now = self.clock()
        return ComputedRange(stamp, now, now, size), Pending()

    def _stamp(self) -> tuple[str, int]:
        seen = hashlib.sha256(self.code.encode())
        total = 0
        for path in self.paths:
            for found in sorted(glob.glob(path)):
                for name, size, modified in _files_below(found):
                    total += size
                    seen.update(f"{name}\0{size}\0{modified}\n".encode())
        for table in self.tables:
            version = table.contents(None)[0]
            if version is not None:
                total += version.size
                seen.update(f"{version.table}\0{version.version}\n".encode())
        return seen.hexdigest()[:32], total

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        from pyspark.sql import functions as F

        self.verify(wanted)
        empty = F.lit(None).cast("string")
        rows = self.compute(spark)
        for column in (FILE_COLUMN, RAW_COLUMN, ERROR_COLUMN):
            rows = rows.withColumn(column, empty)
        return rows

    def folders(self) -> tuple[str, ...]:
        return tuple(path for path in self.paths if "://" not in path)

    def verify(self, loaded: Range) -> None:
        if self._stamp()[0] != expect_kind(loaded, ComputedRange, self).stamp:
            where = self.paths[0] if self.paths else "the query"
            raise SourceChanged(where, "changed while it was read", "It is tried again")


def code_of(*functions: object) -> str:
    """A text that changes when the code of ``functions`` does; SQL is its own code."""
    return "\n".join(each if isinstance(each, str) else code_text(each) for each in functions)


def _files_below(path: str) -> list[tuple[str, int, int]]:
    if os.path.isfile(path):
        status = os.stat(path)
        return [(path, status.st_size, status.st_mtime_ns)]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            if not name.startswith((".", "_")):
                file = os.path.join(folder, name)
                try:
                    status = os.stat(file)
                except FileNotFoundError:
                    continue
                found.append((file, status.st_size, status.st_mtime_ns))
    return found
