"""What is known of the newest version of a table, in memory, and how a commit changes it. Not thread-safe."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.warehouse.storage.entries import LogEntry
from headgate.warehouse.storage.files import State
from headgate.warehouse.storage.history import History
from headgate.warehouse.storage.index import FileIndex
from headgate.warehouse.storage.log import Commit


@dataclass(slots=True)
class LiveTable:
    """``version`` and ``last_update``, the newest update committed, are -1 before the table exists."""

    history: History
    version: int = -1
    last_update: int = -1
    state: State = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    index: FileIndex = field(default_factory=FileIndex)

    def next_arrival(self) -> int:
        """When the rows of the next commit arrive: now, but after all rows before, even if the clock was set back."""
        return max(time.time_ns() // 1_000_000, self.index.latest_arrival + 1)

    def apply(self, version: int, commit: Commit) -> None:
        """Follow ``commit``, which the log has as ``version``."""
        for removed in commit.removed:
            self.index.remove(removed.path)
        for new in commit.added:
            self.index.add(new.file)
        self.version = version
        self.state = commit.state
        if commit.grown_schema is not None:
            self.schema = commit.grown_schema
        if commit.update is None:
            self.history.remember(LogEntry(version, None, commit.state))
        else:
            self.last_update = commit.update
            added = tuple(new.file for new in commit.added)
            # The entry on disk does not say when the files that it removes arrived, so this one must not either.
            removed_files = tuple(replace(file, arrived=0) for file in commit.removed)
            self.history.remember(LogEntry(version, commit.update, commit.state, added, removed_files))
