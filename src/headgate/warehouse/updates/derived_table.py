"""Derived tables: live updates take in what is new in the sources, backfills recompute the past.

This module decides what an update reads and commits (``DerivePlan``). ``derive`` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.core import Update
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.updates.commit_state import CommitState
from headgate.warehouse.updates.derive import DerivePlan, TableDeriver
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.plan import (
    MICROS,
    Shape,
    SourceState,
    Span,
    TableState,
    has_backfill,
    is_pending,
    join,
    plan_update,
    trailing_edge,
)
from headgate.warehouse.updates.spark_files import FileReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate


class TableNode(Node):
    """A derived table and its live updates.

    An update reads its sources as they were when it began, even if they are updated while it runs: ``begin`` chooses
    the files, and the commit names the source versions that those files belong to.

    Invariant: ``_seen[s]`` is the version of source s up to which changes were read from its log. ``_changed[s]`` are
    the event times that changed between the version that was last consumed, or is being consumed by the running update,
    and ``_seen[s]``. ``_added`` are the files added between these versions, for tables that are appended to.
    """

    def __init__(self, deriver: TableDeriver, block: int, append: bool) -> None:
        """``block`` is how much event time is recomputed as one, in microseconds."""
        spec, sources = deriver.spec, deriver.sources
        self.table = spec.name
        self.store = deriver.table
        self.sources = tuple(source.name for source in sources)
        self.spec = spec
        self.append = append
        #: queries with states continue from row to row, so the past can only be recomputed by rebuilding the table
        self.rebuilds = deriver.hosted.have_states
        self._stores = {source.name: source for source in sources}
        self._deriver = deriver
        self._shape = Shape(
            block=block,
            lookback=round(spec.lookback * MICROS),
            newest_first=spec.catch_up == "newest",
            several_sources=sum(source.time is not None for source in sources) > 1,
            appended=append,
        )
        self._seen = {name: self.state.sources.get(name, -1) for name in self.sources}
        self._changed: dict[str, list[Span]] = {name: [] for name in self.sources}
        self._added: list[DataFile] = []
        #: event times to recompute that no commit has noted as dirty yet
        self._to_recompute: list[Span] = []
        #: the whole past is to be recomputed; becomes part of ``_to_recompute`` when no update runs
        self._recompute_all = False
        self._running = False
        self._read_all_changes()

    @property
    def block_seconds(self) -> float:
        """The least event time that can be recomputed."""
        return self._shape.block / MICROS

    # --- what is pending ------------------------------------------------------------------------------------

    def _read_all_changes(self) -> None:
        for name in self.sources:
            self.source_changed(name)

    def source_changed(self, name: str) -> None:
        """Read from a source's log what changed since it was last read."""
        source = self._stores[name]
        if not source.store.exists or source.store.version == self._seen[name]:
            return
        changes = source.store.changes(self._seen[name])
        known, self._seen[name] = self._seen[name], changes.until
        if source.time is None:
            # Any row may depend on any row of a dimension.
            self._recompute_all |= known >= 0 and bool(changes.added or changes.removed)
            return
        files = (*changes.added, *changes.removed)
        spans = [(f.first, f.last) for f in files if f.first is not None and f.last is not None]
        self._changed[name] = list(join([*self._changed[name], *spans]))
        if self.append and changes.removed:
            self._recompute_later(spans)  # the source itself was recomputed: appending would add rows twice
        else:
            self._added.extend(changes.added)

    def _whole_past(self) -> list[Span]:
        """From the first row of the table or its sources to the table's freshness: one span, or none."""
        stores = [self.store, *(source.store for source in self._stores.values() if source.time is not None)]
        firsts = [file.first for store in stores for file in store.files() if file.first is not None]
        freshness = self.freshness
        return [] if freshness is None or not firsts or min(firsts) > freshness else [(min(firsts), freshness)]

    def _source_states(self) -> tuple[SourceState, ...]:
        return tuple(
            SourceState(
                name=name,
                version=self._seen[name],
                freshness=CommitState.from_json(source.store.state, name).freshness,
                changed=tuple(self._changed[name]),
                has_time=source.time is not None,
            )
            for name, source in self._stores.items()
        )

    def _table_state(self) -> TableState:
        state = self.state
        if self._recompute_all and not self._running:
            self._recompute_later(self._whole_past())
            self._recompute_all = False
        return TableState(state.freshness, join([*state.dirty, *self._to_recompute]))

    def _all_sources_exist(self) -> bool:
        """A join with a dimension that has not been loaded yet would be empty."""
        return all(source.store.exists for source in self._stores.values())

    def plan(self) -> Update | None:
        if not self._all_sources_exist():
            return None
        sources, table = self._source_states(), self._table_state()
        edge = trailing_edge(sources)
        if edge is None or not self._is_pending(table, sources, edge):
            return None
        if self.rebuilds and table.dirty:
            return None  # the rebuild, a backfill, takes in what is new as well
        start = table.freshness
        if start is None:
            start = min((first for spans in self._changed.values() for first, _ in spans), default=edge)
        return self._planned(max(0.0, (edge - start) / MICROS))

    def _is_pending(self, table: TableState, sources: Sequence[SourceState], edge: int) -> bool:
        if not self.append:
            return is_pending(self._shape, table, sources)
        return bool(self._added) or table.freshness is None or edge > table.freshness or _changed(sources)

    # --- updates --------------------------------------------------------------------------------------------

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        if self._running or self.plan() is None:
            return False
        return self._begin(
            update, lambda: self._plan_append() if self.append else self._plan_recompute(most_seconds, False)
        )

    def _begin(self, update: Update, choose: Callable[[], DerivePlan | None]) -> bool:
        """Give ``update`` the plan of ``choose``; repeated until no source has changed during planning."""
        while True:
            self._read_all_changes()
            update.plan = choose()
            if all(not s.store.exists or s.store.version == self._seen[name] for name, s in self._stores.items()):
                break
        if update.plan is None:
            return False
        self._running = True
        if update.plan.blocks is not None:  # what is planned is what is reported, and what costs are learned from
            computed = len(update.plan.blocks.blocks) * self.block_seconds
            update.gained = computed if update.layer == "backfill" else min(update.gained, computed)
        # What changes from here on belongs to the next update.
        self._added, self._to_recompute = [], []
        self._changed = {name: [] for name in self.sources}
        return True

    def _plan_append(self) -> DerivePlan | None:
        sources, dirty = self._source_states(), self._table_state().dirty
        edge = trailing_edge(sources)
        if edge is None:
            return None
        (source,) = (source.name for source in self._stores.values() if source.time is not None)
        files = {source: tuple(self._added)}
        return DerivePlan("append", sources, files, self.state.update, tuple(self._to_recompute), edge, edge, dirty)

    def _plan_rebuild(self) -> DerivePlan | None:
        """Read all that the source has now, from its beginning."""
        sources = self._source_states()
        edge = trailing_edge(sources)
        if edge is None:
            return None
        files = {source.name: source.store.files() for source in self._stores.values()}
        return DerivePlan("rebuild", sources, files, self.state.update, tuple(self._to_recompute), edge, edge, ())

    def _plan_recompute(self, most_seconds: float, backfill: bool) -> DerivePlan | None:
        sources, table = self._source_states(), self._table_state()
        plan = plan_update(self._shape, table, sources, most_seconds, backfill)
        if plan is None:
            return None
        return DerivePlan(
            kind="backfill" if backfill else "recompute",
            sources=sources,
            files={name: self._deriver.choose(source, plan) for name, source in self._stores.items()},
            number_before=self.state.update,
            to_recompute=tuple(self._to_recompute),
            edge=plan.edge,
            freshness=plan.freshness,
            dirty=plan.dirty,
            blocks=plan,
        )

    def prepare(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        plan: DerivePlan = update.plan
        can_share = self._deriver.hosted.any and plan.kind == "append" and plan.computes
        return self._deriver.call_function(spark, plan, files) if can_share else None

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        self._deriver.run(update, spark, files or FileReader(spark), hosted)

    def end(self, update: Update) -> None:
        plan: DerivePlan = update.plan
        self._running = False
        # The number tells whether there is a commit although the update failed, while it waited for the answer.
        if not update.committed and self.state.update == plan.number_before:
            self._recompute_later(plan.to_recompute)
            for source in plan.sources:
                self._changed[source.name] = list(join([*source.changed, *self._changed[source.name]]))
            if plan.kind == "append":
                self._added = [*(file for files in plan.files.values() for file in files), *self._added]
        if self._recompute_all or self._to_recompute:
            self._commit_dirty()

    # --- backfills: recomputing the past --------------------------------------------------------------------

    def backfill(self, first: int, last: int) -> None:
        """Have the event times from ``first`` to ``last`` recomputed; noted in a commit, to survive a restart."""
        for begin, end in self._whole_past():
            if first > end or last < begin:
                return  # later event times are computed by live updates anyway
            self._recompute_later([(max(first, begin), min(last, end))])
        if not self._running:
            self._commit_dirty()

    def _recompute_later(self, spans: Sequence[Span]) -> None:
        self._to_recompute = list(join([*self._to_recompute, *spans]))

    def _commit_dirty(self) -> None:
        """Note in a commit without rows what is to be recomputed."""
        state, dirty = self.state, self._table_state().dirty
        if state.freshness is None or dirty == state.dirty:
            return
        noted = replace(state, update=state.update + 1, kind="note", rows=0, dirty=dirty)
        self.store.commit(noted.update, (), replace=None, state=noted.to_json(), schema=self.store.schema)
        self._to_recompute = []

    def can_backfill(self) -> bool:
        """Whether a backfill could begin now."""
        if self._running or not self._all_sources_exist():
            return False
        if self.rebuilds:
            return bool(self._table_state().dirty)
        if not has_backfill(self._shape, self._table_state()):
            return False
        # A table that is appended to takes in all that its source has before rows are recomputed.
        return not (self.append and self.plan() is not None)

    def begin_backfill(self, update: Update, most_seconds: float) -> bool:
        """Begin to recompute a chunk of the past, and what is new: a commit names one version of each source only."""
        if not self.can_backfill():
            return False
        if self.rebuilds:
            return self._begin(update, self._plan_rebuild)
        return self._begin(
            update,
            lambda: (
                None if self.append and _changed(self._source_states()) else self._plan_recompute(most_seconds, True)
            ),
        )


class BackfillNode(Node):
    """The backfills of a derived table: its past is recomputed in chunks, while no live update waits for a track."""

    layer = "backfill"

    def __init__(self, of: TableNode) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self.of = of

    def plan(self) -> Update | None:
        return self._planned(self.of.block_seconds) if self.of.can_backfill() else None

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        return self.of.begin_backfill(update, most_seconds)

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        self.of.run(update, spark, files)

    def end(self, update: Update) -> None:
        self.of.end(update)


def _changed(sources: Sequence[SourceState]) -> bool:
    """Whether a source has changed since it was last consumed."""
    return any(source.changed for source in sources)
