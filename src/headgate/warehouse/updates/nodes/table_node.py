"""A derived table: taking in what its sources have that it has not, and repairing its past behind that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.stream.spark.update import Update
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.updates.deriving import Chosen, Derived, TableDeriver
from headgate.warehouse.updates.nodes.node import Job, Node, Outcome, PendingUpdate
from headgate.warehouse.updates.plan import (
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
    plan_update,
    trailing_edge,
)
from headgate.warehouse.updates.reads import Reads
from headgate.warehouse.updates.state import UpdateState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableNode(Node):
    """A derived table.

    An update reads the sources as they were when it began, even if they are updated while it runs: the files are chosen
    in ``begin``, and the source versions that it says it has consumed are the versions that those files belong to.

    Invariant: ``_changed[s]`` are the event times of source s that changed between the version last consumed or being
    consumed by a job and ``_seen[s]``; ``_added`` are the files that came with them, for tables that are appended to.
    """

    def __init__(self, deriver: TableDeriver, lengths: Sequence[float], append: bool) -> None:
        spec, sources = deriver.spec, deriver.sources
        self.name = spec.name
        self.store = deriver.table
        self.sources = tuple(source.name for source in sources)
        self.spec = spec
        self.append = append
        #: states go on from row to row, so the past can only be repaired by beginning anew
        self.rebuilds = deriver.inside.have_states
        self._stores = {source.name: source for source in sources}
        self._deriver = deriver
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
        #: what is to be computed again and is not in a commit yet; ``_all_again``: the whole past
        self._asked: list[Span] = []
        self._all_again = False
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
            # Any row may depend on any row of a dimension.
            self._all_again |= known >= 0 and bool(changes.added or changes.removed)
            return
        files = (*changes.added, *changes.removed)
        spans = [(f.first, f.last) for f in files if f.first is not None and f.last is not None]
        self._changed[name] = list(join([*self._changed[name], *spans]))
        if self.append and changes.removed:
            self._ask_for(spans)  # the source was computed again itself, so appending would bring rows twice
        else:
            self._added.extend(changes.added)

    def _everything(self) -> list[Span]:
        """All of the past that sources or the table itself have rows of."""
        stores = [self.store, *(source.store for source in self._stores.values() if source.time is not None)]
        firsts = [file.first for store in stores for file in store.files() if file.first is not None]
        freshness = self.freshness
        return [] if freshness is None or not firsts or min(firsts) > freshness else [(min(firsts), freshness)]

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
        if self._all_again and not self._running:
            self._ask_for(self._everything())
            self._all_again = False
        return TableState(state.freshness, join([*state.dirty, *self._asked]))

    def _is_complete(self) -> bool:
        """Whether there is something in every source: a join with a dimension that is not there yet would be empty."""
        return all(source.store.exists for source in self._stores.values())

    def pending(self) -> PendingUpdate | None:
        if not self._is_complete():
            return None
        sources, table = self._states(), self._state()
        edge = trailing_edge(sources)
        if edge is None or not self._has_news(table, sources, edge):
            return None
        if self.rebuilds and table.dirty:
            return None  # what is new is taken in when the table is built anew
        start = table.freshness
        if start is None:
            start = min((first for spans in self._changed.values() for first, _ in spans), default=edge)
        return PendingUpdate(max(0.0, (edge - start) / MICROS))

    def _has_news(self, table: TableState, sources: Sequence[SourceState], edge: int) -> bool:
        if not self.append:
            return is_pending(self._shape, table, sources)
        return bool(self._added) or table.freshness is None or edge > table.freshness or self._behind(sources)

    def _behind(self, sources: Sequence[SourceState]) -> bool:
        """Whether a source has changed since it was last consumed."""
        return any(source.changed for source in sources)

    # --- updates --------------------------------------------------------------------------------------------

    def begin(self, most_seconds: float = math.inf) -> Job | None:
        if self._running or self.pending() is None:
            return None
        return self._begun(lambda: self._append_job() if self.append else self._recompute_job(most_seconds, False))

    def _begun(self, make: Callable[[], _Append | _Recompute | None]) -> Job | None:
        """What ``make`` makes of sources that were not updated meanwhile: versions, freshness and files must agree."""
        while True:
            self._look_at_all()
            job = make()
            if all(not s.store.exists or s.store.version == self._seen[name] for name, s in self._stores.items()):
                break
        if job is None:
            return None
        self._running = True
        # What changes from here on belongs to the next update.
        self._added, self._asked = [], []
        self._changed = {name: [] for name in self.sources}
        return job

    def _append_job(self) -> _Append | None:
        sources, table = self._states(), self._state()
        edge = trailing_edge(sources)
        if edge is None:
            return None
        (source,) = (source.name for source in self._stores.values() if source.time is not None)
        chosen = {source: tuple(self._added)}
        return _Append(self._deriver, tuple(sources), chosen, self.state.update, tuple(self._asked), edge, table.dirty)

    def _rebuild_job(self) -> _Append | None:
        """Everything that the source has, as it is now, from the beginning."""
        sources = self._states()
        edge = trailing_edge(sources)
        if edge is None:
            return None
        chosen = {source.name: source.store.files() for source in self._stores.values()}
        return _Append(
            self._deriver, tuple(sources), chosen, self.state.update, tuple(self._asked), edge, (), rebuild=True
        )

    def _recompute_job(self, most_seconds: float, backfill: bool) -> _Recompute | None:
        sources, table = self._states(), self._state()
        plan = plan_update(self._shape, table, sources, most_seconds, backfill)
        if plan is None:
            return None
        chosen = {name: self._deriver.choose(source, plan) for name, source in self._stores.items()}
        kind = "backfill" if backfill else "recompute"
        return _Recompute(self._deriver, tuple(sources), chosen, self.state.update, tuple(self._asked), plan, kind)

    def end(self, job: Job, outcome: Outcome | None) -> None:
        assert isinstance(job, _Append | _Recompute)
        self._running = False
        # A commit may have been made although its answer was lost.
        if outcome is None and self.state.update == job.update_before:
            self._ask_for(job.asked)
            for source in job.sources:
                self._changed[source.name] = list(join([*source.changed, *self._changed[source.name]]))
            if isinstance(job, _Append) and not job.rebuild:
                self._added = [*(file for files in job.chosen.values() for file in files), *self._added]
        if self._all_again or self._asked:
            self._keep_what_was_asked()

    # --- repairing the past ---------------------------------------------------------------------------------

    def backfill(self, first: int, last: int) -> None:
        """Have the event times from ``first`` to ``last`` computed again; remembered in a commit, so never lost."""
        for begin, end in self._everything():
            if first > end or last < begin:
                return  # what is not there yet is computed anyway
            self._ask_for([(max(first, begin), min(last, end))])
        if not self._running:
            self._keep_what_was_asked()

    def _ask_for(self, spans: Sequence[Span]) -> None:
        self._asked = list(join([*self._asked, *spans]))

    def _keep_what_was_asked(self) -> None:
        state, dirty = self.state, self._state().dirty
        if state.freshness is None or dirty == state.dirty:
            return
        kept = replace(state, update=state.update + 1, kind="note", rows=0, dirty=dirty)
        self.store.commit(kept.update, (), replace=None, state=kept.to_json(), schema=self.store.schema)
        self._asked = []

    def backfill_pending(self) -> PendingUpdate | None:
        if self._running or not self._is_complete():
            return None
        if self.rebuilds:
            return PendingUpdate(self.block_seconds) if self._state().dirty else None
        if not has_backfill(self._shape, self._state()):
            return None
        # A table that is appended to must have taken in what its source has before rows are computed again.
        if self.append and self.pending() is not None:
            return None
        return PendingUpdate(self.block_seconds)

    def begin_backfill(self, most_seconds: float) -> Job | None:
        """One chunk of the past, along with what is new: a commit speaks of one version of each source only."""
        if self.backfill_pending() is None:
            return None
        if self.rebuilds:
            return self._begun(self._rebuild_job)
        return self._begun(
            lambda: None if self.append and self._behind(self._states()) else self._recompute_job(most_seconds, True)
        )


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
class _Update(Job):
    """What both kinds of update have: the sources as they were, the files to read, and what it takes off the agenda."""

    deriver: TableDeriver
    sources: tuple[SourceState, ...]
    chosen: Chosen
    update_before: int
    asked: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Recompute(_Update):
    plan: RecomputePlan
    kind: str

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        return _outcome(self.deriver.recompute(spark, self.plan, self.chosen, self.kind, reads or Reads(spark)))


@dataclass(frozen=True, slots=True)
class _Append(_Update):
    edge: int
    dirty: tuple[Span, ...]
    rebuild: bool = False

    def run(self, spark: SparkSession, reads: Reads | None = None) -> Outcome:
        versions = {source.name: source.version for source in self.sources}
        reads = reads or Reads(spark)
        return _outcome(self.deriver.append(spark, self.chosen, versions, self.edge, self.dirty, reads, self.rebuild))

    def hosted(self, spark: SparkSession, reads: Reads) -> Update | None:
        return None if self.rebuild else self.deriver.queries(spark, self.chosen, self.edge, reads)


def _outcome(derived: Derived) -> Outcome:
    return Outcome(
        derived.version,
        derived.rows,
        derived.rejected,
        derived.freshness,
        derived.spans,
        derived.work,
        operators=derived.operators,
    )
