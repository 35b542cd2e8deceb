"""The book of a running warehouse: per table its costs, its trouble, and how stale it has been."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.warehouse.cost import CostModel
from headgate.warehouse.nodes import Node, Outcome
from headgate.warehouse.plan import MICROS
from headgate.warehouse.spec import WarehouseSpec
from headgate.warehouse.trouble import Failure, Trouble


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """One table of a running warehouse. Staleness is in seconds, None before the table has rows."""

    name: str
    priority: float
    state: str
    staleness: float | None
    mean_staleness: float | None
    max_staleness: float | None
    rows: int
    rejected: int
    updates: int
    last_seconds: float | None
    failures: int
    error: str


class Entry:
    """One table's page."""

    def __init__(self, node: Node, priority: float, now: float) -> None:
        self.node = node
        self.priority = priority
        self.cost = CostModel()
        self.trouble = Trouble()
        self.paused = False
        self.rows = 0
        self.rejected = 0
        self.updates = 0
        self.last_seconds: float | None = None
        self._fresh = self._seconds(node.freshness)
        #: since when staleness is counted: the start, or the first rows
        self._since = now
        self._from = now
        self._area = 0.0
        self._max = 0.0

    def made(self, outcome: Outcome, gained: float, seconds: float, now: float) -> None:
        self.trouble.succeeded()
        self.cost.observe(gained, seconds)
        self.rows += outcome.rows
        self.rejected += outcome.rejected
        self.updates += 1
        self.last_seconds = seconds
        if self._fresh is None:
            self._since = self._from = now
        self._count_until(now)
        self._fresh = self._seconds(outcome.freshness)

    def due(self, now: float) -> bool:
        """Whether the table may be updated now, if there is anything to do."""
        return not self.paused and self.trouble.due(now)

    def failed(self, failure: Failure) -> None:
        self.trouble.failed(failure)

    def statistics(self, now: float, running: bool) -> NodeStatistics:
        self._count_until(now)
        stale = None if self._fresh is None else now - self._fresh
        length = now - self._from
        return NodeStatistics(
            name=self.node.name,
            priority=self.priority,
            state=self._state(running),
            staleness=stale,
            mean_staleness=self._area / length if stale is not None and length > 0 else stale,
            max_staleness=None if stale is None else max(self._max, stale),
            rows=self.rows,
            rejected=self.rejected,
            updates=self.updates,
            last_seconds=self.last_seconds,
            failures=self.trouble.failures,
            error=self.trouble.last.summary if self.trouble.last is not None and self.trouble.failures else "",
        )

    def _state(self, running: bool) -> str:
        if running:
            return "updating"
        if self.paused:
            return "paused"
        if self.trouble.held:
            return "held"
        return "failing" if self.trouble.failures else "ok"

    def _count_until(self, now: float) -> None:
        if self._fresh is not None and now > self._since:
            begin, end = self._since - self._fresh, now - self._fresh
            self._area += (end * end - begin * begin) / 2
            self._max = max(self._max, end)
        self._since = max(self._since, now)

    @staticmethod
    def _seconds(freshness: int | None) -> float | None:
        return None if freshness is None else freshness / MICROS


class Book:
    """The pages of all tables, and of their maintenance."""

    def __init__(self, nodes: Mapping[str, Node], spec: WarehouseSpec, now: float) -> None:
        declared = {node.name: node.priority for node in spec.with_time()}
        self._entries = {name: Entry(node, declared.get(name, 0.0), now) for name, node in nodes.items()}
        self._order = spec.names()

    def of(self, name: str) -> Entry:
        return self._entries[name]

    def statistics(self, now: float, running: set[str]) -> tuple[NodeStatistics, ...]:
        return tuple(self._entries[name].statistics(now, name in running) for name in self._order)
