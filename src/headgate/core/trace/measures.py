"""Measures of a trace: freshness over time, arrivals, how long data waited, the figures of a whole run.

Everything here is in seconds since the epoch, event times too. What staleness and lag are, and how they are counted, is
in ``headgate.core.staleness``.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from headgate.core.staleness import LagMeter, StalenessMeter
from headgate.core.trace.records import Trace, TraceTable

MICROS = 1_000_000
#: a load of more chunks than this counts as one of so many: what it is taken to be costs no more than that
MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class Staleness:
    """Of one table over a stretch of time, ``seconds`` of which it had a freshness."""

    mean: float
    max: float
    seconds: float


@dataclass(frozen=True, slots=True)
class FreshnessHistory:
    """One table's freshness as a staircase.

    Invariants:
    1. From ``moments[i]`` on, and up to the next moment, the table was complete up to event time ``reached[i]``.
    2. Neither ever decreases, and both are of the same length: 0 for a table that never had rows.
    """

    moments: tuple[float, ...]
    reached: tuple[float, ...]

    @classmethod
    def of(cls, trace: Trace, table: TraceTable) -> FreshnessHistory:
        """From the freshness that the run began with, if it is recorded, and the updates that it made."""
        moments: list[float] = []
        reached: list[float] = []
        if table.freshness is not None:
            moments.append(trace.begin_of(table))
            reached.append(table.freshness / MICROS)
        updates = (*trace.updates_of(table.name), *trace.updates_of(table.name, "backfill"))  # as of a rebuilt table
        for update in sorted(updates, key=lambda update: update.ended):
            if update.freshness is not None and (not reached or update.freshness / MICROS > reached[-1]):
                moments.append(update.ended)
                reached.append(update.freshness / MICROS)
        return cls(tuple(moments), tuple(reached))

    def at(self, moment: float) -> float | None:
        """The event time reached at ``moment``; None before the table had rows."""
        index = bisect_right(self.moments, moment) - 1
        return None if index < 0 else self.reached[index]

    def staleness(self, begin: float, end: float) -> Staleness | None:
        """Between two moments, counted from when the table had rows; None if it had none before ``end``."""
        if not self.moments or end <= max(begin, self.moments[0]):
            return None
        first = max(0, bisect_right(self.moments, begin) - 1)
        last = bisect_left(self.moments, end)
        meter = StalenessMeter(max(begin, self.moments[first]), self.reached[first])
        for moment, reached in zip(self.moments[first + 1 : last], self.reached[first + 1 : last], strict=True):
            meter.refresh(moment, reached)
        meter.advance(end)
        return Staleness(meter.area / meter.seconds, meter.maximum, meter.seconds)


@dataclass(frozen=True, slots=True)
class StreamArrival:
    """When a chunk of a stream came, and up to which event time the stream reaches with it; inf if never loaded."""

    at: float
    reaches: float


def arrivals(trace: Trace, stream: TraceTable) -> tuple[StreamArrival, ...]:
    """When the data of a stream came that made it fresher, by event time.

    A load says when its first and its last chunk came and how many there were: the others are put between them, at even
    distances, and so are the event times that they reach. Of what was never loaded, the first is there if loading
    it has failed, or if it is recorded that it waited.
    """
    found: list[StreamArrival] = []
    before = None if stream.freshness is None else stream.freshness / MICROS
    loaded = -math.inf
    for update in trace.updates_of(stream.name):
        if update.arrived is None or update.freshness is None:
            continue
        loaded = max(loaded, update.ended)
        reached = update.freshness / MICROS
        start = reached - update.gained if before is None else before
        if before is None or reached > before:
            found.extend(_spread(*update.arrived, start, reached))
            before = reached
    failed = [
        update.arrived[0] if update.arrived else update.released
        for update in trace.failed_of(stream.name)
        if update.began >= loaded
    ]
    waited = never_loaded(trace, stream)
    firsts = failed if waited is None else [*failed, waited[0]]
    return (*found, StreamArrival(min(firsts), math.inf)) if firsts else tuple(found)


def never_loaded(trace: Trace, stream: TraceTable) -> tuple[float, float, int] | None:
    """What had come to a stream and waited until the trace ends: its first chunk, its last, and how many."""
    told = trace.not_loaded
    if told is None or stream.name not in told.streams:
        return None
    first, last, chunks = told.streams[stream.name]
    loads = trace.updates_of(stream.name)
    if loads and loads[-1].ended > told.at:  # it has loaded some of that since
        newest = max((update.arrived[1] for update in loads if update.arrived is not None), default=-math.inf)
        return None if last <= newest else (max(first, newest), last, chunks)
    return first, last, chunks


def _spread(oldest: float, newest: float, chunks: int, start: float, reached: float) -> Iterator[StreamArrival]:
    chunks = min(chunks, MOST_STEPS)
    gaps = max(1, chunks - 1)
    for number in range(max(1, chunks)):
        at = newest if number == chunks - 1 else oldest + (newest - oldest) * number / gaps
        yield StreamArrival(at, reached if number >= chunks - 1 else start + (reached - start) * (number + 1) / chunks)


@dataclass(frozen=True, slots=True)
class Waiting:
    """From ``begin`` to ``end`` the table stayed as it was, and the oldest data that it lacked had come at ``since``.

    ``since`` may be later than ``begin``, and is inf if nothing came.
    """

    begin: float
    end: float
    since: float


def waiting(trace: Trace, table: TraceTable) -> tuple[Waiting, ...]:
    """What waited to get into a table, from when the run had it to the end of the run."""
    streams = [
        _Stream((*_loaded_before(trace, table, stream), *arrivals(trace, stream)))
        for stream in streams_above(trace, table)
    ]
    history = FreshnessHistory.of(trace, table)
    steps = [*zip(history.moments, history.reached, strict=True)]
    begin = trace.begin_of(table)
    if not steps or steps[0][0] > begin:
        steps.insert(0, (begin, -math.inf))
    bounds = [*(moment for moment, _ in steps), max(trace.finish, steps[-1][0])]
    return tuple(
        Waiting(begin, end, max((stream.first_beyond(reached) for stream in streams), default=math.inf))
        for (begin, end), (_, reached) in zip(pairwise(bounds), steps, strict=True)
    )


def _loaded_before(trace: Trace, table: TraceTable, stream: TraceTable) -> Iterator[StreamArrival]:
    """What the stream had when the run began, for a table that had rows by then but lacks some of it.

    The trace does not say when that arrived: it counts as having arrived when the run had both.
    """
    if stream.freshness is not None and table.freshness is not None:
        yield StreamArrival(max(trace.begin_of(table), trace.begin_of(stream)), stream.freshness / MICROS)


def lag_of(trace: Trace, table: TraceTable) -> LagMeter | None:
    """The lag of a table over the run; None for a dimension, which has no event time."""
    if table.kind == "dimension":
        return None
    meter = LagMeter(trace.begin_of(table), table.target_lag)
    for piece in waiting(trace, table):
        meter.wait(piece.begin, None if piece.since == math.inf else piece.since)
        meter.advance(piece.end)
    return meter


def on_time(trace: Trace, table: TraceTable) -> float | None:
    """The share of the run in which the lag of a table was within its target; None if it has none."""
    lag = lag_of(trace, table)
    return None if lag is None else lag.target_met


class _Stream:
    """Finds the earliest arrival of data beyond an event time."""

    def __init__(self, came: Sequence[StreamArrival]) -> None:
        self._reaches = [arrival.reaches for arrival in came]
        # Loads need not follow the order of arrival, so what comes later by event time may have come earlier.
        self._earliest = list(accumulate((arrival.at for arrival in reversed(came)), min))[::-1]

    def first_beyond(self, reached: float) -> float:
        index = bisect_right(self._reaches, reached)
        return self._earliest[index] if index < len(self._earliest) else math.inf


def streams_above(trace: Trace, table: TraceTable) -> list[TraceTable]:
    """The streams that a table is computed from, directly or not; a stream is its own."""
    by_name = {other.name: other for other in trace.tables}
    seen: dict[str, TraceTable] = {}
    todo = [table]
    while todo:
        current = todo.pop()
        if current.name not in seen:
            seen[current.name] = current
            todo += [by_name[source] for source in current.sources if source in by_name]
    return [found for found in seen.values() if found.kind == "stream"]


# --- the whole run ----------------------------------------------------------------------------------------------
# In the units of the simulator's results, so that both can stand side by side. A table counts from when it first had
# rows. Dimensions have no event time and so no staleness; they are left out.


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


@dataclass(frozen=True, slots=True)
class RunBound:
    """A run, or the last ``seconds`` of it, beside a lower bound: what no policy could have beaten.

    ``weighted_staleness`` and the bound, ``least``, are sums over ``tables`` tables of priority times mean staleness.
    ``left_out`` are tables that are in neither: their data is of the past, they had no rows to begin with, or they were
    declared while the run went on. ``price`` is what a second of a track was worth, 0 if tracks were not scarce. With
    ``portions`` the bound holds for updates of any size, without for those that take everything that waits.
    """

    weighted_staleness: float
    least: float
    price: float
    seconds: float
    tracks: int
    portions: bool
    tables: int
    left_out: int

    @property
    def times(self) -> float | None:
        """How many times the bound the run was at, at least 1; None if the bound is 0."""
        return max(1.0, self.weighted_staleness / self.least) if self.least > 0 else None


def measured(trace: Trace, skip: float = 0.0) -> Measured:
    """How stale the tables were, without the first ``skip`` seconds of the run."""
    begin, end = trace.header.started + skip, trace.finish
    length = max(end - begin, 0.0)
    tables = []
    for table in trace.tables:
        if table.kind == "dimension":
            continue
        staleness = FreshnessHistory.of(trace, table).staleness(begin, end)
        ended = [update for update in trace.updates_of(table.name) if begin < update.ended <= end]
        busy = sum(_overlap(u.began, u.ended, begin, end) for u in trace.updates_of(table.name))
        tables.append(
            MeasuredTable(
                name=table.name,
                priority=trace.priority(table, begin),
                mean_staleness=None if staleness is None else staleness.mean,
                max_staleness=None if staleness is None else staleness.max,
                updates=len(ended),
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
