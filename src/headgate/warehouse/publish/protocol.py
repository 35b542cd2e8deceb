"""The protocol of every place that tables are published to: a database, a message queue.

A place is told one version of a table after the other: the rows that the version added and removed. It takes each of
them as a whole, together with the number of the version, and can be asked for the last one that it has. Nothing else is
kept: after a restart, or a failure, publishing goes on after the version that the place itself names. So no version is
lost, and a place that takes rows and number atomically has none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version of a table: its number, and what tells it from one of the same number of a table made anew.

    ``warehouse`` is the id of the warehouse that published it; empty if it is not known. A place that takes large
    versions in parts says by ``is_complete`` whether it has all of this one.
    """

    version: int
    version_id: str
    warehouse: str = ""
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table, which are read as they are asked for: they need not fit into memory.

    ``size`` is that of their files, in bytes.
    """

    schema: pa.Schema
    num_rows: int
    size: int
    _read: Callable[[], Iterator[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> TableRows:
        """Rows that are in memory."""
        return cls(table.schema, table.num_rows, table.nbytes, lambda: iter(table.to_batches()))

    @property
    def column_names(self) -> list[str]:
        return list(self.schema.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, some thousands at a time; may be called again."""
        return self._read()

    def table(self) -> pa.Table:
        """All rows in memory, for places that need not take large tables."""
        import pyarrow as pa

        return pa.Table.from_batches(self._read(), self.schema)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What one version of a table changed.

    ``before`` is the version that the place must have; None if it is to be made anew. Then ``added`` are all rows of
    the table, and ``found`` is what the place said that it has, None if it has nothing: if it has another version by
    now, somebody else has published meanwhile, and perhaps a newer one. ``freshness`` is the event time that the table
    has reached, in microseconds since 1970.
    """

    published: PublishedVersion
    before: PublishedVersion | None
    added: TableRows
    removed: TableRows
    freshness: int | None
    found: PublishedVersion | None = None

    @property
    def expected(self) -> PublishedVersion | None:
        """The version that the place must have when it takes these changes; None if it must have none."""
        return self.found if self.before is None else self.before


@runtime_checkable
class Publisher(Protocol):
    """A place that tables are published to. Called on tracks, for one table by one thread at a time; may wait.

    A place that has a version of another warehouse is refused, unless it has an attribute ``take_over`` that is true.
    If ``last`` keeps others from writing, a method ``peek``, with the same result, is asked first.
    """

    def resolve(self, base: Path) -> Publisher:
        """The same place with its relative paths resolved against ``base``."""

    def last(self, table: str) -> PublishedVersion | None:
        """The last version of ``table`` that the place has, by what it says itself; None if it has none.

        If that is not complete, the whole table is published next.
        """

    def publish(self, table: str, changes: TableChanges) -> None:
        """Take in the changes of one version and its number, both or nothing.

        Raises PublishError if the place does not have the version that is expected, and any other error if it cannot
        be done now. What may pass by itself is a ConnectionError.
        """
