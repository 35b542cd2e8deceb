"""The right to commit, which a process has as long as it runs a warehouse, and can lose without noticing.

Every commit carries the fencing number of the process that makes it. Each process that takes a warehouse over has a
larger one. So who finds a larger number than its own in a log knows that it has been replaced, and stops.
"""

from __future__ import annotations

from typing import Protocol

from headgate.warehouse.storage.errors import StorageError


class LeaseLostError(StorageError):
    """Another process has taken the warehouse over, or may have: this one must not commit any more."""


class Fence(Protocol):
    """The right to commit of one process."""

    @property
    def number(self) -> int:
        """The fencing number that its commits carry."""

    def check(self) -> None:
        """Raise LeaseLostError if the process has lost the right, or may have: asked before every commit."""

    def lost_to(self, number: int, where: str) -> LeaseLostError:
        """Note that a commit of ``number`` was found, larger than this one's; returns what to raise."""
