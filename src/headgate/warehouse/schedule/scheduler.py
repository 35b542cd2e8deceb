"""The scheduler of a running warehouse: which updates run next, and where.

Looks at what nodes have pending, tells the dispatch loop of the core, begins the updates that the loop picks, and takes
note of those that have ended. Knows neither threads nor Spark, and gets the time passed in. For one thread.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from headgate.core import (
    LIVE,
    URGENT,
    ArrivalLog,
    Dispatch,
    Explanation,
    Inheritance,
    ParameterError,
    Placement,
    Policy,
    TableColumns,
    Update,
    Workers,
    waiting_since,
)
from headgate.core.placements import Proportional
from headgate.core.policies import Layered, MaxBenefit
from headgate.warehouse.schedule.ledger import Ledger, LedgerEntry, NodeStatistics
from headgate.warehouse.schedule.scheduled_nodes import ScheduledNodes
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

#: sources are looked at so many times in a period, at least once a second
LOOKS_PER_PERIOD = 40
LONGEST_BETWEEN_LOOKS = 1.0
#: a table that wants the newest first takes so many periods at once, unless updates are chopped anyway
NEWEST_PERIODS = 10.0
#: placements go by costs, which are learned: tables are placed again after so many updates
PLACE_AGAIN_AFTER = 100
#: about how long a chunk of a backfill should take, in seconds: as long as a live update may have to wait for it
CHUNK_SECONDS = 1.0
#: an update that only repairs the past gains nothing, but must not be forgotten: it counts as so many seconds
LEAST_GAIN = 1e-3


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a warehouse. ``chop`` limits an update to so many periods of data; ``poll`` is how often at most a
    source is looked at, in seconds."""

    tracks: int = 2
    policy: Policy = field(default_factory=MaxBenefit)
    placement: Placement = field(default_factory=Proportional)
    inheritance: Inheritance = "max"
    chop: float = math.inf
    poll: float = 0.05


class Scheduler:
    """The nodes of one warehouse on one dispatch loop.

    Invariants:
    1. A node is ready in the loop if and only if, when last looked at, it had something pending, was allowed to run,
       and no other node of its table was running. Then its planned update is in ``_planned``.
    2. A track that the loop has given a node to has its updates in ``_running``, and at least one.
    """

    def __init__(
        self, warehouse: OpenWarehouse, options: RunOptions, now: float, before: Scheduler | None = None
    ) -> None:
        """``before`` is the scheduler of the same warehouse as it was declared until now: what it learned is kept."""
        self.warehouse = warehouse
        self._options = options
        self._nodes = ScheduledNodes(warehouse)
        self._graph = self._nodes.graph
        self._columns = self._nodes.matrix.columns
        self._table_columns = TableColumns(self._nodes.matrix)
        self._ledger: Ledger = Ledger(
            self._nodes.by_name, warehouse.spec, now, None if before is None else before._ledger
        )
        self._nodes.fill(self._ledger, options.inheritance)
        policy: Policy = Layered(options.policy)
        placement, workers = options.placement, Workers.of(options.tracks)
        if before is not None:
            policy, placement, workers = before._loop.policy, before._loop.placement, before._loop.workers
        self._loop: Dispatch = Dispatch(self._nodes.matrix, policy, placement, workers, history=64)
        #: {node: the update that it would make, with the moment from which it could have run}
        self._planned: dict[int, Update] = {}
        #: {track: the updates that it runs or will run, in their order}
        self._running: dict[int, list[Update]] = {}
        #: {table somebody wants now: all nodes that it takes}
        self._urgent: dict[str, frozenset[int]] = {}
        self._updates = 0
        self._chunks: dict[str, float] = {}
        self._groups = self._nodes.groups()
        self._logs = {n.name: ArrivalLog(n.freshness) for n in warehouse.nodes.values() if isinstance(n, StreamNode)}
        self._streams_above = {name: self._streams_of(index) for index, name in enumerate(warehouse.graph.names)}
        #: (when, node): sources to look at, and tables to try again
        self._wakes: list[tuple[float, int]] = []
        for index in range(len(self._nodes)):
            if self._nodes.has_source(index):
                self._wake(index, now)
            else:
                self._refresh(index, now)

    def _streams_of(self, index: int) -> tuple[str, ...]:
        names = [self._graph.names[i] for i in sorted({index, *self._graph.ancestors(index)})]
        return tuple(name for name in names if name in self._logs)

    @property
    def tracks(self) -> int:
        return len(self._loop.workers)

    @property
    def is_idle(self) -> bool:
        """Whether no update runs."""
        return not self._running

    def node_of(self, update: Update) -> Node:
        """The node that makes an update."""
        return self._nodes.by_name[update.name]

    # --- looking --------------------------------------------------------------------------------------------

    def _wake(self, index: int, at: float) -> None:
        heapq.heappush(self._wakes, (at, index))

    def look(self, now: float) -> float:
        """Look at all that is due to be looked at; when to look again."""
        while self._wakes and self._wakes[0][0] <= now:
            _, index = heapq.heappop(self._wakes)
            self._refresh(index, now)
            if self._nodes.has_source(index):
                between = self._nodes.period(index) / LOOKS_PER_PERIOD
                self._wake(index, now + min(max(between, self._options.poll), LONGEST_BETWEEN_LOOKS))
        return self._wakes[0][0] if self._wakes else now + LONGEST_BETWEEN_LOOKS

    def _refresh(self, index: int, now: float) -> None:
        """Look at a node, plan its next update and write down what the policies should know of it."""
        node = self._nodes[index]
        entry = self._ledger.of(node.name)
        allowed = not self._is_busy(node.table) and entry.due(now) and not self._ledger.of(node.table).paused
        try:
            update = node.plan() if allowed else None
            entry.note = ""
        except Exception as error:  # a source that cannot be looked at; asked again at its next turn
            update, entry.note = None, str(error)
        if node.name in self._logs and allowed:
            arrived = None if update is None or update.arrived is None else update.arrived[0]
            self._note_arrival(node.name, arrived, now)
        if update is None:
            self._planned.pop(index, None)
            self._loop.set_ready(index, False, now)
            return
        known = self._planned.get(index)
        update.released = now if known is None else known.released
        self._planned[index] = update
        self._write_features(index, update, entry)
        self._loop.set_ready(index, True, now)

    def _write_features(self, index: int, update: Update, entry: LedgerEntry) -> None:
        columns, pending = self._table_columns, max(update.gained, LEAST_GAIN)
        update.gained = min(pending, self._most(index))
        columns.set_cost(index, entry.cost.alpha, entry.cost.beta)
        columns.set_pending(index, pending, update.gained, max(1e-3, entry.cost.predict(update.gained)))
        columns.set_release(index, update.released, update.released if update.arrived is None else update.arrived[0])
        columns.set_next_release(index, update.released + self._nodes.period(index))

    def _is_busy(self, table: str) -> bool:
        return any(update.table == table for updates in self._running.values() for update in updates)

    def _note_arrival(self, stream: str, since: float | None, now: float) -> None:
        log = self._logs[stream]
        if (log.pending_since is None) != (since is None):
            log.pending_since = since
            index = self._graph.index[stream]
            self._note_waiting([index, *self._graph.dependents(index)], now)
        log.pending_since = since

    def _note_waiting(self, nodes: Iterable[int], now: float) -> None:
        for index in nodes:
            name = self._nodes.names[index]
            streams = self._streams_above.get(name)
            if streams:
                since = waiting_since(self._nodes[index].freshness, streams, self._logs)
                self._ledger.of(name).lag.wait(now, since)

    def _most(self, index: int) -> float:
        """How much event time an update of a node may take in."""
        node, period = self._nodes[index], self._nodes.period(index)
        if isinstance(node, BackfillNode):
            return self._chunks.get(node.table) or self._chunk(self._ledger.of(node.name), node.of.block_seconds)
        if self._options.chop < math.inf:
            return self._options.chop * period
        declared = node.spec if isinstance(node, TableNode | StreamNode) else None
        return NEWEST_PERIODS * period if declared is not None and declared.catch_up == "newest" else math.inf

    @staticmethod
    def _chunk(entry: LedgerEntry, block: float) -> float:
        if entry.cost.beta <= 0:
            return block
        return max(block, (CHUNK_SECONDS - entry.cost.alpha) / entry.cost.beta)

    # --- updates --------------------------------------------------------------------------------------------

    def decide(self, now: float) -> list[list[Update]]:
        """The updates to run now: a list for each track that has something to do, of one or more to run in turn.

        An update that could not be begun is given out by itself, as failed: there is nothing to run.
        """
        return [updates for start in self._loop.decide(now) if (updates := self._begin(start.node, start.worker, now))]

    def _begin(self, index: int, track: int, now: float) -> list[Update]:
        if self._is_busy(self._nodes[index].table):  # another node of the table was begun by the same decision
            self._loop.finished(track, now)
            return []
        try:
            update = self._begin_one(index, track, now)
        except Exception as error:
            self._loop.finished(track, now)
            return [self._cannot_begin(index, track, error, now)]
        if update is None:
            self._loop.finished(track, now)
            return []
        updates = self._running[track] = [update]
        for companion in self._companions(index, update):
            with suppress(Exception):  # whoever cannot begin along with another will be asked by itself
                joined = self._begin_one(companion, track, now)
                if joined is not None:
                    updates.append(joined)
        for begun in updates:
            for part in self._nodes.of_table[begun.table]:
                self._loop.set_ready(part, False, now)
        return list(updates)

    def _begin_one(self, index: int, track: int, now: float) -> Update | None:
        """Make an update out of what a node has pending; None if there is nothing after all."""
        node, planned = self._nodes[index], self._planned.pop(index, None)
        update = node.begin(self._most(index))
        self._loop.set_ready(index, False, now)
        if update is None:
            return None
        update.released = now if planned is None else planned.released
        update.gained = float(self._columns["freshness_delta"][index])
        update.track, update.status = track, "running"
        entry = self._ledger.of(node.name)
        entry.longest_wait = max(entry.longest_wait, now - update.released)
        return update

    def _companions(self, index: int, update: Update) -> list[int]:
        """Who could be updated along with a table: those of its group with the same sources that are ready."""
        if update.layer != "live":
            return []
        mates = (mate for mate in self._groups.get(update.table, ()) if mate != index and mate in self._planned)
        return [mate for mate in mates if not self._is_busy(self._nodes.names[mate])]

    def _cannot_begin(self, index: int, track: int, error: Exception, now: float) -> Update:
        node = self._nodes[index]
        update = Update(node.table, node.layer, track=track, released=now, began=now)
        update.fails(error)
        self._note_failure(index, update, now)
        self._loop.set_ready(index, False, now)
        return update

    def _note_failure(self, index: int, update: Update, now: float) -> None:
        retries = self._ledger.of(update.name).retries
        retries.failed(update, now)
        if not retries.held:
            self._wake(index, retries.next_try())

    def ended(self, update: Update, now: float) -> None:
        """An update is committed or has failed: look at what that makes possible."""
        node = self.node_of(update)
        node.end(update)
        update.plan = None  # it names files, perhaps many; the ledger and whoever observes may keep the update
        left = [other for other in self._running.pop(update.track) if other is not update]
        if left:
            self._running[update.track] = left
        else:
            self._loop.finished(update.track, now)
        index = self._graph.index[update.table]
        if update.committed:
            self._note_commit(node, update, now)
        else:
            self._note_failure(self._graph.index[update.name], update, now)
        for part in self._nodes.of_table[update.table]:
            self._refresh(part, now)
        for dependent in self._graph.downstream[index]:
            for part in self._nodes.of_table[self._nodes.names[dependent]]:
                self._refresh(part, now)
        self._note_waiting([index, *self._graph.dependents(index)], now)
        self._settle_urgent(now)

    def _note_commit(self, node: Node, update: Update, now: float) -> None:
        self._ledger.of(update.name).committed(update, now)
        if isinstance(node, StreamNode) and update.arrived is not None:
            self._logs[update.name].loaded(update.arrived[0], update.freshness)
            if self._nodes.has_learned(self._graph.index[update.table]):
                self._nodes.fill_periods()
                self._loop.refresh_patience()
                self._note_change_everywhere()
        if update.layer != "maintenance":
            self.warehouse.updated(update.table)
        if isinstance(node, BackfillNode) and node.of.rebuilds:
            self._ledger.of(update.table).retries.reset()  # it was built anew: what failed before is behind it
        self._updates += 1
        if not self._updates % PLACE_AGAIN_AFTER:
            self._loop.place_again()

    # --- what people change ---------------------------------------------------------------------------------

    def replace_policy(self, policy: Policy) -> None:
        self._loop.replace_policy(Layered(policy))

    def replace_placement(self, placement: Placement) -> None:
        self._loop.replace_placement(placement)

    def set_tracks(self, count: int) -> None:
        self._loop.set_workers(Workers.of(count))

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
            self._chunks[table] = chunk
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
        """Let go of what was wanted now and is done: nothing of it is ready or running."""
        for table, nodes in list(self._urgent.items()):
            if not any(n in self._planned or self._is_busy(self._nodes.names[n]) for n in nodes):
                del self._urgent[table]
                wanted = frozenset().union(*self._urgent.values())
                for node in nodes - wanted:
                    self._columns["layer"][node] = LIVE
                    self._loop.note_change(node)

    def _refresh_table(self, table: str, now: float) -> None:
        for part in self._nodes.of_table[table]:
            self._refresh(part, now)

    # --- reports --------------------------------------------------------------------------------------------

    def statistics(self, now: float) -> tuple[NodeStatistics, ...]:
        periods = dict(zip(self._nodes.names, self._columns["period"].tolist(), strict=True))
        running = {update.name for updates in self._running.values() for update in updates}
        return self._ledger.statistics(now, running, periods)

    def explain(self, table: str, now: float) -> Explanation:
        return self._loop.explain(self._graph.index[table], now)
