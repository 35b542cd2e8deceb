"""The scheduler of a running warehouse: which updates run next, and on which tracks.

It polls the nodes for pending updates and writes the features of each update for the dispatch loop of the core. It
begins the updates that the loop picks, and updates the ledger when they have ended. It knows neither threads nor Spark,
and the time is passed in. For use by one thread.
"""

from __future__ import annotations

import heapq
import math
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from headgate.core import (
    LIVE,
    URGENT,
    Decision,
    Dispatch,
    Explanation,
    HeadgateError,
    InvariantError,
    ParameterError,
    Placement,
    Policy,
    TableColumns,
    Update,
    Workers,
    first_line,
)
from headgate.core.placements import LayeredPlacement
from headgate.core.policies import Layered, MaxBenefit
from headgate.core.trace import RunNotice
from headgate.warehouse.schedule.catching_up import Behind, CatchUp
from headgate.warehouse.schedule.glance import Glance, running_now
from headgate.warehouse.schedule.kept_costs import KnownCost
from headgate.warehouse.schedule.ledger import Lags, Ledger, LedgerEntry, NodeStatistics
from headgate.warehouse.schedule.limits import UpdateLimit, UpdateLimits, smallest, time_limit, updates_for
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.schedule.running import RunningUpdates
from headgate.warehouse.schedule.scheduled_nodes import ScheduledNodes
from headgate.warehouse.schedule.standings import Standings
from headgate.warehouse.sources.protocol import Pending
from headgate.warehouse.transient import DEATHS, is_transient
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from headgate.warehouse.updates.unopened import UnopenedTable

#: a source is polled this many times in a period, and at least once a second
POLLS_PER_PERIOD = 40
LONGEST_BETWEEN_POLLS = 1.0
#: placements use learned costs, so tables are placed again after this many updates
PLACE_AGAIN_AFTER = 100
#: an update that only recomputes the past gains no freshness; this many seconds keep its benefit above 0
LEAST_GAIN = 1e-3
#: a changed dimension counts at least as so many seconds of data
LEAST_DIMENSION_GAIN = 1.0


class Scheduler:
    """The nodes of one warehouse on one dispatch loop.

    Invariants:
    1. A node is ready in the loop if and only if, when it was last planned, it had something pending, was allowed to
       run, and no other node of its table was running. Then its planned update is in ``_planned``.
    2. The tracks that ``running`` lists are those that are busy in the loop.
    3. Nothing that concerns one table raises: it becomes that table's failure or note.
    """

    def __init__(
        self,
        warehouse: OpenWarehouse,
        options: RunOptions,
        now: float,
        before: Scheduler | None = None,
        costs: Mapping[str, KnownCost] = MappingProxyType({}),
    ) -> None:
        """``before`` is the scheduler before the warehouse was declared anew: what it learned is kept.

        ``costs`` are those that an earlier run has learned.
        """
        self.warehouse = warehouse
        self._options = options
        self._nodes = ScheduledNodes(warehouse)
        self._graph = self._nodes.graph
        self._columns = self._nodes.matrix.columns
        self._table_columns = TableColumns(self._nodes.matrix)
        known = None if before is None else before._ledger
        self._ledger: Ledger = Ledger(self._nodes.by_name, warehouse.spec, now, known, costs)
        self._nodes.fill(self._ledger, options.inheritance)
        for name, node in warehouse.nodes.items():
            was = None if before is None else before.warehouse.nodes.get(name)
            if isinstance(node, StreamNode) and isinstance(was, StreamNode):
                node.go_on_from(was)
        self._limits = UpdateLimits(self._ledger, options.budget, options.chop)
        policy: Policy = Layered(options.policy)
        placement: Placement = LayeredPlacement(options.placement)
        workers = Workers.of(options.tracks)
        if before is not None:
            self._limits.budget = before._limits.budget
            policy, placement, workers = before._loop.policy, before._loop.placement, before._loop.workers
        self._loop: Dispatch = Dispatch(self._nodes.matrix, policy, placement, workers, history=64)
        #: {node: its planned update}
        self._planned: dict[int, Update] = {}
        self.running: RunningUpdates = RunningUpdates(
            None if before is None else before.running, warehouse.nodes.keys()
        )
        #: whether a table has changed in a way that its node knows nothing of: the warehouse is to be opened again
        self._is_outdated = False
        #: {node: its sources whose changes could not be read when they were made}
        self._unread: dict[int, set[str]] = {}
        #: {table to be refreshed now: its node and those of all tables that it is built on}
        self._urgent: dict[str, frozenset[int]] = {}
        self._updates = 0
        #: what users are to be told of; whoever tells them empties it
        self.notices: list[RunNotice] = []
        #: what the scheduler has changed by itself, as a trace records it; whoever records it empties it
        self.changes: list[Mapping[str, object]] = []
        self._groups = self._nodes.groups()
        self._lags = Lags(warehouse.graph, warehouse.nodes, self._ledger)
        self._standings = Standings(warehouse, self._nodes, self._ledger, self._limits, self._planned, self.running)
        #: (when, node), a heap: sources to poll, and tables to retry
        self._wakes: list[tuple[float, int]] = []
        for index in range(len(self._nodes)):
            if self._nodes.has_source(index):
                self._wake(index, now)
            else:
                self._refresh(index, now)

    @property
    def tracks(self) -> int:
        return len(self._loop.workers)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of all nodes: live updates, backfills and maintenance of all tables."""
        return tuple(self._nodes.names)

    @property
    def is_outdated(self) -> bool:
        """Whether the warehouse is to be opened again: a table that could not be opened can be opened now, or an
        update has ended that was begun before it was opened."""
        nodes = self.warehouse.nodes.values()
        return self._is_outdated or any(isinstance(node, UnopenedTable) and node.can_be_opened for node in nodes)

    @property
    def is_idle(self) -> bool:
        """Whether no update runs."""
        return not self.running

    @property
    def tracks_are_idle(self) -> bool:
        """Whether no update runs on a track; there may be some that do not end, which nobody waits for."""
        return not self.running.on_tracks()

    def node_of(self, update: Update) -> Node:
        """The node that an update belongs to."""
        return self._nodes.by_name[update.name]

    # --- planning -------------------------------------------------------------------------------------------

    def _wake(self, index: int, at: float) -> None:
        heapq.heappush(self._wakes, (at, index))

    def poll(self, now: float) -> float:
        """Poll the sources and retry the tables that are due; returns when to call this again."""
        while self._wakes and self._wakes[0][0] <= now:
            _, index = heapq.heappop(self._wakes)
            self._refresh(index, now)
            if self._nodes.has_source(index):
                between = self._nodes.period(index) / POLLS_PER_PERIOD
                self._wake(index, now + min(max(between, self._options.poll), LONGEST_BETWEEN_POLLS))
        return self._wakes[0][0] if self._wakes else now + LONGEST_BETWEEN_POLLS

    def _refresh(self, index: int, now: float) -> None:
        """Plan the next update of a node, write its features, and tell the loop whether it is ready."""
        node = self._nodes[index]
        entry = self._ledger.of(node.name)
        allowed = not self.running.is_busy(node.table) and entry.due(now) and not self._ledger.of(node.table).paused
        allowed = allowed and not self.running.must_wait(node.table)
        if isinstance(node, BackfillNode) and node.of.rebuild_reason:
            # Rebuilt from a table that is rebuilt afterwards, it would have to be rebuilt again.
            allowed = allowed and not any(self._nodes.by_name[name].rebuild_reason for name in node.of.sources)
        update = None
        if allowed:
            try:
                self._read_unread(index)
                update = node.plan()
                self._note_source(node.name, node.last_poll, now)
                if update is not None:
                    before = self._planned.get(index)
                    update.released = now if before is None else before.released
                    self._write_features(index, update, entry, now)
            except BaseException as error:  # whatever it is, it concerns this table only, and it is tried again
                update = None
                self._note_source(node.name, Pending(note=first_line(error), missing=True), now)
                if not self._nodes.has_source(index):  # sources are polled again anyway
                    self._wake(index, now + LONGEST_BETWEEN_POLLS)
        if allowed:
            self._lags.polled(node.name, None if update is None or update.arrived is None else update.arrived[0], now)
        if update is None:
            self._planned.pop(index, None)
            self._loop.set_ready(index, False, now)
            entry.updates_left = 0 if allowed else entry.updates_left
            return
        self._planned[index] = update
        self._loop.set_ready(index, True, now)

    def _read_unread(self, index: int) -> None:
        """Read the changes of sources that could not be read when they were made."""
        unread = self._unread.get(index, set())
        for source in list(unread):
            self._nodes[index].source_changed(source)
            unread.discard(source)

    def _note_source(self, name: str, polled: Pending, now: float) -> None:
        """Note what a source said when it was polled; a user is told once of everything new."""
        entry = self._ledger.of(name)
        if polled.missing and polled.note != entry.note:
            self.notices.append(RunNotice(now, name, polled.note))
        self.notices += [RunNotice(now, name, f"{notice.chunk} {notice.problem}") for notice in polled.notices]
        entry.note, entry.waiting = polled.note, polled.missing

    def _write_features(self, index: int, update: Update, entry: LedgerEntry, now: float) -> None:
        entry.planned(update)
        update.gained = max(update.gained, LEAST_GAIN)
        gained = update.gained
        if isinstance(self._nodes[index], DimensionNode) and update.arrived is not None:
            # It has no event time, but tables wait for it, the longer the more: without it, they are not even there.
            gained = max(gained, LEAST_DIMENSION_GAIN, now - update.arrived[0])
        columns, cost, waiting = self._table_columns, entry.cost, update.amount
        part = self._limit(index, update).part_of(update)
        entry.updates_left = updates_for(1.0 - part, part)
        columns.set_cost(index, cost.alpha, cost.beta * entry.per_second)
        columns.set_pending(index, gained, part * gained, max(1e-3, cost.predict(part * waiting)))
        columns.set_release(index, update.released, update.released if update.arrived is None else update.arrived[0])
        columns.set_next_release(index, update.released + self._nodes.period(index))

    def _limit(self, index: int, update: Update, together: int = 1) -> UpdateLimit:
        """How much of what is waiting an update may take in, if so many updates share a budget."""
        return self._limits.of(self._nodes[index], update, self._nodes.period(index), together)

    # --- updates --------------------------------------------------------------------------------------------

    def decide(self, now: float) -> list[list[Update]]:
        """The updates to run now: for each track that gets work a list, to be run one after the other.

        An update that could not begin is returned alone in a list, as failed: there is nothing to run.
        """
        try:
            starts = self._loop.decide(now)
        except InvariantError:
            raise
        except HeadgateError as error:
            self._go_on_without_policy(error, now)
            starts = self._loop.decide(now)
        return [updates for start in starts if (updates := self._begin(start.node, start.worker, now))]

    def _go_on_without_policy(self, error: HeadgateError, now: float) -> None:
        """The user's policy has failed: tables must be updated all the same, so another one takes its place."""
        failed, fallback = str(self._loop.policy), MaxBenefit()
        text = f"{error}; the run goes on with policy {fallback.name!r} until you set another"
        self.notices.append(RunNotice(now, None, text, _traceback_of(error)))
        self.replace_policy(fallback)
        self.changes.append({"policy": str(fallback), "instead of": failed})

    def _begin(self, index: int, track: int, now: float) -> list[Update]:
        # The same decision may have begun another node of the table, or this one together with its group.
        table = self._nodes[index].table
        if self.running.must_wait(table):  # it is planned again when the other one has ended
            self._planned.pop(index, None)
            self._loop.set_ready(index, False, now)
        if self.running.is_busy(table) or index not in self._planned:
            self._loop.finished(track, now)
            return []
        together = [index, *self._companions(index)]
        try:
            # Updates that begin together share a budget, and take in the same data if they can.
            limit = smallest([self._limit(node, self._planned[node], len(together)) for node in together])
            update = self._begin_one(index, track, now, limit)
        except BaseException as error:  # it may be that of a user's source
            self._loop.finished(track, now)
            return [self._cannot_begin(index, track, error, now)]
        if update is None:
            self._loop.finished(track, now)
            for part in self._nodes.of_table[self._nodes[index].table]:
                if part != index:  # the table may have found that it must be rebuilt, which is another node's work
                    self._refresh(part, now)
            return []
        updates = [update]
        for companion in together[1:]:
            with suppress(Exception):  # it stays planned, and an error is reported when it begins alone
                joined = self._begin_one(companion, track, now, limit)
                if joined is not None:
                    updates.append(joined)
        for begun in updates:
            self.running.add(begun)
            for part in self._nodes.of_table[begun.table]:
                self._loop.set_ready(part, False, now)
        return updates

    def _begin_one(self, index: int, track: int, now: float, limit: UpdateLimit) -> Update | None:
        """Begin the planned update of a node; None if there is nothing to do after all."""
        node, update = self._nodes[index], self._planned[index]
        waiting, update.most = update.amount, limit.amount
        # What fits is not cut: a table that is computed in blocks would else stop at the end of a block.
        begun = node.begin(update, limit.seconds if limit.seconds < update.gained else math.inf)
        del self._planned[index]
        self._loop.set_ready(index, False, now)
        if not begun:
            return None
        update.track, update.status = track, "running"
        entry = self._ledger.of(node.name)
        entry.longest_wait = max(entry.longest_wait, now - update.released)
        entry.left = max(0.0, waiting - update.amount)
        entry.updates_left = update.left = updates_for(waiting - update.amount, update.amount)
        return update

    def _companions(self, index: int) -> list[int]:
        """The nodes that are updated together with a table: ready, of the same group, with the same sources.

        A table that Spark may have died of is updated alone, so that the next death tells more.
        """
        node, suspects = self._nodes[index], self.running.suspects
        if node.layer != "live" or node.table in suspects:
            return []
        group = [other for other in self._groups.get(node.table, ()) if other != index and other in self._planned]
        names = self._nodes.names
        return [other for other in group if names[other] not in suspects and not self.running.is_busy(names[other])]

    def _cannot_begin(self, index: int, track: int, error: BaseException, now: float) -> Update:
        node = self._nodes[index]
        update = Update(node.table, node.layer, track=track, released=now, began=now)
        update.fails(error, transient=is_transient(error, in_user_code=False))
        self._note_failure(index, update, now)
        self._planned.pop(index, None)
        self._loop.set_ready(index, False, now)
        return update

    def _note_failure(self, index: int, update: Update, now: float) -> None:
        entry = self._ledger.of(update.name)
        entry.left = 0.0  # all of it is waiting again
        retries = entry.retries
        retries.failed(update, now)
        if not retries.held:
            self._wake(index, retries.next_try())

    def ended(self, update: Update, now: float) -> None:
        """An update was committed or failed: update the ledger, and plan its table and the tables built on it."""
        if self.running.was_begun_before(update):
            self.running.remove(update)
            self._is_outdated = True
            return
        node = self.node_of(update)
        if self.running.remove(update):
            self._loop.finished(update.track, now)
        try:
            node.end(update)
            repairs = node.repairs
            update.repairs = 0.0 if repairs is None else repairs.seconds
            if update.committed:
                self._note_commit(node, update, now)
        except Exception as error:  # the table's log cannot be read any more
            update.fails(error, update.seconds, transient=is_transient(error, in_user_code=False))
        if update.layer in ("live", "backfill"):  # also if it failed: that may have been after its commit
            self._note_changed(update.table, now)
        update.plan = None  # it names files, perhaps many; the ledger and whoever observes may keep the update
        index = self._graph.index[update.table]
        if not update.committed:
            self._note_failure(self._graph.index[update.name], update, now)
        suspects = list(self.running.suspects) if update.table in self.running.suspects else []
        if update.committed:
            self.running.suspects.pop(update.table, None)
        for table in dict.fromkeys([update.table, *suspects]):
            self._refresh_table(table, now)
        for dependent in self._graph.downstream[index]:
            for part in self._nodes.of_table[self._nodes.names[dependent]]:
                self._refresh(part, now)
        self._lags.note(update.table, now)
        self._settle_urgent(now)

    def _note_commit(self, node: Node, update: Update, now: float) -> None:
        self._ledger.of(update.name).committed(update, now)
        if isinstance(node, StreamNode) and update.arrived is not None:
            self._lags.loaded(update.name, update.arrived[0], update.freshness)
            if self._nodes.has_learned(self._graph.index[update.table]):
                self._nodes.fill_periods()
                self._loop.refresh_patience()
                self._note_change_everywhere()
        if isinstance(node, BackfillNode) and node.of.rebuilds:
            self._ledger.of(update.table).retries.reset()  # the table was rebuilt, so earlier failures do not count
        if node.store.exists:
            self._ledger.of(update.table).rows = node.store.statistics().rows
        self._updates += 1
        if not self._updates % PLACE_AGAIN_AFTER:
            self._place_again(now)

    def _note_changed(self, table: str, now: float) -> None:
        """Tell the nodes of the tables built on a table that it has changed."""
        for dependent in self._graph.downstream[self._graph.index[table]]:
            name = self._graph.names[dependent]
            try:
                self._nodes[dependent].source_changed(table)
            except BaseException as error:
                self._unread.setdefault(dependent, set()).add(table)
                self._note_source(name, Pending(note=first_line(error), missing=True), now)
                self._wake(dependent, now + LONGEST_BETWEEN_POLLS)

    # --- updates that take too long, and a Spark that is lost -------------------------------------------------

    def time_limit(self, update: Update) -> float:
        """After how many seconds an update is to be cancelled."""
        return self._options.time_limit or time_limit(update.layer, self._ledger.of(update.name))

    def give_up(self, track: int, now: float) -> None:
        """The updates of a track do not end: the track is free for others, their tables stay as they are."""
        self.running.give_up(track)
        self._loop.finished(track, now)

    def spark_lost(self, now: float) -> None:
        """Spark was lost. A table that was being updated at so many losses (``DEATHS``) without a commit is held.

        A stream is not: it loads its chunks one by one, and sets aside the one that Spark dies of.
        """
        running = {update.table: update for update in self.running}
        for table, update in running.items():
            node = self.node_of(update)
            if isinstance(node, StreamNode):
                node.note_death(update, f"Spark has died {DEATHS} times while it was loaded")
                continue
            if self.running.suspects[table] + 1 < DEATHS:
                continue
            text = (
                f"Spark was lost {DEATHS} times while this table was updated, so it is held: its data or its query may "
                "need more memory than Spark has. Mend that, then `headgate resume` it"
            )
            self._ledger.of(update.name).retries.hold()
            self.notices.append(RunNotice(now, table, text))
        self.running.suspects.update(running.keys())

    def _place_again(self, now: float) -> None:
        try:
            self._loop.place_again()
        except InvariantError:
            raise
        except HeadgateError as error:
            text = f"{error}; the tables stay on the tracks that they were placed on before"
            self.notices.append(RunNotice(now, None, text, _traceback_of(error)))

    # --- changes while running ------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        self._loop.replace_policy(Layered(policy))

    def replace_placement(self, placement: Placement) -> None:
        self._loop.replace_placement(LayeredPlacement(placement))

    def set_budget(self, budget: float, now: float) -> None:
        self._limits.budget = budget
        for index in list(self._planned):
            self._refresh(index, now)

    def set_tracks(self, count: int) -> None:
        self._loop.set_workers(Workers.of(count))

    def remark(self, table: str, text: str, now: float) -> None:
        """Note what users should know of a table that concerns no update; empty if there is nothing any more."""
        entry = self._ledger.of(table)
        if text and text != entry.remark:
            self.notices.append(RunNotice(now, table, text))
        entry.remark = text

    def pause(self, table: str, now: float) -> None:
        self._ledger.of(table).paused = True
        self._refresh_table(table, now)

    def resume(self, table: str, now: float) -> None:
        self._ledger.of(table).paused = False
        for part in self._nodes.of_table[table]:
            self._ledger.of(self._nodes.names[part]).retries.reset()
        self._refresh_table(table, now)

    def set_priority(self, table: str, priority: float) -> None:
        self._ledger.of(table).priority = priority
        self._nodes.fill_priorities(self._ledger, self._options.inheritance)
        self._note_change_everywhere()

    def _note_change_everywhere(self) -> None:
        for index in range(len(self._nodes)):
            self._loop.note_change(index)

    def backfill(self, table: str, first: int, last: int, chunk: float | None, now: float) -> None:
        node = self._nodes.by_name[table]
        if not isinstance(node, TableNode):
            raise ParameterError(
                f"{table!r} is loaded from a source and cannot be computed again; backfill the tables built on it"
            )
        if chunk is not None:
            self._limits.chunks[table] = chunk
        node.backfill(first, last)
        self._refresh_table(table, now)

    def refresh_now(self, table: str, now: float) -> None:
        """Update a table, and what it is built on, before everything else."""
        if self._ledger.of(table).paused:
            raise ParameterError(f"table {table!r} is paused; resume it first")
        index = self._graph.index[table]
        nodes = frozenset((index, *self._graph.ancestors(index)))
        for node in nodes:
            self._ledger.of(self._nodes.names[node]).retries.reset()
            self._columns["layer"][node] = URGENT
            self._refresh(node, now)
            self._loop.note_change(node)
        self._urgent[table] = nodes
        self._settle_urgent(now)

    def _settle_urgent(self, now: float) -> None:
        """End the urgency of tables that are refreshed: none of their nodes is ready or running."""
        for table, nodes in list(self._urgent.items()):
            if not any(n in self._planned or self.running.is_busy(self._nodes.names[n]) for n in nodes):
                del self._urgent[table]
                wanted = frozenset().union(*self._urgent.values())
                for node in nodes - wanted:
                    self._columns["layer"][node] = LIVE
                    self._loop.note_change(node)

    def _refresh_table(self, table: str, now: float) -> None:
        for part in self._nodes.of_table[table]:
            self._refresh(part, now)

    # --- reports --------------------------------------------------------------------------------------------

    def costs(self) -> dict[str, KnownCost]:
        """What was learned about costs, for a later run."""
        return self._ledger.costs()

    def statistics(self, now: float) -> tuple[NodeStatistics, ...]:
        return self._standings.statistics(now)

    def glance(self, now: float) -> Glance:
        """How everything stands now, for those who watch."""
        budget = self._limits.budget
        return Glance(
            now=now,
            policy=str(self._loop.policy),
            placement=str(self._loop.placement),
            tracks=self.tracks,
            budget=None if budget == math.inf else budget,
            tables=self.statistics(now),
            queue=self._loop.queue(now),
            running=running_now(self.running.on_tracks(), self.time_limit),
            left=self.running.left(),
        )

    def decisions(self, table: str) -> tuple[Decision, ...]:
        """The last decisions at which a table could have been chosen, the newest first."""
        those = (each for each in self._loop.history if any(entry.name == table for entry in each.ranking))
        return tuple(reversed(tuple(those)))

    def explain(self, table: str, now: float) -> Explanation:
        return self._standings.explain(table, self._loop, now)

    def catch_up(self, now: float, tables: Iterable[str] | None = None) -> CatchUp:
        """Begin to watch whether ``tables``, or all, have taken in what has arrived by now."""
        return CatchUp(self.warehouse, now, tables)

    def behind(self, catch_up: CatchUp, now: float) -> Behind:
        """The tables that have not caught up yet."""
        return self._standings.behind(catch_up, now)


def _traceback_of(error: BaseException) -> str:
    """The traceback of the user's own exception, if there is one, from the first line that is not Headgate's."""
    cause = error.__cause__
    if cause is None:
        return ""
    users = cause.__traceback__
    while users is not None and str(users.tb_frame.f_globals.get("__name__")).startswith("headgate."):
        users = users.tb_next
    return "".join(traceback.format_exception(type(cause), cause, users)).rstrip()
