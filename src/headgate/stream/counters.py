"""What is measured while a query runs: counters of each operator, and the throughput of the query.

Both are cheap enough to leave on. ``headgate.stream.statistics`` makes reports of them.

A row is in one of three states (EdgeWise, figure 5): in the middle of the queue, at its head waiting for a turn, or
being processed. The utilisation of an operator over a window is 1 minus the share of the window in which its queue was
empty and no worker was inside (EdgeWise, equation 11). With a worker pool, time spent waiting for a turn so counts as
busy, as it does with a thread per operator.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import NamedTuple

from headgate.core import InvariantError

#: the weight of the newest turn in the moving averages of cost and selectivity
LEARNING = 0.2
#: the middle of a run lies between these shares of its rows
FIRST, LAST = 0.2, 0.8
#: deliveries that are kept for each sink
KEPT = 100_000


class Counters:
    """Counters of one operator since the start, or since ``reset``. Several threads write.

    Invariants:
    1. ``waiting`` packets with ``rows_waiting`` rows were added and not taken.
    2. ``computing`` packets, or parts of packets, were taken and are not done.
    3. ``empty_since`` is infinite exactly while something waits or is computed.
    """

    def __init__(self, now: float) -> None:
        self.lock = Lock()
        self.waiting = 0
        self.rows_waiting = 0
        self.bytes_waiting = 0
        self.computing = 0
        #: estimates for policies: seconds per row, rows out per row in; None until measured
        self.cost: float | None = None
        self.selectivity: float | None = None
        self.head_since = now
        self.reset(now)

    def reset(self, now: float) -> None:
        """Start to measure now."""
        self.since = now
        self.rows_in = self.rows_out = self.packets = self.turns = self.rejected = 0
        #: row seconds
        self.in_queue = self.for_a_turn = 0.0
        #: seconds of workers: wall clock, and processor
        self.computed = self.processor = 0.0
        self.peak_rows = self.rows_waiting
        self.empty = 0.0
        self.empty_since = math.inf if self.waiting or self.computing else now

    def entered(self, rows: int, size: int, now: float) -> None:
        """A packet was added to the queue."""
        with self.lock:
            if not self.waiting:
                self.head_since = now
                if not self.computing:
                    self.empty += now - self.empty_since
                    self.empty_since = math.inf
            self.waiting += 1
            self.rows_waiting += rows
            self.bytes_waiting += size
            self.peak_rows = max(self.peak_rows, self.rows_waiting)

    def taken(self, rows: int, size: int, entered: float, now: float) -> None:
        """The packet at the head, added at ``entered``, was taken by a worker."""
        with self.lock:
            head = max(self.head_since, entered)
            self.in_queue += rows * (head - entered)
            self.for_a_turn += rows * (now - head)
            self.head_since = now
            self.waiting -= 1
            self.rows_waiting -= rows
            self.bytes_waiting -= size
            self.computing += 1
            self.packets += 1
            self.rows_in += rows

    def done(self, rows_out: int, now: float) -> None:
        """A packet that was taken has been answered."""
        with self.lock:
            self.computing -= 1
            self.rows_out += rows_out
            if not self.computing and not self.waiting:
                self.empty_since = now

    def turn(self, rows_in: int, rows_out: int, seconds: float, processor: float) -> None:
        """A worker's turn is over."""
        with self.lock:
            self.turns += 1
            self.computed += seconds
            self.processor += processor
            if rows_in:
                self._learn(processor / rows_in, rows_out / rows_in)

    def _learn(self, cost: float, selectivity: float) -> None:
        if self.cost is None or self.selectivity is None:
            self.cost, self.selectivity = cost, selectivity
        else:
            self.cost += LEARNING * (cost - self.cost)
            self.selectivity += LEARNING * (selectivity - self.selectivity)

    def utilisation(self, now: float) -> float:
        """The share of time since ``since`` in which the operator had something to do."""
        window = now - self.since
        empty = self.empty + (now - self.empty_since if self.empty_since < now else 0.0)
        return 1.0 - empty / window if window > 0 else 0.0

    def validate(self) -> None:
        """Check the invariants in the docstring of the class; only while nobody else writes."""
        if (
            self.waiting < 0
            or self.rows_waiting < 0
            or (not self.waiting and (self.rows_waiting or self.bytes_waiting))
        ):
            raise InvariantError(f"inv1: {self.waiting} packets wait with {self.rows_waiting} rows")
        if self.computing < 0:
            raise InvariantError(f"inv2: {self.computing} packets are computed")
        if (self.empty_since == math.inf) != bool(self.waiting or self.computing):
            raise InvariantError(
                f"inv3: {self.waiting} wait and {self.computing} are computed, but empty since {self.empty_since}"
            )


class Delivery(NamedTuple):
    """A packet that reached a sink: source rows up to and including it, its arrival times, and when it left."""

    rows: int
    first_arrival: float
    last_arrival: float
    left: float


@dataclass(frozen=True, slots=True)
class MiddleOfRun:
    """Source rows per second, and mean and greatest latency in seconds, in the middle of a run; nan if the run was too
    short to say."""

    rows_per_second: float
    mean_latency: float
    max_latency: float


class Throughput:
    """Throughput and latency in the middle of a run, as the ordered paper measures them (section 7).

    Rows before the 20th and after the 80th percentile of the run do not count: the engine starts up and shuts down
    then. For a run without end only the newest deliveries are kept. Not thread-safe: the query's lock guards it.
    """

    def __init__(self) -> None:
        #: {sink: its deliveries}
        self._deliveries: dict[str, deque[Delivery]] = {}

    def note(self, sink: str, rows: int, first_arrival: float, last_arrival: float, left: float) -> None:
        deliveries = self._deliveries.setdefault(sink, deque(maxlen=KEPT))
        before = deliveries[-1].rows if deliveries else 0
        deliveries.append(Delivery(before + rows, first_arrival, last_arrival, left))

    def middle(self) -> MiddleOfRun:
        """At the sink that got its rows last."""
        ends = {sink: deliveries[-1].left for sink, deliveries in self._deliveries.items() if deliveries}
        if not ends:
            return MiddleOfRun(math.nan, math.nan, math.nan)
        deliveries = self._deliveries[max(ends, key=ends.__getitem__)]
        least, most = deliveries[0].rows, deliveries[-1].rows
        low, high = (least + share * (most - least) for share in (FIRST, LAST))
        inside = [delivery for delivery in deliveries if low <= delivery.rows <= high]
        if len(inside) < 2 or inside[-1].left <= inside[0].left:
            return MiddleOfRun(math.nan, math.nan, math.nan)
        rows = [later.rows - earlier.rows for earlier, later in pairwise(inside)]
        latencies = [delivery.left - (delivery.first_arrival + delivery.last_arrival) / 2 for delivery in inside[1:]]
        return MiddleOfRun(
            sum(rows) / (inside[-1].left - inside[0].left),
            sum(n * latency for n, latency in zip(rows, latencies, strict=True)) / sum(rows),
            max(delivery.left - delivery.first_arrival for delivery in inside[1:]),
        )
