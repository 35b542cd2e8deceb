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

Data that came together, and is all worth loading, is later than that by what cutting it costs (``cut``).

An update keeps the slowness of its beginning. Data that came in a slow period, and is worked on before its end, is in
an update that began in it; for all other data the update may have begun at full speed.

*Chance* makes an update longer by a factor f, which nobody knows before it has begun. If a table could choose y by f,
overload would go away: it would load only when it happens to be quick. So it has one y, and pays the mean. A slow
update may run into cheaper times. If the price falls by at most sigma a second, that saves at most

    sigma var(f) (slow (alpha + beta n))^2 / 2

for n seconds of data. But its data shows only at its end, which costs more than is counted here. With ``rho = sigma
slow var(f) beta / (p mean(f))``, what is still missing is at most ``slow alpha`` times ``sigma slow var(f) alpha / (2
(1 - rho))``, which is taken off what set-ups pay. Tables with rho above a half do choose y by f. After a slow period,
work counts at full speed, so what is charged falls no faster than before. Late updates may be in time by chance, and
count as if they were as quick as can be. Readers have data when the quickest update would show it; that this follows
the one y of the source is an approximation where prices rise, of one update for each slow period.

The price falls while a backlog is worked off. It is a sum of lines that fall to 0 at some time after each slow period,
or at some time of a run without any. The value is concave in their heights, which are searched one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headgate.core import Floats, Ints
from headgate.sim.tables.cut import lateness, most_parts
from headgate.sim.tables.prices import blocks_ahead, least_between, price_lines, same_period
from headgate.sim.tables.scenario import Slowdown

#: tables for which the price falls faster than this, against what a second of their work is worth, may choose by chance
_MOST_FALL = 0.5
#: heights are searched with about so many pieces of data
_MOST_PIECES = 40_000
#: what waiting costs at the least, as a part of the weight, however fast the price falls
LEAST_WAITING = 1e-6
#: how often all heights are searched, how many are tried each time, and how far from the height that was found
_SWEEPS, _TRIED = 3, 7
#: how far apart the heights of the first search are, and how much higher the highest may be than the lowest
_APART, _MOST_APART = 2.5, 1e6
_AROUND = (0.0, 0.5, 0.75, 0.9, 1.1, 1.3, 2.0)


@dataclass(frozen=True, slots=True, eq=False)
class FluidTable:
    """A table of a chain.

    ``amounts`` of data come at the moments ``came`` if no other table feeds it; ``readers`` are the tables it feeds.
    An update takes ``setup`` seconds, and ``work`` for each second of data, at full speed. ``gap`` is the least time
    between two arrivals, infinity if there are none; by default, it is worked out.
    """

    weight: float
    setup: float
    work: float
    amounts: Floats
    came: Floats
    readers: tuple[int, ...] = ()
    gap: float = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.gap):
            object.__setattr__(self, "gap", float(np.diff(self.came).min(initial=math.inf)))

    def thinned(self, every: int) -> FluidTable:
        """The same with fewer pieces of data."""
        return replace(self, amounts=self.amounts[::every], came=self.came[::every])


class _Block(NamedTuple):
    """Steps in which data may be begun with, for each piece of it: from which to which, the first step after the slow
    period in which it came, what it pays for set-ups at the least, and infinity where the run ends before.

    Infinity is apart, because an update that takes no time pays nothing, and nothing times infinity is no number.
    """

    begins: Ints
    ends: Ints
    until: Ints
    pay: Floats
    never: Floats


class FluidBound:
    """The value of a price for ``tables``, each of which comes before its readers, over a run of ``end`` seconds.

    ``chance`` are the least and the greatest factor by which chance makes an update longer. Each piece of data stands
    for ``each`` like it.
    """

    def __init__(
        self,
        tables: Sequence[FluidTable],
        slowdown: Slowdown | None,
        end: float,
        tracks: int,
        chance: tuple[float, float],
        each: int = 1,
    ) -> None:
        self._tables, self._end, self._tracks = tables, end, tracks
        self._conditions = (slowdown, end, tracks, chance)
        self._each = each
        self._slowness = 1.0 if slowdown is None else slowdown.factor
        self._chance = tuple(dict.fromkeys(chance))
        self._mean, self._variance = sum(chance) / 2, (chance[-1] - chance[0]) ** 2 / 12
        self._lines = price_lines(slowdown, end)
        self._since, self._until = self._lines.since, self._lines.until
        self._same_period = same_period(self._until)
        self._price = np.zeros(len(self._since))
        #: by table and step: the last step in which data may be worked on with y at the beginning of this one
        self._reach = [self._step(self._since + self._window(table)) for table in tables]
        #: by table and step: whether an update that begins in it may be in time only if it happens to be quick
        ends = np.append(self._since[1:], end)
        self._late = [ends + 2 * self._chance[-1] * self._slowness * table.setup > end for table in tables]
        #: by table: the step in which its own data comes, and the last in which it may be worked on
        self._own_steps = [(self._step(t.came), self._step(t.came + self._window(t))) for t in tables]
        #: by table: what cutting its updates adds to the lateness of a second of data, and that of the last second
        self._cutting = [_cutting(table) for table in tables]
        self._roots = _roots(tables)
        #: by table and step: about how many pieces of data it is best to take together; 0 if that is unknown
        self._together: list[Floats] = []
        #: by table: the steps later, from one to another, in which what has waited may still pay for a set-up
        self._blocks: list[Sequence[tuple[int, int]]] = []
        #: by table: the factors for which it chooses y, and how much less it pays for set-ups
        self._factors: list[tuple[float, ...]] = []
        self._less: list[float] = []
        #: by table: what data costs with y at the beginning of each step, without what it pays
        self._plain: dict[int, Floats] = {}
        #: by table and factor: what data costs with y in each step, without set-ups: at full speed, and if it came in
        #: the slow period of that step
        self._by_step: dict[tuple[int, float], tuple[Floats, Floats]] = {}
        #: by table and factor: the least cost from each step on, at full speed and slow within the slow period
        self._after: dict[tuple[int, float], tuple[Floats, Floats]] = {}
        self._crossing: dict[tuple[int, float], Floats] = {}

    def _window(self, table: FluidTable) -> float:
        """The most seconds from y to x, at full speed."""
        return self._chance[-1] * (table.setup + table.work * float(table.amounts.max(initial=0.0)))

    def best(self) -> tuple[float, float]:
        """The highest value found, and the mean price at which it is.

        The value is weight times the integral of staleness, less that of a run that loads nothing. Heights that are
        good for some of the data are good for all of it.
        """
        pieces = sum(len(table.came) for table in self._tables)
        searched = self
        if pieces > _MOST_PIECES:
            every = math.ceil(pieces / _MOST_PIECES)
            searched = FluidBound([table.thinned(every) for table in self._tables], *self._conditions, each=every)
        # At the highest prices, numbers may become infinite, and the value none; then it is not the best.
        with np.errstate(all="ignore"):
            heights = searched._search()
            price = float(heights @ self._lines.integrals) / self._end
            return max((self.value(np.zeros(len(heights))), 0.0), (self.value(heights), price))

    def _search(self) -> Floats:
        """Heights of the lines at which the value is high."""
        rates = [rate for t in self._tables if t.weight > 0 < t.work and (rate := t.weight / t.work) < math.inf]
        heights = np.zeros(len(self._lines.paid))
        if not rates or not len(heights):
            return heights
        best = self.value(heights)
        # At a height of weight by work, it begins to pay to leave the data of a table.
        highest = max(rates)
        lowest = max(min(rates) / 8, highest / _MOST_APART)
        dear = np.geomspace(highest, lowest, math.ceil(math.log(highest / lowest, _APART)) + 1).tolist()
        # The best line alone, and then all of them in turn.
        alone = [self._height(np.zeros(len(heights)), line, best, dear) for line in range(len(heights))]
        line = max(range(len(heights)), key=lambda each: alone[each][0])
        best, heights[line] = alone[line]
        for _ in range(_SWEEPS):
            before = best
            for line, height in enumerate(heights.tolist()):
                around = np.multiply(height, _AROUND) if height else np.geomspace(1 / 64, 1, _TRIED) * heights.max()
                best, heights[line] = self._height(heights, line, best, around.tolist())
            if best - before <= 1e-3 * abs(before):
                break
        return heights

    def _height(self, heights: Floats, line: int, best: float, tried: Sequence[float]) -> tuple[float, float]:
        """The best value, and the height of one line at which it is, the others as they are."""
        chosen = float(heights[line])
        for height in tried:
            other = heights.copy()
            other[line] = height
            if (value := self.value(other)) > best:
                best, chosen = value, height
        return best, chosen

    def value(self, heights: Floats) -> float:
        """The value of the price that is the sum of the lines, each so many times as high."""
        self._price = heights @ self._lines.paid
        fall = float(heights @ self._lines.falls)
        tables_and_roots = [*zip(self._tables, self._roots, strict=True)]
        self._together = [self._best_together(table, root, fall) for table, root in tables_and_roots]
        self._blocks = [
            blocks_ahead(self._steps_in(float(together.max(initial=0.0)) * root.gap)) if together.any() else ()
            for together, root in zip(self._together, self._roots, strict=True)
        ]
        ways = [self._way(table, fall) for table in self._tables]
        self._factors, self._less = [factors for factors, _ in ways], [less for _, less in ways]
        for i in reversed(range(len(self._tables))):
            self._from_each_step(i)
        total = -self._tracks * float(heights @ self._lines.integrals)
        for i, table in enumerate(self._tables):
            if len(table.came):
                total += self._each * float(table.amounts @ self._least(i, table.came, table))
        return total

    def _way(self, table: FluidTable, fall: float) -> tuple[tuple[float, ...], float]:
        """The factors for which a table chooses y, and how much less it pays for set-ups: see Chance above."""
        if not self._variance or table.weight <= 0:
            return self._chance, 0.0
        steep = fall * self._variance / self._mean
        rho = steep * table.work / table.weight
        if rho > _MOST_FALL:
            return self._chance, 0.0
        return (self._mean,), steep * table.setup / (2 * (1 - rho))

    def _best_together(self, table: FluidTable, root: FluidTable, fall: float) -> Floats:
        """By step, about how many pieces of data it is best to take together at its price; 0 if that is unknown.

        ``fall`` is how fast the price falls at the most: what waits pays less for its work, so waiting is cheaper.
        """
        if not (table.weight > 0 and 0 < root.gap < math.inf):
            return np.zeros(len(self._since))
        price = self._price * np.where(self._until > 0, self._slowness, 1.0)
        amount = float(root.amounts.mean())
        # Rounded up: then waiting costs no less than it saves of a set-up and of work. So data costs least in the first
        # step of a block.
        waiting = max(table.weight - table.work * fall, LEAST_WAITING * table.weight)
        with np.errstate(over="ignore"):
            found: Floats = np.ceil(np.sqrt(2 * table.setup * price / (waiting * amount * root.gap)))
        return np.clip(found, 1.0, len(root.came))

    def _steps_in(self, seconds: float) -> int:
        """The most steps that begin in any stretch of so many seconds."""
        ends = np.searchsorted(self._since, self._since + seconds, side="right")
        return int((ends - np.arange(len(ends))).max(initial=0))

    def _from_each_step(self, i: int) -> None:
        """Note the least that data costs table i with y at the beginning of some step, or of a later one."""
        table, steps = self._tables[i], np.arange(len(self._since))
        self._plain[i] = self._without_pay(i, self._since)
        reach = self._reach[i]
        paid = table.work * self._lowest(steps, reach)
        is_slow = reach < self._until
        for factor in self._factors[i]:
            times = self._times(i, factor)
            plain = self._plain[i] + times * table.weight * table.setup
            fast = plain + times * paid
            self._by_step[i, factor] = fast, np.where(is_slow, plain + self._slowness * times * paid, fast)
            after = np.append(np.minimum.accumulate(fast[::-1])[::-1], math.inf)
            slow = np.append(np.where(is_slow, plain + self._slowness * times * paid, math.inf), math.inf)
            # What is begun with in a slow period and may be worked on after it may be at full speed.
            crossing = np.append(np.where((self._until > 0) & ~is_slow, fast, math.inf), math.inf)
            for further, is_same in self._same_period:
                slow[is_same] = np.minimum(slow[is_same], slow[is_same + further])
                crossing[is_same] = np.minimum(crossing[is_same], crossing[is_same + further])
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
        is_own = root is table
        step, reach = self._own_steps[i] if is_own else (self._step(came), self._step(came + self._window(table)))
        until = self._until[step]
        is_slow = reach < until
        plain = self._without_pay(i, came, root)
        lowest, slowness = self._lowest(step, reach), np.where(is_slow, self._slowness, 1.0)
        now = plain, self._pay(i, lowest, slowness, self._share(i, came, root, step, step))
        # The next steps, as set-ups are shared with what has come by then; then all that follow.
        blocks = self._blocks[i] if root is not None else ()
        later = [self._later(i, step, first, last, root) for first, last in blocks]
        ahead = blocks[-1][1] if blocks else 0
        following = np.minimum(step + ahead + 1, len(self._since))
        found = np.zeros(len(came))
        for factor in self._factors[i]:
            after, slow = self._after[i, factor]
            in_slow = (until > 0) & (following < until)
            least = after[np.where(in_slow, until, following)]
            # In a slow period it may be begun with near its end, and be worked on after it.
            near = np.where(in_slow, np.minimum(slow[following], self._crossing[i, factor][following]), math.inf)
            least = np.minimum(least, near)
            times = self._times(i, factor)
            least = np.minimum(least, now[0] + times[step] * (table.weight * table.setup + now[1]))
            for block in later:
                pay = times[block.ends] * block.pay
                least = np.minimum(least, self._of_block(i, factor, block) + pay + block.never)
            if is_own:
                least = self._of_pieces(i, least)
            found += np.minimum(np.where(came < self._end, least, 0.0), 0.0)
        return found / len(self._factors[i])

    def _later(self, i: int, step: Ints, first: int, last: int, root: FluidTable | None) -> _Block:
        """Data of table i may be begun with from ``first`` to ``last`` steps later."""
        end = len(self._since) - 1
        begins, ends = np.minimum(step + first, end), np.minimum(step + last, end)
        reach, until = self._reach[i][ends], self._until[step]
        share = self._share(i, self._since[begins], root, begins, ends)
        slowness = np.where((until > 0) & (reach < until), self._slowness, 1.0)
        pay = slowness * np.maximum(self._lowest(begins, reach) - self._less[i], 0.0) * share
        return _Block(begins, ends, until, pay, np.where(step + first <= end, 0.0, math.inf))

    def _of_block(self, i: int, factor: float, block: _Block) -> Floats:
        """The least that data costs with y in the steps of a block, without set-ups."""
        fast, slow = self._by_step[i, factor]
        # In the slow period in which it came, and after it.
        inside = least_between(slow, block.begins, np.minimum(block.ends, block.until - 1))
        return np.minimum(inside, least_between(fast, np.maximum(block.begins, block.until), block.ends))

    def _times(self, i: int, factor: float) -> Floats:
        """By step, how many times as long as stated an update of table i takes that begins in it."""
        found: Floats = np.where(self._late[i] & (len(self._factors[i]) == 1), self._chance[0], factor)
        return found

    def _pay(self, i: int, price: Floats, slowness: Floats, share: Floats | float) -> Floats:
        """What a second of data of table i pays for work and its share of a set-up, if updates take what is stated."""
        table = self._tables[i]
        found: Floats = slowness * (price * table.work + np.maximum(price - self._less[i], 0.0) * share)
        return found

    def _of_pieces(self, i: int, first: Floats) -> Floats:
        """What a second of each piece costs on the mean, if its first second costs ``first``; later ones cost more."""
        table, (more, last) = self._tables[i], self._cutting[i]
        # The updates before the one that takes a second in were at least so quick.
        rise = self._chance[0] * table.weight * table.work * table.amounts
        with np.errstate(divide="ignore", invalid="ignore"):
            begun = np.where(first + rise > 0, -first * first / (2 * rise), first + rise / 2)
        # Also the last second is worth it, however long updates take.
        is_whole = first + self._chance[-1] * table.weight * last <= 0
        # With chance, this makes up for what slow updates save.
        cut = 0.0 if self._variance else self._chance[0] * table.weight * more
        found = np.where(is_whole, first + rise / 2 + cut, begun)
        return np.where(first >= 0, 0.0, found)

    def _share(self, i: int, moments: Floats, root: FluidTable | None, first: Ints, last: Ints) -> Floats | float:
        """What a second of data has to pay at least of the set-up of its update, in seconds of a track, if the update
        begins in the steps from ``first`` to ``last``, at these moments or later.

        Data that came in r pieces before others is in an update with at most r later ones. Let it pay for the share
        ``2 / (K + 1) (1 - r / K)``, if that is above 0. For every K, all of an update together pay for no more than it,
        so K may depend on when the update begins. In between, the share is no less than for the least and the most K.
        """
        together = self._together[i]
        if root is None or not together.any():
            return 0.0
        waited = (moments - root.came) / root.gap
        pairs = np.stack([first, last + 1], axis=1).ravel()
        found: Floats | float = math.inf
        for extreme, beyond in ((np.minimum, math.inf), (np.maximum, 0.0)):
            k = together[first] if first is last else extreme.reduceat(np.append(together, beyond), pairs)[::2]
            found = np.minimum(found, 2 / (k + 1) * np.maximum(0.0, 1 - waited / k))
        return found * self._tables[i].setup / root.amounts

    def _lowest(self, first: Ints, last: Ints) -> Floats:
        """The lowest price from one step to another."""
        return least_between(self._price, first, last)

    def _step(self, moments: Floats) -> Ints:
        return np.maximum(np.searchsorted(self._since, moments, side="right") - 1, 0)


def _cutting(table: FluidTable) -> tuple[Floats, Floats]:
    """What the set-ups of further updates add to the lateness of each piece, by the second; and how late the last
    second of it can be."""
    parts = most_parts(table.amounts, table.setup, table.work)
    late = lateness(table.amounts, table.setup, table.work, parts) / table.amounts
    work = table.work * table.amounts
    return late - table.setup - work / 2, table.setup * parts + 2 * work


def _roots(tables: Sequence[FluidTable]) -> list[FluidTable]:
    """For each table the first one of its chain."""
    found = list(tables)
    for i, table in enumerate(tables):
        for reader in table.readers:
            found[reader] = found[i]
    return found
