"""What the storage of a table raises on purpose.

StorageError               something about the table or its files on disk is not as it must be
├── AlreadyCommittedError  the update, or a newer one, is in the log: its work is done, do not do it again
├── SchemaError            a column has a type that Delta readers do not share, was lost, or changed its type
├── HistoryLostError       the log entries asked for were cleaned up: start from a snapshot instead
└── ForeignCommitError     somebody else wrote to the log of a table that has one writer
"""

from __future__ import annotations

from pathlib import Path

from headgate.core.errors import HeadgateError


class StorageError(HeadgateError):
    """Something about the table or its files on disk is not as it must be; nothing was written to the log."""


class AlreadyCommittedError(StorageError):
    """Update ``update`` is not newer than ``newest``, which the log has as ``version`` (None: cleaned up since)."""

    def __init__(self, table: str, update: int, newest: int, version: int | None) -> None:
        self.update = update
        self.newest = newest
        self.version = version
        where = f"as version {version}" if version is not None else "in a log entry that was cleaned up since"
        super().__init__(
            f"update {update} of table {table!r} cannot be committed: update {newest} is in its log already, {where}. "
            f"Go on from the state of the newest commit, with update {newest + 1}."
        )


class SchemaError(StorageError):
    """A column has a type that Delta readers do not share, was lost, or changed its type."""


class HistoryLostError(StorageError):
    """The log entry of ``version`` was cleaned up, so the changes since then cannot be told."""

    def __init__(self, table: str, version: int) -> None:
        self.version = version
        super().__init__(
            f"what version {version} of table {table!r} changed is not known any more: its log entry was cleaned up. "
            "Compute from a snapshot of the whole table instead, and go on from the snapshot's version."
        )


class ForeignCommitError(StorageError):
    """Another process committed to the table; what it wrote has been loaded, so the update can be tried again."""

    def __init__(self, directory: Path, expected: int) -> None:
        self.version = expected
        super().__init__(
            f"version {expected} of the table in {directory} was written by another process, but a table has one "
            "writer. Stop the other one (another `headgate run`, a notebook, a maintenance job), then try again."
        )
