"""What happens to a random pipeline, as plain data that follows from a seed: arrivals, and any order of scheduling.

Files come late and out of order, with bad lines and without any; updates are begun, run and ended one by one with other
things in between, fail, or are forgotten because the process died; tables are compacted, rolled up and computed again.

Every event is possible at any time or does nothing, so a scenario is still one when events are left out of it: that is
how a failure is made smaller.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.warehouse.pipelines import Pipeline, random_pipeline

#: shortly before midnight, so that days end, too
START = datetime(2026, 3, 1, 20, tzinfo=UTC)


def since_epoch(moment: datetime) -> int:
    """A moment in microseconds."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def micros(minutes: float) -> int:
    """The event time so many minutes from START."""
    return since_epoch(START + timedelta(minutes=minutes))


# --- events --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a file, and the row that is in it: (ts in microseconds, key, n), or None in a bad or blank line."""

    text: str
    row: tuple[int, str | None, int] | None = None


@dataclass(frozen=True)
class Arrive:
    """A file comes to a stream."""

    stream: str
    file: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Replace:
    """A file of a dimension comes, or comes anew: {key: (label, weight)}."""

    dimension: str
    file: str
    labels: Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class Begin:
    """An update of a table, or a chunk of its backfill, is begun."""

    table: str
    most_seconds: float = math.inf
    backfill: bool = False


@dataclass(frozen=True)
class Run:
    """What was begun runs and commits; it may die just before the commit, or just after, so that nobody is told."""

    table: str
    dies: str | None = None


@dataclass(frozen=True)
class End:
    """The node is told how it went: what did not run, or died, has failed."""

    table: str


@dataclass(frozen=True)
class Again:
    """Somebody wants a part of a table computed again: minutes from START."""

    table: str
    first: float
    last: float


@dataclass(frozen=True)
class Upkeep:
    """``what`` is compact, vacuum or roll_up: so many partitions to one, up to so many minutes from START."""

    table: str
    what: str
    partitions: int = 0
    until: float = 0.0


@dataclass(frozen=True)
class Reopen:
    """The process dies and is started again."""


Event = Arrive | Replace | Begin | Run | End | Again | Upkeep | Reopen


@dataclass(frozen=True)
class Scenario:
    pipeline: Pipeline
    steps: tuple[tuple[Event, ...], ...]


# --- chance --------------------------------------------------------------------------------------------------


def random_scenario(seed: int) -> Scenario:
    chance = random.Random(seed)
    pipeline = random_pipeline(chance)
    author = _Author(chance, pipeline)
    return Scenario(pipeline, tuple(author.step() for _ in range(chance.choice((3, 4, 5)))))


class _Author:
    """Makes up one step after another. ``_clocks`` are how far the streams have come, in minutes from START."""

    def __init__(self, chance: random.Random, pipeline: Pipeline) -> None:
        self._chance = chance
        self._pipeline = pipeline
        self._clocks = {stream.name: chance.uniform(0, 60) for stream in pipeline.streams}
        self._files = 0

    def step(self) -> tuple[Event, ...]:
        """Sequences of events, mixed: each keeps its order, and half of them are left in one piece.

        Arrivals tend to come before loading and loading before computing, so that there is something to do.
        """
        chance = self._chance
        kinds = (self._arrivals(), self._loads(), self._updates())
        ranked = [(chance.random() + rank / 2, sequence) for rank, kind in enumerate(kinds) for sequence in kind]
        ranked += [(chance.uniform(0, 2), sequence) for sequence in self._oddities()]
        mixed: list[Event] = []
        for _, sequence in sorted(ranked, key=lambda pair: pair[0]):
            if chance.random() < 0.5:
                mixed.extend(sequence)
                continue
            position = len(mixed) // 2
            for event in sequence:
                position = chance.randint(position, len(mixed))
                mixed.insert(position, event)
                position += 1
        return tuple(mixed)

    # --- what comes -----------------------------------------------------------------------------------------

    def _arrivals(self) -> Iterator[list[Event]]:
        for stream in self._pipeline.streams:
            for _ in range(self._chance.choice((0, 1, 1, 2))):
                yield [self._arrival(stream.name)]
        if self._pipeline.dimension is not None and self._chance.random() < 0.6:
            yield [self._arrival(self._pipeline.dimension)]

    def _arrival(self, name: str) -> Event:
        chance = self._chance
        if name == self._pipeline.dimension:
            known = chance.sample("abc", chance.choice((1, 2, 3)))
            labels = {key: (chance.choice("xyz"), chance.randint(1, 3)) for key in known}
            return Replace(name, chance.choice(("first", "first", "second")), labels)
        self._clocks[name] += chance.choice((0.5, 5, 20, 20, 100))
        self._files += 1
        # the order of the names is not the order of their coming
        file = f"{chance.randrange(1000):03}-{self._files}"
        return Arrive(name, file, tuple(self._lines(self._clocks[name])))

    def _lines(self, clock: float) -> Iterator[Line]:
        chance = self._chance
        flood = chance.random() < 0.1
        for _ in range(20 if flood else chance.choice((0, 1, 3, 3, 6))):
            kind = chance.random()
            if kind < 0.05:
                yield Line(chance.choice(('{"ts": "2026-03-01T2', '{"ts": "soon", "key": "a", "n": 1}', "[]", "")))
            elif kind < 0.1:
                yield Line(chance.choice(('{"key": "a", "n": 1}', '{"ts": null, "key": "b", "n": 2}')))
            else:
                yield self._row(START + timedelta(minutes=self._minute(clock, flood)))

    def _minute(self, clock: float, flood: bool) -> float:
        kind = self._chance.random()
        if flood or kind < 0.15:
            return self._chance.uniform(0, clock)
        if kind < 0.17:
            return clock - self._chance.uniform(0, 4000)
        if kind < 0.175:
            return clock + self._chance.uniform(0, 2000)
        return clock - self._chance.uniform(0, 6)

    def _row(self, moment: datetime) -> Line:
        edge = self._chance.random()
        if edge < 0.3:  # the first or the last moment of a minute, or of an hour
            moment = moment.replace(second=0, microsecond=0, minute=moment.minute if edge < 0.2 else 0)
            moment -= timedelta(microseconds=1 if edge < 0.1 else 0)
        key = self._chance.choice(("a", "a", "b", "b", "c", None))
        n = self._chance.randint(0, 9)
        text = json.dumps({"ts": moment.isoformat(), "n": n} | ({} if key is None else {"key": key}))
        return Line(text, (since_epoch(moment), key, n))

    # --- what is done ---------------------------------------------------------------------------------------

    def _loads(self) -> Iterator[list[Event]]:
        for name in (*(stream.name for stream in self._pipeline.streams), self._pipeline.dimension):
            if name is not None and self._chance.random() < 0.8:
                yield self._update(Begin(name))

    def _updates(self) -> Iterator[list[Event]]:
        chance = self._chance
        lengths = (math.inf, math.inf, 60.0, 1200.0, 7200.0)
        for table in self._pipeline.tables:
            if chance.random() < 0.8:
                meanwhile = self._news(chance.choice(table.all_sources)) if chance.random() < 0.3 else ()
                yield self._update(Begin(table.name, chance.choice(lengths)), meanwhile)
            if chance.random() < 0.3:
                yield self._update(Begin(table.name, chance.choice(lengths), backfill=True))

    def _news(self, name: str) -> list[Event]:
        """A table is updated, one that is loaded from files with a new one."""
        is_derived = any(table.name == name for table in self._pipeline.tables)
        return [*(() if is_derived else (self._arrival(name),)), *self._update(Begin(name))]

    def _update(self, begin: Begin, meanwhile: Sequence[Event] = ()) -> list[Event]:
        name, fate = begin.table, self._chance.random()
        if fate < 0.05:
            return [begin, *meanwhile, End(name)]
        if fate < 0.1:
            return [begin, *meanwhile, Run(name, dies="before the commit"), End(name)]
        if fate < 0.13:
            return [begin, *meanwhile, Run(name, dies="after the commit"), End(name)]
        if fate < 0.16:
            return [begin, *meanwhile, Run(name), Reopen()]
        return [begin, *meanwhile, Run(name), End(name)]

    def _oddities(self) -> Iterator[list[Event]]:
        chance, clock = self._chance, max(self._clocks.values())
        derived = [table.name for table in self._pipeline.tables]
        if chance.random() < 0.3:
            yield [Reopen()]
        for _ in range(2):
            if chance.random() < 0.4:
                first = chance.uniform(-30, clock)
                again = Again(chance.choice(derived), first, chance.uniform(first, clock))
                yield [again, *self._update(Begin(again.table, backfill=True))]
            if chance.random() < 0.3:
                what = chance.choice(("compact", "roll_up", "roll_up", "vacuum"))
                table = chance.choice([*derived, *self._clocks])
                yield [Upkeep(table, what, chance.choice((2, 6, 24)), chance.uniform(0, clock + 60))]
