"""How long an update takes: ``E(n) = alpha + beta n``, fitted from the updates that were seen (Golab et al., 2.4).

``n`` is seconds of event time. Recent updates count more, and neither number becomes negative, because a model that
promises time back would put a table in front for ever.
"""

from __future__ import annotations


class CostModel:
    """An exponentially weighted least-squares line through (seconds of data, seconds of work)."""

    #: what one update counts for when the next one has been seen
    FADING = 0.9

    def __init__(self, alpha: float = 0.3, beta: float = 0.0) -> None:
        self._alpha = alpha
        self._beta = beta
        self._weight = 0.0
        self._n = 0.0
        self._time = 0.0
        self._nn = 0.0
        self._n_time = 0.0

    @property
    def alpha(self) -> float:
        return self._alpha

    @property
    def beta(self) -> float:
        return self._beta

    def predict(self, n: float) -> float:
        return self._alpha + self._beta * n

    def observe(self, n: float, time: float) -> None:
        """An update of ``n`` seconds of data took ``time`` seconds."""
        fading = self.FADING
        self._weight = fading * self._weight + 1.0
        self._n = fading * self._n + n
        self._time = fading * self._time + time
        self._nn = fading * self._nn + n * n
        self._n_time = fading * self._n_time + n * time
        mean_n, mean_time = self._n / self._weight, self._time / self._weight
        spread = self._nn / self._weight - mean_n * mean_n
        together = self._n_time / self._weight - mean_n * mean_time
        # Updates that were all alike say nothing about the slope: then all of the time is set-up.
        slope = together / spread if spread > 1e-6 * max(1.0, mean_n * mean_n) else 0.0
        self._beta = min(max(0.0, slope), mean_time / mean_n if mean_n > 0 else 0.0)
        self._alpha = max(0.0, mean_time - self._beta * mean_n)
