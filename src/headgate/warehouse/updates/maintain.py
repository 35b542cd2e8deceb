"""Maintenance of a table: merge small files, merge old partitions into longer ones, delete files no longer needed.

It never changes rows.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.stream.spark.update import state_folder, tidy_states
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.hosted import rejected_files, stored_states
from headgate.warehouse.updates.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader

#: files are merged when there are this many more than partitions: many files take long to read
MOST_EXTRA_FILES = 24
#: old files are deleted, and old partitions merged, once in this many commits
COMMITS_BETWEEN_CLEANING = 200
#: the newest partitions of a table stay as they are; older ones are merged, this many into one
PARTITIONS_KEPT, PARTITIONS_TO_ONE = 48, 24
#: the directory of a failed update is deleted at this age, when no update can still be writing to it
ABANDONED_SECONDS = 3600.0


#: the file in the folder of a table that has the version at which it was last cleaned up
CLEANED = "_headgate_cleaned"


class MaintenanceNode(Node):
    """The maintenance of one table and of its rejected rows.

    ``Update.plan`` are the tables that the update also cleans up: all but merging files.
    """

    layer = "maintenance"

    def __init__(self, of: Node, partition: float | None) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self._partition = partition
        self._stores = [of.store, *([] if of.rejected is None else [of.rejected])]
        self._cleaned = {store.directory: _cleaned_at(store) for store in self._stores}

    def plan(self) -> Update | None:
        has_work = any(map(_has_many_files, self._stores)) or self._to_clean_up()
        return self._planned(1.0) if has_work else None

    def _to_clean_up(self) -> list[TableStore]:
        return [store for store in self._stores if self._cleaning_is_due(store) and not self._is_awaited(store)]

    def _cleaning_is_due(self, store: TableStore) -> bool:
        cleaned = self._cleaned[store.directory]
        # A table that was made anew begins with version 0.
        return store.version - (cleaned if cleaned <= store.version else 0) >= COMMITS_BETWEEN_CLEANING

    def _is_awaited(self, store: TableStore) -> bool:
        """Whether the table's newest commit names files of rejected rows that are not committed to ``store`` yet."""
        named = self.state.rejected_files
        if store is self.store or named is None:
            return False
        return CommitState.from_json(store.state).update < int(named["update"])

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        for store in self._stores:
            store.look()
        if self.plan() is None:
            return False
        update.plan = self._to_clean_up()
        return True

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        started = time.perf_counter()
        for store in self._stores:
            store.compact()
        for store in update.plan:
            self._clean_up(store)
        update.work = time.perf_counter() - started

    def _clean_up(self, store: TableStore) -> None:
        version = store.version
        if store is self.store and self._partition is not None:
            self._roll_up(self._partition)
        store.vacuum()
        store.sweep(ABANDONED_SECONDS)
        if store is self.store:
            state = self.state
            kept = rejected_files(state.rejected_files)
            folder = state_folder(store.directory)
            tidy_states(folder, stored_states(state), kept, ABANDONED_SECONDS, store.check_fence)
        self._cleaned[store.directory] = version
        (store.directory / CLEANED).write_text(str(version), encoding="utf-8")

    def _roll_up(self, partition: float) -> None:
        statistics = self.store.statistics()
        if statistics.partitions < PARTITIONS_KEPT + PARTITIONS_TO_ONE:
            return
        # Counted in partitions, not in time: a table of single rows days apart has few partitions.
        kept = self.store.files_in([self.store.partitions()[-PARTITIONS_KEPT]])
        oldest = min((file.first for file in kept if file.first is not None), default=None)
        if oldest is not None:
            self.store.roll_up(oldest, round(partition) * PARTITIONS_TO_ONE)


def _has_many_files(store: TableStore) -> bool:
    statistics = store.statistics()
    return statistics.files - statistics.partitions >= MOST_EXTRA_FILES


def _cleaned_at(store: TableStore) -> int:
    """The version at which a table was last cleaned up, by this or an earlier process; 0 if it was not."""
    try:
        return int((store.directory / CLEANED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
