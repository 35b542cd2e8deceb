"""Prices of the tracks over time for the fluid bound: sums of lines, each of which falls to 0 at some time.

Time is in steps; what data costs in many steps is looked up with what is here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headgate.core import Floats, Ints
from headgate.sim.tables.scenario import Slowdown

#: lines fall to 0 so many lengths of a slow period after it
_AFTER = (0.06, 0.125, 0.25, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
#: without slow periods: after such a part of the run; inf never does
_PARTS = (0.125, 0.25, 0.5, 1.0, math.inf)
#: with slow periods, lines over the run for an overload that lasts
_WHOLE = (0.5, 1.0)
#: each cycle is in so many steps, or fewer if they were too many
_STEPS, _FEWEST_STEPS, _MOST_STEPS = 192, 48, 20_000
#: a run without slow periods is in so many
_PLAIN_STEPS = 1_536
#: so many steps ahead are looked at one by one, and then twice as many together each time
_AHEAD = 4


class PriceLines(NamedTuple):
    """Prices that fall in straight lines; what is paid in a step is the lowest price in it."""

    #: by step: when it begins, and the first step after the slow period that it is in, 0 if it is in none
    since: Floats
    until: Ints
    #: by line and step
    paid: Floats
    #: by line, and how fast it falls, times the slowness then
    integrals: Floats
    falls: Floats


def price_lines(cycle: Slowdown | None, end: float) -> PriceLines:
    """The lines for a run; none if there would be too many steps."""
    if cycle is None:
        since = np.linspace(0.0, end, _PLAIN_STEPS + 1)[:-1]
        zero = np.array([part * end for part in _PARTS if part < math.inf])[:, None]
        steady = np.full((1, len(since)), end)
        high, low = (
            np.vstack([np.maximum(0.0, zero - moments), steady]) for moments in (since, np.append(since[1:], end))
        )
        falls, until = np.append(np.ones(len(zero)), 0.0), np.zeros(len(since), dtype=np.intp)
        return PriceLines(since, until, low, (high + low) / 2 @ np.diff(since, append=end), falls)
    length = cycle.normal + cycle.slow
    cycles = math.ceil(end / length) + 1
    if cycles * _FEWEST_STEPS > _MOST_STEPS:
        return PriceLines(np.zeros(1), np.zeros(1, dtype=np.intp), np.zeros((0, 1)), np.zeros(0), np.zeros(0))
    steps = min(_STEPS, _MOST_STEPS // cycles // 4 * 4)
    last, slow = min(_AFTER[-1] * cycle.slow, cycle.normal), steps // 4
    busy = np.linspace(-cycle.slow, 0.0, slow + 1)[:-1]
    cell = np.concatenate([busy, last * np.linspace(0.0, 1.0, steps - slow + 1) ** 2])
    number, place = np.divmod(np.arange(cycles * len(cell)), len(cell))
    begins, ends = cell[place], np.append(cell[1:], cycle.normal)[place]
    # in each cycle, when a line is at 0: not after the end of the run
    zero = np.minimum(np.array([min(after * cycle.slow, last) for after in _AFTER])[:, None], end - number * length)
    slowness = np.where(place < slow, cycle.factor, 1.0)
    # Nothing waits before the first slow period.
    waits = number * length + begins >= cycle.normal
    high, low = (np.maximum(0.0, zero - moments) / slowness * waits for moments in (begins, ends))
    # and for an overload that lasts, lines over the whole run
    whole = np.array(_WHOLE)[:, None] * end
    high = np.vstack([high, np.maximum(0.0, whole - number * length - begins)])
    low = np.vstack([low, np.maximum(0.0, whole - number * length - ends)])
    falls = np.append(np.ones(len(zero)), np.full(len(whole), cycle.factor))
    # The last bits of a moment may say that it is in the other stretch: full speed is a little longer here.
    since = number * length + begins
    since += 1e-9 * (1.0 + since) * ((place == 0) - 1.0 * (place == slow))
    inside = np.flatnonzero((np.append(since[1:], math.inf) > 0) & (since < end))
    until = np.where(place < slow, np.minimum(number * len(cell) + slow - inside[0], len(inside)), 0)[inside]
    since, high, low = np.maximum(since[inside], 0.0), high[:, inside], low[:, inside]
    return PriceLines(since, until, low, (high + low) / 2 @ np.diff(since, append=end), falls)


# --- steps ------------------------------------------------------------------------------------------------------


def least_between(values: Floats, first: Ints, last: Ints) -> Floats:
    """The least value from one place to another; infinity if there is none between."""
    pairs = np.stack([first, np.maximum(first, last) + 1], axis=1).ravel()
    found: Floats = np.minimum.reduceat(np.append(values, (math.inf, math.inf)), pairs)[::2]
    return np.where(first <= last, found, math.inf)


def blocks_ahead(steps: int) -> Sequence[tuple[int, int]]:
    """Steps ahead, as (from, to): the next ones one by one, then more and more together, until there are ``steps``."""
    found = [(each, each) for each in range(1, _AHEAD + 1)]
    while found[-1][1] < steps:
        first = found[-1][1] + 1
        found.append((first, 2 * (first - 1)))
    return found


def same_period(until: Ints) -> list[tuple[int, Ints]]:
    """(distance, the steps that have a step so much further in the same slow period), for 1, 2, 4 and so on."""
    steps, further = np.flatnonzero(until), 1
    found = []
    while len(same := steps[steps + further < until[steps]]):
        found.append((further, same))
        further *= 2
    return found
