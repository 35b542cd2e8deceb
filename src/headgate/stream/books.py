"""What is measured about an operator while it runs, cheap enough to leave on.

A tuple is in one of three states (EdgeWise, figure 5): in the middle of the queue, at its head waiting for a turn, or
being computed. An operator's utilisation over a window is 1 less the share of the window in which its queue was empty
and nobody computed (EdgeWise, equation 11): with a worker pool, time spent waiting for a turn counts as busy, as it
does with a thread of its own.
"""

from __future__ import annotations

import math
from threading import Lock

from headgate.core.errors import InvariantError

#: how fast the estimates of cost and selectivity follow: the weight of the newest turn
LEARNING = 0.2


class Books:
    """Counters of one operator since the start, or since ``forget``; several threads write.

    Invariants:
    1. ``waiting`` packets with ``rows_waiting`` rows were entered and not taken.
    2. ``computing`` packets, or parts of packets, were taken and are not done.
    3. ``empty_since`` is infinite exactly while something waits or is computed.
    """

    def __init__(self, now: float) -> None:
        self.lock = Lock()
        self.waiting = 0
        self.rows_waiting = 0
        self.bytes_waiting = 0
        self.computing = 0
        #: estimates that policies go by; None until measured
        self.cost: float | None = None
        self.selectivity: float | None = None
        self.head_since = now
        self.forget(now)

    def forget(self, now: float) -> None:
        """Measuring begins now."""
        self.since = now
        self.rows_in = self.rows_out = self.packets = self.turns = self.rejected = 0
        #: row seconds
        self.in_queue = self.for_a_turn = 0.0
        #: seconds of workers, by the wall and on a processor
        self.computed = self.processor = 0.0
        self.peak_rows = self.rows_waiting
        self.empty = 0.0
        self.empty_since = math.inf if self.waiting or self.computing else now

    def entered(self, rows: int, size: int, now: float) -> None:
        """A packet comes into the queue."""
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
        """The packet at the head, which came at ``entered``, has its turn."""
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
        """A packet that was taken has its answer."""
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
        """rho since measuring began."""
        window = now - self.since
        empty = self.empty + (now - self.empty_since if self.empty_since < now else 0.0)
        return 1.0 - empty / window if window > 0 else 0.0

    def validate(self) -> None:
        """Check the invariants in the docstring of the class; while nobody else writes."""
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
