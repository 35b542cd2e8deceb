"""The figures of a recorded run, in the units of the simulator's results, so that both can stand side by side.

A table counts from when it first had rows. Dimensions have no event time and so no staleness; they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.trace.freshness import FreshnessHistory
from headgate.core.trace.records import Trace


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """One table: staleness in seconds, None if it never had rows; ``utilisation`` is the share of time in updates."""

    name: str
    priority: float
    mean_staleness: float | None
    max_staleness: float | None
    updates: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A whole run, or what is left of it without its beginning.

    ``weighted_staleness`` is the sum over all tables that had rows of priority times mean staleness.
    """

    seconds: float
    weighted_staleness: float
    tables: tuple[MeasuredTable, ...]

    def of(self, name: str) -> MeasuredTable:
        return next(table for table in self.tables if table.name == name)


def measured(trace: Trace, skip: float = 0.0) -> Measured:
    """How stale the tables were, without the first ``skip`` seconds of the run."""
    begin, end = trace.header.started + skip, trace.finish
    length = max(end - begin, 0.0)
    tables = []
    for table in trace.header.tables:
        if table.kind == "dimension":
            continue
        staleness = FreshnessHistory.of(trace, table).staleness(begin, end)
        made = [update for update in trace.updates_of(table.name) if begin < update.ended <= end]
        busy = sum(_overlap(u.began, u.ended, begin, end) for u in trace.updates_of(table.name))
        tables.append(
            MeasuredTable(
                name=table.name,
                priority=trace.priority(table, begin),
                mean_staleness=None if staleness is None else staleness.mean,
                max_staleness=None if staleness is None else staleness.max,
                updates=len(made),
                utilisation=busy / length if length else 0.0,
            )
        )
    weighted = sum(t.priority * t.mean_staleness for t in tables if t.mean_staleness is not None)
    return Measured(length, weighted, tuple(tables))


def track_use(trace: Trace, skip: float = 0.0) -> tuple[float, ...]:
    """The share of time that each track was at work, whatever at and however it ended."""
    begin, end = trace.header.started + skip, trace.finish
    highest = max((update.track for update in trace.updates), default=0)
    busy = [0.0] * max(trace.tracks(begin), highest + 1)
    for update in trace.updates:
        busy[update.track] += _overlap(update.began, update.ended, begin, end)
    return tuple(seconds / (end - begin) if end > begin else 0.0 for seconds in busy)


def _overlap(begin: float, end: float, first: float, last: float) -> float:
    return max(0.0, min(end, last) - max(begin, first))
