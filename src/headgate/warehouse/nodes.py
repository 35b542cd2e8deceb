"""The nodes of an open warehouse: what each could do next, and doing it.

A node knows its table, its sources and what of them it has not taken in yet. It is asked ``pending`` (cheap, often);
``begin`` makes an update out of it, a ``Job`` that any thread may run (one Spark job and one commit), and ``end`` tells
the node how that went. Those built on it are then told ``source_changed``. A node knows nothing of order, threads or
other tables. Everything but ``Job.run`` is for one thread at a time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.warehouse.deriving import SourceTable, TableDeriver
from headgate.warehouse.loading import StreamLoader
from headgate.warehouse.plan import (
    MICROS,
    RecomputePlan,
    Shape,
    SourceState,
    Span,
    TableState,
    block_length,
    join,
    pending_blocks,
    plan_recompute,
    trailing_edge,
)
from headgate.warehouse.sources import Limit, Range
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.state import UpdateState
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """What an update would bring now.

    ``gain`` is how much fresher the table would become, in seconds of event time; data that came late and changes only
    the past brings none but still has to be taken in. ``arrived`` is when the oldest of it came, wall-clock seconds.
    """

    gain: float
    arrived: float | None = None

    @property
    def seconds(self) -> float:
        """The gain, and something for an update that only repairs the past, so that it is not forgotten."""
        return max(self.gain, 1e-3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An update that was made: how many rows, the version it is, how fresh the table is now, and what changed."""

    version: int
    rows: int
    rejected: int
    freshness: int | None
    spans: tuple[Span, ...]


class Job(ABC):
    """One update that has begun."""

    @abstractmethod
    def run(self, spark: SparkSession) -> Outcome:
        """Compute and commit. If it raises, nothing was committed, or the next update finds out what was."""


class Node(ABC):
    """One table of the warehouse."""

    name: str
    store: TableStore
    sources: tuple[str, ...] = ()

    @property
    def freshness(self) -> int | None:
        return UpdateState.from_json(self.store.state, self.name).freshness

    @abstractmethod
    def pending(self) -> PendingUpdate | None:
        """What an update would bring, or None if there is nothing to do."""

    @abstractmethod
    def begin(self, most_seconds: float = math.inf) -> Job | None:
        """An update that takes in at most ``most_seconds`` of data; None if there is nothing to do after all."""

    @abstractmethod
    def end(self, job: Job, outcome: Outcome | None) -> None:
        """The update is committed, or with None has failed and is still to be done."""

    @abstractmethod
    def source_changed(self, source: str) -> None:
        """A table that this one is built on has been updated."""

    def update(self, spark: SparkSession, most_seconds: float = math.inf) -> Outcome | None:
        """Begin, run and end one update, for whoever has one thread only."""
        job = self.begin(most_seconds)
        if job is None:
            return None
        outcome = None
        try:
            outcome = job.run(spark)
        finally:
            self.end(job, outcome)
        return outcome


class StreamNode(Node):
    """A base table and its source."""

    def __init__(self, loader: StreamLoader) -> None:
        self.name = loader.spec.name
        self.store = loader.table
        self._loader = loader

    def pending(self) -> PendingUpdate | None:
        waiting = self._loader.spec.source.latest(self._loader.offset)
        if not waiting.chunks:
            return None
        oldest, newest = waiting.oldest or 0.0, waiting.newest or 0.0
        period = self._loader.spec.period or 0.0
        # Event times are not known before the data is read; data that arrived over so long tells of about so long.
        return PendingUpdate(max(newest - oldest + period, period), oldest)

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        wanted = self._loader.next_range(Limit(seconds=None if most_seconds == math.inf else most_seconds))
        return None if wanted is None else _Load(self._loader, wanted)

    def end(self, job: Job, outcome: Outcome | None) -> None:
        """Nothing to do: the loader's offset moves with its commits."""

    def source_changed(self, source: str) -> None:
        """Nothing to do: a stream has no tables for sources."""


@dataclass(frozen=True, slots=True)
class _Load(Job):
    loader: StreamLoader
    wanted: Range

    def run(self, spark: SparkSession) -> Outcome:
        loaded = self.loader.load(spark, self.wanted)
        spans = () if loaded.span is None else (loaded.span,)
        return Outcome(loaded.version, loaded.rows, loaded.rejected, loaded.freshness, spans)


class MaintenanceNode(Node):
    """Merges the small files that updates leave behind in a table. It changes files, never rows.

    The more files a partition has, the longer it takes to read, so the work is due once there are ``MOST_EXTRA`` files
    more than partitions.
    """

    MOST_EXTRA = 24
    #: directories of updates that died are old enough to be deleted when no update can still be writing to them
    ABANDONED_SECONDS = 3600.0

    def __init__(self, of: Node) -> None:
        self.name = maintenance_name(of.name)
        self.store = of.store
        self.sources = (of.name,)

    def pending(self) -> PendingUpdate | None:
        statistics = self.store.statistics()
        return PendingUpdate(1.0) if statistics.files - statistics.partitions >= self.MOST_EXTRA else None

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        return None if self.pending() is None else _Maintain(self.store)

    def end(self, job: Job, outcome: Outcome | None) -> None:
        """Nothing to do: the files there are say what is left."""

    def source_changed(self, source: str) -> None:
        """Nothing to do: ``pending`` looks at the files there are."""


def maintenance_name(table: str) -> str:
    """What the maintenance of a table is called; no table can have that name."""
    return f"{table} (maintenance)"


@dataclass(frozen=True, slots=True)
class _Maintain(Job):
    store: TableStore

    def run(self, spark: SparkSession) -> Outcome:
        version = self.store.compact()
        self.store.vacuum()
        self.store.sweep(MaintenanceNode.ABANDONED_SECONDS)
        return Outcome(self.store.version if version is None else version, 0, 0, None, ())


class TableNode(Node):
    """A derived table.

    Invariant: ``_changed[s]`` are the event times of source s that changed between the version last consumed or being
    consumed by a job and ``_seen[s]``; ``_added`` are the files that came with them, for tables that are appended to.
    """

    def __init__(
        self, spec: TableSpec, table: TableStore, sources: Sequence[SourceTable], lengths: Sequence[float], append: bool
    ) -> None:
        self.name = spec.name
        self.store = table
        self.sources = tuple(source.name for source in sources)
        self._spec = spec
        self._stores = {source.name: source for source in sources}
        self._deriver = TableDeriver(spec, table, sources)
        self._append = append
        self._shape = Shape(
            block=block_length((spec.partition, *lengths)),
            lookback=round(spec.lookback * MICROS),
            newest_first=spec.catch_up == "newest",
            several_sources=sum(source.time is not None for source in sources) > 1,
        )
        state = UpdateState.from_json(table.state, spec.name)
        self._seen = {name: state.sources.get(name, -1) for name in self.sources}
        self._changed: dict[str, list[Span]] = {name: [] for name in self.sources}
        self._added: list[DataFile] = []
        for name in self.sources:
            self._look(name)

    def source_changed(self, source: str) -> None:
        self._look(source)

    def _look(self, name: str) -> None:
        """Take note of what changed in a source since it was last looked at."""
        source = self._stores[name]
        if not source.store.exists or source.store.version == self._seen[name]:
            return
        changes = source.store.changes(self._seen[name])
        self._seen[name] = changes.until
        if source.time is None:
            return
        files = (*changes.added, *changes.removed)
        spans = [(f.first, f.last) for f in files if f.first is not None and f.last is not None]
        self._changed[name] = list(join([*self._changed[name], *spans]))
        self._added.extend(changes.added)

    def _states(self) -> list[SourceState]:
        return [
            SourceState(
                name=name,
                version=self._seen[name],
                freshness=UpdateState.from_json(source.store.state, name).freshness,
                changed=tuple(self._changed[name]),
                has_time=source.time is not None,
            )
            for name, source in self._stores.items()
        ]

    def _state(self) -> TableState:
        state = UpdateState.from_json(self.store.state, self.name)
        return TableState(state.freshness, state.dirty)

    def pending(self) -> PendingUpdate | None:
        sources, table = self._states(), self._state()
        edge = trailing_edge(sources)
        if edge is None:
            return None
        if self._append:
            if not self._added:
                return None
        elif not pending_blocks(self._shape, table, sources):
            return None
        start = table.freshness
        if start is None:
            start = min((first for spans in self._changed.values() for first, _ in spans), default=edge)
        return PendingUpdate(max(0.0, (edge - start) / MICROS))

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        sources = self._states()
        edge = trailing_edge(sources)
        job: Job
        if self._append:
            if edge is None or not self._added:
                return None
            job = _Append(self._deriver, tuple(sources), tuple(self._added), edge)
        else:
            plan = plan_recompute(self._shape, self._state(), sources, most_seconds)
            if plan is None:
                return None
            job = _Recompute(self._deriver, tuple(sources), plan)
        # What changes from here on belongs to the next update.
        self._added = []
        self._changed = {name: [] for name in self.sources}
        return job

    def end(self, job: Job, outcome: Outcome | None) -> None:
        if outcome is not None:
            return
        assert isinstance(job, _Append | _Recompute)
        for source in job.sources:
            self._changed[source.name] = list(join([*source.changed, *self._changed[source.name]]))
        if isinstance(job, _Append):
            self._added = [*job.files, *self._added]


@dataclass(frozen=True, slots=True)
class _Recompute(Job):
    deriver: TableDeriver
    sources: tuple[SourceState, ...]
    plan: RecomputePlan

    def run(self, spark: SparkSession) -> Outcome:
        derived = self.deriver.recompute(spark, self.plan)
        return Outcome(derived.version, derived.rows, 0, derived.freshness, derived.spans)


@dataclass(frozen=True, slots=True)
class _Append(Job):
    deriver: TableDeriver
    sources: tuple[SourceState, ...]
    files: tuple[DataFile, ...]
    edge: int

    def run(self, spark: SparkSession) -> Outcome:
        versions = {source.name: source.version for source in self.sources}
        derived = self.deriver.append(spark, self.files, versions, self.edge)
        return Outcome(derived.version, derived.rows, 0, derived.freshness, derived.spans)
