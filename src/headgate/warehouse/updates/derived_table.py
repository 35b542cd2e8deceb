"""Derived tables: live updates take in what is new in the sources, backfills recompute the past.

A node notices what has changed in its sources and in its table, and when the table must be rebuilt. What an update
reads and commits is planned by ``derive_planner``, and computed by ``derive``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.core import Update, UserCodeError
from headgate.stream.spark.state_files import SnapshotError
from headgate.warehouse.declare.modes import TableMode
from headgate.warehouse.storage.errors import DamagedFileError
from headgate.warehouse.updates.derive import TableDeriver
from headgate.warehouse.updates.derive_plan import DerivePlan
from headgate.warehouse.updates.derive_planner import DerivePlanner, Unconsumed
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.plan import MICROS, SourceState, TableState, has_backfill
from headgate.warehouse.updates.repairs import Repairs, repairs_in
from headgate.warehouse.updates.source_changes import SourceChanges, SourceVersion
from headgate.warehouse.updates.spans import Span, clip, join
from headgate.warehouse.updates.spark_files import FileReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.stream.spark.update import HostedUpdate


#: what the duration of an update depends on, by mode; see ``Update.unit``
_UNITS = {"append": "rows", "merge": "rows", "keys": "changed rows", "whole": "rows of all sources"}


class TableNode(Node):
    """A derived table and its live updates.

    An update reads its sources as they were when it began, even if they are updated while it runs: ``begin`` chooses
    the files, and the commit names the source versions that those files belong to.

    A table is *rebuilt* by computing everything anew and replacing all of it in one commit. That is how the past is
    recomputed, behind live updates, if it cannot be recomputed block by block.
    """

    runs_user_code = True

    def __init__(self, deriver: TableDeriver) -> None:
        spec, sources = deriver.spec, deriver.sources
        self.table = spec.name
        self.store = deriver.table
        self.rejected = deriver.hosted.rejected
        self.sources = tuple(source.name for source in sources)
        self.spec = spec
        self.mode: TableMode = deriver.mode
        self._sources = {source.name: source for source in sources}
        self._deriver = deriver
        self._planner = DerivePlanner(deriver)
        self.rebuilds = self._planner.rebuilds
        state = self.state
        self._changes = self._changes_since_commit()
        #: the table and its newest update as this process knows them; others may put another one in its place
        self._known = (self.store.table_id, state.update)
        #: event times to recompute that no commit has noted as dirty yet
        self._to_recompute: list[Span] = []
        #: the whole past is to be recomputed; becomes part of ``_to_recompute`` when no update runs
        self._recompute_all = False
        self._running = False
        #: why the table must be rebuilt before live updates go on; empty if it need not
        self.rebuild_reason = ""
        #: the same, found while an update runs: a rebuild that runs already does not know of it
        self._rebuild_afterwards = ""
        if self.store.exists and self.mode.name == "merge" and state.mode != "merge":
            self.rebuild_reason = "its groups have no states yet"
        if state.range is not None:
            self.rebuild_reason = "it was loaded from a source before"
        self._look()
        self._read_all_changes()

    def _changes_since_commit(self) -> dict[str, SourceChanges]:
        """What each source has that the newest commit does not name."""
        versions, ids = self.state.sources, self.state.source_ids
        return {
            name: SourceChanges(name, source.store, versions.get(name, -1), ids.get(name, ""))
            for name, source in self._sources.items()
        }

    @property
    def hosts_queries(self) -> bool:
        """Whether there are stream queries in the table's function."""
        return self._deriver.hosted.any

    @property
    def block_seconds(self) -> float:
        """The least event time that can be recomputed."""
        if not self.rebuilds:
            return self._planner.shape.block / MICROS
        return max([1.0, *((last - first) / MICROS for first, last in self._planner.whole_past(self.freshness))])

    @property
    def repairs(self) -> Repairs | None:
        """Also what no commit has noted yet."""
        table = self._table_state()
        return repairs_in(table.dirty, table.freshness)

    # --- what is pending ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Notice what others did to the table and its sources; called while no update runs.

        If the table was deleted, it starts anew, or goes on from the copy in its place. If another program has changed
        rows, it is rebuilt.
        """
        for store in (self.store, *(source.store for source in self._sources.values())):
            store.look()
        found = (self.store.table_id, self.state.update)
        if found[0] != self._known[0] or found[1] < self._known[1]:
            self._changes = self._changes_since_commit()
            self._to_recompute, self._recompute_all = [], False
            if not self.store.exists:
                self.rebuild_reason = ""
        self._known = found
        if self.store.is_foreign:
            self.rebuild_reason = "another program has changed its rows"

    def _read_all_changes(self) -> None:
        for name in self.sources:
            self.source_changed(name)

    def source_changed(self, name: str) -> None:
        """Read from a source's log what changed since it was last read."""
        changes = self._changes[name]
        was_known = changes.version >= 0
        new = changes.read()
        if changes.lost:
            self._must_be_rebuilt(changes.lost)
            changes.lost = ""
        if self._planner.follows(self._sources[name]):
            rewritten = [version for version in new if version.removed]
            if self.mode.name == "merge" and rewritten:
                self._must_be_rebuilt(f"rows of {name!r} have changed after they were added")
            elif self.mode.name == "append" and rewritten:
                # The source itself was recomputed: appending would add rows twice.
                self._recompute_later([span for version in rewritten for span in _spans(version)])
                self._recompute_all |= self.rebuilds
        elif was_known and any(version.added or version.removed for version in new):
            self._recompute_all = True  # any row may depend on any row of such a source

    def _must_be_rebuilt(self, reason: str) -> None:
        if self._running:
            self._rebuild_afterwards = reason
        else:
            self.rebuild_reason = reason

    def _source_states(self) -> tuple[SourceState, ...]:
        return tuple(
            SourceState(
                name=name,
                version=changes.version,
                freshness=changes.freshness,
                changed=changes.spans,
                is_dimension=self._sources[name].is_dimension,
                version_id=changes.version_id,
            )
            for name, changes in self._changes.items()
        )

    def _table_state(self) -> TableState:
        state = self.state
        if self._recompute_all and not self._running:
            self._recompute_later(self._planner.whole_past(state.freshness))
            self._recompute_all = False
        return TableState(state.freshness, join([*state.dirty, *self._to_recompute]))

    def _all_sources_exist(self) -> bool:
        """A join with a dimension that has not been loaded yet would be empty."""
        return all(source.store.exists for source in self._sources.values())

    def _waiting(self) -> Unconsumed:
        table = self._table_state()  # first: it moves what is to be recomputed
        return Unconsumed(self._changes, self._source_states(), table, self.state.update, tuple(self._to_recompute))

    def plan(self) -> Update | None:
        if self.rebuild_reason or not self._all_sources_exist():
            return None  # the rebuild, a backfill, takes in what is new as well
        waiting = self._waiting()
        edge = waiting.edge
        if edge is None or not self._planner.is_pending(waiting, edge):
            return None
        if self._deriver.hosted.have_states and waiting.table.dirty:
            return None  # the rebuild takes in what is new as well
        update = self._planned(max(0.0, (edge - waiting.start(edge)) / MICROS))
        if self.mode.name != "blocks":
            update.unit, update.size = _UNITS[self.mode.name], float(self._waiting_rows())
        return update

    def _waiting_rows(self) -> int:
        """How many rows decide how long the next update takes."""
        if self.mode.name == "whole":
            return sum(source.store.statistics().rows for source in self._sources.values())
        return sum(changes.rows for changes in self._planner.changing(self._changes))

    # --- updates --------------------------------------------------------------------------------------------

    def begin(self, update: Update, most_seconds: float = math.inf) -> bool:
        if self._running:
            return False
        self._look()
        if self.plan() is None:
            return False
        start = self._waiting().start(0)
        begun = self._begin(update, lambda waiting: self._planner.live(waiting, most_seconds))
        if begun and self.mode.name != "blocks":  # what is planned is what is reported, and what costs are learned from
            update.gained = max(0.0, (update.plan.freshness - start) / MICROS)
            if self.mode.name in ("append", "merge"):
                grown = (update.plan.files[source.name] for source in update.plan.sources if not source.is_dimension)
                update.size = float(sum(file.rows for files in grown for file in files))
        return begun

    def _begin(self, update: Update, choose: Callable[[Unconsumed], DerivePlan | None], rebuilds: bool = False) -> bool:
        """Give ``update`` the plan of ``choose``; repeated until no source has changed during planning."""
        while True:
            self._read_all_changes()
            if self.rebuild_reason and not rebuilds:
                return False  # what was just read cannot be taken in, so no commit may name these versions
            update.plan = choose(self._waiting())
            if all(changes.is_current for changes in self._changes.values()):
                break
        if update.plan is None:
            return False
        if deleted := self._planner.deleted_file(update.plan):
            self.rebuild_reason = deleted
            return False
        self._running = True
        if update.plan.blocks is not None:  # what is planned is what is reported, and what costs are learned from
            computed = update.plan.blocks.count * self.block_seconds
            update.gained = computed if update.layer == "backfill" else min(update.gained, computed)
        # What changes from here on belongs to the next update.
        self._to_recompute = []
        for source in update.plan.sources:
            self._changes[source.name].begin(source.version)
        return True

    def prepare(self, update: Update, spark: SparkSession, files: FileReader) -> HostedUpdate | None:
        plan: DerivePlan = update.plan
        can_share = self._deriver.hosted.any and plan.kind == "append" and plan.computes
        with self._damage_noted(update):
            return self._deriver.call_function(spark, plan, files) if can_share else None

    def run(
        self,
        update: Update,
        spark: SparkSession,
        files: FileReader | None = None,
        hosted: HostedUpdate | None = None,
    ) -> None:
        with self._damage_noted(update):
            self._deriver.run(update, spark, files or FileReader(spark), hosted)

    @contextmanager
    def _damage_noted(self, update: Update) -> Iterator[None]:
        """Note for ``end`` that files are damaged which a rebuild does not need.

        Those are the states of stream queries, the table's own files, and files that only old versions of a source
        have.
        """
        try:
            yield
        except (SnapshotError, DamagedFileError) as error:
            self._rebuild_afterwards = str(error)
            raise
        except UserCodeError as error:
            if update.plan.kind != "rebuild":
                unreadable = self._planner.unreadable_file(update.plan, str(error))
                self._rebuild_afterwards = self._rebuild_afterwards or unreadable
            raise

    def end(self, update: Update) -> None:
        plan: DerivePlan = update.plan
        self._running = False
        # The number tells whether there is a commit although the update failed, while it waited for the answer.
        committed = update.committed or self.state.update > plan.number_before
        for changes in self._changes.values():
            changes.end(committed)
        if not committed:
            self._recompute_later(plan.to_recompute)
        else:
            self._known = (self.store.table_id, self.state.update)
            if plan.kind == "rebuild":
                self.rebuild_reason = ""
        if self._rebuild_afterwards:
            self.rebuild_reason, self._rebuild_afterwards = self._rebuild_afterwards, ""
        if self._recompute_all or self._to_recompute:
            self._commit_dirty()

    # --- backfills: recomputing the past --------------------------------------------------------------------

    def backfill(self, first: int, last: int) -> None:
        """Have the event times from ``first`` to ``last`` recomputed; noted in a commit, to survive a restart."""
        # Later event times are computed by live updates anyway.
        self._recompute_later(clip(self._planner.whole_past(self.freshness), first, last))
        if not self._running:
            self._commit_dirty()

    def _recompute_later(self, spans: Sequence[Span]) -> None:
        self._to_recompute = list(join([*self._to_recompute, *spans]))

    def _commit_dirty(self) -> None:
        """Note in a commit without rows what is to be recomputed."""
        state, dirty = self.state, self._table_state().dirty
        if state.freshness is None or dirty == state.dirty or self.store.is_foreign:
            return  # until the rebuild, the log itself notes that another program has changed rows
        noted = replace(state, update=state.update + 1, kind="note", rows=0, dirty=dirty)
        self.store.commit(noted.update, (), replace=None, state=noted.to_json(), schema=self.store.schema)
        self._known = (self.store.table_id, noted.update)
        self._to_recompute = []

    def can_backfill(self) -> bool:
        """Whether a backfill could begin now."""
        if self._running or not self._all_sources_exist():
            return False
        if self.rebuilds or self.rebuild_reason:
            return bool(self.rebuild_reason or self._table_state().dirty)
        if not has_backfill(self._planner.shape, self._table_state()):
            return False
        # A table that is appended to takes in all that its source has before rows are recomputed.
        return not (self.mode.name == "append" and self.plan() is not None)

    def begin_backfill(self, update: Update, most_seconds: float) -> bool:
        """Begin to recompute a chunk of the past, and what is new: a commit names one version of each source only."""
        if self._running:
            return False
        self._look()
        if not self.can_backfill():
            return False
        if self.rebuilds or self.rebuild_reason:
            return self._begin(update, lambda waiting: self._planner.everything(waiting, "rebuild"), rebuilds=True)
        return self._begin(update, lambda waiting: self._plan_chunk(waiting, most_seconds))

    def _plan_chunk(self, waiting: Unconsumed, most_seconds: float) -> DerivePlan | None:
        if self.mode.name == "append" and any(changes.changed for changes in self._planner.changing(self._changes)):
            return None
        return self._planner.recompute(waiting, most_seconds, backfill=True)


class BackfillNode(Node):
    """The backfills of a derived table: its past is recomputed in chunks, while no live update waits for a track."""

    layer = "backfill"
    runs_user_code = True

    def __init__(self, of: TableNode) -> None:
        self.table = of.table
        self.store = of.store
        self.sources = (of.table,)
        self.of = of

    @property
    def repairs(self) -> Repairs | None:
        return self.of.repairs

    def plan(self) -> Update | None:
        if not self.of.can_backfill():
            return None
        repairs = self.of.repairs
        return self._planned(max(self.of.block_seconds, 0.0 if repairs is None else repairs.seconds))

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


def _spans(version: SourceVersion) -> list[Span]:
    return [(file.first, file.last) for file in version.files if file.first is not None and file.last is not None]
