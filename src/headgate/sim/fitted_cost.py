"""What updates of a table cost, from updates that were seen: ``E(n) = alpha + beta n`` and how they vary around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: no update takes less, in seconds
LEAST_TIME = 1e-3


@dataclass(frozen=True, slots=True)
class FittedCost:
    """A least-squares line, neither of whose numbers is negative.

    ``ratios`` are how long each update took compared with what the line says.
    """

    setup_time: float
    time_per_unit: float
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, seen: Sequence[tuple[float, float]]) -> FittedCost:
        """From (seconds of data, seconds of work) of at least one update."""
        amounts = np.array([amount for amount, _ in seen], dtype=np.float64)
        times = np.maximum([time for _, time in seen], LEAST_TIME)
        mean_amount, mean_time = float(amounts.mean()), float(times.mean())
        spread = float(((amounts - mean_amount) ** 2).mean())
        together = float(((amounts - mean_amount) * (times - mean_time)).mean())
        # Updates that were all alike say nothing about the slope: then all of the time is set-up.
        slope = together / spread if spread > 1e-6 * max(1.0, mean_amount**2) else 0.0
        beta = min(max(0.0, slope), mean_time / mean_amount if mean_amount > 0 else 0.0)
        alpha = max(LEAST_TIME, mean_time - beta * mean_amount)
        return cls(alpha, beta, tuple((times / (alpha + beta * amounts)).tolist()))
