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
#: event times lie in few hours, so that rows share partitions; one is of another day
_HOURS_AGO = (1, 1, 2, 26)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One world from its beginning.

    After ``checkpoint_every`` commits of a table there is a checkpoint; the other numbers that shorten logs follow it.
    """

    seed: int
    declared: Declaration
    events: tuple[e.Event, ...]
    checkpoint_every: int = 50
    tracks: int = 2
    budget: float = 1.0

    def without(self, event: e.Event) -> Schedule:
        return replace(self, events=tuple(each for each in self.events if each is not event))

    def __str__(self) -> str:
        numbers = f"a checkpoint every {self.checkpoint_every}, {self.tracks} tracks, budget {self.budget}"
        lines = [f"seed {self.seed}: {', '.join(self.declared.tables)}; {numbers}"]
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
        past = self.rng.choice(_HOURS_AGO) * 3600 + self.rng.randrange(60) * 60
        bad = self.rng.choice(("garbage", "no time", "future")) if self.rng.random() < 0.1 else ""
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
    """At any step, or at one that writes."""
    kind = draw.rng.choice(("", "write", "commit", "checkpoint", "change"))
    steps = draw.rng.randint(1, 4 if kind else 30)
    return [e.Crash(draw.moment(), steps, how, draw.rng.choice((0.0, 2.0, 8.0)), kind)]  # type: ignore[arg-type]


def _torn(draw: _Draw, kind: str) -> list[e.Event]:
    return [e.Crash(draw.moment(), draw.rng.randint(1, 3), "torn", 2.0, kind)]


def _share_empty(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    """A file may land while the others are away."""
    at, seconds = draw.moment(), draw.rng.choice((0.5, 3.0, 8.0))
    new: list[e.Event] = []
    if draw.rng.random() < 0.5:
        new = [e.Land(round(at + 0.3, 2), "new.json", draw.lines(2))]
    return [e.ShareEmpty(at, seconds), *new]


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


def _log_cleaned(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    """A table fails for so long that it is held; meanwhile its source's log is cleaned up, and the run restarts."""
    table = draw.rng.choice([*draw.tables])
    few = [e.Land(round(i * 1.5, 2), f"a{i}.json", draw.lines(2)) for i in range(6)]
    more = [e.Land(round(13 + i * 1.5, 2), f"m{i}.json", draw.lines(2)) for i in range(7)]
    return [*few, e.QueryFails(3.0, 30.0, table), e.SetClock(12.0, 3 * 86_400.0), *more, e.Restart(27.0)]


def _bad_line_and_commit(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    """A file with a bad line, whose rejected rows are committed, but not its good ones; its owner mends it."""
    at, name = draw.moment(), "mended.json"
    bad = (*draw.lines(2), replace(draw.lines(1)[0], bad="garbage"))
    fault: e.Event = e.CommitsFail(at, 3.0, False, "orders")
    if draw.rng.random() < 0.5:
        fault = e.Crash(at, 1, "after", 4.0, "commit", "__rejected")
    return [e.Land(at, name, bad), fault, e.Land(round(at + 3.0, 2), name, draw.lines(2))]


def _empty_pointer(draw: _Draw, there: Collection[e.Event]) -> list[e.Event]:
    at = draw.moment()
    more = [e.Land(round(at / 5 * i, 2), f"p{i}.json", draw.lines(2)) for i in range(5)]
    return [*more, e.EmptyPointer(at)]


#: every kind of fault, by name
FAULTS: Mapping[str, FaultMaker] = {
    "crash": lambda draw, there: _crash(draw, draw.rng.choice(("before", "after"))),
    "torn write": lambda draw, there: _torn(draw, "write"),
    "torn log entry": lambda draw, there: _torn(draw, "commit"),
    "torn checkpoint": lambda draw, there: _torn(draw, "checkpoint"),
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
    "bad line mended": _bad_line_and_commit,
    "broken file": lambda draw, there: [
        e.LandBroken(draw.moment(), "broken.json.gz", draw.lines(), mended=draw.rng.choice((3.0, 0.0)))
    ],
    "share empty": _share_empty,
    "share missing": lambda draw, there: [e.ShareEmpty(draw.moment(), draw.rng.choice((0.5, 3.0, 8.0)), True)],
    "shops replaced": _shops_replaced,
    "shops deleted": _shops_deleted,
    "clock set forward": lambda draw, there: [e.SetClock(draw.moment(), draw.rng.choice((5.0, 7_200.0, 200_000.0)))],
    "clock set back": lambda draw, there: [e.SetClock(draw.moment(), -draw.rng.choice((2.0, 3_600.0, 86_400.0)))],
    "log cleaned while held": _log_cleaned,
    "table removed": lambda draw, there: [e.RemoveTable(draw.moment(), draw.rng.choice([*draw.tables]))],
    "foreign delete": lambda draw, there: [e.ForeignDelete(draw.moment())],
    "empty pointer": _empty_pointer,
    "redeclared": lambda draw, there: [e.Redeclare(draw.moment(), Declaration(draw.tables, draw.rng.choice((20, 80))))],
    "redeclared wrongly": lambda draw, there: [e.Redeclare(draw.moment(), Declaration(draw.tables, wrong=True))],
    "paused": lambda draw, there: [e.Pause(draw.moment(), 5.0, draw.rng.choice((*draw.tables, "orders")))],
    "backfilled": lambda draw, there: [e.Backfill(draw.moment(), draw.rng.choice([*draw.tables]))],
}


#: kinds of faults for which a table must be there
_NEEDED = {"shops replaced": "by_region", "shops deleted": "by_region"}
#: kinds of faults for which there must be checkpoints, also in a short log
_NEED_CHECKPOINTS = {"torn checkpoint", "empty pointer", "log cleaned while held"}


def random_schedule(seed: int, faults: Collection[str]) -> Schedule:
    """The schedule of a seed, with some of these kinds of faults."""
    rng = random.Random(seed)
    names = sorted(set(faults))
    chosen = rng.choices(names, k=rng.randint(1, 4)) if names else []
    needed = [_NEEDED[name] for name in chosen if name in _NEEDED]
    tables = with_sources([*rng.sample(DERIVED, rng.choice((1, 1, 2, 3))), *needed])
    draw = _Draw(seed, tables)
    events: list[e.Event] = [
        e.Land(draw.moment(), f"f{draw.rng.randrange(100):02}-{i}.json", draw.lines())
        for i in range(draw.rng.randint(2, 5))
    ]
    if "by_region" in tables:
        events += [e.LandShops(draw.moment(), name, draw.shops()) for name in ("s1.json", "s2.json")]
    for name in chosen:
        events += FAULTS[name](draw, tuple(events))
    often = rng.random() < 0.5 or not _NEED_CHECKPOINTS.isdisjoint(chosen)
    events.sort(key=lambda event: event.at)
    tracks, budget = rng.choice((1, 2, 3)), rng.choice((1.0, 0.01))
    return Schedule(seed, Declaration(tables), tuple(events), 2 if often else 50, tracks, budget)
