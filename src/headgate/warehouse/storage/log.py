"""The log of one table, written and read with `deltalake`. No other module writes with it.

One entry is one atomic commit. The library does not check the files, drops a new schema without an error when it
appends, and would commit the same update twice. So the caller must check a commit first (``admission``).

The library's work after a commit (cleaning up, checkpoints) is switched off: it reads the whole log every time, so
commits become slower as the log grows. `checkpoint` does this work once in a while.

Not thread-safe.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from headgate.places.object_path import ObjectPath, ObjectStatus
from headgate.places.place import AnyPath, delta_table
from headgate.warehouse.storage import PARTITION_COLUMN
from headgate.warehouse.storage.decided_entries import DecidedEntries
from headgate.warehouse.storage.errors import (
    ForeignCommitError,
    HistoryLostError,
    StorageError,
    TableVanishedError,
)
from headgate.warehouse.storage.fence import Fence
from headgate.warehouse.storage.files import DataFile, NewFile, RowChanges, State
from headgate.warehouse.storage.history import (
    CHANGED_KEY,
    FENCE_KEY,
    LOG_DIRECTORY,
    REMOVED_KEY,
    SIZE_KEY,
    STATE_KEY,
    TOKEN_KEY,
    change_details,
    clean_up_log,
    entry_path,
    read_actions,
    read_entry,
    removal_details,
)
from headgate.warehouse.storage.partitions import EVENT_TIME
from headgate.warehouse.storage.repair import LAST_CHECKPOINT, hinted_checkpoint, is_whole, set_aside_torn
from headgate.warehouse.storage.schemas import with_partition
from headgate.warehouse.storage.stand_in import newest_content, stand_in
from headgate.warehouse.storage.sync import bring_to_disk, sync

CHECKPOINT_INTERVAL = 50
#: this many of the newest entries are kept, however old they are, so that a table that changes rarely has a history
KEPT_ENTRIES = 4 * CHECKPOINT_INTERVAL
#: the number of a file on disk and when it was written, or the tag of an object
_Stamp = tuple[int, int] | str
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """The content of one log entry. ``update`` is None for maintenance, which changes files but no rows.

    ``grown_schema`` is the whole new schema if the table is created or gains columns. A table that exists can gain
    columns only in a commit whose ``removed`` files are those of whole partitions, or all files.

    The arrival of a file's rows is written as its modification time: checkpoints keep that for every live file, but
    not the version or the update that added it.
    """

    state: State
    added: Sequence[NewFile]
    removed: Sequence[DataFile]
    update: int | None
    grown_schema: pa.Schema | None = None
    changes: RowChanges | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A version of the table, read from the log; ``last_update`` is -1 if there was none."""

    table_id: str
    version: int
    last_update: int
    schema: pa.Schema
    files: list[DataFile]


class DeltaLog:
    """The log of one table. With ``syncs``, a commit is on disk when `append` returns, and its data files before it.

    ``fence`` is asked before every commit whether this process may still make it.
    """

    def __init__(
        self,
        directory: AnyPath,
        time_column: str | None,
        history_seconds: int,
        syncs: bool = True,
        fence: Fence | None = None,
    ) -> None:
        if "\\" in str(directory) or unquote(str(directory)) != str(directory):
            raise StorageError(
                f"no table can be kept in {directory}: the Delta library takes backslashes and percent signs followed "
                "by two digits for something else. Choose a directory whose path has none."
            )
        self._directory = directory
        self._time_column = time_column
        self._history_seconds = history_seconds
        self._syncs = syncs
        self._fence = fence
        self._application = f"headgate/{directory.name}"
        self._handle: DeltaTable | None = None
        #: the newest version as far as this process knows; -1 before the table exists
        self.version = -1
        #: Delta's id of the table: the same for all its versions; empty before it exists
        self.table_id = ""
        #: tells the entry of ``version`` from another one of the same name
        self._stamp: _Stamp | None = None
        #: how entries are written where the store cannot decide between two processes
        self._decided: DecidedEntries | None = None
        if fence is not None and (decider := fence.decider(directory)) is not None:
            self._decided = DecidedEntries(directory, decider, fence.check)
        #: the version of the newest checkpoint in an object store, where looking costs a request; None if unknown
        self._checkpointed: int | None = None

    def load(self) -> LoadedTable | None:
        """The newest version from disk; None if the table does not exist. A log that a crash has torn is repaired."""
        known, self._handle, self._stamp, self._checkpointed = self.version, None, None, None
        self.version, self.table_id = -1, ""
        if self._decided is not None:
            self._decided.complete()
        try:
            handle = self._opened()
        except DeltaError as error:
            if isinstance(self._directory, ObjectPath) or not set_aside_torn(self._directory):
                mend = "Bring it back from a copy; or delete the folder, then the table is made anew from what it is "
                mend += "computed from."
                if isinstance(self._directory, ObjectPath):  # which tells errors of requests and of contents by words
                    mend = f"It is tried again. If the store answers, and this stays: {mend}"
                raise StorageError(
                    f"the log of the table in {self._directory} cannot be read: {error}. {mend}"
                ) from error
            handle = self._opened()
        # In an object store nothing is torn: an entry is there as a whole, and what it names was there before.
        if handle is not None and isinstance(self._directory, Path) and not is_whole(self._directory, handle.version()):
            set_aside_torn(self._directory)
            handle = self._opened()
        if handle is None:
            return None
        self._handle, self.version, self.table_id = handle, handle.version(), str(handle.metadata().id)
        self._stamp = self._stamp_of(self.version)
        if self._stamp is not None and self._syncs:
            self._sync_found(known + 1 if 0 <= known < self.version else self.version)
        return self._loaded(handle)

    def _opened(self) -> DeltaTable | None:
        table, options = delta_table(self._directory)
        if isinstance(self._directory, ObjectPath):  # the library would hold Python's lock while it asks the store
            # Page by page: the first one tells.
            is_there = next((self._directory / LOG_DIRECTORY).rglob("*.json"), None) is not None
        else:
            is_there = DeltaTable.is_deltatable(str(table))
        return DeltaTable(table, **options) if is_there else None

    def is_as_known(self) -> bool:
        """Whether the newest entry on disk is the one that this process knows."""
        is_newest = not entry_path(self._directory, self.version + 1).exists()
        return is_newest and self._stamp_of(self.version) == self._stamp

    def _stamp_of(self, version: int) -> _Stamp | None:
        try:
            status = entry_path(self._directory, version).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.tag if isinstance(status, ObjectStatus) else (status.st_ino, status.st_mtime_ns)

    def load_version(self, version: int) -> LoadedTable:
        """An older version; HistoryLostError if the log does not reach back to it."""
        return self._loaded(self._opened_at(version))

    def read(self, version: int, columns: Sequence[str] | None) -> pa.Table:
        """All rows of one version, in memory; HistoryLostError if they were cleaned up."""
        handle = self._opened_at(version)
        try:
            return handle.to_pyarrow_table(columns=list(columns) if columns is not None else None)
        except FileNotFoundError as error:
            raise HistoryLostError(self._directory.name, version) from error

    def append(self, commit: Commit) -> int:
        """Write ``commit`` as the next entry; an error that the library raises after writing it is ignored."""
        expected = self.version + 1
        if self._fence is not None:
            self._fence.check()
        if self._stamp_of(self.version) != self._stamp:
            raise TableVanishedError(self._directory)
        self._sync(self._data_files(commit))
        try:
            if self._decided is not None:
                self._decided.append(expected, self._content(commit))
            elif self.version < 0:
                self._create(commit, *delta_table(self._directory))
            else:
                self._write(self._current(), commit)
        except (DeltaError, OSError) as error:
            self._handle = None
            if not entry_path(self._directory, expected).exists():
                raise StorageError(
                    f"version {expected} of the table in {self._directory} could not be written: {error}. "
                    "Its files stay where they are; try the update again."
                ) from error
            if not self._is_ours(commit, expected):
                raise ForeignCommitError(self._directory, expected) from error
        self._sync_entry(expected)
        self.version, self._stamp = expected, self._stamp_of(expected)
        if not self.table_id:
            self.table_id = str(self._current().metadata().id)
        return expected

    def forget_unwritten(self) -> None:
        """Before the table is deleted: an entry that was decided and is not in the store must not bring it back."""
        if self._decided is not None:
            self._decided.forget()

    def checkpoint(self) -> None:
        """Write a checkpoint, delete entries older than the history to keep, and reopen the table.

        Reopening frees memory: a handle that is only updated grows with every commit.
        """
        handle = self._current()
        self._handle = None
        handle.create_checkpoint()
        self._checkpointed = self.version
        log = self._directory / LOG_DIRECTORY
        if isinstance(log, Path):
            self._sync([*log.glob(f"{self.version:020}.checkpoint*"), log / LAST_CHECKPOINT])
        clean_up_log(self._directory, self.version - KEPT_ENTRIES, self._history_seconds)

    def checkpoint_is_due(self) -> bool:
        newest = self._checkpointed
        if newest is None or isinstance(self._directory, Path):
            hint = self._directory / LOG_DIRECTORY / LAST_CHECKPOINT
            newest = hinted_checkpoint(hint) if hint.exists() else -1
            self._checkpointed = newest
        return newest is None or not 0 <= self.version - newest < CHECKPOINT_INTERVAL

    def _current(self) -> DeltaTable:
        """The table at the known version; raises ForeignCommitError if the log is ahead of it."""
        if self._handle is None:
            table, options = delta_table(self._directory)
            self._handle = DeltaTable(table, **options)
        elif self._handle.version() < self.version:
            self._handle.update_incremental()
        if self._handle.version() != self.version:
            raise ForeignCommitError(self._directory, self.version + 1)
        return self._handle

    def _sync(self, files: Sequence[AnyPath]) -> None:
        if self._syncs and files:
            bring_to_disk(self._directory, files)

    def _sync_entry(self, version: int) -> None:
        self._sync([entry_path(self._directory, version)])
        if version == 0 and self._syncs and isinstance(self._directory, Path):
            sync([self._directory, *list(self._directory.parents)[:2]])

    def _sync_found(self, first: int) -> None:
        """Bring the entries from ``first`` on to disk, since the next ones build on them.

        Their writer may have been killed before it did so. Other programs may not even have asked for the files that
        their entries name.
        """
        if not isinstance(self._directory, Path):
            return  # what an object store has taken is safe
        for version in range(first, self.version + 1):
            with suppress(FileNotFoundError, ValueError):  # cleaned up, or damaged: a checkpoint stands for it
                actions = read_actions(entry_path(self._directory, version))
                if not any(TOKEN_KEY in action.get("commitInfo", {}) for action in actions):
                    paths = [self._directory / unquote(action["add"]["path"]) for action in actions if "add" in action]
                    self._sync([path for path in paths if path.is_relative_to(self._directory) and path.exists()])
                self._sync_entry(version)

    def _data_files(self, commit: Commit) -> list[AnyPath]:
        changes = () if commit.changes is None else (*commit.changes.added, *commit.changes.removed)
        return [self._directory / file.path for file in (*(new.file for new in commit.added), *changes)]

    def _is_ours(self, commit: Commit, version: int) -> bool:
        """Whether the entry of ``version`` is this commit: its token is random."""
        return read_entry(self._directory, version, self._time_column).token == commit.token

    def _opened_at(self, version: int) -> DeltaTable:
        try:
            table, options = delta_table(self._directory)
            return DeltaTable(table, version=version, **options)
        except DeltaError as error:
            raise HistoryLostError(self._directory.name, version) from error

    def _content(self, commit: Commit) -> bytes:
        """``commit`` as the content of the next entry, which the library has not written to the log."""
        with TemporaryDirectory(prefix="headgate-entry-") as folder:
            place = Path(folder) / self._directory.name
            if self.version < 0:
                self._create(commit, place, {})
            else:
                # The library looks for files that it removes only if the schema grows.
                files = () if commit.grown_schema is None else tuple(map(_as_added, commit.removed))
                self._write(stand_in(self._current(), place, files), commit)
            return newest_content(place, self._directory)

    def _create(self, commit: Commit, table: Path | str, options: dict[str, Any]) -> None:
        interval = f"interval {self._history_seconds} seconds"
        create_table_with_add_actions(
            str(table),
            self._delta_schema(commit.grown_schema),
            _add_actions(commit),
            partition_by=self._partition_by(),
            name=self._directory.name,
            configuration={
                "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
                # Readers follow the changes from version to version: without files of changes, which the library does
                # not write, they are the rows of added and removed files.
                "delta.enableChangeDataFeed": "true",
                # By default, readers use the statistics of the first 32 columns only. The time column must be among
                # them at any position; there are no statistics of other columns beyond the 32nd.
                "delta.dataSkippingNumIndexedCols": "-1",
                # `checkpoint` cleans up: unlike the library, it also keeps a number of entries.
                "delta.enableExpiredLogCleanup": "false",
                "delta.logRetentionDuration": interval,
                "delta.deletedFileRetentionDuration": interval,
            },
            commit_properties=self._properties(commit),
            post_commithook_properties=_NO_HOOKS,
            **options,
        )

    def _write(self, handle: DeltaTable, commit: Commit) -> None:
        mode, filters = "append", None
        actions: list[AddAction | RemoveAction] = [*_add_actions(commit)]
        schema = handle.schema()
        if commit.grown_schema is None:
            actions += _remove_actions(commit)
        else:
            # Only an overwrite can change the schema; the library finds the files to remove by its filter.
            mode, schema = "overwrite", self._delta_schema(commit.grown_schema)
            if self._time_column is not None:
                filters = [(PARTITION_COLUMN, "in", sorted({str(file.partition) for file in commit.removed}))]
        handle.create_write_transaction(
            actions,
            mode,
            schema,
            self._partition_by(),
            filters,
            commit_properties=self._properties(commit),
            post_commithook_properties=_NO_HOOKS,
        )

    def _properties(self, commit: Commit) -> CommitProperties:
        size = [len(commit.added) + len(commit.removed), commit.update]
        metadata: dict[str, Any] = {STATE_KEY: dict(commit.state), SIZE_KEY: size, TOKEN_KEY: commit.token}
        if self._fence is not None:
            metadata[FENCE_KEY] = self._fence.number
        if commit.update is not None and commit.removed:
            metadata[REMOVED_KEY] = removal_details(commit.removed)
        if commit.changes is not None:
            metadata[CHANGED_KEY] = change_details(commit.changes)
        transactions = [Transaction(self._application, commit.update)] if commit.update is not None else None
        # No retries: the one writer knows the newest version, so a conflict means that there is another writer.
        return CommitProperties(custom_metadata=metadata, max_commit_retries=0, app_transactions=transactions)

    def _partition_by(self) -> list[str]:
        return [PARTITION_COLUMN] if self._time_column is not None else []

    def _delta_schema(self, schema: pa.Schema) -> Schema:
        return Schema.from_arrow(with_partition(schema) if self._time_column is not None else schema)

    def _loaded(self, handle: DeltaTable) -> LoadedTable:
        schema = pa.schema(handle.schema().to_arrow())
        partition_columns = handle.metadata().partition_columns
        if partition_columns != self._partition_by():
            raise StorageError(self._otherwise_stored(partition_columns))
        columns = pa.schema([field for field in schema if field.name != PARTITION_COLUMN])
        last_update = handle.transaction_version(self._application)
        return LoadedTable(
            table_id=str(handle.metadata().id),
            version=handle.version(),
            last_update=-1 if last_update is None else last_update,
            schema=columns,
            files=self._live_files(handle),
        )

    def _otherwise_stored(self, partition_columns: list[str]) -> str:
        now = "without event time (time=None)" if self._time_column is None else f"with time={self._time_column!r}"
        if partition_columns == [PARTITION_COLUMN]:
            was = "by event time: state the time= that it had"
        elif not partition_columns:
            was = "without event time: state time=None, as before"
        else:
            was = f"by another program, which partitioned it by {', '.join(partition_columns)}: remove what is there"
        return f"it is declared {now}, but its rows in {self._directory} were stored {was}, or give it another name"

    def _live_files(self, handle: DeltaTable) -> list[DataFile]:
        adds = pa.table(handle.get_add_actions())
        count = adds.num_rows
        partitions = firsts = lasts = [None] * count
        if self._time_column is not None and count:
            if self._time_column not in pa.schema(handle.schema().to_arrow()).names:
                raise StorageError(
                    f"its event time is declared as {self._time_column!r}, but its rows in {self._directory} have no "
                    "such column: state the time= that it had, or give it another name"
                )
            partitions = _child(adds, "partition", PARTITION_COLUMN).to_pylist()
            firsts, lasts = (
                _child(adds, bound, self._time_column).cast(EVENT_TIME).cast(pa.int64()).to_pylist()
                for bound in ("min", "max")
            )
        paths = [unquote(path) for path in adds.column("path").to_pylist()]
        rows = adds.column("num_records").to_pylist()
        sizes = adds.column("size_bytes").to_pylist()
        arrivals = adds.column("modification_time").to_pylist()
        columns = (paths, partitions, rows, sizes, firsts, lasts, arrivals)
        return [DataFile(*file) for file in zip(*columns, strict=True)]


def _child(adds: pa.Table, group: str, name: str) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.field(name) for chunk in adds.column(group).chunks])


def _add_actions(commit: Commit) -> list[AddAction]:
    return [
        AddAction(
            path=new.file.path,
            size=new.file.size,
            partition_values=_partition_values(new.file),
            modification_time=new.file.arrived,
            data_change=commit.update is not None,
            stats=new.statistics,
        )
        for new in commit.added
    ]


def _as_added(file: DataFile) -> AddAction:
    return AddAction(file.path, file.size, _partition_values(file), file.arrived, True, "{}")


def _remove_actions(commit: Commit) -> list[RemoveAction]:
    now = time.time_ns() // 1_000_000
    return [
        RemoveAction(file.path, commit.update is not None, now, file.size, _partition_values(file))
        for file in commit.removed
    ]


def _partition_values(file: DataFile) -> dict[str, str | None]:
    return {} if file.partition is None else {PARTITION_COLUMN: file.partition}
