"""How stale tables were, from the log of any contender. Pure functions: no clock, no files.

The staleness of a table at time t is t less the event time up to which a reader at t sees the table complete. The one
number for a contender is the *weighted staleness*: the time-average of each table's staleness over the measured window,
weighted by the table's priority. All times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.spark.arrivals import Landing
from benchmarks.spark.log import Visible


@dataclass(frozen=True)
class Window:
    """The stretch of wall-clock time that counts. `origin` is when data began to arrive: before a table's first
    update all of the data since then is missing."""

    origin: float
    start: float
    end: float

    def __post_init__(self) -> None:
        if not self.origin <= self.start < self.end:
            raise ValueError(f"expected origin <= start < end, got {self.origin}, {self.start}, {self.end}")

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class TableStaleness:
    """One table over the window: mean and greatest staleness, and updates that brought readers something new."""

    mean: float
    worst: float
    updates_per_second: float


@dataclass(frozen=True)
class Staleness:
    """A contender over the window."""

    weighted: float
    tables: Mapping[str, TableStaleness]

    @property
    def updates_per_second(self) -> float:
        """Updates of all tables."""
        return sum(table.updates_per_second for table in self.tables.values())


def staleness(log: Iterable[Visible], priorities: Mapping[str, float], window: Window) -> Staleness:
    """Judges a contender; tables without a single update count as well, other tables than those named are an error."""
    of_table: dict[str, list[Visible]] = {name: [] for name in priorities}
    for update in log:
        if update.table not in of_table:
            raise ValueError(f"the log tells of table {update.table!r}, which is none of {sorted(of_table)}")
        of_table[update.table].append(update)
    tables = {name: table_staleness(updates, window) for name, updates in of_table.items()}
    total = sum(priorities.values())
    weighted = sum(priorities[name] * table.mean for name, table in tables.items()) / total
    return Staleness(weighted, tables)


def fresh_after(log: Iterable[Visible], names: Iterable[str], start: float) -> float | None:
    """Seconds from `start` until every table had been updated once; None if one never was."""
    first: dict[str, float] = {}
    for update in log:
        if update.visible >= start:
            first[update.table] = min(update.visible, first.get(update.table, update.visible))
    wanted = list(names)
    return max(first[name] for name in wanted) - start if all(name in first for name in wanted) else None


def table_staleness(updates: Sequence[Visible], window: Window) -> TableStaleness:
    """One table. An update that makes nothing fresher changes nothing and is not counted."""
    moment, fresh = window.start, window.origin
    area = worst = 0.0
    count = 0
    for update in sorted(updates, key=lambda update: (update.visible, update.fresh)):
        if update.visible >= window.end:
            break
        if update.fresh <= fresh:
            continue
        if update.visible > window.start:
            area += _area(moment, update.visible, fresh)
            worst = max(worst, update.visible - fresh)
            moment = update.visible
            count += 1
        fresh = update.fresh
    area += _area(moment, window.end, fresh)
    worst = max(worst, window.end - fresh)
    return TableStaleness(area / window.seconds, worst, count / window.seconds)


def _area(start: float, end: float, fresh: float) -> float:
    """The integral of t - fresh from start to end."""
    return (end - start) * ((start + end) / 2 - fresh)


def without_waiting(landings: Iterable[Landing], stream_of: Mapping[str, str]) -> list[Visible]:
    """The log of a contender that needs no time at all: every table is up to date the moment a file has landed.

    Nobody can be less stale, since a table cannot tell of what has not arrived.
    """
    tables: dict[str, list[str]] = {}
    for table, stream in stream_of.items():
        tables.setdefault(stream, []).append(table)
    return [Visible(table, each.landed, each.last) for each in landings for table in tables.get(each.stream, ())]
