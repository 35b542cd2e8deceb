"""Throughput and latency in the middle of a run, as the ordered paper measures them (section 7).

Every packet that reaches a sink leaves a marker. What lies before the 20th and after the 80th percentile of a run's
rows is starting up and shutting down and does not count. For a run without end only the newest markers are kept.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

FIRST, LAST = 0.2, 0.8
KEPT = 100_000


class Marker(NamedTuple):
    """A packet at a sink: rows of the source it stands for, counted up to and with it, and times."""

    rows: int
    first_arrival: float
    last_arrival: float
    left: float


@dataclass(frozen=True, slots=True)
class MiddleOfRun:
    """Source rows per second, and mean and greatest latency in seconds, between the two percentiles; nan if the run
    was too short to say."""

    rows_per_second: float
    mean_latency: float
    max_latency: float


class Markers:
    """The markers of a query, by sink. Not thread-safe: the query's lock guards it."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Marker]] = {}

    def note(self, sink: str, rows: int, first_arrival: float, last_arrival: float, left: float) -> None:
        kept = self._of.setdefault(sink, deque(maxlen=KEPT))
        before = kept[-1].rows if kept else 0
        kept.append(Marker(before + rows, first_arrival, last_arrival, left))

    def middle(self) -> MiddleOfRun:
        """Of the sink that was last to get its rows."""
        ends = {sink: kept[-1].left for sink, kept in self._of.items() if kept}
        if not ends:
            return MiddleOfRun(math.nan, math.nan, math.nan)
        kept = self._of[max(ends, key=ends.__getitem__)]
        least, most = kept[0].rows, kept[-1].rows
        low, high = (least + share * (most - least) for share in (FIRST, LAST))
        inside = [marker for marker in kept if low <= marker.rows <= high]
        if len(inside) < 2 or inside[-1].left <= inside[0].left:
            return MiddleOfRun(math.nan, math.nan, math.nan)
        rows = [later.rows - earlier.rows for earlier, later in pairwise(inside)]
        latencies = [marker.left - (marker.first_arrival + marker.last_arrival) / 2 for marker in inside[1:]]
        return MiddleOfRun(
            sum(rows) / (inside[-1].left - inside[0].left),
            sum(n * latency for n, latency in zip(rows, latencies, strict=True)) / sum(rows),
            max(marker.left - marker.first_arrival for marker in inside[1:]),
        )
