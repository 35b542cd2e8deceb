"""A derived table: taking in what its sources have that it has not, and repairing its past behind that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.warehouse.deriving import Chosen, Derived, SourceTable, TableDeriver
from headgate.warehouse.nodes.node import Job, Node, Outcome, PendingUpdate
from headgate.warehouse.plan import (
    MICROS,
    RecomputePlan,
    Shape,
    SourceState,
    Span,
    TableState,
    block_length,
    has_backfill,
    is_pending,
    join,
    plan_backfill,
    plan_update,
    trailing_edge,
)
from headgate.warehouse.reads import Reads
from headgate.warehouse.spec import TableSpec
from headgate.warehouse.state import UpdateState
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableNode(Node):
    """A derived table.

    An update reads the sources as they were when it began, even if they are updated while it runs: the files are chosen
    in ``begin``, and the source versions that it says it has consumed are the versions that those files belong to.

    Invariant: ``_changed[s]`` are the event times of source s that changed between the version last consumed or being
    consumed by a job and ``_seen[s]``; ``_added`` are the files that came with them, for tables that are appended to.
    """

    def __init__(
        self, spec: TableSpec, table: TableStore, sources: Sequence[SourceTable], lengths: Sequence[float], append: bool
    ) -> None:
        self.name = spec.name
        self.store = table
        self.sources = tuple(source.name for source in sources)
        self.spec = spec
        self.append = append
        self._stores = {source.name: source for source in sources}
        self._deriver = TableDeriver(spec, table, sources)
        self._shape = Shape(
            block=block_length((spec.partition, *lengths)),
            lookback=round(spec.lookback * MICROS),
            newest_first=spec.catch_up == "newest",
            several_sources=sum(source.time is not None for source in sources) > 1,
            appended=append,
        )
        self._seen = {name: self.state.sources.get(name, -1) for name in self.sources}
        self._changed: dict[str, list[Span]] = {name: [] for name in self.sources}
        self._added: list[DataFile] = []
        #: what was asked to be computed again and is not in a commit yet
        self._asked: list[Span] = []
        self._running = False
        self._look_at_all()

    @property
    def block_seconds(self) -> float:
        """How much event time is computed at once at least."""
        return self._shape.block / MICROS

    # --- what there is to do --------------------------------------------------------------------------------

    def source_changed(self, source: str) -> None:
        self._look(source)

    def _look_at_all(self) -> None:
        for name in self.sources:
            self._look(name)

    def _look(self, name: str) -> None:
        """Take note of what changed in a source since it was last looked at."""
        source = self._stores[name]
        if not source.store.exists or source.store.version == self._seen[name]:
            return
        changes = source.store.changes(self._seen[name])
        known, self._seen[name] = self._seen[name], changes.until
        if source.time is None:
            if known >= 0 and (changes.added or changes.removed):
                self._ask_for(self._everything())  # any row may depend on any row of a dimension
            return
        files = (*changes.added, *changes.removed)
        spans = [(f.first, f.last) for f in files if f.first is not None and f.last is not None]
        self._changed[name] = list(join([*self._changed[name], *spans]))
        self._added.extend(changes.added)

    def _everything(self) -> tuple[Span, ...]:
        """All of the past that sources or the table itself have rows of."""
        freshness = self.freshness
        stores = [self.store, *(source.store for source in self._stores.values() if source.time is not None)]
        oldest = [store.files_in(store.partitions()[:1]) for store in stores]
        first = min((file.first for files in oldest for file in files if file.first is not None), default=None)
        return () if freshness is None or first is None or first > freshness else ((first, freshness),)

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
        state = self.state
        return TableState(state.freshness, join([*state.dirty, *self._asked]))

    def _is_complete(self) -> bool:
        """Whether there is something in every source: a join with a dimension that is not there yet would be empty."""
        return all(source.store.exists for source in self._stores.values())

    def pending(self) -> PendingUpdate | None:
        if not self._is_complete():
            return None
        sources, table = self._states(), self._state()
        edge = trailing_edge(sources)
        if edge is None or not (self._added if self.append else is_pending(self._shape, table, sources)):
            return None
        start = table.freshness
        if start is None:
            start = min((first for spans in self._changed.values() for first, _ in spans), default=edge)
        return PendingUpdate(max(0.0, (edge - start) / MICROS))

    # --- live updates ---------------------------------------------------------------------------------------

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        if self._running or self.pending() is None:
            return None
        job = self._settled(lambda: self._append_job() if self.append else self._update_job(most_seconds))
        if job is None:
            return None
        self._running = True
        # What changes from here on belongs to the next update.
        self._added = []
        self._changed = {name: [] for name in self.sources}
        if isinstance(job, _Recompute):
            self._asked = []
        return job

    def _append_job(self) -> _Append | None:
        sources = self._states()
        edge = trailing_edge(sources)
        if edge is None:
            return None
        (source,) = (source.name for source in self._stores.values() if source.time is not None)
        return _Append(self._deriver, tuple(sources), {source: tuple(self._added)}, edge)

    def _update_job(self, most_seconds: float) -> _Recompute | None:
        sources, asked = self._states(), tuple(self._asked)
        plan = plan_update(self._shape, self._state(), sources, most_seconds)
        return None if plan is None else self._recompute(plan, "recompute", tuple(sources), asked)

    def _recompute(
        self, plan: RecomputePlan, kind: str, sources: tuple[SourceState, ...], asked: tuple[Span, ...]
    ) -> _Recompute:
        chosen = {name: self._deriver.choose(source, plan) for name, source in self._stores.items()}
        return _Recompute(self._deriver, sources, plan, chosen, kind, asked)

    def _settled(self, make: Callable[[], _Append | _Recompute | None]) -> _Append | _Recompute | None:
        """What ``make`` makes of sources that were not updated meanwhile: versions, freshness and files must agree."""
        while True:
            self._look_at_all()
            job = make()
            if all(not s.store.exists or s.store.version == self._seen[name] for name, s in self._stores.items()):
                return job

    def end(self, job: Job, outcome: Outcome | None) -> None:
        assert isinstance(job, _Append | _Recompute)
        self._running = False
        if outcome is None:
            self._asked = [*job.asked, *self._asked]
            for source in job.sources:
                self._changed[source.name] = list(join([*source.changed, *self._changed[source.name]]))
            if isinstance(job, _Append):
                self._added = [*(file for files in job.chosen.values() for file in files), *self._added]
        if self._asked:
            self._keep_what_was_asked()

    # --- repairing the past ---------------------------------------------------------------------------------

    def backfill(self, first: int, last: int) -> None:
        """Have the event times from ``first`` to ``last`` computed again; remembered in a commit, so never lost."""
        self._ask_for([(first, last)])
        if not self._running:
            self._keep_what_was_asked()

    def _ask_for(self, spans: Sequence[Span]) -> None:
        self._asked = list(join([*self._asked, *spans]))

    def _keep_what_was_asked(self) -> None:
        state = self.state
        if state.freshness is None:
            self._asked = []  # a table that has nothing yet computes everything anyway
            return
        kept = replace(state, update=state.update + 1, kind="note", rows=0, dirty=join([*state.dirty, *self._asked]))
        self.store.commit(kept.update, (), replace=None, state=kept.to_json(), schema=self.store.schema)
        self._asked = []

    def backfill_pending(self) -> PendingUpdate | None:
        # A table that is appended to must have taken in what its source has before rows are computed again.
        if self._running or self._added or not has_backfill(self._shape, self._state()):
            return None
        return PendingUpdate(self.block_seconds)

    def begin_backfill(self, most_seconds: float) -> Job | None:
        """One chunk of the past; what came in since the last live update is left to the next one."""
        if self.backfill_pending() is None:
            return None
        job = self._settled(lambda: self._backfill_job(most_seconds))
        if job is None or (self.append and self._added):
            return None
        self._running, self._asked = True, []
        return job

    def _backfill_job(self, most_seconds: float) -> _Recompute | None:
        plan = plan_backfill(self._shape, self._state(), self.state.sources, most_seconds)
        return None if plan is None else self._recompute(plan, "backfill", (), tuple(self._asked))


class BackfillNode(Node):
    """The past of a derived table, computed again in chunks while nobody needs the track for anything newer."""

    def __init__(self, of: TableNode) -> None:
        self.name = backfill_name(of.name)
        self.store = of.store
        self.sources = (of.name,)
        self.of = of

    def pending(self) -> PendingUpdate | None:
        return self.of.backfill_pending()

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        return self.of.begin_backfill(most_seconds)

    def end(self, job: Job, outcome: Outcome | None) -> None:
        self.of.end(job, outcome)


def backfill_name(table: str) -> str:
    """What the backfill of a table is called; no table can have that name."""
    return f"{table} (backfill)"


@dataclass(frozen=True, slots=True)
class _Recompute(Job):
    deriver: TableDeriver
    sources: tuple[SourceState, ...]
    plan: RecomputePlan
    chosen: Chosen
    kind: str
    asked: tuple[Span, ...]

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        return _outcome(self.deriver.recompute(spark, self.plan, self.chosen, self.kind, reads or Reads(spark)))


@dataclass(frozen=True, slots=True)
class _Append(Job):
    deriver: TableDeriver
    sources: tuple[SourceState, ...]
    chosen: Chosen
    edge: int
    asked: tuple[Span, ...] = ()

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        versions = {source.name: source.version for source in self.sources}
        return _outcome(self.deriver.append(spark, self.chosen, versions, self.edge, reads or Reads(spark)))


def _outcome(derived: Derived) -> Outcome:
    return Outcome(derived.version, derived.rows, 0, derived.freshness, derived.spans, derived.work)
