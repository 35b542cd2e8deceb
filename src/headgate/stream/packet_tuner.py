"""Finding the packet size that costs least while a query runs, starting from the one that the cache suggests.

Rows come out the same for every packet size, so the size can be changed at any time. The tuner compares what a row
costs the query's workers at the size of the moment with what it cost before: it goes on in the same direction as long
as that helps, and turns round when it does not.
"""

from __future__ import annotations

from headgate.stream.packet_size import FEWEST, MOST

#: packets of one size before its cost is believed
TRIED = 24
#: how much the size changes at a step; and how much dearer it may be without turning round, since measuring is noisy
STEP, NOISE = 1.5, 1.02


class PacketTuner:
    """Tells how many rows the next packet should have.

    Invariants:
    1. ``FEWEST <= rows <= MOST``.
    2. A size is kept for at least ``TRIED`` full packets.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._growing = True
        self._packets = 0
        self._cost = float("inf")
        self._seconds_before = self._rows_before = 0.0

    def sent(self, rows: int, rows_in_all: float, seconds_in_all: float) -> int:
        """A packet of so many rows was sent; given what the query has taken and cost so far, how many rows the next
        should have. A packet that is not full says that the source is slow, and nothing about sizes."""
        if rows < self.rows:
            return self.rows
        self._packets += 1
        if self._packets < TRIED:
            return self.rows
        taken, spent = rows_in_all - self._rows_before, seconds_in_all - self._seconds_before
        self._packets, self._rows_before, self._seconds_before = 0, rows_in_all, seconds_in_all
        cost = spent / taken if taken else float("inf")
        at_bound = self.rows >= MOST if self._growing else self.rows <= FEWEST
        if at_bound or cost > self._cost * NOISE:
            self._growing = not self._growing
        self._cost = cost
        wanted = self.rows * STEP if self._growing else self.rows / STEP
        self.rows = min(max(round(wanted), FEWEST), MOST)
        return self.rows
