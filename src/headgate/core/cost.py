"""How long an update takes: ``E(n) = alpha + beta n``, fitted to the updates so far (Golab et al., 2.4).

``n`` is an amount of data: seconds of event time, or the bytes of a source. The warehouse learns alpha and beta from
update to update, and recent updates count more; a replayed run fits them to all updates at once. Neither becomes
negative: a table with a negative cost would always be ranked first.

The model also says how much data fits into a budget of time (``most``). A line through updates of similar size tells
little about larger ones: then all of their time counts as caused by their data, unless they take too long and cannot be
smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

#: the longest length of time that may be stated, in seconds: about 30 years
MOST_SECONDS = 1e9
#: the least cost of an update, in seconds
LEAST_UPDATE_TIME = 1e-3
#: an update may be this many times as large as the largest one so far
GROWTH = 4.0
#: the longest update of a table that would fall behind otherwise, in budgets: so long that set-up hardly matters
STRETCH = 4.0
#: such an update takes in this many times what has arrived since the last one, to catch up
CATCH_UP = 1.25
#: an update up to this many times as large as the mean is of the usual size
USUAL = 1.25
#: if they differ by less than this share of their mean, a slope is that of noise
NOISY_SPREAD = 0.05
#: a slope is trusted if the sizes of updates differ by this share of their mean
TELLING_SPREAD = 0.2
#: so many updates of one size that take too long: smaller ones cannot be had, so a larger one is tried
SAME_AGAIN = 3.0


def fits(alpha: float, beta: float, budget: float) -> float:
    """How much data an update may take in so that ``alpha + beta n`` is at most ``budget`` seconds.

    If the set-up alone takes more than half of the budget, an update may take twice the set-up: else most of the time
    would be spent on set-up.
    """
    return math.inf if beta <= 0 else max(budget - alpha, alpha) / beta


def keeping_up(within: float, stretched: float, waiting: float, left: float) -> float:
    """How much data an update may take in so that its table does not fall behind because its updates are cut.

    ``within`` is what fits into its budget, ``stretched`` what fits into ``STRETCH`` budgets. ``waiting`` is all there
    is, and ``left`` what the last update left of that when it began; 0 if it was not cut. A table that gets more
    between two updates than one of them takes in would never catch up.
    """
    return max(within, min(CATCH_UP * (waiting - left), stretched)) if left > 0 else within


class CostModel:
    """A least-squares line through (amount of data, seconds of work), updated after every update of a table.

    ``fading`` is the factor by which the weight of all earlier updates falls with each new one; with 1 all count the
    same. ``alpha`` is never below ``least``.

    Invariant: ``_mean_n``, ``_mean_time``, ``_spread`` and ``_together`` are the weighted means of n and time, the
    weighted sum of squares of n around its mean, and that of products of both. ``largest`` is the largest n so far.
    """

    __slots__ = (
        *("_fading", "_least", "_mean_n", "_mean_time", "_spread", "_together", "_weight"),
        *("alpha", "beta", "largest"),
    )

    def __init__(self, alpha: float = 0.3, beta: float = 0.0, *, fading: float = 0.9, least: float = 0.0) -> None:
        self.alpha = alpha
        self.beta = beta
        self.largest = 0.0
        self._fading = fading
        self._least = least
        self._weight = 0.0
        self._mean_n = 0.0
        self._mean_time = 0.0
        self._spread = 0.0
        self._together = 0.0

    @classmethod
    def fitted(cls, seen: Iterable[tuple[float, float]]) -> CostModel:
        """Through (amount of data, seconds of work) of at least one update, all of which count the same."""
        model = cls(fading=1.0, least=LEAST_UPDATE_TIME)
        for n, time in seen:
            model.observe(n, time)
        return model

    def predict(self, n: float) -> float:
        """Seconds that an update of ``n`` should take."""
        return self.alpha + self.beta * n

    def most(self, budget: float, start: float) -> float:
        """How much data an update may take in so that it should take at most ``budget`` seconds.

        ``start`` is an amount to try before more is known.
        """
        limit = GROWTH * self.largest
        if limit < start:
            return start
        if self._spread <= TELLING_SPREAD**2 * self._weight * self._mean_n * self._mean_n:
            if self._mean_time > 2 * budget and self._weight > SAME_AGAIN:
                # Half as much was asked for and not to be had, as of a block. If it is set-up, twice as much tells.
                return min(limit, 2 * self._mean_n)
            return min(limit, self._mean_n * budget / max(self._mean_time, LEAST_UPDATE_TIME))
        return min(limit, fits(self.alpha, self.beta, budget))

    @property
    def setup_and_slope(self) -> tuple[float, float]:
        """``alpha`` and ``beta`` for whoever goes by one of them alone. If sizes were too much alike to tell them
        apart, all of the time is set-up."""
        if self._weight and self._spread <= NOISY_SPREAD**2 * self._weight * self._mean_n * self._mean_n:
            return max(self._least, self._mean_time), 0.0
        return self.alpha, self.beta

    @property
    def observed(self) -> float:
        """How many updates it was fitted to, earlier ones counted less."""
        return self._weight

    def is_usual(self, n: float, seconds: float) -> bool:
        """Whether updates of this size are nothing new, and take at most ``seconds``."""
        return n <= USUAL * self._mean_n and self.predict(n) <= seconds

    def slowness(self, n: float, time: float) -> float:
        """How long an update took, as a multiple of what it should have taken."""
        return max(time, self._least) / self.predict(n)

    def observe(self, n: float, time: float) -> None:
        """An update of ``n`` took ``time`` seconds."""
        time = max(time, self._least)
        kept = self._fading * self._weight
        self._weight = weight = kept + 1.0
        from_n, from_time = n - self._mean_n, time - self._mean_time
        self._mean_n += from_n / weight
        self._mean_time += from_time / weight
        self._spread = self._fading * self._spread + kept / weight * from_n * from_n
        self._together = self._fading * self._together + kept / weight * from_n * from_time
        self.largest = max(self.largest, n)
        self._fit()

    def _fit(self) -> None:
        mean_n, mean_time = self._mean_n, self._mean_time
        # If all updates had the same size the slope is unknown: then all of the time is set-up.
        tells = self._spread / self._weight > 1e-6 * max(1.0, mean_n * mean_n)
        slope = self._together / self._spread if tells else 0.0
        self.beta = min(max(0.0, slope), mean_time / mean_n if mean_n > 0 else 0.0)
        self.alpha = max(self._least, mean_time - self.beta * mean_n)

    # --- kept from one run to the next ----------------------------------------------------------------------

    def numbers(self) -> tuple[float, ...] | None:
        """All that was learned, as numbers for ``from_numbers``; None if nothing was."""
        if not self._weight:
            return None
        return (self._weight, self._mean_n, self._mean_time, self._spread, self._together, self.largest)

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> CostModel:
        """The model whose ``numbers`` these are; ValueError if they cannot be."""
        weight, mean_n, mean_time, spread, together, largest = numbers
        if not all(map(math.isfinite, numbers)) or min(mean_n, mean_time, spread, largest) < 0 or weight <= 0:
            raise ValueError(f"not the numbers of a cost model: {numbers}")
        model = cls()
        model._weight, model._mean_n, model._mean_time = weight, mean_n, mean_time
        model._spread, model._together, model.largest = spread, together, largest
        model._fit()
        return model
