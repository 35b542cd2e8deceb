"""Virtual time: what every simulator here runs on.

* ``EventQueue`` is the clock and the events to come. Events at the same moment happen by rank, then in the order in
  which they were scheduled, so a run can be repeated exactly.
* Arrival patterns say when tuples come to a source from outside, and how many at a time. A pattern is frozen data;
  ``moments`` turns it into (seconds since the source began, tuples) pairs in order of time. Moments are worked out from
  a running number and not by adding up gaps, so that rates hold over millions of tuples. Only ``PoissonArrivals`` and
  an unstated ``offset`` use chance, and that is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, pairwise
from random import Random
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from headgate.core import ScenarioError

# --- the event queue --------------------------------------------------------------------------------------------

#: seconds, or whole nanoseconds
Time = TypeVar("Time", int, float)


class Rank:
    """What comes first at one moment. Plain numbers: members of an enumeration are slow to look up."""

    CHANGE: Final = 0
    WORK: Final = 1
    ARRIVAL: Final = 2
    SAMPLE: Final = 3


class EventQueue(Generic[Time]):
    """Events in order of time, and the clock: ``now`` is the moment of the last event, and only moves forward.

    An event is a function that is called with an argument of its own and the time.
    """

    __slots__ = ("_entries", "_scheduled", "now")

    def __init__(self, start: Time) -> None:
        self.now: Time = start
        self._entries: list[tuple[Time, int, int, Callable[[Any, Time], None], Any]] = []
        self._scheduled = 0

    def __len__(self) -> int:
        """How many events are to come."""
        return len(self._entries)

    def at(self, time: Time, rank: int, action: Callable[[Any, Time], None], argument: object = None) -> None:
        """Call ``action(argument, time)`` at ``time``, which must not have passed."""
        self._scheduled += 1
        heappush(self._entries, (time, rank, self._scheduled, action, argument))

    def next_time(self) -> float:
        """When something happens next; infinity if nothing does."""
        return self._entries[0][0] if self._entries else math.inf

    def run_next(self, until: float = math.inf) -> Time | None:
        """Go to the next event and let it happen. Returns its time, or None if there is none up to ``until``."""
        entries = self._entries
        if not entries or entries[0][0] > until:
            return None
        now, _, _, action, argument = heappop(entries)
        self.now = now
        action(argument, now)
        return now

    def run_moment(self) -> Time:
        """Go to the next moment and let everything happen, also what is scheduled meanwhile for that moment.

        There must be one.
        """
        entries = self._entries
        self.now = now = entries[0][0]
        while entries and entries[0][0] == now:
            _, _, _, action, argument = heappop(entries)
            action(argument, now)
        return now


# --- arrivals ---------------------------------------------------------------------------------------------------

#: (seconds since the source began, tuples)
Moment = tuple[float, int]


def first_moment(offset: float | None, period: float, chance: Random) -> float:
    """``offset`` if it is stated, else a random moment of the first period."""
    return chance.random() * period if offset is None else offset


def periodic(first: float, period: float) -> Iterator[float]:
    """``first`` and every ``period`` seconds after it."""
    return (first + number * period for number in count())


class ArrivalPattern(Protocol):
    """When tuples come to a source."""

    @property
    def mean_rate(self) -> float:
        """Tuples per second in the long run; 0 if tuples stop coming."""

    @property
    def period(self) -> float:
        """Mean seconds between two moments at which tuples come."""

    @property
    def endless(self) -> bool:
        """True if tuples never stop coming."""

    def moments(self, chance: Random) -> Iterator[Moment]:
        """The moments at which tuples come, in order."""


@dataclass(frozen=True, slots=True)
class _SteadyArrivals:
    """Patterns whose rate does not change in the long run."""

    rate: float
    endless: ClassVar[bool] = True

    @property
    def mean_rate(self) -> float:
        return self.rate


@dataclass(frozen=True, slots=True)
class ConstantArrivals(_SteadyArrivals):
    """``batch`` tuples every ``batch / rate`` seconds, first at ``offset``, by default at a random moment of the
    first gap."""

    batch: int = 1
    offset: float | None = None

    def __post_init__(self) -> None:
        _require_positive("constant arrivals", rate=self.rate, batch=self.batch)
        _require_offset("constant arrivals", self.offset)

    @property
    def period(self) -> float:
        return self.batch / self.rate

    def moments(self, chance: Random) -> Iterator[Moment]:
        first = first_moment(self.offset, self.period, chance)
        return ((first + number * self.batch / self.rate, self.batch) for number in count())


@dataclass(frozen=True, slots=True)
class BatchArrivals(_SteadyArrivals):
    """What comes in ``every`` seconds at ``rate`` comes all at once (EdgeWise's spout: every 100 ms)."""

    every: float = 0.1
    offset: float | None = None

    def __post_init__(self) -> None:
        _require_positive("arrivals in batches", rate=self.rate, every=self.every)
        _require_offset("arrivals in batches", self.offset)

    @property
    def period(self) -> float:
        return self.every

    def moments(self, chance: Random) -> Iterator[Moment]:
        before = 0
        moments = periodic(first_moment(self.offset, self.every, chance), self.every)
        for number, moment in enumerate(moments, 1):
            due = math.floor(number * self.rate * self.every + 1e-9)
            if due > before:
                yield moment, due - before
            before = due


@dataclass(frozen=True, slots=True)
class PoissonArrivals(_SteadyArrivals):
    """Independent arrivals: exponential gaps of ``batch / rate`` seconds in the mean, ``batch`` tuples each."""

    batch: int = 1

    def __post_init__(self) -> None:
        _require_positive("Poisson arrivals", rate=self.rate, batch=self.batch)

    @property
    def period(self) -> float:
        return self.batch / self.rate

    def moments(self, chance: Random) -> Iterator[Moment]:
        per_second = self.rate / self.batch
        now = 0.0
        while True:
            now += chance.expovariate(per_second)
            yield now, self.batch


@dataclass(frozen=True, slots=True)
class BurstyArrivals:
    """``rate`` tuples a second for ``on`` seconds, then ``base`` tuples a second for ``off`` seconds, and again."""

    rate: float
    on: float
    off: float
    base: float = 0.0
    batch: int = 1
    offset: float = 0.0
    endless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_positive("bursty arrivals", rate=self.rate, on=self.on, off=self.off, batch=self.batch)
        _require_offset("bursty arrivals", self.offset)
        if not 0 <= self.base < math.inf:
            raise ScenarioError(f"bursty arrivals take a base rate of at least 0; got {self.base}")

    @property
    def mean_rate(self) -> float:
        return (self.rate * self.on + self.base * self.off) / (self.on + self.off)

    @property
    def period(self) -> float:
        return self.batch / self.mean_rate

    def moments(self, chance: Random) -> Iterator[Moment]:
        for number in count():
            start = self.offset + number * (self.on + self.off)
            yield from self._phase(start, self.rate, self.on)
            yield from self._phase(start + self.on, self.base, self.off)

    def _phase(self, start: float, rate: float, length: float) -> Iterator[Moment]:
        moments = math.ceil(length * rate / self.batch - 1e-9)
        return ((start + number * self.batch / rate, self.batch) for number in range(moments))


@dataclass(frozen=True, slots=True)
class RecordedArrivals:
    """Tuples at the given times, in seconds; a time given twice brings two tuples."""

    times: tuple[float, ...]
    endless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.times or not self.times[0] >= 0 or not self.times[-1] < math.inf:
            raise ScenarioError("replayed arrivals take a list of times of at least 0 seconds, with at least one entry")
        if any(later < earlier for earlier, later in pairwise(self.times)):
            raise ScenarioError("replayed arrivals must be in order of time: sort the list")

    @property
    def mean_rate(self) -> float:
        """Over the time that the list covers."""
        return 1 / self.period

    @property
    def period(self) -> float:
        span = self.times[-1] - self.times[0]
        return span / (len(self.times) - 1) if span > 0 else 1.0

    def moments(self, chance: Random) -> Iterator[Moment]:
        return ((time, 1) for time in self.times)


def _require_positive(what: str, **values: float) -> None:
    for key, value in values.items():
        if not 0 < value < math.inf:
            raise ScenarioError(f"{what} take a {key} of more than 0; got {value}")


def _require_offset(what: str, offset: float | None) -> None:
    if offset is not None and not 0 <= offset < math.inf:
        raise ScenarioError(f"{what} take an offset of at least 0 seconds; got {offset}")
