"""The publishing of one table, as a node of the warehouse: it runs on a track, behind the updates of all tables.

It reads versions that are committed, which never change. If a place fails, the table and the other places go on; what
the place has missed is published when it works again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.warehouse.publish.protocol import PublishedVersion, Publisher, TableChanges
from headgate.warehouse.storage.errors import HistoryLostError
from headgate.warehouse.storage.history import LogEntry
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader

#: so many versions are published by one update; the others wait for the next one
MOST_VERSIONS = 50


class PublishNode(Node):
    """The publishing of one table to all its places.

    ``_published`` is, for each place, the last version that it is known to have; None before it was asked.
    """

    layer = "publish"

    def __init__(self, of: Node, publishers: Sequence[Publisher]) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self._publishers = tuple(publishers)
        self._published: list[str | None] = [None] * len(publishers)

    def plan(self) -> Update | None:
        if not self.store.exists:
            return None
        newest = self.store.version_id
        return self._planned(1.0) if any(known != newest for known in self._published) else None

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        return self.plan() is not None

    def run(
        self,
        update: Update,
        spark: SparkSession | None,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        started = time.perf_counter()
        failure: Exception | None = None
        for index, publisher in enumerate(self._publishers):
            try:
                self._publish(index, publisher, update)
            except Exception as error:  # another place may work
                self._published[index] = None
                failure = failure or error
        update.work = time.perf_counter() - started
        update.freshness = self.freshness
        if failure is not None:
            raise failure

    def _publish(self, index: int, publisher: Publisher, update: Update) -> None:
        table_id = self.store.table_id
        for changes in self._changes(table_id, publisher.last(self.table)):
            publisher.publish(self.table, changes)
            self._published[index] = changes.published.version_id
            update.rows += changes.added.num_rows
        if self._published[index] is None:
            self._published[index] = self.store.version_id  # it has everything

    def _changes(self, table_id: str, before: PublishedVersion | None) -> Iterator[TableChanges]:
        """The changes after a version one by one; if they cannot be told any more, one that is the whole table."""
        if before is None:
            yield self._whole(table_id)
            return
        try:
            entries = self.store.versions(before.version, before.version_id)
        except HistoryLostError:
            yield self._whole(table_id)
            return
        for entry in entries[:MOST_VERSIONS]:
            try:
                added, removed = self.store.rows(entry.added), self.store.rows(entry.removed)
            except FileNotFoundError:  # deleted by maintenance: too old
                yield self._whole(table_id)
                return
            published = PublishedVersion(entry.version, f"{table_id}/{entry.token}")
            yield TableChanges(published, before, added, removed, self._freshness_at(entry))
            before = published

    def _whole(self, table_id: str) -> TableChanges:
        entry = self.store.whole()
        rows = self.store.rows(entry.added)
        published = PublishedVersion(entry.version, f"{table_id}/{entry.token}")
        return TableChanges(published, None, rows, rows.slice(0, 0), self._freshness_at(entry))

    def _freshness_at(self, entry: LogEntry) -> int | None:
        state = self.state if entry.state is None else CommitState.from_json(entry.state, self.table)
        return state.freshness
