"""The newest version of one table in memory: its files by partition and event time, updated after every commit.

Invariants of `FileIndex` (``validate`` checks them):
1. ``_files`` holds each live file once, by path; ``_partitions`` holds the same files by partition.
2. No partition in ``_partitions`` is empty, and ``_order`` is exactly its keys that are not None, by start.
3. Every file of a partition lies within ``_longest`` microseconds from the partition's start.
4. ``rows`` and ``size`` are the sums over ``_files``.
5. No file arrived later than ``latest_arrival``.

Cost: adding and removing a file, and finding the files of a partition, do not depend on how many others there are
(keeping ``_order`` sorted moves memory, a microsecond for thousands of partitions). Not thread-safe.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import InvariantError
from headgate.warehouse.storage.files import DataFile, State
from headgate.warehouse.storage.history import History, LogEntry
from headgate.warehouse.storage.log import Commit
from headgate.warehouse.storage.partitions import partition_start


class FileIndex:
    def __init__(self, files: Iterable[DataFile] = ()) -> None:
        self._files: dict[str, DataFile] = {}
        self._partitions: dict[str | None, dict[str, DataFile]] = {}
        self._order: list[tuple[int, str]] = []
        self._longest = 0
        self.rows = 0
        self.size = 0
        #: the largest ``arrived`` of all files ever added; removing files does not lower it
        self.latest_arrival = 0
        for file in files:
            self.add(file)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def add(self, file: DataFile) -> None:
        if file.path in self._files:
            raise InvariantError(f"{file.path} is in the table already")
        partition = self._partitions.setdefault(file.partition, {})
        if file.partition is not None:
            start = partition_start(file.partition)
            if not partition:
                insort(self._order, (start, file.partition))
            if file.last is not None:
                self._longest = max(self._longest, file.last - start)
        partition[file.path] = file
        self._files[file.path] = file
        self.rows += file.rows
        self.size += file.size
        self.latest_arrival = max(self.latest_arrival, file.arrived)

    def remove(self, path: str) -> DataFile:
        file = self._files.pop(path)
        partition = self._partitions[file.partition]
        del partition[path]
        if not partition:
            del self._partitions[file.partition]
            if file.partition is not None:
                del self._order[bisect_left(self._order, (partition_start(file.partition), file.partition))]
        self.rows -= file.rows
        self.size -= file.size
        return file

    def files(self) -> tuple[DataFile, ...]:
        """All files, by partition, then path."""
        return self.files_in([None, *self.partitions()])

    def files_in(self, partitions: Iterable[str | None]) -> tuple[DataFile, ...]:
        """The files of ``partitions`` in the order given, by path inside each; none for one that does not exist."""
        chosen = (self._partitions.get(partition, {}) for partition in partitions)
        return tuple(files[path] for files in chosen for path in sorted(files))

    @property
    def partition_count(self) -> int:
        return len(self._order)

    def partitions(self) -> tuple[str, ...]:
        return tuple(label for _, label in self._order)

    def partitions_between(self, first: int, last: int) -> tuple[str, ...]:
        """The partitions with a file whose event times overlap ``first`` to ``last``, both included."""
        # No file reaches further than _longest from the start of its partition, so earlier partitions are skipped.
        begin = bisect_left(self._order, (first - self._longest, ""))
        end = bisect_left(self._order, (last + 1, ""))
        return tuple(label for _, label in self._order[begin:end] if self._overlaps(label, first, last))

    def _overlaps(self, label: str, first: int, last: int) -> bool:
        return any(
            file.first is not None and file.last is not None and file.first <= last and first <= file.last
            for file in self._partitions[label].values()
        )

    def validate(self) -> None:
        """Raise InvariantError if one of the numbered invariants does not hold."""
        by_partition = {path: file for files in self._partitions.values() for path, file in files.items()}
        labels = sorted((partition_start(label), label) for label in self._partitions if label is not None)
        reach = [
            file.last - partition_start(file.partition)
            for file in self._files.values()
            if file.last is not None and file.partition is not None
        ]
        held = {
            1: by_partition == self._files and all(path == file.path for path, file in self._files.items()),
            2: all(self._partitions.values()) and labels == self._order,
            3: max(reach, default=0) <= self._longest,
            4: (self.rows, self.size)
            == (sum(file.rows for file in self._files.values()), sum(file.size for file in self._files.values())),
            5: all(file.arrived <= self.latest_arrival for file in self._files.values()),
        }
        broken = [number for number, holds in held.items() if not holds]
        if broken:
            raise InvariantError(f"the index of the live files breaks its invariants {broken}")


@dataclass(slots=True)
class LiveTable:
    """The newest version of a table. Not thread-safe.

    ``last_update`` is the number of the newest committed update. It and ``version`` are -1 before the table exists.
    ``table_id`` is the same for all versions of a table, and another one if it was deleted and made anew; ``token`` is
    that of the newest log entry.
    ``is_foreign``: another program has changed rows since the newest update.
    """

    history: History
    table_id: str = ""
    token: str = ""
    is_foreign: bool = False
    version: int = -1
    last_update: int = -1
    state: State = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    index: FileIndex = field(default_factory=FileIndex)

    def next_arrival(self) -> int:
        """The arrival of the next commit's rows: now, but later than all before, even if the clock was set back."""
        return max(time.time_ns() // 1_000_000, self.index.latest_arrival + 1)

    def apply(self, version: int, commit: Commit) -> None:
        """Apply ``commit``, which was written to the log as ``version``."""
        for removed in commit.removed:
            self.index.remove(removed.path)
        for new in commit.added:
            self.index.add(new.file)
        self.version = version
        self.state = commit.state
        self.token = commit.token
        if commit.grown_schema is not None:
            self.schema = commit.grown_schema
        if commit.update is None:
            self.history.remember(LogEntry(version, None, commit.state, token=commit.token))
        else:
            self.last_update = commit.update
            self.is_foreign = False
            # The entry on disk does not have the arrival of removed files, so this one must not have it either.
            added = tuple(new.file for new in commit.added)
            removed_files = tuple(replace(file, arrived=0) for file in commit.removed)
            if commit.changes is not None:
                added, removed_files = commit.changes.added, commit.changes.removed
            entry = LogEntry(version, commit.update, commit.state, added, removed_files, token=commit.token)
            self.history.remember(entry)
