"""A seeded schedule: what is declared, what lands, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tests.world import events as e
from tests.world.clock import START
from tests.world.spark import MICROS
from tests.world.tables import DERIVED, Declaration, with_sources

SHOPS = ("a", "b", "c")
#: files land, and faults begin, within so many seconds
BUSY = 20.0
_HOURS = 30


@dataclass(frozen=True, slots=True)
class Schedule:
    """One world from its beginning. ``checkpoint_every`` commits of a table there is a checkpoint; ``kept`` are the
    log entries that are kept however old they are."""

    seed: int
    declared: Declaration
    events: tuple[e.Event, ...]
    checkpoint_every: int = 50
    kept: int = 200

    def without(self, event: e.Event) -> Schedule:
        return replace(self, events=tuple(each for each in self.events if each is not event))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {', '.join(self.declared.tables)}; a checkpoint every {self.checkpoint_every}"]
        return "\n".join([*lines, *(f"    {event}" for event in self.events)])


class _Draw:
    """Draws the events of one schedule."""

    def __init__(self, seed: int, tables: tuple[str, ...]) -> None:
        self.rng = random.Random(seed)
        self.tables = tables
        self._numbers = 0

    def moment(self) -> float:
        return round(self.rng.uniform(0.0, BUSY), 2)

    def lines(self, most: int = 4) -> tuple[e.Line, ...]:
        return tuple(self._line() for _ in range(self.rng.randint(1, most)))

    def _line(self) -> e.Line:
        self._numbers += 1
        past = self.rng.randrange(_HOURS * 60) * 60
        bad = self.rng.choice(("garbage", "no time")) if self.rng.random() < 0.1 else ""
        return e.Line(
            self._numbers,
            (round(START) - past) * MICROS,
            self.rng.choice(SHOPS),
            self.rng.randrange(100),
            bad,  # type: ignore[arg-type]
        )

    def shops(self) -> tuple[tuple[str, str], ...]:
        chosen = self.rng.sample(SHOPS, self.rng.randint(1, 2))
        return tuple((shop, self.rng.choice(("north", "south"))) for shop in chosen)

    def landed(self, events: Collection[e.Event]) -> e.Land:
        return self.rng.choice([event for event in events if isinstance(event, e.Land)])


#: draws some events of one kind, given those that there are already
FaultMaker = Callable[[_Draw, Collection[e.Event]], list[e.Event]]


def _crash(draw: _Draw, how: str) -> list[e.Event]:
    steps = draw.rng.randint(1, 30)
    return [e.Crash(draw.moment(), steps, how, draw.rng.choice((0.0, 2.0, 8.0)))]  # type: ignore[arg-type]


def _replaced(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    landed = draw.landed(there)
    return [e.Land(round(landed.at + draw.rng.choice((0.1, 0.6, 1.5, 6.0)), 2), landed.name, draw.lines())]


def _deleted(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    landed = draw.landed(there)
    return [e.Delete(round(landed.at + draw.rng.choice((0.2, 1.0, 5.0, 15.0)), 2), landed.name)]


def _shops_replaced(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    landed = [event for event in there if isinstance(event, e.LandShops)]
    if not landed:
        return []
    one = draw.rng.choice(landed)
    return [e.LandShops(round(one.at + draw.rng.uniform(3.0, 15.0), 2), one.name, draw.shops())]


def _shops_deleted(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    landed = {event.name for event in there if isinstance(event, e.LandShops)}
    return [e.LandShops(BUSY + 2.0, name, ()) for name in sorted(landed)]


def _clock_and_logs(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    """A table fails for so long that it is held; meanwhile its source's log is cleaned up, and the run restarts."""
    table = draw.rng.choice([*draw.tables])
    more = [e.Land(round(14 + i * 1.5, 2), f"m{i}.json", draw.lines(1)) for i in range(4)]
    return [e.QueryFails(2.0, 26.0, table), e.SetClock(8.0, 3 * 86_400.0), *more, e.Restart(24.0)]


def _bad_line_and_commit(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    """A file with a bad line, while commits fail or the process dies; its owner mends it."""
    at, name = draw.moment(), "mended.json"
    bad = (*draw.lines(2), replace(draw.lines(1)[0], bad="garbage"))
    fault: e.Event = e.CommitsFail(at, 3.0)
    if draw.rng.random() < 0.5:
        fault = e.Crash(round(at + 0.6, 2), draw.rng.randint(4, 12), "after")
    return [e.Land(at, name, bad), fault, e.Land(round(at + 4.0, 2), name, draw.lines(2))]


#: every kind of fault, by name
FAULTS: Mapping[str, FaultMaker] = {
    "crash": lambda draw, there: _crash(draw, draw.rng.choice(("before", "after"))),
    "torn write": lambda draw, there: _crash(draw, "torn"),
    "power cut": lambda draw, there: [e.PowerCut(draw.moment(), draw.rng.randint(1, 30))],
    "restart": lambda draw, there: [e.Restart(draw.moment())],
    "disk full": lambda draw, there: [e.DiskFull(draw.moment(), draw.rng.choice((1.0, 4.0)))],
    "disk full for long": lambda draw, there: [e.DiskFull(draw.moment(), 40.0)],
    "spark fails": lambda draw, there: [e.SparkFails(draw.moment(), draw.rng.choice((1.0, 4.0)))],
    "commits fail": lambda draw, there: [e.CommitsFail(draw.moment(), draw.rng.choice((0.5, 3.0)))],
    "answers are lost": lambda draw, there: [e.CommitsFail(draw.moment(), draw.rng.choice((0.5, 3.0)), True)],
    "slow": lambda draw, there: [e.Slow(draw.moment(), 5.0, draw.rng.choice((0.1, 1.0)))],
    "query fails": lambda draw, there: [e.QueryFails(draw.moment(), 4.0, draw.rng.choice([*draw.tables]))],
    "file replaced": _replaced,
    "file deleted": _deleted,
    "written in place": lambda draw, there: [e.LandSlowly(draw.moment(), "slow.json", draw.lines())],
    "bad line, then mended": _bad_line_and_commit,
    "broken file": lambda draw, there: [
        e.LandBroken(draw.moment(), "broken.json.gz", draw.lines(), mended=draw.rng.choice((3.0, 0.0)))
    ],
    "share empty": lambda draw, there: [e.ShareEmpty(draw.moment(), draw.rng.choice((0.5, 3.0, 8.0)))],
    "share missing": lambda draw, there: [e.ShareEmpty(draw.moment(), draw.rng.choice((0.5, 3.0, 8.0)), True)],
    "shops replaced": _shops_replaced,
    "shops deleted": _shops_deleted,
    "clock set forward": lambda draw, there: [e.SetClock(draw.moment(), draw.rng.choice((5.0, 7_200.0, 200_000.0)))],
    "clock set back": lambda draw, there: [e.SetClock(draw.moment(), -draw.rng.choice((2.0, 3_600.0, 86_400.0)))],
    "log cleaned while held": _clock_and_logs,
    "table removed": lambda draw, there: [e.RemoveTable(draw.moment(), draw.rng.choice([*draw.tables]))],
    "foreign delete": lambda draw, there: [e.ForeignDelete(draw.moment())],
    "empty pointer": lambda draw, there: [e.EmptyPointer(draw.moment())],
    "redeclared": lambda draw, there: [
        e.Redeclare(draw.moment(), Declaration(draw.tables, draw.rng.choice((20, 80))))
    ],
}


def random_schedule(seed: int, faults: Collection[str]) -> Schedule:
    """The schedule of a seed, with some of these kinds of faults."""
    first = random.Random(seed)
    tables = with_sources(first.sample(DERIVED, first.choice((1, 1, 2, 3))))
    draw = _Draw(seed, tables)
    events: list[e.Event] = [
        e.Land(draw.moment(), f"f{draw.rng.randrange(100):02}-{i}.json", draw.lines())
        for i in range(draw.rng.randint(2, 5))
    ]
    if "by_region" in tables:
        events += [e.LandShops(draw.moment(), name, draw.shops()) for name in ("s1.json", "s2.json")]
    names = sorted(set(faults))
    for name in draw.rng.choices(names, k=draw.rng.randint(1, 4)) if names else ():
        events += FAULTS[name](draw, tuple(events))
    often = draw.rng.random() < 0.5 or "empty pointer" in faults or "log cleaned while held" in faults
    events.sort(key=lambda event: event.at)
    return Schedule(seed, Declaration(tables), tuple(events), *((3, 2) if often else (50, 200)))
