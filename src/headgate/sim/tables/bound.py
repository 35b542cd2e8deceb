"""A lower bound on weighted staleness: no policy and no placement can do better, on as many tracks.

Give a second of a track a price. At every moment at most M updates run, so for every price of at least 0

    sum p S  >=  sum over tables of least [p S + price * share of time at work]  -  M * price

where the least is over all that a table could do if it were alone (weak duality). Each table is solved by itself, by
dynamic programming over its arrivals (``alone``), and the price that gives the most is searched. The bound is for a run
of stated length, with its beginning and its end.

What it relies on:
* An update of n seconds of data takes alpha + beta n, times chance and slowness. Where execution times vary, the mean
  over all runs is bounded: nobody knows how long an update will take before it begins. ``certain`` counts every update
  as quick as it can be, and so holds for every single run.
* A derived table can use data only after its sources, at the earliest when all their updates were as quick as can be.
* A derived table has data later than any of its sources, by its own update. So a part of its weight may be given to a
  source (``_holdings``): the staleness of the source then counts with that weight, plus the time of updates between.
* What a recorded run did was possible, whatever costs are fitted to it: no table costs more than it did (``done``).
* If updates can be cut (``portions``), data shows no earlier than the best way to cut it allows (``cut``). Slow periods
  then count in the second bound only (``fluid``).
* Slow periods are not counted if they act on running updates (``Slowdown.throughout``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.core import Floats, ScenarioError
from headgate.sim.tables.alone import Alone, Past, Steps, cheapest, nodes
from headgate.sim.tables.fluid import FluidBound, FluidTable
from headgate.sim.tables.reachable import reachable
from headgate.sim.tables.replay import RecordedTable
from headgate.sim.tables.scenario import Slowdown, TableScenario

#: slow periods, once for each table; more take too long, and then none is counted
MOST_CYCLES = 100_000
#: tables, each with all those that get their data through it; with more, the second bound takes minutes
MOST_PASSED_ON = 2_500
#: the search for the price ends when at most this share could still be gained
_GAIN = 5e-4
_MOST_PRICES = 40
_SWEEPS = 8
#: how often the height of a price that changes is improved, and how many steps it may have
_MOST_HEIGHTS = 12
_MOST_STEPS = 800


@dataclass(frozen=True, slots=True)
class RecordedWork:
    """What a table did in a recorded run: its mean staleness, and when its updates began and ended, in order.

    A table that was empty at first has a mean staleness since it had rows.
    """

    staleness: float
    began: tuple[float, ...] = ()
    ended: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What no policy can beat over a run of ``seconds`` seconds.

    ``weighted_staleness`` is the bound. ``price`` is what a second of a track is worth at it on the mean, in weighted
    staleness: 0 if tracks are not scarce. ``on_average`` if it bounds the mean over all runs instead of every single
    run. ``portions`` if it also holds for policies that cut updates.
    """

    weighted_staleness: float
    price: float
    seconds: float
    tracks: int
    on_average: bool
    portions: bool


def lower_bound(
    scenario: TableScenario,
    seconds: float | None = None,
    *,
    seed: int = 0,
    portions: bool | None = None,
    certain: bool = False,
    recorded: Sequence[RecordedTable] | None = None,
    done: Sequence[RecordedWork | None] | None = None,
) -> LowerBound:
    """The bound for a run of the scenario that lasts ``seconds``, by default its horizon; ``seed`` is of its arrivals.

    ``portions`` is whether updates may be cut: by default if the scenario has a chop or a budget. State it for a policy
    that cuts updates itself (``Policy.cuts``). ``certain`` makes it hold for every run, not only for the mean, if
    execution times vary. ``recorded`` is what a trace says of each table, and ``done`` what each did in it: then the
    recorded run is not below the bound either, if there were never more updates at a time than tracks.
    """
    length = scenario.horizon if seconds is None else seconds
    if not 0 < length < math.inf:
        raise ScenarioError(
            f"a bound is for a run of a certain length, and scenario {scenario.name!r} has no horizon: state one, or"
            " the seconds of the run"
        )
    scenario = replace(scenario.at_best(), slowdown=_counted(scenario, length))
    cut = scenario.cuts if portions is None else portions
    problem = _Problem(scenario, length, seed, cut, certain, recorded, done)
    value, price = problem.best()
    return LowerBound(
        weighted_staleness=max(0.0, value),
        price=price,
        seconds=length,
        tracks=scenario.tracks,
        on_average=scenario.spread is not None and not certain,
        portions=cut,
    )


def _counted(scenario: TableScenario, length: float) -> Slowdown | None:
    """The slow periods that count in a run of some length; None if there are none."""
    slowdown = scenario.slowdown
    if slowdown is None or slowdown.throughout:  # full speed is a bound for updates whose speed changes
        return None
    if not slowdown.slow or slowdown.normal >= length:
        return None
    if not slowdown.normal or slowdown.slow > length:  # always slow, or from some time on
        return replace(slowdown, slow=length)
    # Full speed is a bound, and a good one: updates can always begin in a moment at which the machine is fast.
    cycles = length / (slowdown.normal + slowdown.slow)
    return slowdown if cycles * len(scenario.tables) <= MOST_CYCLES else None


class _Problem:
    """All tables of one run, and the dual function of the price."""

    def __init__(
        self,
        scenario: TableScenario,
        length: float,
        seed: int,
        portions: bool,
        certain: bool,
        recorded: Sequence[RecordedTable] | None,
        done: Sequence[RecordedWork | None] | None = None,
    ) -> None:
        self._scenario, self._length, self._portions = scenario, length, portions
        self._done = done
        self._is_planned = recorded is None and done is None
        spread = scenario.spread
        # An update takes so many times what is stated: at the least, on the mean, at the most.
        least, mean, most = (1.0, 1.0, 1.0) if spread is None else (spread, spread + 0.5, spread + 1.0)
        self._least, self._mean, self._most = (least, least, least) if certain else (least, mean, most)
        graph = scenario.graph()
        self._order = graph.order
        self._upstream = graph.upstream
        self._known = reachable(scenario, length, seed, recorded, least=self._least, portions=portions)
        #: what tables without rows at the beginning add: they count from their first update on
        self._fixed = sum(self._floor(i) for i, known in enumerate(self._known) if known.counts and known.empty)
        self._tracks = min(scenario.tracks, len(scenario.tables))
        self._source = self._main_sources()

    def _floor(self, i: int) -> float:
        """The least mean staleness of a table that is empty at first, however late it gets its first rows."""
        known, done = self._known[i], None if self._done is None else self._done[i]
        never = self._length / 2 - float(known.edges[0])
        newest = known.done[1:] - known.edges[1:]
        least = min(never, float(newest.min(initial=math.inf)), math.inf if done is None else done.staleness)
        return known.table.priority * max(0.0, least)

    # --- the dual function --------------------------------------------------------------------------------------

    def best(self) -> tuple[float, float]:
        """The highest value found, and the mean price at which it is."""
        value, price, holding = -math.inf, 0.0, np.empty(0)
        for held in self._holdings():
            found = self._search(self._alone(held), price)
            if found[0] > value:
                (value, price), holding = found, held
        slow = self._scenario.slowdown is not None
        if (price > 0 or slow) and not self._portions:
            value, price = max((value, price), self._refined(holding))
        if self._is_planned and (price > 0 or slow) and self._passed_on() <= MOST_PASSED_ON:
            value, price = max((value, price), self._fluid())
        return self._fixed + value / self._length, price

    def _passed_on(self) -> int:
        """How many tables there are, each counted with all those that get their data through it."""
        through = [1] * len(self._known)
        for i in reversed(self._order):
            if self._source[i] >= 0:
                through[self._source[i]] += through[i]
        return sum(through)

    def _fluid(self) -> tuple[float, float]:
        """The value of ``fluid``, which knows slow periods also if updates may be cut, and its mean price."""
        place = {i: k for k, i in enumerate(self._order)}
        slowdown, slowness = self._scenario.slowdown, 1.0
        if slowdown is not None and slowdown.normal == 0:  # it is always slow
            slowness, slowdown = slowdown.factor, None
        tables = []
        for i in self._order:
            known, is_fed = self._known[i], self._source[i] >= 0
            table = known.table
            readers = tuple(place[d] for d in self._order if self._source[d] == i)
            amounts, came = (np.empty(0), np.empty(0)) if is_fed else (np.diff(known.edges), known.came[1:])
            costs = (table.priority, slowness * table.setup_time, slowness * table.time_per_unit)
            tables.append(FluidTable(*costs, amounts, came, readers))
        chance = (self._least, self._most)
        loads_nothing = sum(k.table.priority * (self._length / 2 - float(k.edges[0])) for k in self._known)
        fluid = FluidBound(tables, slowdown, self._length, self._tracks, chance)
        value, price = fluid.best()
        return loads_nothing * self._length + value, price

    def _refined(self, held: Floats) -> tuple[float, float]:
        """With a price that changes over time: the best of some shapes, each at its best height."""
        best, height = (-math.inf, 0.0), 0.0
        for since, shape in _shapes(self._scenario.slowdown, self._length):
            mean = float(np.diff(np.append(np.maximum(since, 0.0), self._length)) @ shape) / self._length
            found, height = self._height(self._alone(held, since[1:]), Steps(since, shape), mean, height)
            best = max(best, (found, height * mean))
        return best

    def _height(self, tables: Sequence[Alone], shape: Steps, mean: float, hint: float) -> tuple[float, float]:
        """The highest value of a price of some shape, and how many times the shape that price is."""
        room = self._tracks * self._length * mean

        def value(height: float) -> tuple[float, float]:
            found = cheapest(tables, Steps(shape.since, height * shape.value), self._length)
            return float(found.values.sum()) - room * height, float((found.busy @ shape.value).sum()) - room

        # To begin with what a second of work saves if its data would else be a second later.
        gaps = [(t, float(t.times[-1]) / (len(t.times) - 1)) for t in tables if len(t.times) > 1 and t.times[-1] > 0]
        if not gaps:
            return value(0.0)[0], 0.0
        rates = [t.weight / (t.per_unit + t.setup / gap) for t, gap in gaps]
        return _highest(value, hint or float(np.median(rates)), _MOST_HEIGHTS)

    def _search(self, tables: Sequence[Alone], hint: float) -> tuple[float, float]:
        """The highest value for some tables, and its price; the function of the price is concave."""
        scale = hint or max(
            (t.weight * float(np.diff(t.times).mean()) for t in tables if len(t.times) > 1), default=1.0
        )

        def value(price: float) -> tuple[float, float]:
            return self._value(tables, price)

        return _highest(value, scale, _MOST_PRICES)

    def _value(self, tables: Sequence[Alone], price: float) -> tuple[float, float]:
        """The dual function at a price, and its slope."""
        found = cheapest(tables, Steps.constant(price), self._length)
        values, busy = found.values, found.busy.sum(axis=1)
        if self._tracks > 1:
            for i in np.flatnonzero(busy > self._length * (1 + 1e-9)).tolist():
                values[i], busy[i] = self._one_at_a_time(tables[i], price), self._length
        room = self._tracks * self._length
        return float(values.sum()) - room * price, float(busy.sum()) - room

    def _one_at_a_time(self, table: Alone, price: float) -> float:
        """A table that would like to run more than one update at a time pays for that itself."""

        def value(more: float) -> tuple[float, float]:
            found = cheapest([table], Steps.constant(price + more), self._length)
            return float(found.values[0]) - more * self._length, float(found.busy.sum()) - self._length

        return _highest(value, max(price, table.weight * self._length / 64), 12)[0]

    # --- weights ------------------------------------------------------------------------------------------------

    def _holdings(self) -> list[Floats]:
        """Ways to give weight of derived tables to sources: ``held[d, s]`` is how much of table d's table s has."""
        weights = [known.table.priority if known.counts and not known.empty else 0.0 for known in self._known]
        none = np.diag(np.array(weights, dtype=np.float64))
        source = self._source
        if all(s < 0 for s in source):
            return [none]
        everything = none.copy()
        for i in reversed(self._order):
            if source[i] >= 0:
                everything[:, source[i]] += everything[:, i]
                everything[:, i] = 0.0
        return [everything, self._levelled(none.copy(), source), none]

    def _main_sources(self) -> list[int]:
        """For each table the source that its weight may go to; -1 if there is none."""
        chosen = []
        for i, known in enumerate(self._known):
            possible = [
                s
                for s in self._upstream[i]
                if not (known.empty or self._known[s].empty) and self._known[s].edges[0] >= known.edges[0]
            ]
            # the one that would be updated least often by itself
            chosen.append(min(possible, key=lambda s: self._known[s].table.priority * self._eager(s), default=-1))
        return chosen

    def _eager(self, i: int) -> float:
        """How often a table is best updated grows with the root of this, times its weight."""
        table = self._known[i].table
        return (0.5 + table.time_per_unit) / max(table.setup_time, 1e-12)

    def _levelled(self, held: Floats, source: Sequence[int]) -> Floats:
        """No table should be updated more often than its source: it gives weight to it until both are alike."""
        for _ in range(_SWEEPS):
            for i in reversed(self._order):
                s = source[i]
                if s < 0:
                    continue
                mine, its = held[:, i].sum(), held[:, s].sum()
                more = (mine * self._eager(i) - its * self._eager(s)) / (self._eager(i) + self._eager(s))
                if more > 0:
                    part = held[:, i] * (more / mine)
                    held[:, s] += part
                    held[:, i] -= part
        return held

    def _alone(self, held: Floats, *changes: Floats) -> list[Alone]:
        """The tables with the weights that they hold; ``changes`` are the moments at which the price changes."""
        tables = []
        nothing = 1e-12 * float(held.sum())  # or what rounding left
        for s, known in enumerate(self._known):
            weight = float(held[:, s].sum())
            if weight <= nothing:
                continue
            speed = Steps.constant(float(known.speed.value.min())) if self._portions else known.speed
            # Where the price is steady, waiting pays only if updates get faster.
            moments = [speed.since[1:], *changes] if changes else [speed.falls()]
            derived = bool(self._upstream[s])
            edges, times = nodes(known.edges, known.came, [] if derived else moments, self._length)
            extra = np.zeros(len(edges))
            longest = 0.0
            for d in np.flatnonzero(held[:, s]).tolist():
                below, path = d, 0.0
                while below != s:
                    seconds, most = self._passing(below, edges)
                    extra += held[d, s] * seconds
                    path += most
                    below = self._source[below]
                longest = max(longest, path)
            table = known.table
            tables.append(
                Alone(
                    weight=weight,
                    edges=edges,
                    times=times,
                    slow=speed.at(times),
                    setup=table.setup_time,
                    per_unit=table.time_per_unit,
                    least=self._least,
                    mean=self._mean,
                    most=self._most,
                    extra=extra,
                    extra_until=self._length - longest,
                    later=speed.next_change(times) if derived else None,
                    fastest=speed.least_from(times) if derived else None,
                    past=self._past(s, held[:, s]),
                    cut=self._portions,
                )
            )
        return tables

    def _past(self, s: int, weights: Floats) -> Past | None:
        """What table s did, with the staleness of the tables whose weight it has; None if that is not known."""
        if self._done is None or (own := self._done[s]) is None:
            return None
        area = 0.0
        for d in np.flatnonzero(weights).tolist():
            if (done := self._done[d]) is None:
                return None
            area += float(weights[d]) * done.staleness * self._length
        return Past(area, np.array(own.began), np.array(own.ended))

    def _passing(self, i: int, edges: Floats) -> tuple[Floats, float]:
        """What updates of table i add to the waiting of data up to each of ``edges``: its integral over the data.

        Also how long before the end of the run that can be counted on.
        """
        known = self._known[i]
        table, slow = known.table, float(known.speed.value.min())
        sizes = np.diff(known.edges)
        per_unit = 0.0 if self._portions else table.time_per_unit
        seconds = slow * (table.setup_time + per_unit * sizes)
        total = np.append(0.0, np.cumsum(self._mean * seconds * sizes))
        # Of data that the table has not to begin with, and that can come to it before the end.
        passing: Floats = np.interp(edges, known.edges, total)
        longest = float(seconds.max(initial=0.0))
        return passing - passing[0], (self._most + 2 * self._mean) * longest


def _highest(value: Callable[[float], tuple[float, float]], scale: float, most: int) -> tuple[float, float]:
    """The highest value found of a concave function on [0, inf), given with its slope, and where it is.

    The tangents at two places meet above the function: there it is tried next.
    """
    height, slope = value(0.0)
    best = (height, 0.0)
    if slope <= 0:
        return best
    low, high = (0.0, height, slope), None
    place = scale
    for _ in range(most):
        height, slope = value(place)
        best = max(best, (height, place))
        if slope > 0:
            low = (place, height, slope)
        else:
            high = (place, height, slope)
        if high is None:
            place *= 2
            continue
        if high[0] > 3 * low[0]:  # far from each other, tangents say little
            place = max(math.sqrt(low[0] * high[0]), high[0] / 16)
            continue
        place = (high[1] - low[1] + low[2] * low[0] - high[2] * high[0]) / (low[2] - high[2])
        if low[1] + low[2] * (place - low[0]) - best[0] <= _GAIN * abs(best[0]):
            break
        # Slopes are not exact where the price changes.
        place = min(max(place, 0.9 * low[0] + 0.1 * high[0]), 0.1 * low[0] + 0.9 * high[0])
    return best


def _shapes(slowdown: Slowdown | None, length: float) -> Iterator[tuple[Floats, Floats]]:
    """Prices that change over time, as (since when, how much of the full price).

    A backlog ends at some time after a slow period, or never.
    """
    if slowdown is None or slowdown.normal == 0:
        since = np.linspace(0.0, length, 17)[:-1]
        falling = length - since - length / 32
        since[0] = -math.inf
        yield since, falling
        yield since, falling + length / 2
        return
    normal, slow, factor = slowdown.normal, slowdown.slow, slowdown.factor
    cycles = math.ceil(length / (normal + slow)) + 1
    if cycles * 10 > _MOST_STEPS:
        return
    for after in (0.25, 0.5, 1.0, 2.0):
        last = min(after * slow, normal)
        cuts = np.concatenate([np.arange(4) / 4 * slow - slow, np.arange(5) / 4 * last])
        middle = (cuts[:-1] + cuts[1:]) / 2
        part = np.append((last - middle) / np.where(middle < 0, factor, 1.0), 0.0)
        since = (np.arange(cycles)[:, None] * (normal + slow) + cuts).ravel()
        shape = np.tile(part, cycles)
        inside = (since > 0) & (since < length)
        first = shape[np.flatnonzero(since <= 0)[-1]]
        yield np.append(-math.inf, since[inside]), np.append(first, shape[inside])
