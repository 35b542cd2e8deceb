"""The publishing of one table, as a node of the warehouse: it runs on a track, behind the updates of all tables.

It reads versions that are committed, which never change. If a place fails, the table and the other places go on; what
the place has missed is published when it works again. It is tried again after longer and longer waits of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core import Update, said_by
from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.owner import refuse_others
from headgate.warehouse.publish.protocol import PublishedVersion, Publisher, TableChanges, TableRows
from headgate.warehouse.schedule.retries import wait_after
from headgate.warehouse.storage.errors import DamagedFileError, HistoryLostError
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.history import LogEntry, entry_path
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.node import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate
    from headgate.warehouse.updates.spark_files import FileReader

#: so many versions are published by one update; the others wait for the next one
MOST_VERSIONS = 50
#: so many rows are read at once
BATCH_ROWS = 20_000


@dataclass(slots=True)
class _Place:
    """A place: the last version that it is known to have, None before it was asked, and its failures in a row.

    After a failure it is not tried before ``due``.
    """

    publisher: Publisher
    published: str | None = None
    version: int = -1
    failures: int = 0
    error: str = ""
    due: float = -math.inf

    def has(self, version: PublishedVersion | None) -> None:
        """It says that it has this version."""
        self.published = None if version is None else version.version_id
        self.version = -1 if version is None or not version.is_complete else version.version

    def failed(self, error: Exception, now: float) -> None:
        self.has(None)
        self.failures, self.error = self.failures + 1, said_by(error)
        self.due = now + wait_after(self.failures)

    def works(self) -> None:
        self.failures, self.error, self.due = 0, "", -math.inf


class PublishNode(Node):
    """The publishing of one table to all its places. ``warehouse`` tells the id of the warehouse.

    Each place has a back-off of its own, so that one that fails does not hold up the others.
    """

    layer = "publish"

    def __init__(
        self,
        of: Node,
        publishers: Sequence[Publisher],
        warehouse: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self._places = tuple(map(_Place, publishers))
        self._warehouse = warehouse
        self._clock = clock

    def plan(self) -> Update | None:
        if not self.store.exists:
            return None
        return self._planned(1.0) if self._due() else None

    def _due(self) -> list[_Place]:
        """The places that lack a version and may be tried now."""
        newest, now = self.store.version_id, self._clock()
        return [place for place in self._places if place.published != newest and now >= place.due]

    def waits(self) -> float:
        return max(0.0, min((place.due for place in self._places if place.failures), default=math.inf) - self._clock())

    def retry_now(self) -> None:
        for place in self._places:
            place.due = -math.inf

    @property
    def failures(self) -> int:
        """The failures in a row of the place that may work soonest, of those that fail; 0 if none does."""
        return min((place.failures for place in self._places if place.failures), default=0)

    @property
    def problem(self) -> str:
        """What is wrong with the places that fail; empty if none does."""
        failing = [place for place in self._places if place.failures]
        if not failing:
            return ""
        what = f"publishing fails at {len(failing)} of {len(self._places)} places: "
        return what + "; ".join(f"{place.publisher!r}: {place.error}" for place in failing)

    @property
    def version(self) -> int:
        """The last version of the table that all places have; -1 if that is not known."""
        return min((place.version for place in self._places), default=-1)

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
        failures: list[Exception] = []
        for place in self._due():
            try:
                self._publish(place, update)
                place.works()
            except Exception as error:  # another place may work
                place.failed(error, self._clock())
                failures.append(error)
        update.work = time.perf_counter() - started
        update.freshness = self.freshness
        if len(failures) == 1 and len(self._places) == 1:
            raise failures[0]
        if failures:
            raise PublishError(self.problem)

    def _publish(self, place: _Place, update: Update) -> None:
        publisher = place.publisher
        self.store.check_fence()  # who asks a place may keep others from writing to it
        if place.published is None and (peek := getattr(publisher, "peek", None)):
            self._refuse_others(publisher, peek(self.table))
        last = self._asked(publisher)
        # What it says that it has, and not the newest version, which may be one that was committed just now.
        place.has(last)
        for changes in self._changes(self.store.table_id, last):
            sent = self._sent(publisher, changes)
            place.has(sent.published)
            update.rows += sent.added.num_rows
            if sent is not changes:
                return

    def _sent(self, publisher: Publisher, changes: TableChanges) -> TableChanges:
        """Publish changes; if their files were deleted by maintenance, because they are too old, the whole table."""
        try:
            self.store.check_fence()
            publisher.publish(self.table, changes)
            return changes
        except DamagedFileError:
            if changes.before is None or not self._are_missing(changes):
                raise
        found = self._asked(publisher)
        whole = self._whole(self.store.table_id, found)
        self.store.check_fence()
        publisher.publish(self.table, whole)
        return whole

    def _are_missing(self, changes: TableChanges) -> bool:
        (entry,) = self.store.versions(changes.published.version - 1, most=1)
        return bool(self.store.missing([*entry.added, *entry.removed]))

    def _asked(self, publisher: Publisher) -> PublishedVersion | None:
        """What a place has; an error if this process may not publish over it."""
        last = publisher.last(self.table)
        self._refuse_others(publisher, last)
        self._refuse_if_replaced(last)
        return last

    def _refuse_if_replaced(self, there: PublishedVersion | None) -> None:
        """Raise if the place has a version of this table that another process has committed and published.

        This process would take it for one that is lost, and replace it by the whole table as it knows it.
        """
        store = self.store
        if there is None or (self._is_of_this_table(there) and there.version <= store.version):
            return
        store.look()  # LeaseLostError if that process has taken the warehouse over
        is_newer = self._is_of_this_table(there) and there.version > store.version
        if is_newer and entry_path(store.directory, there.version).exists():
            raise PublishError(
                f"{self.table!r} has been published up to version {there.version}, and this process knows it up to "
                f"{store.version}: another process has taken the warehouse over. Stop one of the two"
            )

    def _is_of_this_table(self, version: PublishedVersion) -> bool:
        return version.version_id.startswith(f"{self.store.table_id}/")

    def _refuse_others(self, publisher: Publisher, there: PublishedVersion | None) -> None:
        take_over = bool(getattr(publisher, "take_over", False))
        refuse_others(there, self._warehouse(), take_over, self.table, repr(publisher))

    def _changes(self, table_id: str, found: PublishedVersion | None) -> Iterator[TableChanges]:
        """The changes after a version one by one; if they cannot be told any more, one that is the whole table."""
        if found is None or not found.is_complete:
            yield self._whole(table_id, found)
            return
        before = found
        try:
            entries = self.store.versions(before.version, before.version_id, MOST_VERSIONS)
        except HistoryLostError:
            yield self._whole(table_id, found)
            return
        for entry in entries:
            published = self._version(table_id, entry)
            added, removed = self._rows(entry.added), self._rows(entry.removed)
            yield TableChanges(published, before, added, removed, self._freshness_at(entry))
            before = published

    def _whole(self, table_id: str, found: PublishedVersion | None) -> TableChanges:
        entry = self.store.whole()
        version, freshness = self._version(table_id, entry), self._freshness_at(entry)
        return TableChanges(version, None, self._rows(entry.added), self._rows(()), freshness, found)

    def _rows(self, files: Sequence[DataFile]) -> TableRows:
        count, size = sum(file.rows for file in files), sum(file.size for file in files)
        schema = self.store.schema  # of all batches, also if the table gets columns meanwhile
        return TableRows(schema, count, size, lambda: self.store.batches(files, schema, BATCH_ROWS))

    def _version(self, table_id: str, entry: LogEntry) -> PublishedVersion:
        return PublishedVersion(entry.version, f"{table_id}/{entry.token}", self._warehouse())

    def _freshness_at(self, entry: LogEntry) -> int | None:
        state = self.state if entry.state is None else CommitState.from_json(entry.state, self.table)
        return state.freshness
