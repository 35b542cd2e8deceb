"""A derived table: taking in what its sources have that it has not, and repairing its past behind that."""

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
    """A derived table.

    An update reads the sources as they were when it began, even if they are updated while it runs: the files are chosen
    in ``begin``, and the source versions that it says it has consumed are the versions that those files belong to.

    Invariant: ``_changed[s]`` are the event times of source s that changed between the version last consumed or being
    consumed by an update and ``_seen[s]``; ``_added`` are the files that came with them, for tables that are appended
    to.
    """

    def __init__(self, deriver: TableDeriver, block: int, append: bool) -> None:
        """``block`` is how much event time is recomputed as one, in microseconds."""
        spec, sources = deriver.spec, deriver.sources
        self.table = spec.name
        self.store = deriver.table
        self.sources = tuple(source.name for source in sources)
        self.spec = spec
        self.append = append
        #: states go on from row to row, so the past can only be repaired by beginning anew
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
        if self._all_again and not self._running:
            self._ask_for(self._everything())
            self._all_again = False
        return TableState(state.freshness, join([*state.dirty, *self._asked]))

    def _is_complete(self) -> bool:
        """Whether there is something in every source: a join with a dimension that is not there yet would be empty."""
        return all(source.store.exists for source in self._stores.values())

    def plan(self) -> Update | None:
        if not self._is_complete():
            return None
        sources, table = self._source_states(), self._table_state()
        edge = trailing_edge(sources)
        if edge is None or not self._has_news(table, sources, edge):
            return None
        if self.rebuilds and table.dirty:
            return None  # what is new is taken in when the table is built anew
        start = table.freshness
        if start is None:
            start = min((first for spans in self._changed.values() for first, _ in spans), default=edge)
        return self._planned(max(0.0, (edge - start) / MICROS))

    def _has_news(self, table: TableState, sources: Sequence[SourceState], edge: int) -> bool:
        if not self.append:
            return is_pending(self._shape, table, sources)
        return bool(self._added) or table.freshness is None or edge > table.freshness or _changed(sources)

    # --- updates --------------------------------------------------------------------------------------------

    def begin(self, most_seconds: float = math.inf) -> Update | None:
        if self._running or self.plan() is None:
            return None
        return self._begun(self, lambda: self._append() if self.append else self._recompute(most_seconds, False))

    def _begun(self, node: Node, choose: Callable[[], DerivePlan | None]) -> Update | None:
        """What ``choose`` plans on sources that were not updated meanwhile, so that versions and files agree."""
        while True:
            self._look_at_all()
            plan = choose()
            if all(not s.store.exists or s.store.version == self._seen[name] for name, s in self._stores.items()):
                break
        if plan is None:
            return None
        self._running = True
        # What changes from here on belongs to the next update.
        self._added, self._asked = [], []
        self._changed = {name: [] for name in self.sources}
        return Update(self.table, node.layer, plan=plan)

    def _append(self) -> DerivePlan | None:
        sources, dirty = self._source_states(), self._table_state().dirty
        edge = trailing_edge(sources)
        if edge is None:
            return None
        (source,) = (source.name for source in self._stores.values() if source.time is not None)
        files = {source: tuple(self._added)}
        return DerivePlan("append", sources, files, self.state.update, tuple(self._asked), edge, edge, dirty)

    def _rebuild(self) -> DerivePlan | None:
        """Everything that the source has, as it is now, from the beginning."""
        sources = self._source_states()
        edge = trailing_edge(sources)
        if edge is None:
            return None
        files = {source.name: source.store.files() for source in self._stores.values()}
        return DerivePlan("rebuild", sources, files, self.state.update, tuple(self._asked), edge, edge, ())

    def _recompute(self, most_seconds: float, backfill: bool) -> DerivePlan | None:
        sources, table = self._source_states(), self._table_state()
        plan = plan_update(self._shape, table, sources, most_seconds, backfill)
        if plan is None:
            return None
        return DerivePlan(
            kind="backfill" if backfill else "recompute",
            sources=sources,
            files={name: self._deriver.choose(source, plan) for name, source in self._stores.items()},
            number_before=self.state.update,
            asked=tuple(self._asked),
            edge=plan.edge,
            freshness=plan.freshness,
            dirty=plan.dirty,
            blocks=plan,
        )

    def query(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        plan: DerivePlan = update.plan
        can_share = self._deriver.hosted.any and plan.kind == "append" and plan.computes
        return self._deriver.query(spark, plan, files) if can_share else None

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        query: HostedUpdate | None = None,
    ) -> None:
        self._deriver.run(update, spark, files or FileReader(spark), query)

    def end(self, update: Update) -> None:
        plan: DerivePlan = update.plan
        self._running = False
        # A commit may have been made although its answer was lost.
        if not update.committed and self.state.update == plan.number_before:
            self._ask_for(plan.asked)
            for source in plan.sources:
                self._changed[source.name] = list(join([*source.changed, *self._changed[source.name]]))
            if plan.kind == "append":
                self._added = [*(file for files in plan.files.values() for file in files), *self._added]
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
        state, dirty = self.state, self._table_state().dirty
        if state.freshness is None or dirty == state.dirty:
            return
        kept = replace(state, update=state.update + 1, kind="note", rows=0, dirty=dirty)
        self.store.commit(kept.update, (), replace=None, state=kept.to_json(), schema=self.store.schema)
        self._asked = []

    def has_past_to_repair(self) -> bool:
        if self._running or not self._is_complete():
            return False
        if self.rebuilds:
            return bool(self._table_state().dirty)
        if not has_backfill(self._shape, self._table_state()):
            return False
        # A table that is appended to must have taken in what its source has before rows are computed again.
        return not (self.append and self.plan() is not None)

    def begin_backfill(self, node: Node, most_seconds: float) -> Update | None:
        """One chunk of the past, along with what is new: a commit speaks of one version of each source only."""
        if not self.has_past_to_repair():
            return None
        if self.rebuilds:
            return self._begun(node, self._rebuild)
        return self._begun(
            node,
            lambda: None if self.append and _changed(self._source_states()) else self._recompute(most_seconds, True),
        )


class BackfillNode(Node):
    """The past of a derived table, computed again in chunks while nobody needs the track for anything newer."""

    layer = "backfill"

    def __init__(self, of: TableNode) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self.of = of

    def plan(self) -> Update | None:
        return self._planned(self.of.block_seconds) if self.of.has_past_to_repair() else None

    def begin(self, most_seconds: float = math.inf) -> Update | None:
        return self.of.begin_backfill(self, most_seconds)

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        query: HostedUpdate | None = None,
    ) -> None:
        self.of.run(update, spark, files)

    def end(self, update: Update) -> None:
        self.of.end(update)


def _changed(sources: Sequence[SourceState]) -> bool:
    """Whether a source has changed since it was last consumed."""
    return any(source.changed for source in sources)
