"""One table alone against a price for the seconds that its updates take: the inner problem of the lower bound.

Which moments and which data are possible is optimistic, so the result is never more than what a table really costs:
updates of a table may overlap, and an update begins as soon as that is best for the table.

A table is a row of *nodes*: moments at which an update may begin, each with the event time that it reaches. These are
the arrivals of data, and the moments at which waiting pays because updates get faster or cheaper. An update that begins
between two nodes costs no less than one at the first of them. A path through some of the nodes is a schedule; the
cheapest is found by dynamic programming, for many tables at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.core import Floats, Ints
from headgate.sim.tables.cut import late_and_paid, most_parts

#: how many updates are worked out at once
_MOST_AT_ONCE = 1_000_000
#: how many nodes one update may take together; a price that asks for more is lowered for that table
MOST_TOGETHER = 400
#: up to so many steps of the price, the seconds of an update are counted in each that it touches, else in its first
_MOST_SPLIT = 40


@dataclass(frozen=True, slots=True)
class Steps:
    """A value over time: ``value[i]`` from ``since[i]`` on. ``since`` increases and begins with -inf."""

    since: Floats
    value: Floats

    @classmethod
    def constant(cls, value: float) -> Steps:
        return cls(np.array([-math.inf]), np.array([value]))

    @property
    def steady(self) -> bool:
        return len(self.value) == 1

    def at(self, moments: Floats) -> Floats:
        found: Floats = self.value[self.index(moments)]
        return found

    def index(self, moments: Floats) -> Ints:
        return np.searchsorted(self.since, moments, side="right") - 1

    def falls(self) -> Floats:
        """The moments from which on the value is lower than before."""
        found: Floats = self.since[1:][np.diff(self.value) < 0]
        return found

    def next_change(self, moments: Floats) -> Floats:
        """The next moment at which the value changes; inf if it does not."""
        found: Floats = np.append(self.since, math.inf)[self.index(moments) + 1]
        return found

    def least_from(self, moments: Floats) -> Floats:
        """The least value from each moment on."""
        found: Floats = np.minimum.accumulate(self.value[::-1])[::-1][self.index(moments)]
        return found

    def earliest_end(self, begin: Floats, seconds: Floats) -> Floats:
        """When work that takes ``seconds`` times the value can be done if it begins no earlier than ``begin``."""
        end = begin + self.at(begin) * seconds
        if self.steady:
            return end
        # Waiting for a later step: as early as the next one, as fast as the fastest of those that follow.
        following = self.next_change(begin)
        found: Floats = np.minimum(end, following + self.least_from(following) * seconds)
        return found


@dataclass(frozen=True, slots=True)
class Past:
    """What a table did in a recorded run: ``area`` is its weight times the integral of its staleness.

    Its updates were from ``began`` to ``ended``, one at a time.
    """

    area: float
    began: Floats
    ended: Floats

    def at_work(self, price: Steps) -> Floats:
        """The seconds at work in each step of a price."""
        begins, ends = price.since[:, None], np.append(price.since[1:], math.inf)[:, None]
        parts = np.minimum(self.ended, ends) - np.maximum(self.began, begins)
        found: Floats = np.maximum(parts, 0.0).sum(axis=1)
        return found


@dataclass(frozen=True, slots=True)
class Alone:
    """A table as its own problem sees it.

    ``edges[0]`` is the event time up to which it is complete at the beginning. An update that begins at ``times[j]``
    reaches ``edges[j]``; neither decreases. It takes ``setup + per_unit * n`` seconds for n seconds of data, times
    ``slow[j]``, times the factor of chance (``least``, ``mean``, ``most``). If it may be ``cut``, its data is less late
    (``headgate.sim.tables.cut``); the price must be steady then. ``extra`` is the weight times the seconds that tables
    built on it need for the data up to each edge, counted for updates that end by ``extra_until``.

    A stream always has the data that has come, so an update at a later node reaches what that node does. A derived
    table may be given less: ``later`` is for each node when updates that reach it may next be faster, and ``fastest``
    how fast they may be from then on. Of a stream, ``later`` is None.

    ``past`` is what it did in a recorded run: that was possible, so the table costs no more than that.
    """

    weight: float
    edges: Floats
    times: Floats
    slow: Floats
    setup: float
    per_unit: float
    least: float
    mean: float
    most: float
    extra: Floats
    extra_until: float
    later: Floats | None = None
    fastest: Floats | None = None
    past: Past | None = None
    cut: bool = False

    def together(self, price: float, steady: bool = True) -> int:
        """The most nodes that it can be best for one update to take together if seconds cost at most ``price``.

        An update that takes (i, j] can be replaced by two, of which the first takes (i, k] when that has come: it costs
        a set-up more, and n of data is there earlier by the time between k and j. If the price is not ``steady``, the
        work on these n may have been cheaper when it was done later.
        """
        edges, times = self.edges, self.times
        count = len(edges) - 1
        slowest = float(self.slow.max())
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.diff(self.extra) / np.diff(edges)
        # What tables built on it need, per second of data, is counted only if it is early enough.
        delay = float(np.nan_to_num(rate, nan=0.0).max(initial=0.0)) / self.weight
        varies = slowest > self.slow.min() or (self.fastest is not None and slowest > self.fastest.min())
        until = np.full(count + 1, math.inf)
        step = 1
        while step <= count:
            n = edges[step:] - edges[:-step]
            with np.errstate(all="ignore"):
                dearer = self.setup if steady else self.setup + self.per_unit * n
                more = price * slowest * self.mean * dearer / (self.weight * n)
                if varies:
                    more = (1 + price / (self.weight * n)) * slowest * self.mean * (self.setup + self.per_unit * n)
            more = np.where(n > 0, more, math.inf)
            until[: count + 1 - step] = np.minimum(until[: count + 1 - step], times[step:] + more + delay)
            step *= 2
        replaced = np.searchsorted(times, until, side="left")  # updates that begin at this node or a later one
        return max(1, int((np.minimum(replaced, count + 1) - 1 - np.arange(count + 1)).max()))


def nodes(edges: Floats, came: Floats, changes: Iterable[Floats], end: float) -> tuple[Floats, Floats]:
    """Edges and times of the nodes of a table: its arrivals, and moments at which waiting may pay."""
    more = np.unique(np.concatenate([*changes, np.empty(0)]))
    more = more[(more > came[0]) & (more < end)]
    if not len(more):
        return edges, came
    times = np.concatenate([came, more])
    reached = np.concatenate([edges, edges[np.searchsorted(came, more, side="right") - 1]])
    order = np.lexsort((reached, times))
    return reached[order], times[order]


@dataclass(frozen=True, slots=True)
class Cheapest:
    """What tables cost at the least: for each the value, and the seconds at work in each step of the price."""

    values: Floats
    busy: Floats


def cheapest(tables: Sequence[Alone], price: Steps, end: float) -> Cheapest:
    """For each table the least of weight times the integral of staleness from 0 to ``end``, plus what its updates pay.

    Staleness is counted as now minus freshness, also if data is ahead of the clock.
    """
    values, busy = np.zeros(len(tables)), np.zeros((len(tables), len(price.value)))
    #: by what tables must have in common to be solved side by side, the highest price that they pay first
    alike: dict[tuple[float, int, int, bool, bool], list[int]] = {}
    windows = [0] * len(tables)
    highest = float(price.value.max())
    for number, table in enumerate(tables):
        values[number] = table.weight * (end * end / 2 - table.edges[0] * end)
        count = len(table.edges) - 1
        if table.weight > 0 and count:
            most, windows[number] = _affordable(table, highest, price.steady)
            size = (count.bit_length() // 2, max(6, windows[number].bit_length()))
            key = (most, *size, table.later is None, table.cut)
            alike.setdefault(key, []).append(number)
    for (most, *_), group in alike.items():
        paid = price if most >= highest else Steps(price.since, np.minimum(price.value, most))
        window = max(windows[number] for number in group)
        solved = _Group([tables[number] for number in group], paid, end, window).solve()
        values[group] += solved.values
        if paid is price:
            busy[group] = solved.busy
    for number, table in enumerate(tables):
        if table.past is not None:
            spent = table.past.at_work(price)
            value = table.past.area + float(spent @ price.value)
            if value < values[number]:
                values[number], busy[number] = value, spent
    return Cheapest(values, busy)


def _affordable(table: Alone, price: float, steady: bool) -> tuple[float, int]:
    """The price, lowered if updates would take more than ``MOST_TOGETHER`` nodes together, and how many they take."""
    count = len(table.edges) - 1
    window = min(table.together(price, steady), count)
    if window <= MOST_TOGETHER:
        return price, window
    low, high = 0.0, price
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if table.together(middle, steady) <= MOST_TOGETHER else (low, middle)
    return low, min(table.together(low, steady), count)


class _Group:
    """Tables with about as many nodes, solved side by side. Rows are padded with nodes that are never reached."""

    def __init__(self, tables: Sequence[Alone], price: Steps, end: float, window: int) -> None:
        """``window`` is the most nodes that it can be best for an update of any of them to take together."""
        self._price, self._end, self._window = price, end, window
        count = max(len(table.edges) for table in tables)
        self._edges = np.stack([_padded(t.edges, count, t.edges[-1]) for t in tables])
        self._times = np.stack([_padded(t.times, count, math.inf) for t in tables])
        self._slow = np.stack([_padded(t.slow, count, 1.0) for t in tables])
        self._extra = np.stack([_padded(t.extra, count, t.extra[-1]) for t in tables])
        self._step = price.index(self._times)
        #: until when an update can begin whose node this is, and when the price changes next
        self._next = np.append(self._times[:, 1:], np.full((len(tables), 1), math.inf), axis=1)
        self._change = np.append(price.since[1:], math.inf)[self._step]
        self._later = self._fastest = None
        if tables[0].later is not None:
            self._next = np.full_like(self._times, math.inf)
            self._later = np.stack([_padded(t.later, count, math.inf) for t in tables if t.later is not None])
            self._fastest = np.stack([_padded(t.fastest, count, 1.0) for t in tables if t.fastest is not None])
        self._weight = _column(table.weight for table in tables)
        self._setup = _column(table.setup for table in tables)
        self._per_unit = _column(table.per_unit for table in tables)
        self._cut = tables[0].cut
        self._least = _column(table.least for table in tables)
        self._mean = _column(table.mean for table in tables)
        self._most = _column(table.most for table in tables)
        self._extra_until = _column(table.extra_until for table in tables)
        steps = len(price.value)
        before = np.tri(steps, k=-1, dtype=np.bool_)
        #: lowest[i, j]: the lowest price from step i to step j
        self._lowest = np.minimum.accumulate(np.where(before, math.inf, price.value), axis=1)
        #: charged[i, j]: the integral of that from the end of step i to the beginning of step j
        lengths = np.append(0.0, np.diff(price.since[1:], append=math.inf))[:steps]
        lengths = np.where(np.isfinite(lengths), lengths, 0.0)
        pieces = np.where(np.tri(steps, dtype=np.bool_), 0.0, np.where(before, 0.0, self._lowest) * lengths)
        self._charged = np.append(np.zeros((steps, 1)), np.cumsum(pieces, axis=1)[:, :-1], axis=1)

    def solve(self) -> Cheapest:
        window, rows, count = self._window, len(self._edges), self._edges.shape[1]
        cost = np.full((rows, count + window), math.inf)  # after ``window`` places that are never reached
        cost[:, window] = 0.0
        picked = np.zeros((rows, count), dtype=np.intp)
        best, last = np.zeros(rows), np.zeros(rows, dtype=np.intp)
        final, final_from = np.zeros(rows, dtype=np.intp), np.zeros(rows, dtype=np.intp)
        each = np.arange(rows)
        chance = bool((self._least < self._mean).any())
        size = max(1, _MOST_AT_ONCE // (rows * window))
        for first in range(1, count, size):
            to = np.arange(first, min(first + size, count))
            # Column k: the update takes what came since the (window - k)-th node before.
            before = to[:, None] - np.arange(window, 0, -1)
            since = np.maximum(before, 0)
            paid = self._updates(to, since)
            for place, node in enumerate(to.tolist()):
                total = cost[:, node : node + window] + paid[:, place]
                pick = total.argmin(axis=1)
                cost[:, node + window] = total[each, pick]
                picked[:, node] = pick
            reached = cost[:, window + to]
            lowest = reached.argmin(axis=1)
            better = reached[each, lowest] < best
            best = np.where(better, reached[each, lowest], best)
            last = np.where(better, to[lowest], last)
            final = np.where(better, 0, final)
            if chance or (self._cut and self._is_cut_short(to, since)):
                paid = self._gambles(to, since)
                total = (cost[:, since + window] + np.where(before < 0, math.inf, paid)).reshape(rows, -1)
                lowest = total.argmin(axis=1)
                better = total[each, lowest] < best
                best = np.where(better, total[each, lowest], best)
                last = np.where(better, since.ravel()[lowest], last)
                final = np.where(better, to[lowest // window], final)
                final_from = np.where(better, last, final_from)
        came_from = np.arange(count) - window + picked
        path = [(final, np.where(final > 0, final_from, 0))]
        while last.any():
            before_last = np.where(last > 0, came_from[each, last], 0)
            path.append((last, before_last))
            last = before_last
        return Cheapest(best, self._at_work(path))

    def _at_work(self, path: Sequence[tuple[Ints, Ints]]) -> Floats:
        """The seconds at work, by step of the price, of updates from node to node; from 0 to 0 is none."""
        to, since = (np.stack(column, axis=1) for column in zip(*path, strict=True))
        each = np.arange(len(to))[:, None]
        n = self._edges[each, to] - self._edges[each, since]
        setups: Floats | float = self._in_parts(n[:, :, None])[1][:, :, 0] if self._cut else 1.0
        seconds = self._mean[:, 0] * self._slow[each, to] * (setups * self._setup[:, 0] + self._per_unit[:, 0] * n)
        if 1 < len(self._price.value) <= _MOST_SPLIT:
            begin = self._times[each, to]
            begin = np.where(to > 0, begin, 0.0)[:, :, None]
            stop = begin + np.where(to > 0, seconds, 0.0)[:, :, None]
            parts = np.minimum(stop, np.append(self._price.since[1:], math.inf)) - np.maximum(begin, self._price.since)
            split: Floats = np.maximum(parts, 0.0).sum(axis=1)
            return split
        busy = np.zeros((len(to), len(self._price.value)))
        np.add.at(busy, (np.broadcast_to(each, to.shape), self._step[each, to]), np.where(to > 0, seconds, 0.0))
        return busy

    def _is_cut_short(self, to: Ints, since: Ints) -> bool:
        """Whether an update that may be cut can go on beyond the end of the run."""
        begin = np.where(np.isfinite(self._times[:, to, None]), self._times[:, to, None], -math.inf)
        n = self._edges[:, to, None] - self._edges[:, since] + self._piece(since)
        return bool((begin + self._longest(n, self._slow[:, to, None]) > self._end).any())

    def _longest(self, n: Floats, slow: Floats) -> Floats:
        """The longest that updates for n seconds of data can take, with one set-up to spare if they may be cut."""
        parts = most_parts(n, self._setup, self._per_unit) + 1 if self._cut else 1.0
        found: Floats = self._most * slow * (parts * self._setup + self._per_unit * n)
        return found

    def _piece(self, since: Ints) -> Floats:
        """How much data came with each of these nodes."""
        found: Floats = self._edges[:, since] - self._edges[:, np.maximum(since - 1, 0)]
        return found

    def _gambles(self, to: Ints, since: Ints) -> Floats:
        """What updates cost that are only in time if they happen to be quick: a table's last may be such a one.

        One that may be cut shows what it has read by the end of the run, and is worth going on for so long only.
        """
        times, slow = self._times[:, to, None], self._slow[:, to, None]
        n = self._edges[:, to, None] - self._edges[:, since]
        work = slow * (self._setup + self._per_unit * n)
        begin = np.where(np.isfinite(times), times, 0.0)
        begin = begin if self._cut else np.maximum(begin, self._end - self._most * work)
        price = self._lowest[self._step[:, to, None], -1]
        fixed, paid = slow * self._least * self._setup, price * self._least * slow * self._per_unit
        # If it may be cut, half of it shows by the middle.
        delay = slow * self._least * self._per_unit * (0.5 if self._cut else 1.0)
        taken = n
        if self._cut:
            with np.errstate(divide="ignore", invalid="ignore"):
                worth = (self._weight * (self._end - begin - fixed) - paid) / (2 * self._weight * delay)
            taken = np.where(np.isfinite(worth), np.clip(worth, 0.0, n), n)
        value = self._weight * taken * (begin - self._end + fixed + delay * taken)
        value += price * self._least * slow * self._setup + paid * taken
        if self._cut and (self._least < self._mean).any():
            value = value - self._unread(since, n, slow, price)
        found: Floats = np.where(np.isfinite(times), value, math.inf)
        return found

    def _unread(self, since: Ints, n: Floats, slow: Floats, price: Floats) -> Floats:
        """What is counted too much if the last update also has the rest of the piece before and is not in time."""
        piece = self._piece(since)
        together = self._edges[:, since] - self._edges[:, np.maximum(since - self._window, 0)]
        times = self._times[:, since]
        done = np.where(np.isfinite(times), times, 0.0) + self._longest(together, slow)
        work = slow * (self._setup + self._per_unit * piece)
        is_late = done + self._most * (work + slow * self._per_unit * n) > self._end
        found: Floats = np.where(is_late & (since > 0), self._mean * work * (self._weight * piece + price), 0.0)
        return found

    def _updates(self, to: Ints, since: Ints) -> Floats:
        """What updates that reach nodes ``to`` cost, compared with none."""
        soon = self._at_node(to, since)
        if self._later is None or self._fastest is None or (self._price.steady and not np.isfinite(self._later).any()):
            return soon
        begin = np.minimum(self._later, self._change)[:, to, None]
        possible = np.isfinite(begin) & np.isfinite(self._times[:, to, None])
        begin = np.where(possible, begin, 0.0)
        n = self._edges[:, to, None] - self._edges[:, since]
        slow = self._fastest[:, to, None]
        work = slow * (self._setup + self._per_unit * n)
        extra = self._extra[:, to, None] - self._extra[:, since]
        value = (
            self._weight * n * (begin - self._end + slow * self._mean * (self._setup + self._per_unit * n))
            + np.where(begin + self._most * work <= self._extra_until, extra, 0.0)
            + self._lowest[self._step[:, to, None], -1] * self._mean * work
        )
        found: Floats = np.minimum(soon, np.where(possible, value, math.inf))
        return found

    def _at_node(self, to: Ints, since: Ints) -> Floats:
        """The same for updates that begin before anything changes."""
        factor = self._mean
        times, slow = self._times[:, to, None], self._slow[:, to, None]
        n = self._edges[:, to, None] - self._edges[:, since]
        work = slow * (self._setup + self._per_unit * n)
        alone = self._weight * n * factor * work
        extra = self._extra[:, to, None] - self._extra[:, since]
        longest = self._longest(n, slow)
        if self._cut:
            late, setups = self._in_parts(n)
            alone, work = self._weight * slow * factor * late, slow * (setups * self._setup + self._per_unit * n)
        step = np.broadcast_to(self._step[:, to, None], n.shape)
        finite = np.isfinite(times)
        begin = np.where(finite, times, 0.0)

        def cost(begin: Floats, charge: Floats) -> Floats:
            counted = np.where(begin + longest <= self._extra_until, extra, 0.0)
            value = self._weight * n * (begin - self._end) + alone + counted + charge
            found: Floats = np.where(finite, value, math.inf)
            return found

        if self._price.steady:
            return cost(begin, self._price.value[0] * factor * work)
        # Within a step of the price, or so late that a part of the update is in the next steps. The later it begins,
        # the less it then pays, if prices only fall; ``_lowest`` does.
        change = self._change[:, to, None]
        inside = np.where(begin + longest <= change, cost(begin, self._price.value[step] * factor * work), math.inf)
        within = np.isfinite(change)
        change = np.where(within, change, 0.0)
        # Concave in the length of the update: the mean over chance is at least halfway between the extremes.
        short, long = self._least * work, self._most * work
        charge = (self._charge(step, change, short) + self._charge(step, change, long)) / 2
        across = cost(np.maximum(begin, change - longest), charge)
        across = np.where(within & (self._next[:, to, None] + longest > change), across, math.inf)
        found: Floats = np.minimum(inside, across)
        return found

    def _in_parts(self, n: Floats) -> tuple[Floats, Floats]:
        """How late n seconds of data are in all, and how many set-ups they pay, at a steady price and full speed."""
        return late_and_paid(n, self._setup, self._per_unit, self._price.value.item(0), self._weight)

    def _charge(self, step: Ints, change: Floats, seconds: Floats) -> Floats:
        """What an update pays at the least that begins at the end of a step, at prices that only fall from there."""
        into = np.searchsorted(self._price.since, change + seconds, side="right") - 1
        into = np.maximum(into, np.minimum(step + 1, len(self._price.value) - 1))
        found: Floats = self._charged[step, into] + self._lowest[step, into] * (
            change + seconds - self._price.since[into]
        )
        return found


def _column(values: Iterable[float]) -> Floats:
    """One number for each row, for all nodes and all updates that reach them."""
    return np.array([*values])[:, None, None]


def _padded(values: Floats, count: int, filler: float) -> Floats:
    return np.append(values, np.full(count - len(values), filler))
