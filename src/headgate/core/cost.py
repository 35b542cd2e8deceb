"""How long an update takes: ``E(n) = alpha + beta n``, fitted to the updates so far (Golab et al., 2.4).

``n`` is seconds of event time. The warehouse learns alpha and beta from update to update, and recent updates count
more; a replayed run fits them to all updates at once. Neither becomes negative: a table with a negative cost would
always be ranked first.
"""

from __future__ import annotations

from collections.abc import Iterable

#: the least cost of an update, in seconds
LEAST_UPDATE_TIME = 1e-3


class CostModel:
    """A least-squares line through (seconds of data, seconds of work), updated after every update of a table.

    ``fading`` is the factor by which the weight of all earlier updates falls with each new one; with 1 all count the
    same. ``alpha`` is never below ``least``.

    Invariant: ``_mean_n``, ``_mean_time``, ``_spread`` and ``_together`` are the weighted means of n and time, the
    weighted sum of squares of n around its mean, and that of products of both.
    """

    __slots__ = ("_fading", "_least", "_mean_n", "_mean_time", "_spread", "_together", "_weight", "alpha", "beta")

    def __init__(self, alpha: float = 0.3, beta: float = 0.0, *, fading: float = 0.9, least: float = 0.0) -> None:
        self.alpha = alpha
        self.beta = beta
        self._fading = fading
        self._least = least
        self._weight = 0.0
        self._mean_n = 0.0
        self._mean_time = 0.0
        self._spread = 0.0
        self._together = 0.0

    @classmethod
    def fitted(cls, seen: Iterable[tuple[float, float]]) -> CostModel:
        """Through (seconds of data, seconds of work) of at least one update, all of which count the same."""
        model = cls(fading=1.0, least=LEAST_UPDATE_TIME)
        for n, time in seen:
            model.observe(n, time)
        return model

    def predict(self, n: float) -> float:
        """Seconds that an update of ``n`` seconds of data should take."""
        return self.alpha + self.beta * n

    def slowness(self, n: float, time: float) -> float:
        """How long an update took, as a multiple of what it should have taken."""
        return max(time, self._least) / self.predict(n)

    def observe(self, n: float, time: float) -> None:
        """An update of ``n`` seconds of data took ``time`` seconds."""
        time = max(time, self._least)
        kept = self._fading * self._weight
        self._weight = weight = kept + 1.0
        from_n, from_time = n - self._mean_n, time - self._mean_time
        self._mean_n = mean_n = self._mean_n + from_n / weight
        self._mean_time = mean_time = self._mean_time + from_time / weight
        self._spread = self._fading * self._spread + kept / weight * from_n * from_n
        self._together = self._fading * self._together + kept / weight * from_n * from_time
        # If all updates had the same size the slope is unknown: then all of the time is set-up.
        tells = self._spread / weight > 1e-6 * max(1.0, mean_n * mean_n)
        slope = self._together / self._spread if tells else 0.0
        self.beta = min(max(0.0, slope), mean_time / mean_n if mean_n > 0 else 0.0)
        self.alpha = max(self._least, mean_time - self.beta * mean_n)
