"""The right to commit, which a process has as long as it runs a warehouse, and can lose without noticing.

Every commit carries the fencing number of the process that makes it. Each process that takes a warehouse over has a
larger one. So who finds a larger number than its own in a log knows that it has been replaced, and stops.
"""

from __future__ import annotations

from typing import Protocol

from headgate.places.place import AnyPath
from headgate.warehouse.storage.errors import StorageError


class LeaseLostError(StorageError):
    """Another process has taken the warehouse over, or may have: this one must not commit any more."""


class GuardedObject(Protocol):
    """A content that is written on a condition, by which one of many succeeds: an object of a store that has such
    writes (`ObjectPath` has the same methods), files with numbers, a row of a database."""

    def read_with_tag(self) -> tuple[bytes, str]:
        """The content and its tag, for `replace`; FileNotFoundError if there is none."""

    def create(self, content: bytes) -> str | None:
        """Write the content if there is none; its tag, None if there is some."""

    def replace(self, content: bytes, tag: str) -> str | None:
        """Write over the content that has this ``tag``; the new tag, None if the content is another one by now."""


class Fence(Protocol):
    """The right to commit of one process."""

    @property
    def number(self) -> int:
        """The fencing number that its commits carry."""

    def check(self) -> None:
        """Raise LeaseLostError if the process has lost the right, or may have: asked before it commits or deletes."""

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        """Note that a commit of ``number`` was found, larger than this one's; returns what to raise."""

    def decider(self, table: AnyPath) -> GuardedObject | None:
        """What decides between two that commit to ``table``; None if the store of the table does that itself."""
