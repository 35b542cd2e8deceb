"""Latency of many tuples in little memory: exact mean and maximum, percentiles from a log-spaced histogram.

Weighted: a latency is added once with the number of tuples that had it. It knows nothing of queries or time;
whoever measures subtracts first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: neighbouring bins differ by 1 %, so a percentile is right to within 1 %
_BINS_PER_E = 1 / math.log(1.01)
_SMALLEST = 1e-9
#: the bin of everything up to the smallest latency, which counts as none at all
_NO_LATENCY = -(1 << 30)


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Seconds; all nan if nothing was recorded."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float


class LatencyRecorder:
    """Collects latencies, each with the number of tuples that had it.

    Invariants:
    1. ``count`` is the sum of the bins, ``total`` the sum of all latencies.
    2. ``max`` is the largest latency added, 0 if there was none.
    """

    __slots__ = ("_bins", "count", "max", "total")

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.max = 0.0

    def add(self, latency: float, count: int = 1) -> None:
        number = math.floor(math.log(latency) * _BINS_PER_E) if latency > _SMALLEST else _NO_LATENCY
        self._bins[number] = self._bins.get(number, 0) + count
        self.count += count
        self.total += latency * count
        self.max = max(self.max, latency)

    @classmethod
    def joined(cls, recorders: Iterable[LatencyRecorder]) -> LatencyRecorder:
        """A recorder with everything that ``recorders`` have."""
        together = cls()
        for recorder in recorders:
            for number, count in recorder._bins.items():
                together._bins[number] = together._bins.get(number, 0) + count
            together.count += recorder.count
            together.total += recorder.total
            together.max = max(together.max, recorder.max)
        return together

    def summary(self) -> LatencySummary:
        if not self.count:
            return LatencySummary(0, math.nan, math.nan, math.nan, math.nan, math.nan)
        p50, p95, p99 = (self.percentile(q) for q in (0.50, 0.95, 0.99))
        return LatencySummary(self.count, self.total / self.count, p50, p95, p99, self.max)

    def percentile(self, share: float) -> float:
        """The smallest latency that at least ``share`` of all tuples stay within, to 1 %; nan if there are none."""
        if not self.count:
            return math.nan
        wanted = math.ceil(share * self.count)
        seen = 0
        for number in sorted(self._bins):
            seen += self._bins[number]
            if seen >= wanted:
                break
        if number == _NO_LATENCY:
            return 0.0
        # the middle of the bin, but never beyond what was really seen
        return min(math.exp((number + 0.5) / _BINS_PER_E), self.max)
