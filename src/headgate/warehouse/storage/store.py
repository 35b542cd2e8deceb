"""One table on disk: a Delta table. Every change is one atomic log entry that also carries the state.

Files are written first, by this process or by Spark, into a directory for the update (``data/u<update>-<token>``). Then
one commit names them. If the process dies in between, files are left that no entry names (`TableStore.sweep` deletes
them), and opening the table again gives the state of the last commit.

This module knows nothing of schedules, sources and queries. A `TableStore` is the only writer of its directory.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath, path_from
from headgate.warehouse.storage import maintenance, parquet
from headgate.warehouse.storage.admission import admit_files, admit_schema, admit_state
from headgate.warehouse.storage.errors import (
    AlreadyCommittedError,
    HistoryLostError,
    StorageError,
    TableRecreatedError,
    TableVanishedError,
)
from headgate.warehouse.storage.fence import Fence
from headgate.warehouse.storage.files import (
    ALL,
    DataFile,
    Everything,
    NewFile,
    RowChanges,
    Staging,
    State,
    StoreStatistics,
    TableSnapshot,
    directory_of,
)
from headgate.warehouse.storage.history import History, LogEntry
from headgate.warehouse.storage.live import FileIndex, LiveTable
from headgate.warehouse.storage.log import Commit, DeltaLog
from headgate.warehouse.storage.maintenance import TARGET_BYTES, Rewrite
from headgate.warehouse.storage.named_files import NamedFiles
from headgate.warehouse.storage.sync import bring_to_disk

#: how long old versions and changes can be read, unless a table is created with another length
HISTORY_SECONDS = 86_400
#: who reads a table from its beginning reads its log version by version only if it is this short
MOST_ENTRIES = 200
#: seconds between two looks at the log of a table in an object store, for what others did to it
LOOK_SECONDS = 10.0

_log = logging.getLogger(__name__)


class TableStore:
    """One table: plans from memory, writes files beside it, commits them to its log.

    Every method may be called from every thread. Two locks, always taken in this order:
    ``_writing`` serialises what writes the log (``_delta``) and is held while it is written: tens of milliseconds.
    ``_guard`` guards ``_table``, ``_staging`` and ``_in_doubt`` and is held for memory operations only, so that
    planning never waits for a commit. Data files are read, written and deleted under neither.

    Invariants:
    1. ``_table`` describes the newest version of the log, or ``_in_doubt`` is set and it is read again before use.
    2. A file is in the index if and only if the log at that version has it live.
    3. A commit with the number of an update that is in the log, or of an older one, is refused.
    4. A directory below ``data`` that is neither staged nor named by the log can be deleted.

    Failure: a method that raises has not changed the rows. If the log could not be written, or the writing was
    interrupted, the log is read again, and a second attempt either succeeds or raises AlreadyCommittedError.

    A ``fence`` guards against a second process: see ``fence``. It is asked before commits and before files are deleted.

    Durability: with ``syncs``, a commit is on disk when it returns, and everything that it names was before it. So a
    power cut leaves the table as a kill does. Without, it may lose the newest commits, or tear them (``repair``).

    Cost: planning and committing do work in proportion to the files and partitions named. `deltalake` adds some
    microseconds for each live file and each log entry kept, which rolling up and the length of history bound.
    """

    def __init__(
        self,
        directory: AnyPath | str,
        time_column: str | None = None,
        *,
        history_seconds: int = HISTORY_SECONDS,
        syncs: bool = True,
        fence: Fence | None = None,
    ) -> None:
        place = path_from(directory)
        self.directory: AnyPath = place if isinstance(place, ObjectPath) else place.absolute()
        self.time_column = time_column
        self.history_seconds = history_seconds
        self._writing = threading.Lock()
        self._guard = threading.Lock()
        self.syncs = syncs
        self._fence = fence
        #: when `look` last looked, where that costs requests
        self._looked = -math.inf
        self._delta = DeltaLog(self.directory, time_column, history_seconds, syncs, fence)
        self._staging = Staging(self.directory)
        self._named = NamedFiles(self.directory)
        self._in_doubt = True
        self._table = LiveTable(History(self.directory, time_column))
        # A table that cannot be read must not keep others from being opened: everything else raises then.
        with suppress(Exception):
            self.check_readable()

    # ---- reading -----------------------------------------------------------------------------------------------

    def check_readable(self) -> None:
        """Raise StorageError if the log cannot be read; so does everything else then, until it can be read again."""
        with self._settled():
            pass

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def version(self) -> int:
        """The newest version; -1 before the first commit."""
        with self._settled() as table:
            return table.version

    @property
    def table_id(self) -> str:
        """Told apart by this, two tables are never the same, even in one place; empty before the first commit."""
        with self._settled() as table:
            return table.table_id

    @property
    def version_id(self) -> str:
        """Tells the newest version from all others: also from one of the same number, if the table was put back."""
        with self._settled() as table:
            return f"{table.table_id}/{table.token}"

    @property
    def is_foreign(self) -> bool:
        """Whether another program has changed rows since the newest update."""
        with self._settled() as table:
            return table.is_foreign

    @property
    def state(self) -> dict[str, object]:
        """What the newest commit carries; empty before the first."""
        with self._settled() as table:
            return copy.deepcopy(dict(table.state))

    @property
    def schema(self) -> pa.Schema:
        """The columns, without the partition column; none before the first commit."""
        with self._settled() as table:
            return table.schema

    def files(self) -> tuple[DataFile, ...]:
        """All live files, by partition, then path."""
        with self._settled() as table:
            return table.index.files()

    def files_in(self, partitions: Iterable[str]) -> tuple[DataFile, ...]:
        """The live files of ``partitions`` in the order given; none for a partition that does not exist."""
        with self._settled() as table:
            return table.index.files_in(partitions)

    def partitions(self) -> tuple[str, ...]:
        """The partitions that have files, in the order of time."""
        with self._settled() as table:
            return table.index.partitions()

    def partitions_between(self, first: int, last: int) -> tuple[str, ...]:
        """The partitions with a file whose event times overlap ``first`` to ``last``, both included.

        A partition that maintenance has merged is longer than the others. Who replaces it must supply all rows of its
        files, also those outside ``first`` to ``last``.
        """
        with self._settled() as table:
            return table.index.partitions_between(first, last)

    def look(self) -> None:
        """Notice what others did to the table: if the log on disk is not what is known of it, it is read again.

        Two looks at the directory, if nothing happened. A commit looks by itself. In an object store these are
        requests, so it is looked at once in a while only.
        """
        if isinstance(self.directory, ObjectPath):
            if time.monotonic() < self._looked + LOOK_SECONDS:
                return
            self._looked = time.monotonic()
        if not self._writing.acquire(blocking=False):
            return
        try:
            if not self._delta.is_as_known():
                with self._guard:
                    self._in_doubt = True
                with self._settled():
                    pass
        finally:
            self._writing.release()

    def missing(self, files: Iterable[DataFile]) -> list[str]:
        """The paths of those ``files`` that are not on disk any more; files that are live are not looked for."""
        return [file.path for file in self.not_live(files) if not self.path_of(file).exists()]

    def not_live(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Those of ``files`` that are not part of the newest version."""
        with self._settled() as table:
            return [file for file in files if file.path not in table.index]

    def path_of(self, file: DataFile) -> AnyPath:
        return self.directory / file.path

    def rows(self, files: Iterable[DataFile]) -> pa.Table:
        """The rows of ``files`` in memory, in their order; columns that a file does not have are null."""
        return parquet.read_rows([self.path_of(file) for file in files], self.schema)

    def batches(self, files: Iterable[DataFile], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
        """As ``rows``, with the columns of ``schema``, at most ``most`` at a time, read when they are asked for."""
        return parquet.read_batches([self.path_of(file) for file in files], schema, most)

    def statistics(self) -> StoreStatistics:
        with self._settled() as table:
            index = table.index
            size = (index.partition_count, len(index), index.rows, index.size)
            return StoreStatistics(table.version, *size, staged=len(self._staging))

    def versions(self, since: int, version_id: str = "", most: int | None = None) -> tuple[LogEntry, ...]:
        """The versions after ``since`` one by one, with the rows that each added and removed; the first ``most``.

        From nothing (-1), if the log is long or cannot be followed, one entry stands for all: the newest version.
        HistoryLostError if these are not what comes after version ``since``, whose id was ``version_id`` if stated.
        """
        with self._settled() as table:
            newest, history, table_id = table.version, table.history, table.table_id
        if since == -1 and newest >= MOST_ENTRIES:
            return (self.whole(),)
        is_known = since == -1 or not version_id or version_id == f"{table_id}/{history.token(min(since, newest))}"
        if since > newest or not is_known:
            raise TableRecreatedError(self.directory.name, since)
        try:
            return tuple(history.entries(since, newest if most is None else min(newest, since + most)))
        except HistoryLostError:
            if since == -1:
                return (self.whole(),)
            raise

    def whole(self) -> LogEntry:
        """The newest version as if it had added all rows of the table."""
        with self._settled() as table:
            return LogEntry(table.version, None, table.state, table.index.files(), token=table.token)

    def states(self) -> Iterator[State]:
        """The state now and after each earlier update, newest first, as far back as the log goes."""
        with self._settled() as table:
            history, version = table.history, table.version
        return (copy.deepcopy(dict(state)) for state in history.states(version))

    def snapshot(self, version: int | None = None) -> TableSnapshot:
        """One version: the newest from memory, an older one from the log."""
        with self._settled() as table:
            newest = TableSnapshot(table.version, copy.deepcopy(dict(table.state)), table.index.files())
            history = table.history
        if version is None or version == newest.version:
            return newest
        self._check_version(version, newest.version)
        files = FileIndex(self._delta.load_version(version).files).files()
        return TableSnapshot(version, copy.deepcopy(dict(history.state(version))), files)

    def arrow(self, columns: Sequence[str] | None = None, at_version: int | None = None) -> pa.Table:
        """The rows of one version in memory, with the partition column: for small tables."""
        newest = self.version
        version = newest if at_version is None else at_version
        self._check_version(version, newest)
        return self._delta.read(version, columns)

    # ---- writing files, then committing them -------------------------------------------------------------------

    def stage(self, update: int) -> AnyPath:
        """A directory for the files of ``update``, for Spark to write; it does not exist yet."""
        with self._guard:
            return self._staging.stage(update)

    def write_arrow(self, update: int, rows: pa.Table, partition_length: float | None = None) -> list[NewFile]:
        """Write ``rows`` as Parquet, one file for each partition of ``partition_length`` seconds."""
        return parquet.write_rows(self.directory, self.stage(update), rows, self.time_column, partition_length)

    def adopt(self, directory: AnyPath) -> list[NewFile]:
        """The Parquet files that Spark wrote into a staged directory, ``partitionBy`` the partition column if any."""
        return parquet.adopt_files(self.directory, directory, self.time_column)

    def commit(
        self,
        update: int,
        files: Sequence[NewFile],
        *,
        replace: Collection[str] | Collection[DataFile] | Everything | None = None,
        state: State,
        schema: pa.Schema,
        changes: RowChanges | None = None,
        after: int | None = None,
    ) -> int:
        """Add ``files`` and remove those in ``replace``, in one log entry; returns its version.

        ``replace`` names partitions, or single files; then ``changes`` says which rows have changed. ``after`` is the
        update that the table must have as its newest, 0 for none: what is committed adds to the rows of that update.

        Creates the table if there is none. Refuses, before anything is written: an update that is in the log already,
        columns that are missing or changed (new ones are allowed), and files that are missing or do not fit.
        """
        with self._writing:
            with self._settled() as table:
                if update <= table.last_update:
                    version = table.history.version_of(update, table.version)
                    raise AlreadyCommittedError(self.directory.name, update, version, table.last_update)
                if after is not None and max(0, table.last_update) != after:
                    raise TableVanishedError(self.directory)
                current = table.schema if table.version >= 0 else None
                grown = admit_schema(current, schema, self.time_column, replace)
                columns = table.schema if grown is None else grown
                removed = _named_by(replace, table.index)
                arrival = table.next_arrival()
            # Nothing else changes the index while _writing is held, so files can be checked without _guard.
            admit_files(self.directory, files, table.index, columns, self.time_column is not None)
            admit_state(state)
            kept = copy.deepcopy(dict(state))
            added = tuple(new.arriving(arrival) for new in files)
            version = self._append(Commit(kept, added, removed, update, grown, changes))
            self._checkpoint_if_due()
            return version

    # ---- maintenance: changes files, never rows ----------------------------------------------------------------

    def compact(self, partitions: Iterable[str] | None = None, target_bytes: int = TARGET_BYTES) -> int | None:
        """Merge the small files inside each of ``partitions`` (default: all); the version, None if there is nothing."""
        with self._settled() as table:
            chosen = [None, *table.index.partitions()] if partitions is None else list(partitions)
            rewrites = maintenance.compaction(table.index, chosen, target_bytes)
            schema = table.schema
        return self._rewrite(rewrites, schema)

    def roll_up(self, older_than_micros: int, length_seconds: int, target_bytes: int = TARGET_BYTES) -> int | None:
        """Merge partitions into longer ones that end before ``older_than_micros``; the version, None if nothing."""
        with self._settled() as table:
            rewrites = maintenance.roll_up(table.index, older_than_micros, length_seconds, target_bytes)
            schema = table.schema
        return self._rewrite(rewrites, schema)

    def sweep(self, older_than_seconds: float) -> list[AnyPath]:
        """Delete the directories of updates that died before their commit, if not written to for so long."""
        candidates = maintenance.staged_directories(self.directory, older_than_seconds)
        with self._guard:  # what is staged now may be committed, and replaced, while the log is read
            candidates = [path for path in candidates if path not in self._staging]
        named = self._named.directories() if candidates else set()
        with self._settled() as table:
            named |= {directory_of(file.path) for file in table.index.files()}
            abandoned = [path for path in candidates if path not in self._staging and path.name not in named]
        for directory in abandoned:
            self.check_fence()
            maintenance.delete_folder(directory)
        return abandoned

    def vacuum(self, retention_seconds: float | None = None) -> int:
        """Delete the files that no version of the last ``retention_seconds`` has; how many.

        The default is the length of history, so that every version in it stays readable. Nothing is written to the log
        and no commit is blocked: files that are live at the beginning are kept.
        """
        retention = self.history_seconds if retention_seconds is None else retention_seconds
        candidates = maintenance.staged_directories(self.directory, retention)
        with self._settled() as table:
            needed = {file.path for file in table.index.files()}
            chosen = [path for path in candidates if path not in self._staging]
        if chosen:
            needed |= self._named.needed_since(retention)
            self.check_fence()
        return maintenance.delete_unneeded(self.directory, chosen, needed)

    def checkpoint(self) -> None:
        """Write a checkpoint, so that the table opens fast, and delete log entries older than the history."""
        with self._writing:
            if self.exists:
                self._delta.checkpoint()

    def drop(self) -> None:
        """Delete the table with all its files; the next commit makes it anew."""
        with self._writing:
            with self._doubtful():
                self._delta.forget_unwritten()
                gone = maintenance.put_aside(self.directory, self.check_fence)
            with self._guard:
                self._in_doubt = True
            if gone == self.directory:  # it could not be moved away, so a successor may have made the next table there
                self.check_fence()
            with suppress(OSError):
                maintenance.delete_folder(gone)

    def check_fence(self) -> None:
        """Raise LeaseLostError if another process may write to the table by now, or OSError if that cannot be told.

        Asked when it is known which files are not needed, right before they are deleted: a process that was replaced
        knows nothing of the files of its successor.
        """
        if self._fence is not None:
            self._fence.check()

    def bring_to_disk(self, paths: Iterable[AnyPath]) -> None:
        """Wait until files below the table are on disk, if it syncs: for files that not its own next commit names."""
        if self.syncs:
            bring_to_disk(self.directory, paths)

    # ---- inside ------------------------------------------------------------------------------------------------

    @contextmanager
    def _settled(self) -> Iterator[LiveTable]:
        """The newest version, under ``_guard``; after a failed write it is first read from the log again."""
        with self._guard:
            if self._in_doubt:
                self._table = self._load()
                self._in_doubt = False
            yield self._table

    @contextmanager
    def _doubtful(self) -> Iterator[None]:
        """Around writing the log: after a failure or an interrupt, only the log can tell whether the commit is in it.

        ``_settled`` then uses ``_delta`` without ``_writing``. That is safe: a writer calls ``_settled`` before it
        writes, so nothing is in doubt while it writes, and it does not use ``_delta`` after a failure.
        """
        try:
            yield
        except BaseException:
            with self._guard:
                self._in_doubt = True
            raise

    def _load(self) -> LiveTable:
        history = History(self.directory, self.time_column)
        loaded = self._delta.load()
        if loaded is None:
            return LiveTable(history)
        newest = history.entry(loaded.version)
        history.remember(newest)
        if self._fence is not None and newest.fence > self._fence.number:
            raise self._fence.lost_to(newest.fence, f"version {loaded.version} of {self.directory}")
        state = history.state(loaded.version)
        index = FileIndex(loaded.files)
        return LiveTable(
            history,
            table_id=loaded.table_id,
            token=history.token(loaded.version),
            is_foreign=history.is_foreign_since_update(loaded.version),
            version=loaded.version,
            last_update=loaded.last_update,
            state=state,
            schema=loaded.schema,
            index=index,
        )

    def _append(self, commit: Commit) -> int:
        """Write a commit to the log and apply it in memory; called with ``_writing`` held and nothing in doubt."""
        with self._doubtful():
            version = self._delta.append(commit)
            with self._guard:
                if commit.update is not None:
                    self._staging.release_updates(commit.update)
                self._table.apply(version, commit)
                self._table.table_id = self._delta.table_id
        return version

    def _rewrite(self, rewrites: Sequence[Rewrite], schema: pa.Schema) -> int | None:
        """Merge files without changing rows. Files that an update has replaced meanwhile are skipped."""
        if not rewrites:
            return None
        with self._guard:
            directory = self._staging.stage(None)
        try:
            written = [(rewrite, self._merge(rewrite, directory, i, schema)) for i, rewrite in enumerate(rewrites)]
            with self._writing:
                with self._settled() as table:
                    valid = [
                        (rewrite.sources, new)
                        for rewrite, new in written
                        if all(file.path in table.index for file in rewrite.sources)
                    ]
                if not valid:
                    return None
                removed = tuple(file for sources, _ in valid for file in sources)
                version = self._append(Commit(table.state, tuple(new for _, new in valid), removed, None))
                self._checkpoint_if_due()
                return version
        finally:
            with self._guard:
                self._staging.release(directory)

    def _merge(self, rewrite: Rewrite, directory: AnyPath, number: int, schema: pa.Schema) -> NewFile:
        paths = [self.path_of(file) for file in rewrite.sources]
        rows = parquet.read_rows(paths, pa.schema([*schema, *parquet.hidden_columns(paths[0])]))
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"merged-{number}.parquet"
        merged = parquet.write_file(self.directory, path, rows, rewrite.partition, self.time_column)
        return merged.arriving(max(file.arrived for file in rewrite.sources))

    def _checkpoint_if_due(self) -> None:
        """Write a checkpoint if it is due. If that fails, the commit before it is valid: the log only opens slower."""
        try:
            if self._delta.checkpoint_is_due():
                self._delta.checkpoint()
        except Exception as error:  # whatever it is, the commit stands
            _log.warning("no checkpoint in %s, which the next commit will try again: %s", self.directory, error)

    def _check_version(self, version: int, newest: int) -> None:
        if not 0 <= version <= newest:
            raise StorageError(
                f"table {self.directory.name!r} has no version {version}; expected 0 to {newest}"
                + (": nothing has been committed yet" if newest < 0 else "")
            )


def _named_by(
    replace: Collection[str] | Collection[DataFile] | Everything | None, index: FileIndex
) -> tuple[DataFile, ...]:
    if replace is None:
        return ()
    if replace is ALL:
        return index.files()
    files = tuple(each for each in replace if isinstance(each, DataFile))
    if missing := [file.path for file in files if file.path not in index]:
        raise StorageError(f"{missing[0]} was to be replaced, but the table has no such file any more")
    return files or index.files_in(dict.fromkeys(each for each in replace if isinstance(each, str)))
