"""Maintenance of a table: merging small files, rolling up old partitions, deleting what nobody needs.

Never changes rows.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.stream.spark.update import state_folder, tidy_states
from headgate.warehouse.updates.hosted import rejected_files, stored_states
from headgate.warehouse.updates.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader

#: merged when there are so many files more than partitions: the more files, the longer it takes to read them
MOST_EXTRA_FILES = 24
#: old files are deleted, and old partitions looked for, once in so many commits
COMMITS_BETWEEN_CLEANING = 200
#: a table's newest partitions stay as they are; those before are merged, so many to one
PARTITIONS_KEPT, PARTITIONS_TO_ONE = 48, 24
#: directories of updates that died are old enough to be deleted when no update can still be writing to them
ABANDONED_SECONDS = 3600.0


class MaintenanceNode(Node):
    """The maintenance of one table. The plan of an update is whether it also cleans up."""

    layer = "maintenance"

    def __init__(self, of: Node, partition: float | None) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self._partition = partition
        self._cleaned = self.store.version

    def plan(self) -> Update | None:
        statistics = self.store.statistics()
        due = (
            statistics.files - statistics.partitions >= MOST_EXTRA_FILES
            or statistics.version - self._cleaned >= COMMITS_BETWEEN_CLEANING
        )
        return self._planned(1.0) if due else None

    def begin(self, most_seconds: float = math.inf) -> Update | None:
        update = self.plan()
        if update is not None:
            update.plan = self.store.version - self._cleaned >= COMMITS_BETWEEN_CLEANING
            if update.plan:
                self._cleaned = self.store.version
        return update

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        query: HostedUpdate | None = None,
    ) -> None:
        started = time.perf_counter()
        self.store.compact()
        if update.plan:
            if self._partition is not None:
                self._roll_up(self._partition)
            self.store.vacuum()
            self.store.sweep(ABANDONED_SECONDS)
            state = self.state
            kept = rejected_files(state.rejected_files)
            tidy_states(state_folder(self.store.directory), stored_states(state), kept, ABANDONED_SECONDS)
        update.work = time.perf_counter() - started

    def _roll_up(self, partition: float) -> None:
        statistics = self.store.statistics()
        if statistics.partitions < PARTITIONS_KEPT + PARTITIONS_TO_ONE:
            return
        # the first that stays; a table of single rows days apart has few partitions for all its length
        kept = self.store.files_in([self.store.partitions()[-PARTITIONS_KEPT]])
        oldest = min((file.first for file in kept if file.first is not None), default=None)
        if oldest is not None:
            self.store.roll_up(oldest, round(partition) * PARTITIONS_TO_ONE)
