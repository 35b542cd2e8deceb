"""What updates of each table cost, told apart from how slow the machine was meanwhile.

A machine is slow for all tables at once: because of a neighbour, a slow store, or a slow period of a scenario. When it
is, more data waits, so that updates take longer for two reasons. A line through the updates of one table alone takes
both for the cost of its data. So all tables are fitted together,

    seconds = slowness(t) (alpha + beta n)

with one slowness for all of them: the median, over the updates that began about then, of how long each took compared
with its line. Lines and slowness are improved in turn.

Updates that are all of one size do not tell their set-up from the rest. So each table has a guess of its set-up, which
counts as much as one update: it lies between the seconds that set-up takes in the other tables and the share that it
has there. Where sizes differ it hardly counts, and where lines are exact it does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from headgate.core import LEAST_UPDATE_TIME, CostModel, Floats, Ints

#: an update as (when it began, seconds of data, seconds of work)
Seen = tuple[float, float, float]
#: the slowness at a moment goes by so many updates of each table around it
UPDATES_OF_EACH = 3
#: by at least so many of all tables, and at most; fewer updates than that do not tell it
FEWEST_AROUND, MOST_AROUND = 31, 255
#: it is worked out anew after such a part of them
OVERLAP = 8
#: how often lines and slowness are improved at the most. Slow periods take 10 to 40 rounds; what is left after 60 is
#: small
MOST_ROUNDS = 60
#: nothing is to be improved any more if what is expected of each update changes by less
CONVERGED = 2e-4
#: the share of an update that is taken to be set-up before anything is known
FIRST_SHARE = 0.5
#: the least share that is set-up, and the least that is not, while chance could hide it
LEAST_SHARE = 0.02
#: the highest slope that a scenario takes
MOST_SLOPE = 1e15
#: standard deviation of the guess of a set-up, as a share of an update
GUESS_ERROR = 0.3


def fitted_together(seen: Mapping[str, Sequence[Seen]]) -> dict[str, CostModel]:
    """What updates of each table cost while the machine is as fast as it usually is; of tables that had any.

    The models are good for ``alpha``, ``beta`` and ``predict``: they do not remember what was seen.
    """
    names = [name for name, updates in seen.items() if updates]
    if not names:
        return {}
    began, amounts, seconds = np.array([update for name in names for update in seen[name]]).T
    table = np.repeat(np.arange(len(names)), [len(seen[name]) for name in names])
    order = np.argsort(began, kind="stable")
    lines = _Lines(table[order], amounts[order], np.maximum(seconds[order], LEAST_UPDATE_TIME), len(names))
    lines.improve()
    return {name: CostModel(*line) for name, line in zip(names, lines.setups_and_slopes(), strict=True)}


def machine_slowness(off: Floats, tables: int) -> Floats:
    """How slow the machine was at each update, in the order in which they began; 1 is usual.

    ``off`` are the logarithms of how long each took compared with what its table's updates of that size take.
    """
    if len(off) < FEWEST_AROUND:
        return np.ones(len(off))
    half = min(max(UPDATES_OF_EACH * tables, FEWEST_AROUND), MOST_AROUND, len(off)) // 2
    around = np.pad(off, half, mode="reflect" if len(off) > half else "edge")
    hop = max(1, 2 * half // OVERLAP)
    medians = np.median(sliding_window_view(around, 2 * half + 1)[::hop], axis=1)
    medians -= np.median(medians)
    nearest = np.minimum((np.arange(len(off)) + hop // 2) // hop, len(medians) - 1)
    # With few tables, chance would pass for slowness: medians of so many updates differ by chance, too.
    by_chance = math.pi / 2 * float(np.mean((off - medians[nearest]) ** 2)) / (2 * half + 1)
    all_in_all = float(np.mean(medians**2))
    medians *= max(0.0, 1 - by_chance / all_in_all) if all_in_all > 0 else 0.0
    found: Floats = np.exp(medians[nearest])
    return found


class _Lines:
    """The lines of all tables, through updates in the order in which they began."""

    def __init__(self, table: Ints, amounts: Floats, seconds: Floats, tables: int) -> None:
        self._table, self._seconds, self._tables = table, seconds, tables
        count = np.bincount(table, minlength=tables)
        self._usual_size = np.maximum(self._sums(amounts) / count, 1e-12)
        #: data as a multiple of the usual size of the table's updates
        self._sizes = amounts / self._usual_size[table]
        self._count = count
        self._longest = np.zeros(tables)
        np.maximum.at(self._longest, table, seconds)
        #: how much the logarithm of updates varies around their lines, as a mean square
        self._varies = GUESS_ERROR**2
        mean = self._sums(seconds) / count
        self._setup, self._rest = FIRST_SHARE * mean, (1 - FIRST_SHARE) * mean
        self._predicted = mean[table]

    def _sums(self, values: Floats) -> Floats:
        return np.bincount(self._table, values, self._tables).astype(np.float64)

    def setups_and_slopes(self) -> Sequence[tuple[float, float]]:
        slopes = np.minimum(self._rest / self._usual_size, MOST_SLOPE)
        return [*zip(self._setup.tolist(), slopes.tolist(), strict=True)]

    def improve(self) -> None:
        """Fit lines to what updates would have taken at the usual speed, find the slowness by them, and again."""
        slowness = np.ones(len(self._seconds))
        expected = np.full(len(self._seconds), math.nan)
        for _ in range(MOST_ROUNDS):
            self._fit(self._seconds / slowness)
            slowness = machine_slowness(np.log(self._seconds / self._predicted), self._tables)
            before, expected = expected, slowness * self._predicted
            if float(np.abs(np.log(expected / before)).max()) < CONVERGED:
                break

    def _fit(self, seconds: Floats) -> None:
        """Weighted least squares: what is chance in an update grows with its length."""
        mean, sizes = self._sums(seconds) / self._count, self._sizes
        weight = 1 / self._predicted**2
        # The guess weighs as much as an update would that is as far off. Never nothing: it is all that updates of one
        # size leave to go by.
        chance = min(1.0, self._varies / GUESS_ERROR**2)
        by_guess = max(chance, 1e-6) / mean**2
        w, wx, wxx = self._sums(weight) + by_guess, self._sums(weight * sizes), self._sums(weight * sizes**2)
        wy = self._sums(weight * seconds) + by_guess * self._guesses(mean)
        wxy = self._sums(weight * sizes * seconds)
        determinant = w * wxx - wx * wx
        tells = determinant > 1e-13 * w * wxx
        rest = np.where(tells, w * wxy - wx * wy, 0.0) / np.where(tells, determinant, 1.0)
        # Neither set-up nor the rest is negative, nor so small that chance could hide it. If one would be, it is as
        # small as it may be, and the other goes through the middle of the updates.
        whole = self._sums(weight * seconds) / self._sums(weight)
        little = np.where(wxx > 0, LEAST_SHARE * chance * whole, 0.0)
        setup = np.where(rest > little, (wy - rest * wx) / w, whole - little)
        rest = np.maximum(rest, little)
        least = np.maximum(LEAST_UPDATE_TIME, little)
        no_setup = setup < least
        rest = np.where(no_setup & (wxx > 0), np.maximum(0.0, wxy - least * wx) / np.where(wxx > 0, wxx, 1.0), rest)
        # An update of the usual size takes no longer than the longest one did, whatever others suggest.
        self._setup = np.minimum(np.where(no_setup, least, setup), self._longest)
        self._rest = np.minimum(rest, self._longest)
        self._predicted = self._setup[self._table] + self._rest[self._table] * sizes
        self._varies = float(np.mean(np.log(seconds / self._predicted) ** 2))

    def _guesses(self, mean: Floats) -> Floats:
        """What the set-up of each table should take: between as long as in other tables, and the same share."""
        share = float(np.median(self._setup / (self._setup + self._rest)))
        shares = np.clip((np.median(self._setup) / mean, np.full_like(mean, share)), LEAST_SHARE, 1 - LEAST_SHARE)
        found: Floats = mean * np.sqrt(shares.prod(axis=0))
        return found
