"""The book of a running warehouse: per table its costs, its trouble, and how stale it has been. Times are passed in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.core.cost import CostModel
from headgate.core.trace import OperatorFigures, added_up
from headgate.warehouse.declare.spec import DimensionSpec, WarehouseSpec
from headgate.warehouse.schedule.trouble import Trouble
from headgate.warehouse.updates.nodes import Node, Outcome
from headgate.warehouse.updates.plan import MICROS


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """One table of a running warehouse. Lengths of time are seconds; moments are seconds since the epoch.

    ``staleness`` is how long ago the newest moment was that the table tells of; None before it has rows, and for
    dimensions. ``lag`` is how long the oldest data has been waiting that is not in the table yet. ``target_met`` is the
    share of the time in which the lag was at most ``target_lag``. ``next_update`` is when more data should be there.
    ``operators`` are those of the stream queries inside the table, over all updates of the run.
    """

    name: str
    priority: float
    state: str
    staleness: float | None
    mean_staleness: float | None
    max_staleness: float | None
    lag: float
    target_lag: float | None
    target_met: float | None
    rows: int
    rejected: int
    updates: int
    last_update: float | None
    last_seconds: float | None
    next_update: float | None
    longest_wait: float
    failures: int
    error: str
    note: str
    operators: tuple[OperatorFigures, ...] = ()


class Entry:
    """One node's page."""

    def __init__(self, node: Node, priority: float, target_lag: float | None, now: float) -> None:
        self.node = node
        self.priority = priority
        self.target_lag = target_lag
        self.cost = CostModel()
        self.trouble = Trouble()
        self.paused = False
        self.note = ""
        self.rows = 0
        self.rejected = 0
        self.updates = 0
        self.last_update: float | None = None
        self.last_seconds: float | None = None
        #: the longest that an update was ready and passed over
        self.longest_wait = 0.0
        self.operators: tuple[OperatorFigures, ...] = ()
        self._fresh = self._seconds(node.freshness)
        #: since when staleness is counted: the start, or the first rows
        self._since = now
        self._from = now
        self._area = 0.0
        self._max = 0.0
        self._begun = now
        self._waiting: float | None = None
        self._late = 0.0

    def made(self, outcome: Outcome, gained: float, seconds: float, now: float) -> None:
        self.trouble.succeeded()
        self.cost.observe(gained, seconds)
        self.rows += outcome.rows
        self.rejected += outcome.rejected
        self.operators = added_up((*self.operators, *outcome.operators))
        self.updates += 1
        self.last_update = now
        self.last_seconds = seconds
        self._count_until(now)
        if self._fresh is None:
            self._from = now
        if outcome.freshness is not None:
            self._fresh = self._seconds(outcome.freshness)

    def due(self, now: float) -> bool:
        """Whether the table may be updated now, if there is anything to do."""
        return not self.paused and self.trouble.due(now)

    def waiting(self, since: float | None, now: float) -> None:
        """From now on the oldest data that the table has not has been waiting since ``since``."""
        self._count_until(now)
        self._waiting = since

    def statistics(self, now: float, running: bool, period: float) -> NodeStatistics:
        self._count_until(now)
        stale = None if self._fresh is None else now - self._fresh
        length = now - self._from
        ran = now - self._begun
        has_target = self.target_lag is not None and ran > 0
        return NodeStatistics(
            name=self.node.name,
            priority=self.priority,
            state=self._state(running),
            staleness=stale,
            mean_staleness=self._area / length if stale is not None and length > 0 else stale,
            max_staleness=None if stale is None else max(self._max, stale),
            lag=0.0 if self._waiting is None else max(0.0, now - self._waiting),
            target_lag=self.target_lag,
            target_met=max(0.0, 1 - self._late / ran) if has_target else None,
            rows=self.rows,
            rejected=self.rejected,
            updates=self.updates,
            last_update=self.last_update,
            last_seconds=self.last_seconds,
            next_update=self._next(now, period),
            longest_wait=self.longest_wait,
            failures=self.trouble.failures,
            error=self.trouble.last.summary if self.trouble.last is not None and self.trouble.failures else "",
            note=self.note,
            operators=self.operators,
        )

    def _next(self, now: float, period: float) -> float | None:
        if self.paused or self.trouble.held:
            return None
        if self.trouble.failures:
            return self.trouble.next_try()
        if self._waiting is not None:
            return now
        return None if self.last_update is None or period <= 0 else max(now, self.last_update + period)

    def _state(self, running: bool) -> str:
        if running:
            return "updating"
        if self.paused:
            return "paused"
        if self.trouble.held:
            return "held"
        return "failing" if self.trouble.failures else "ok"

    def _count_until(self, now: float) -> None:
        if now <= self._since:
            return
        if self._fresh is not None:
            begin, end = self._since - self._fresh, now - self._fresh
            self._area += (end * end - begin * begin) / 2
            self._max = max(self._max, end)
        if self._waiting is not None and self.target_lag is not None:
            self._late += max(0.0, now - max(self._since, self._waiting + self.target_lag))
        self._since = now

    @staticmethod
    def _seconds(freshness: int | None) -> float | None:
        return None if freshness is None else freshness / MICROS


class Book:
    """The pages of all nodes: tables, their backfills and their upkeep."""

    def __init__(self, nodes: Mapping[str, Node], spec: WarehouseSpec, now: float, before: Book | None = None) -> None:
        """``before`` is the book of the same warehouse as it was declared until now: what it knows is kept."""
        declared = {node.name: node for node in spec.nodes()}
        self._entries: dict[str, Entry] = {}
        for name, node in nodes.items():
            stated = declared.get(name)
            target = None if stated is None or isinstance(stated, DimensionSpec) else stated.target_lag
            priority = 0.0 if stated is None else stated.priority
            known = None if before is None else before._entries.get(name)
            if known is None:
                self._entries[name] = Entry(node, priority, target, now)
                continue
            known.node, known.priority, known.target_lag = node, priority, target
            known.trouble.resumed()
            self._entries[name] = known
        self._order = spec.names()

    def of(self, name: str) -> Entry:
        return self._entries[name]

    def statistics(
        self, now: float, running: Iterable[str], periods: Mapping[str, float]
    ) -> tuple[NodeStatistics, ...]:
        busy = set(running)
        return tuple(
            self._entries[name].statistics(now, name in busy, periods.get(name, math.inf)) for name in self._order
        )
