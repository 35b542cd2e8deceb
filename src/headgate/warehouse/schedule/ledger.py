"""The ledger of a running warehouse: costs, failures, staleness and lag of each node. Times are passed in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headgate.core import (
    ArrivalLog,
    CostModel,
    Graph,
    LagMeter,
    OperatorFigures,
    StalenessMeter,
    Update,
    added_up,
    node_name,
    waiting_since,
)
from headgate.warehouse.declare.spec import DimensionSpec, WarehouseSpec
from headgate.warehouse.schedule.kept_costs import KnownCost, KnownPace
from headgate.warehouse.schedule.lasting_costs import LastingCosts
from headgate.warehouse.schedule.retries import Retries
from headgate.warehouse.updates.load import StreamNode
from headgate.warehouse.updates.node import Node, known
from headgate.warehouse.updates.plan import MICROS
from headgate.warehouse.updates.repairs import Repairs


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """One table of a running warehouse. Lengths of time are seconds; moments are seconds since the epoch.

    ``state`` is "ok", "new" (nothing was computed yet), "updating", "paused", "failing" (an update failed and is tried
    again), "held" (it failed too often), "waiting" (its source is not there or cannot be polled: ``note`` says why),
    "repairing" (event times are still to be recomputed, behind live updates: ``repairs``), "rebuilding" (it must be
    computed anew) or "stopped" (the run has failed: ``error`` says why). ``staleness`` is now minus the event time up
    to which the table is complete; None before it has rows, and for dimensions. ``lag`` is how long the oldest data
    that is not in the table yet has been waiting. ``target_met`` is the share of the time in which the lag was at most
    ``target_lag``. ``rows`` are those in the table now, ``written`` those that updates of this run have written.
    ``next_update`` is when more data is expected. ``updates_left`` is how many more updates are needed after the
    running or the next one, for what is waiting now. ``longest_wait`` is the longest time that an update waited for a
    track. ``note`` is what the source waits for, what is wrong with the table's entry in a catalog or its publications,
    or ``target_note``: why its target lag cannot be kept. ``target_help`` is what would help there. ``behind`` is how
    many records of each partition of its source are not loaded. ``operators`` are those of the stream queries inside
    the table, over all updates of the run.
    """

    name: str
    priority: float
    state: str
    staleness: float | None
    mean_staleness: float | None
    max_staleness: float | None
    lag: float
    mean_lag: float
    target_lag: float | None
    target_met: float | None
    rows: int
    written: int
    rejected: int
    updates: int
    last_update: float | None
    last_seconds: float | None
    next_update: float | None
    updates_left: int
    longest_wait: float
    failures: int
    error: str
    note: str
    operators: tuple[OperatorFigures, ...] = ()
    repairs: Repairs | None = None
    target_note: str = ""
    target_help: str = ""
    behind: Mapping[str, int] = field(default_factory=dict)


class LedgerEntry:
    """What is known about one node."""

    def __init__(self, node: Node, priority: float, target_lag: float | None, now: float) -> None:
        self.node = node
        #: as declared; and as it is now, which differs if a user has changed it while the run goes on
        self.declared_priority = priority
        self.priority = priority
        self.cost = CostModel()
        #: what the cost is a function of: see ``Update.unit``
        self.unit = ""
        #: how much of that there is in a second of data
        self.per_second = 1.0
        self.is_pace_known = False
        #: what of all that has lasted, as far as target lags were looked at
        self.lasting_costs = LastingCosts()
        #: the period of a stream that an earlier run has learned
        self.known_period: float | None = None
        #: what the last update left waiting when it began, because it was cut
        self.left = 0.0
        self.updates_left = 0
        self.retries = Retries()
        self.paused = False
        #: what the source waits for; ``waiting`` if it cannot give anything before that is there
        self.note = ""
        #: how many records of each part of the source are not loaded
        self.behind: Mapping[str, int] = {}
        self.waiting = False
        #: what users should know of the table that concerns no update
        self.remark = ""
        #: why its target lag cannot be kept, and what would help; empty if it can
        self.target_note = ""
        self.target_help = ""
        #: what is wrong with the places that the table is published to
        self.publish_note = ""
        self.rows = (known(lambda: node.store.statistics().rows) or 0) if node.layer == "live" else 0
        self.written = 0
        self.rejected = 0
        self.updates = 0
        self.last_update: float | None = None
        self.last_seconds: float | None = None
        #: how long the longest committed update took, in seconds
        self.longest_seconds = 0.0
        #: the longest time from the release of an update to its start
        self.longest_wait = 0.0
        self.operators: tuple[OperatorFigures, ...] = ()
        freshness = known(lambda: node.freshness)
        self.staleness = StalenessMeter(now, -math.inf if freshness is None else freshness / MICROS)
        self.lag = LagMeter(now, target_lag)

    def planned(self, update: Update) -> None:
        """Note in which unit the updates of this node are measured."""
        if update.unit != self.unit:
            self.unit, self.cost, self.left = update.unit, CostModel(), 0.0
            self.per_second, self.is_pace_known = 1.0, False
        if not update.unit:
            self.per_second = 1.0
        elif update.seconds_of_data > 0 and update.size > 0:
            self.per_second = update.size / update.seconds_of_data
            self.is_pace_known = True

    def know(self, cost: KnownCost, pace: KnownPace) -> None:
        """Go on with what an earlier run has learned."""
        self.unit, self.cost = cost
        self.known_period = pace.period
        if pace.per_second is not None:
            self.per_second, self.is_pace_known = pace.per_second, True

    @property
    def pace(self) -> KnownPace:
        """How fast data comes to the node; what is not known in this run is as in the one before."""
        period = self.node.period if isinstance(self.node, StreamNode) else None
        return KnownPace(
            self.per_second if self.is_pace_known else None, self.known_period if period is None else period
        )

    def committed(self, update: Update, now: float, alone: float | None) -> None:
        """``alone`` is what it took, or would have taken in a job of its own; None if that is not known."""
        self.retries.reset()
        if self.updates and alone is not None:
            # The first update of a process compiles code, which tells nothing about the next ones.
            self.cost.observe(update.amount, alone)
        self.written += update.rows
        self.rejected += update.rejected
        self.operators = added_up((*self.operators, *update.operators))
        self.updates += 1
        self.last_update = now
        self.last_seconds = update.seconds
        self.longest_seconds = max(self.longest_seconds, update.seconds)
        if update.freshness is not None:
            self.staleness.refresh(now, update.freshness / MICROS)

    def opened_again(self, node: Node, priority: float, target_lag: float | None, is_changed: bool) -> None:
        """Continue with a node that was opened again. A priority that a user has set stays, unless the declared one
        changes. A held table stays held, unless the declarations have changed, which may have mended it.
        """
        self.node = node
        if priority != self.declared_priority:
            self.declared_priority = self.priority = priority
        self.lag.target = target_lag
        if is_changed or not self.retries.held:
            self.retries.reset()

    def due(self, now: float) -> bool:
        """Whether the node may run now, if it has anything pending."""
        return not self.paused and self.retries.due(now)

    def statistics(
        self, now: float, running: bool, period: float, backfill: LedgerEntry | None = None
    ) -> NodeStatistics:
        """``backfill`` is the entry of the table's backfill: its failures are the table's, too."""
        self.staleness.advance(now)
        self.lag.advance(now)
        repairs = known(lambda: self.node.repairs)
        failed = self if self.retries.failures or backfill is None else backfill
        return NodeStatistics(
            name=self.node.name,
            priority=self.priority,
            state="updating" if running else self._state(failed.retries, repairs),
            staleness=self.staleness.staleness(now),
            mean_staleness=self.staleness.mean,
            max_staleness=None if self.staleness.empty else self.staleness.maximum,
            lag=self.lag.lag(now),
            mean_lag=self.lag.mean,
            target_lag=self.lag.target,
            target_met=self.lag.target_met,
            rows=self.rows,
            written=self.written,
            rejected=self.rejected,
            updates=self.updates,
            last_update=self.last_update,
            last_seconds=self.last_seconds,
            next_update=self._next(now, period),
            updates_left=self.updates_left,
            longest_wait=self.longest_wait,
            failures=failed.retries.failures,
            error=failed.error,
            note=self.note or self.remark or self.publish_note or self.target_note,
            operators=self.operators,
            repairs=repairs,
            target_note=self.target_note,
            target_help=self.target_help,
            behind=self.behind,
        )

    @property
    def error(self) -> str:
        """Why the last update failed, if it did."""
        last = self.retries.last
        return last.error or "" if last is not None and self.retries.failures else ""

    def _next(self, now: float, period: float) -> float | None:
        if self.paused or self.retries.held:
            return None
        if self.retries.failures:
            return self.retries.next_try()
        if self.lag.waiting is not None:
            return now
        return None if self.last_update is None or period <= 0 else max(now, self.last_update + period)

    def _state(self, retries: Retries, repairs: Repairs | None) -> str:
        states = {
            "paused": self.paused,
            "held": retries.held,
            "failing": retries.failures > 0,
            "rebuilding": bool(self.node.rebuild_reason),
            "waiting": self.waiting,
            "repairing": repairs is not None,
            "new": known(lambda: self.node.store.exists) is False,
        }
        return next((state for state, holds in states.items() if holds), "ok")


class Ledger:
    """The entries of all nodes: live updates, backfills and maintenance of all tables."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        spec: WarehouseSpec,
        now: float,
        before: Ledger | None = None,
        costs: Mapping[str, KnownCost] = MappingProxyType({}),
        paces: Mapping[str, KnownPace] = MappingProxyType({}),
    ) -> None:
        """``before`` is the ledger before the warehouse was declared anew: what it knows is kept.

        ``costs`` and ``paces`` are those of an earlier run.
        """
        self._spec = spec
        declared = {node.name: node for node in spec.nodes()}
        self._entries: dict[str, LedgerEntry] = {}
        for name, node in nodes.items():
            stated = declared.get(name)
            target = None if stated is None or isinstance(stated, DimensionSpec) else stated.target_lag
            priority = 0.0 if stated is None else stated.priority
            known = None if before is None else before._entries.get(name)
            if known is None:
                entry = self._entries[name] = LedgerEntry(node, priority, target, now)
                if name in costs:
                    entry.know(costs[name], paces.get(name, KnownPace()))
                continue
            known.opened_again(node, priority, target, is_changed=before is not None and before._spec is not spec)
            self._entries[name] = known
        self._order = spec.names()

    def costs(self) -> dict[str, KnownCost]:
        """What is known about costs, for a later run."""
        return {name: (entry.unit, entry.cost) for name, entry in self._entries.items()}

    def paces(self) -> dict[str, KnownPace]:
        """How fast data comes to each node, for a later run."""
        return {name: entry.pace for name, entry in self._entries.items()}

    def of(self, name: str) -> LedgerEntry:
        return self._entries[name]

    def statistics(
        self, now: float, running: Iterable[str], periods: Mapping[str, float]
    ) -> tuple[NodeStatistics, ...]:
        busy = set(running)
        return tuple(
            self._entries[name].statistics(
                now, name in busy, periods.get(name, math.inf), self._entries.get(node_name(name, "backfill"))
            )
            for name in self._order
        )


class Lags:
    """Keeps the lag of every table in the ledger. ``graph`` and ``nodes`` are those of live updates.

    The lag of a table begins when data arrives for a stream that it is built on, not when that data is loaded. So the
    loads of each stream are remembered, and compared with the freshness that a table has reached.
    """

    def __init__(self, graph: Graph, nodes: Mapping[str, Node], ledger: Ledger, now: float) -> None:
        self._graph = graph
        self._nodes = nodes
        self._ledger = ledger
        self._logs = {name: self._log_of(node, now) for name, node in nodes.items() if isinstance(node, StreamNode)}
        #: {table: the streams that it is built on, or itself}
        self._streams = {name: self._streams_of(index) for index, name in enumerate(graph.names)}
        for name in graph.names:
            # What a stream has and a table with rows lacks waits from the beginning; sources are not polled yet, so the
            # lag of a table that goes on stays as it is if nothing else is known.
            since = None if _freshness(nodes[name]) is None else self.since(name)
            if since is not None:
                ledger.of(name).lag.wait(now, since)

    def _log_of(self, stream: StreamNode, now: float) -> ArrivalLog:
        """The loads of a stream that a table built on it has not taken in, by the commits of earlier runs as well.

        If the commits do not say when that arrived, it counts as having arrived at ``now``.
        """
        freshness = _freshness(stream)
        log = ArrivalLog(freshness)
        below = [self._graph.names[i] for i in self._graph.dependents(self._graph.index[stream.table])]
        reached = [_freshness(self._nodes[name]) for name in below]
        if freshness is None or all(each is not None and each >= freshness for each in reached):
            return log
        log.freshness = None
        behind = None if None in reached else min(each for each in reached if each is not None)
        loads = known(lambda: stream.loads_beyond(behind)) or []
        if not loads or loads[-1][1] < freshness:
            loads.append((now, freshness))
        for arrived, upto in loads:
            log.loaded(arrived, upto)
        log.freshness = freshness
        return log

    def _streams_of(self, index: int) -> tuple[str, ...]:
        names = [self._graph.names[i] for i in sorted({index, *self._graph.ancestors(index)})]
        return tuple(name for name in names if name in self._logs)

    def polled(self, name: str, since: float | None, now: float) -> None:
        """Data of a stream has been waiting since ``since``, or none waits. Other tables have nothing to poll."""
        log = self._logs.get(name)
        if log is None:
            return
        begins_or_ends = (log.pending_since is None) != (since is None)
        log.pending_since = since
        if begins_or_ends:
            self.note(name, now)

    def loaded(self, stream: str, arrived: float, freshness: int | None) -> None:
        """Data that had arrived at ``arrived`` was loaded; the stream is now complete up to ``freshness``."""
        self._logs[stream].loaded(arrived, freshness)

    def since(self, name: str) -> float | None:
        """Since when the oldest data that a node could take in has been waiting; None if that is not known."""
        streams = self._streams.get(name, ())
        return waiting_since(_freshness(self._nodes[name]), streams, self._logs) if streams else None

    def note(self, table: str, now: float) -> None:
        """A table has changed: note since when data has been waiting for it, and for all tables built on it."""
        index = self._graph.index[table]
        for name in (self._graph.names[i] for i in (index, *self._graph.dependents(index))):
            streams = self._streams[name]
            if streams:  # a table built on dimensions alone waits for no arrivals
                since = waiting_since(_freshness(self._nodes[name]), streams, self._logs)
                self._ledger.of(name).lag.wait(now, since)


def _freshness(node: Node) -> int | None:
    return known(lambda: node.freshness)
