"""What comes to the streams of a recorded run: what was loaded, what waited to be, and what nobody has recorded.

A trace says when data came that was loaded, and now and then what waits. What came after both is not in it. What came
when also tells which event times a table took in that hold next to no data.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headgate.core import ScenarioError
from headgate.core.trace import FreshnessHistory, StreamArrival, Trace, TraceTable, arrivals, never_loaded
from headgate.core.trace.measures import MICROS, streams_above

#: how much more may have come to a stream after what was recorded
_MOST_UNRECORDED = 1_000_000
#: what waits counts as so many arrivals at most
_MOST_WAITING = 1_000
#: a stream that got data within so many of its intervals is taken to get more
_STILL_FLOWS = 2.0
#: event time is mostly without data if what came in it is worth less than this share of it
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class StreamData:
    """What came to a stream. ``recorded`` was loaded or waited, as far as the trace tells of it, by event time.

    ``made_up`` is what is taken to have come after that, over ``seconds`` seconds. ``is_known`` is false if nothing is
    made up, although nobody knows whether something came.
    """

    recorded: tuple[StreamArrival, ...]
    made_up: tuple[StreamArrival, ...] = ()
    seconds: float = 0.0
    is_known: bool = True


def data_of(trace: Trace, stream: TraceTable) -> StreamData:
    """What came to a stream, and when it could be loaded: a stream that flowed as long as something is known of it is
    taken to flow on."""
    came, later = _came(trace, stream), _settling(trace, stream)
    recorded, made_up = (
        tuple(replace(arrival, at=arrival.at + later) for arrival in arrivals)
        for arrivals in (came.recorded, came.made_up)
    )
    return replace(came, recorded=recorded, made_up=made_up)


def _settling(trace: Trace, stream: TraceTable) -> float:
    """How long after it came the data of a stream could be loaded at the earliest: files may have to settle first."""
    waits = (update.released - update.arrived[0] for update in trace.updates_of(stream.name) if update.arrived)
    return max(0.0, min(waits, default=0.0))


def _came(trace: Trace, stream: TraceTable) -> StreamData:
    loaded = [arrival for arrival in arrivals(trace, stream) if arrival.reaches < math.inf]
    recorded = (*loaded, *_waiting(trace, stream, loaded))
    period = statistics.median(b.at - a.at for a, b in pairwise(loaded[-16:])) if len(loaded) > 1 else 0.0
    until, is_told = _known_until(trace, stream)
    if period <= 0 or until - recorded[-1].at > _STILL_FLOWS * period:
        return StreamData(recorded, is_known=is_told)
    made_up = tuple(_flowing_on(trace, stream, recorded[-1], period, until))
    return StreamData(recorded, made_up, max(0.0, trace.finish - until))


def _waiting(trace: Trace, stream: TraceTable, loaded: Sequence[StreamArrival]) -> Iterator[StreamArrival]:
    """What waited in the end. Its event times are not known: they are taken to be as close to its arrival as any was.

    So a bound for it is rather too low than too high.
    """
    waits = never_loaded(trace, stream)
    if waits is None:
        return
    first, last, chunks = waits
    delay = min((arrival.at - arrival.reaches for arrival in loaded), default=0.0)
    count = max(1, min(chunks, _MOST_WAITING))
    gap = (last - first) / max(1, count - 1)
    ahead = gap if chunks > _MOST_WAITING else 0.0
    for number in range(count):
        at = last if count == 1 else first + gap * number
        yield StreamArrival(first if count == 1 else at, min(at + ahead, last) - delay)


def _known_until(trace: Trace, stream: TraceTable) -> tuple[float, bool]:
    """Until when it is known what came to a stream, and whether the trace says what waited for it."""
    loads = trace.updates_of(stream.name)
    until = loads[-1].began if loads else trace.begin_of(stream)
    told = trace.not_loaded
    if told is None or stream.name in told.unknown:
        return until, False
    # While a stream is loaded, nobody looks at its source.
    was_loaded = any(load.began <= told.at < load.ended for load in loads[-1:])
    return (until if was_loaded else max(until, told.at)), True


def _flowing_on(
    trace: Trace, stream: TraceTable, last: StreamArrival, period: float, until: float
) -> Iterator[StreamArrival]:
    more = (trace.finish - last.at) / period
    if more > _MOST_UNRECORDED:
        raise ScenarioError(
            f"the stream {stream.name!r} got data every {period:.3g} s and would have got it {more:.3g} times more"
            f" until the end of the run; at most {_MOST_UNRECORDED:,} arrivals are made up"
        )
    for number in range(1, math.floor(more) + 1):
        if last.at + number * period > until:
            yield StreamArrival(last.at + number * period, last.reaches + number * period)


@dataclass(frozen=True, slots=True)
class StreamPace:
    """The event times that a stream reached with each chunk, in order, and how far apart chunks came in the run."""

    reaches: tuple[float, ...]
    interval: float

    @classmethod
    def of(cls, trace: Trace, data: StreamData) -> StreamPace:
        began = trace.header.started
        times = [arrival.at for arrival in data.recorded if arrival.at >= began]
        interval = (max(times) - began) / len(times) if times else 0.0
        return cls(tuple(sorted(arrival.reaches for arrival in data.recorded)), interval)

    def data_in(self, begin: float, end: float) -> float:
        """How many seconds of data came with event times up to ``end`` and beyond ``begin``."""
        return self.interval * (bisect_right(self.reaches, end) - bisect_right(self.reaches, begin))


def mostly_empty(
    trace: Trace, table: TraceTable, history: FreshnessHistory, paces: Mapping[str, StreamPace]
) -> Iterator[tuple[float, float]]:
    """The event times, mostly without data, that single updates of a table took in: from where and up to where.

    Such is the time after one very late row, or that in which a source was silent. ``paces`` are those of all streams.
    """
    came = [paces[stream.name] for stream in streams_above(trace, table) if stream.name in paces]
    reached = list(history.reached)
    first = next((update for update in trace.updates_of(table.name) if update.freshness is not None), None)
    if table.freshness is None and first is not None and first.freshness is not None:
        reached.insert(0, first.freshness / MICROS - first.gained)
    for begin, end in pairwise(reached):
        if max((pace.data_in(begin, end) for pace in came), default=0.0) < _MOSTLY * (end - begin):
            yield begin, end


def unknown_tables(trace: Trace, streams: Mapping[str, StreamData]) -> tuple[str, ...]:
    """Tables of which nobody knows whether they could have been fresher.

    They are streams whose latest data may have come and not been loaded, and all that is computed from these.
    """
    tables = trace.header.tables
    found = {name for name, data in streams.items() if not data.is_known}
    while more := {each.name for each in tables if found.intersection(each.sources)} - found:
        found |= more
    return tuple(each.name for each in tables if each.name in found)
