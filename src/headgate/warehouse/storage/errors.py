"""What the storage of a table raises on purpose.

StorageError               something about the table or its files on disk is not as it must be
├── AlreadyCommittedError  the update, or a newer one, is in the log: its work is done, do not do it again
├── SchemaError            a column has a type that Delta readers do not share, was lost, or changed its type
├── HistoryLostError       the log entries asked for were cleaned up: start from a snapshot instead
└── ForeignCommitError     somebody else wrote to the log of a table that has one writer
"""

from __future__ import annotations

from pathlib import Path

from headgate.core import HeadgateError


class StorageError(HeadgateError):
    """Something about the table or its files on disk is not as it must be; nothing was written to the log."""


class AlreadyCommittedError(StorageError):
    """``update`` is not newer than ``newest``; the log has it as ``version``, or that entry was cleaned up (None)."""

    def __init__(self, table: str, update: int, version: int | None, newest: int) -> None:
        self.update = update
        self.version = version
        self.newest = newest
        where = f"it is version {version} of" if version is not None else "it is older than what is left of"
        super().__init__(
            f"update {update} of table {table!r} cannot be committed again: {where} the log, whose newest update is "
            f"{newest}. Go on from the newest state, with update {newest + 1}."
        )


class SchemaError(StorageError):
    """A column has a type that Delta readers do not share, was lost, or changed its type."""


class HistoryLostError(StorageError):
    """The log entry of ``version``, or a file that only old versions have, was cleaned up."""

    def __init__(self, table: str, version: int) -> None:
        self.version = version
        super().__init__(
            f"version {version} of table {table!r} is not known any more: its log entry or its files were cleaned up. "
            "Compute from a snapshot of the newest version instead, and go on from there."
        )


class ForeignCommitError(StorageError):
    """Another process committed to the table; what it wrote has been loaded, so the update can be tried again."""

    def __init__(self, directory: Path, expected: int) -> None:
        self.version = expected
        super().__init__(
            f"version {expected} of the table in {directory} was written by another process, but a table has one "
            "writer. Stop the other one (another `headgate run`, a notebook, a maintenance job), then try again."
        )
