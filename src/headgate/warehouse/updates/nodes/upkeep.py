"""Upkeep of a table: merging small files, rolling up old partitions, deleting what nobody needs. Never changes rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.stream.spark.update import StoredStates, state_folder, tidy_states
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.nodes.node import Job, Node, Outcome, PendingUpdate
from headgate.warehouse.updates.rejected import files_of
from headgate.warehouse.updates.state import UpdateState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.warehouse.updates.reads import Reads

#: merged when there are so many files more than partitions: the more files, the longer it takes to read them
MOST_EXTRA_FILES = 24
#: old files are deleted, and old partitions looked for, once in so many commits
COMMITS_BETWEEN_CLEANING = 200
#: a table's newest partitions stay as they are; those before are merged, so many to one
PARTITIONS_KEPT, PARTITIONS_TO_ONE = 48, 24
#: directories of updates that died are old enough to be deleted when no update can still be writing to them
ABANDONED_SECONDS = 3600.0


class MaintenanceNode(Node):
    """The upkeep of one table."""

    def __init__(self, of: Node, partition: float | None) -> None:
        self.name = maintenance_name(of.name)
        self.store = of.store
        self.sources = (of.name,)
        self._partition = partition
        self._cleaned = self.store.version

    def pending(self) -> PendingUpdate | None:
        statistics = self.store.statistics()
        due = (
            statistics.files - statistics.partitions >= MOST_EXTRA_FILES
            or statistics.version - self._cleaned >= COMMITS_BETWEEN_CLEANING
        )
        return PendingUpdate(1.0) if due else None

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        if self.pending() is None:
            return None
        clean = self.store.version - self._cleaned >= COMMITS_BETWEEN_CLEANING
        if clean:
            self._cleaned = self.store.version
        return _Maintain(self.store, self._partition if clean else None, clean)


def maintenance_name(table: str) -> str:
    """What the maintenance of a table is called; no table can have that name."""
    return f"{table} (maintenance)"


@dataclass(frozen=True, slots=True)
class _Maintain(Job):
    store: TableStore
    partition: float | None
    clean: bool

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        started = time.perf_counter()
        self.store.compact()
        if self.partition is not None:
            self._roll_up(self.partition)
        if self.clean:
            self.store.vacuum()
            self.store.sweep(ABANDONED_SECONDS)
            state = UpdateState.from_json(self.store.state)
            named = {name: StoredStates.from_json(each) for name, each in state.queries.items()}
            tidy_states(state_folder(self.store.directory), named, files_of(state.set_aside), ABANDONED_SECONDS)
        return Outcome(self.store.version, 0, 0, None, (), time.perf_counter() - started)

    def _roll_up(self, partition: float) -> None:
        statistics = self.store.statistics()
        if statistics.partitions < PARTITIONS_KEPT + PARTITIONS_TO_ONE:
            return
        # the first that stays; a table of single rows days apart has few partitions for all its length
        kept = self.store.files_in([self.store.partitions()[-PARTITIONS_KEPT]])
        oldest = min((file.first for file in kept if file.first is not None), default=None)
        if oldest is not None:
            self.store.roll_up(oldest, round(partition) * PARTITIONS_TO_ONE)
