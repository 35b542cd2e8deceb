"""A second lower bound: data as a fluid, at a price of the tracks that changes over time.

It holds for updates of any size, and knows slow periods and chains. It takes each piece of data by itself, so set-ups
are counted roughly. So it is the better one in slow periods, and the other one (``alone``) is elsewhere.

Look at one second of data of a table. Its update began at b, when the data was there, and worked on it at some moment
x: after its set-up, and after the u seconds of data that came together with it and before it. The table has it no
earlier than x, and a track was busy with it for ``beta`` seconds, times the slowness at b. So if a second of a track
costs ``price(t)`` at t, that second of data costs at least

    p (x - e) + price(x) beta slow(b),   x = y + alpha + beta u,   y no earlier than the data came

where e is its event time. A table built on this one can begin with it no earlier than x, and so on along the chain.
Each second of data takes the cheapest y, or is not loaded at all. Updates pay for at most as much as the tracks have.
So the sum over all data, less what all tracks are worth, is a lower bound, whatever the price is.

An update keeps the slowness of its beginning. Data that came in a slow period, and is worked on before its end, is in
an update that began in it; for all other data the update may have begun at full speed.

Chance makes an update longer by a factor. By the formula the least cost is concave in it, if the price is the lowest of
those that x may meet. So the mean over all factors is at least that of the least and the greatest.

The price falls while a backlog is worked off. It is a sum of lines that fall to 0 at some time after each slow period,
or at some time of a run without any. The value is concave in their heights, which are searched one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.core import Floats, Ints
from headgate.sim.tables.scenario import Slowdown

#: lines fall to 0 after so many lengths of the slow period, or parts of a run without any; the last never does
_AFTER = (0.06, 0.125, 0.25, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
_PARTS = (0.125, 0.25, 0.5, 1.0, math.inf)
#: a line is in so many steps
_STEPS = 48
_MOST_STEPS = 20_000
#: so many steps are looked at one by one
_AHEAD = 4
#: how often all heights are searched, and how many are tried each time
_SWEEPS, _TRIED = 3, 7


@dataclass(frozen=True, slots=True, eq=False)
class FluidTable:
    """A table of a chain.

    ``amounts`` of data come at the moments ``came`` if no other table feeds it; ``readers`` are the tables it feeds.
    An update takes ``setup`` seconds, and ``work`` for each second of data, at full speed. ``gap`` is the least time
    between two arrivals, infinity if there are none.
    """

    weight: float
    setup: float
    work: float
    amounts: Floats
    came: Floats
    readers: tuple[int, ...] = ()
    gap: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", float(np.diff(self.came).min(initial=math.inf)))


class FluidBound:
    """The value of a price for ``tables``, each of which comes before its readers, over a run of ``end`` seconds.

    ``chance`` are the least and the greatest factor by which chance makes an update longer.
    """

    def __init__(
        self,
        tables: Sequence[FluidTable],
        slowdown: Slowdown | None,
        end: float,
        tracks: int,
        chance: tuple[float, float],
    ) -> None:
        self._tables, self._end, self._tracks = tables, end, tracks
        self._slowness = 1.0 if slowdown is None else slowdown.factor
        self._chance = tuple(dict.fromkeys(chance))
        self._since, self._lines = _lines(slowdown, end)
        self._lengths = np.diff(self._since, append=end)
        #: {step: the first one after the slow period that it is in}; 0 if it is in none
        self._until = _slow_until(self._since, slowdown)
        self._price = np.zeros(len(self._since))
        #: by table and step: the last step in which data may be worked on with y at the beginning of this one
        self._reach = [self._step(self._since + self._window(table)) for table in tables]
        self._roots = _roots(tables)
        self._together: list[float] = []
        #: by table: what data costs with y at the beginning of each step, without what it pays
        self._plain: dict[int, Floats] = {}
        #: by table and factor: the least cost from each step on, at full speed and slow within the slow period
        self._after: dict[tuple[int, float], tuple[Floats, Floats]] = {}
        self._crossing: dict[tuple[int, float], Floats] = {}

    def _window(self, table: FluidTable) -> float:
        """The most seconds from y to x, at full speed."""
        return self._chance[-1] * (table.setup + table.work * float(table.amounts.max(initial=0.0)))

    def best(self) -> tuple[float, float]:
        """The highest value found, and the mean price at which it is.

        The value is weight times the integral of staleness, less that of a run that loads nothing.
        """
        rates = [table.weight / table.work for table in self._tables if table.weight > 0 and table.work > 0]
        rates = [rate for rate in rates if rate < math.inf]
        heights = np.zeros(len(self._lines))
        best = self.value(heights)
        if not rates or not len(heights):
            return best, 0.0
        reach = (max(rates), float(np.median(rates)) / 8)
        for sweep in range(_SWEEPS):
            before = best
            for line in range(len(heights)):
                best, heights[line] = self._height(heights, line, best, reach if not sweep else None)
            if best - before <= 1e-3 * abs(before):
                break
        return best, float(heights @ self._lines @ self._lengths) / self._end

    def _height(
        self, heights: Floats, line: int, best: float, reach: tuple[float, float] | None
    ) -> tuple[float, float]:
        """The best height of one line, the others as they are; first between two limits, then around what it is."""
        now = float(heights[line])
        tried = [] if now else [0.0]
        if reach is not None or not now:
            high, low = reach or (float(heights.max()), float(heights.max()) / 64)
            tried += np.geomspace(low, high, _TRIED).tolist() if high > 0 else []
        else:
            tried += [now * factor for factor in (0.0, 0.5, 0.7, 0.85, 1.15, 1.4, 2.0)]
        chosen = now
        for height in tried:
            other = heights.copy()
            other[line] = height
            if (value := self.value(other)) > best:
                best, chosen = value, height
        return best, chosen

    def value(self, heights: Floats) -> float:
        """The value of the price that is the sum of the lines, each so many times as high."""
        self._price = heights @ self._lines if len(heights) else self._price
        self._together = [
            self._best_together(table, root) for table, root in zip(self._tables, self._roots, strict=True)
        ]
        for i in reversed(range(len(self._tables))):
            self._from_each_step(i)
        total = -self._tracks * float(self._price @ self._lengths)
        for i, table in enumerate(self._tables):
            if len(table.came):
                total += float(table.amounts @ self._least(i, table.came, table))
        return total

    def _best_together(self, table: FluidTable, root: FluidTable) -> float:
        """About how many pieces of data it is best to take together where tracks are dearest; 0 if that is unknown."""
        if not (table.weight > 0 and 0 < root.gap < math.inf):
            return 0.0
        highest = float((self._price * np.where(self._until > 0, self._slowness, 1.0)).max(initial=0.0))
        amount = float(root.amounts.mean())
        worth, most = table.weight * amount * root.gap, len(root.came)
        if 2 * table.setup * highest >= worth * most * most:
            return float(most)
        return max(1.0, round(math.sqrt(2 * table.setup * highest / worth)))

    def _from_each_step(self, i: int) -> None:
        """Note the least that data costs table i with y at the beginning of some step, or of a later one."""
        table, steps = self._tables[i], np.arange(len(self._since))
        self._plain[i] = self._without_pay(i, self._since)
        reach = self._reach[i]
        paid = table.work * self._lowest(steps, reach)
        is_slow = reach < self._until
        for factor in self._chance:
            plain = self._plain[i] + factor * table.weight * table.setup
            fast = plain + factor * paid
            after = np.append(np.minimum.accumulate(fast[::-1])[::-1], math.inf)
            slow = np.append(np.where(is_slow, plain + self._slowness * factor * paid, math.inf), math.inf)
            # What is begun with in a slow period and may be worked on after it may be at full speed.
            crossing = np.append(np.where((self._until > 0) & ~is_slow, fast, math.inf), math.inf)
            for j in np.flatnonzero(self._until)[::-1].tolist():
                if j + 1 < self._until[j]:
                    slow[j] = min(slow[j], slow[j + 1])
                    crossing[j] = min(crossing[j], crossing[j + 1])
            self._after[i, factor], self._crossing[i, factor] = (after, slow), crossing

    def _without_pay(self, i: int, moments: Floats, root: FluidTable | None = None) -> Floats:
        """What data costs with y at these moments, and then the readers of table i, without what table i pays."""
        table = self._tables[i]
        cost: Floats = table.weight * (moments - self._end)
        for reader in table.readers:
            cost = cost + self._least(reader, moments + self._chance[0] * table.setup, root)
        return cost

    def _least(self, i: int, came: Floats, root: FluidTable | None = None) -> Floats:
        """The least that data costs which came to table i at these moments: begun with at once, later, or never.

        ``root`` is the first table of the chain, to which it came as one of its ``came``; without it, set-ups are left
        out.
        """
        table = self._tables[i]
        step, reach = self._step(came), self._step(came + self._window(table))
        until = self._until[step]
        is_slow = reach < until
        plain = self._without_pay(i, came, root)
        lowest, slowness = self._lowest(step, reach), np.where(is_slow, self._slowness, 1.0)
        behind = table.work * table.amounts / 2 if root is table else 0.0
        per_second = lowest * slowness * (table.work + self._share(i, came, root))
        candidates = [(plain, per_second)]
        # The next steps one by one, as set-ups are shared with what has come by then; then all that follow.
        ahead = _AHEAD if root is not None else 0
        for further in range(1, ahead + 1):
            place = np.minimum(step + further, len(self._since) - 1)
            begins, last = self._since[place], self._reach[i][place]
            lowest = np.minimum(lowest, self._lowest(place, last))
            slowness = np.where((until > 0) & (last < until), self._slowness, 1.0)
            pay = lowest * slowness * (table.work + self._share(i, begins, root))
            exists = step + further < len(self._since)
            candidates.append((np.where(exists, self._plain[i][place], math.inf), pay))
        following = np.minimum(step + ahead + 1, len(self._since))
        found = np.zeros(len(came))
        for factor in self._chance:
            after, slow = self._after[i, factor]
            in_slow = (until > 0) & (following < until)
            least = after[np.where(in_slow, until, following)]
            # In a slow period it may be begun with near its end, and be worked on after it.
            near = np.where(in_slow, np.minimum(slow[following], self._crossing[i, factor][following]), math.inf)
            least = np.minimum(least, near)
            for cost, pay in candidates:
                least = np.minimum(least, cost + factor * (table.weight * table.setup + pay))
            found += np.minimum(np.where(came < self._end, least + factor * table.weight * behind, 0.0), 0.0)
        return found / len(self._chance)

    def _share(self, i: int, moments: Floats, root: FluidTable | None) -> Floats | float:
        """What a second of data has to pay at least of the set-up of its update, in seconds of a track.

        Data that came in r pieces before others is in an update with at most r later ones. Let it pay for the share
        ``2 / (K + 1) (1 - r / K)``, if that is above 0. For every K, all of an update together pay for no more than it.
        """
        together = self._together[i]
        if root is None or together <= 0:
            return 0.0
        waited = (moments - root.came) / (together * root.gap)
        found: Floats = 2 / (together + 1) * np.maximum(0.0, 1 - waited) * self._tables[i].setup / root.amounts
        return found

    def _lowest(self, first: Ints, last: Ints) -> Floats:
        """The lowest price from one step to another."""
        pairs = np.stack([first, last + 1], axis=1).ravel()
        found: Floats = np.minimum.reduceat(np.append(self._price, math.inf), pairs)[::2]
        return found

    def _step(self, moments: Floats) -> Ints:
        return np.maximum(np.searchsorted(self._since, moments, side="right") - 1, 0)


def _roots(tables: Sequence[FluidTable]) -> list[FluidTable]:
    """For each table the first one of its chain."""
    found = list(tables)
    for i, table in enumerate(tables):
        for reader in table.readers:
            found[reader] = found[i]
    return found


def _lines(cycle: Slowdown | None, end: float) -> tuple[Floats, Floats]:
    """When each step of the prices begins, and each line by step; none if there would be too many steps."""
    if cycle is None:
        since = np.linspace(0.0, end, _STEPS + 1)[:-1]
        middle = since + end / _STEPS / 2
        return since, np.array(
            [np.maximum(0.0, part * end - middle) if part < math.inf else np.full(_STEPS, end) for part in _PARTS]
        )
    length = cycle.normal + cycle.slow
    cycles = math.ceil(end / length) + 1
    if cycles * _STEPS > _MOST_STEPS:
        return np.zeros(1), np.zeros((0, 1))
    last = min(_AFTER[-1] * cycle.slow, cycle.normal)
    busy = np.linspace(-cycle.slow, 0.0, _STEPS // 4 + 1)[:-1]
    calm = last * np.linspace(0.0, 1.0, _STEPS - _STEPS // 4 + 1) ** 2
    cell = np.concatenate([busy, calm])
    middle = (cell + np.append(cell[1:], cycle.normal)) / 2
    slowness = np.where(middle < 0, cycle.factor, 1.0)
    lines = [np.maximum(0.0, min(after * cycle.slow, last) - middle) / slowness for after in _AFTER]
    since = (np.arange(cycles)[:, None] * length + cell).ravel()
    inside = (since >= 0) & (since < end)
    tiled = np.tile(np.array(lines), cycles)[:, inside]
    since = since[inside]
    if since[0] > 0:
        since, tiled = np.append(0.0, since), np.hstack([np.zeros((len(lines), 1)), tiled])
    return since, tiled


def _slow_until(since: Floats, cycle: Slowdown | None) -> Ints:
    if cycle is None:
        return np.zeros(len(since), dtype=np.intp)
    length = cycle.normal + cycle.slow
    bits = 1e-9 * (1.0 + since)
    number = np.floor((since + bits) / length)
    is_slow = (since + bits) - number * length >= cycle.normal
    until = np.searchsorted(since + bits, (number + 1) * length)
    return np.where(is_slow, until, 0)
