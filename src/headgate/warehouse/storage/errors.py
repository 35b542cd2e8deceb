"""What the storage of a table raises on purpose.

StorageError               something about the table or its files on disk is not as it must be
├── AlreadyCommittedError  the update, or a newer one, is in the log: its work is done, do not do it again
├── SchemaError            a column has a type that Delta readers do not share, was lost, or changed its type
├── HistoryLostError       the changes since a version cannot be followed: start from a snapshot instead
│   ├── TableRecreatedError    the table was deleted and made anew, or set back to an older version
│   └── ForeignHistoryError    another program changed rows without saying which
├── ForeignCommitError     somebody else wrote to the log of a table that has one writer
├── TableVanishedError     the folder of the table was deleted under its writer
├── LostRowsError          the files that Spark wrote hold fewer or more rows than its tasks wrote
└── DamagedFileError       a data file is not what was written: its checksum differs
"""

from __future__ import annotations

from headgate.core import HeadgateError
from headgate.places.place import AnyPath


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


class LostRowsError(StorageError):
    """The files of an update, as the driver sees them, do not have the rows that Spark's tasks have written."""

    def __init__(self, table: str, written: int, found: int) -> None:
        self.written = written
        self.found = found
        super().__init__(
            f"Spark has written {written} rows of table {table!r}, but the files that this machine sees have {found}, "
            "so nothing was committed. Does an executor have a disk of its own at this path? All machines of a cluster "
            "must see the same folder. The update is tried again"
        )


class SchemaError(StorageError):
    """A column has a type that Delta readers do not share, was lost, or changed its type."""


class HistoryLostError(StorageError):
    """The log entry of ``version``, or a file that only old versions have, was cleaned up.

    ``reason`` says in a few words why the changes of the table cannot be followed.
    """

    def __init__(self, table: str, version: int, reason: str = "") -> None:
        cleaned_up = f"version {version} of {table!r} is not known any more: its log entry or its files were cleaned up"
        self.version = version
        self.reason = reason or cleaned_up
        super().__init__(f"{self.reason}. Compute from a snapshot of the newest version instead, and go on from there.")


class TableRecreatedError(HistoryLostError):
    """The table has another identity than the one whose ``version`` was read, or does not have that version yet."""

    def __init__(self, table: str, version: int) -> None:
        super().__init__(table, version, f"{table!r} was deleted and made anew since its version {version} was read")


class ForeignHistoryError(HistoryLostError):
    """``version`` was not written by headgate, and does not say which rows it changes."""

    def __init__(self, table: str, version: int) -> None:
        super().__init__(
            table, version, f"version {version} of {table!r} was not written by headgate: another program changed rows"
        )


class ForeignCommitError(StorageError):
    """Another process committed to the table; what it wrote has been loaded, so the update can be tried again."""

    def __init__(self, directory: AnyPath, expected: int) -> None:
        self.version = expected
        super().__init__(
            f"version {expected} of the table in {directory} was written by another process, but a table has one "
            "writer. Stop the other one (another `headgate run`, a notebook, a maintenance job), then try again."
        )


class TableVanishedError(StorageError):
    """The folder of a table, or its log, was deleted since it was last read. The next use finds what there is now."""

    def __init__(self, directory: AnyPath) -> None:
        super().__init__(
            f"the table in {directory} was deleted since it was last written, so nothing can be added to it. It is "
            "made anew with the next update: from its source, or from the tables that it is computed from."
        )


class DamagedFileError(StorageError):
    """Data files (``paths``) cannot be read as they were written."""

    def __init__(self, paths: str, error: Exception) -> None:
        super().__init__(
            f"{paths} cannot be read as it was written: {error}. A table that is computed from others can be rebuilt "
            "with headgate backfill; else bring the file back from a copy."
        )
