"""The protocol of every place that tables are published to: a database, a message queue.

A place is told one version of a table after the other: the rows that the version added and removed. It takes each of
them as a whole, together with the number of the version, and can be asked for the last one that it has. Nothing else is
kept: after a restart, or a failure, publishing goes on after the version that the place itself names. So no version is
lost, and a place that takes rows and number atomically has none twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version of a table: its number, and what tells it from one of the same number of a table made anew."""

    version: int
    version_id: str


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What one version of a table changed.

    ``before`` is the version that the place must have; None if it is to be made anew, whatever it has. Then ``added``
    are all rows of the table. ``freshness`` is the event time that the table has reached, in microseconds since 1970.
    """

    published: PublishedVersion
    before: PublishedVersion | None
    added: pa.Table
    removed: pa.Table
    freshness: int | None


@runtime_checkable
class Publisher(Protocol):
    """A place that tables are published to. Called on tracks, for one table by one thread at a time; may wait."""

    def resolve(self, base: Path) -> Publisher:
        """The same place with its relative paths resolved against ``base``."""

    def last(self, table: str) -> PublishedVersion | None:
        """The last version of ``table`` that the place has, by what it says itself; None if it has none."""

    def publish(self, table: str, changes: TableChanges) -> None:
        """Take in the changes of one version and its number, both or nothing.

        Raises PublishError if the place does not have the version before, and any other error if it cannot be done
        now. What may pass by itself is a ConnectionError.
        """
