"""A packet: an Arrow record batch moving between two operators, with a serial number and arrival times.

Every operator answers every packet with exactly one packet of the same serial number, empty if need be. That makes
order cheap: whoever wants the serial sequence sorts packets by their numbers.

A packet knows which row of the source's packet each of its rows comes from (``origin``), so that branches that meet
again can be merged row by row: the result does not depend on the packet size.

How many rows a packet has is decided here too, first by the processor's cache (``rows_per_packet``), then by measuring
(``PacketTuner``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: bytes of the second-level cache, if the machine does not say
USUAL_L2 = 1 << 20
#: rows; fewer cost more to hand over than to compute, more keep a worker for too long at one turn
FEWEST, MOST = 256, 131_072
#: bytes of a packet, as a multiple of the cache
CACHES = 3.0
#: bytes of a value whose size its type does not tell
VARIABLE = 24
#: packets of one size before its cost is believed
TRIED = 24
#: how much the size changes at a step; and how much dearer it may be without turning round, since measuring is noisy
STEP, NOISE = 1.5, 1.02


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows. Made of nulls, because Arrow cannot make columns of every type from Python values."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows on their way through a query. Never changed; an operator makes a new one.

    ``origin[i]`` is the row of the source's packet that row i comes from, never decreasing; None means that rows are
    those of the source's packet. ``last`` marks the packet after which none comes: operators answer it with what they
    have kept, and its rows have no origin. Times are seconds of the engine's clock.
    """

    serial: int
    batch: pa.RecordBatch
    #: when the oldest and the newest of the rows it stands for came into the system
    first_arrival: float
    last_arrival: float
    origin: Ints | None = None
    last: bool = False
    #: rows of the source's packet, by which throughput is counted however many rows are left
    source_rows: int = 0

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    def answered(self, batch: pa.RecordBatch, parents: Ints | None, tracked: bool) -> Packet:
        """The answer to this packet. ``parents`` are rows of this packet; None if rows are the same.

        ``tracked`` says whether anybody downstream needs to know the origin.
        """
        if not tracked or self.last or parents is None:
            return replace(self, batch=batch, origin=self.origin if parents is None else None)
        return replace(self, batch=batch, origin=parents if self.origin is None else self.origin[parents])

    def origins(self) -> Ints:
        """The origin of every row, as an array in any case."""
        return np.arange(self.rows, dtype=np.int64) if self.origin is None else self.origin


# --- how many rows ------------------------------------------------------------------------------------------
#
# Bobox (section 5.2) fills half of the second-level cache, so that a packet and what an operator makes of it fit
# together: larger ones are fetched from memory again by every operator, smaller ones pay more for every hand-over. Here
# a hand-over costs more, since every call of Arrow or NumPy takes the interpreter some microseconds, during which no
# other worker has it; so the best size is some times larger (``python -m benchmarks stream_packets``). A source that
# has fewer rows sends what it has.


def rows_per_packet(schema: pa.Schema) -> int:
    """Rows that make a packet of the best size, within reason."""
    return min(max(round(CACHES * second_level_cache() / row_bytes(schema)), FEWEST), MOST)


def row_bytes(schema: pa.Schema) -> int:
    """About how many bytes a row of this schema takes."""
    total = 0
    for field in schema:
        try:
            total += max(field.type.bit_width // 8, 1)
        except ValueError:
            total += VARIABLE
    return max(total, 1)


@lru_cache(maxsize=1)
def second_level_cache() -> int:
    """Bytes of the L2 cache of one core."""
    try:
        size = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (ValueError, OSError):
        size = 0
    return size if size > 0 else _from_sysfs() or USUAL_L2


def _from_sysfs() -> int:
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text("ascii").strip()
    except OSError:
        return 0
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else 0


class PacketTuner:
    """Finds the packet size that costs least while a query runs.

    Rows come out the same for every packet size, so the size can be changed at any time. The tuner compares what a row
    costs the query's workers at the current size with what it cost at the size before: it goes on in the same direction
    as long as that helps, and turns round when it does not.

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

    def sent(self, rows: int, total_rows: float, total_seconds: float) -> int:
        """A packet of ``rows`` was sent; how many rows the next should have, given the rows that the query has read so
        far and what they have cost. A packet that is not full says that the source is slow, and nothing about sizes."""
        if rows < self.rows:
            return self.rows
        self._packets += 1
        if self._packets < TRIED:
            return self.rows
        new_rows, new_seconds = total_rows - self._rows_before, total_seconds - self._seconds_before
        self._packets, self._rows_before, self._seconds_before = 0, total_rows, total_seconds
        cost = new_seconds / new_rows if new_rows else float("inf")
        at_bound = self.rows >= MOST if self._growing else self.rows <= FEWEST
        if at_bound or cost > self._cost * NOISE:
            self._growing = not self._growing
        self._cost = cost
        target = self.rows * STEP if self._growing else self.rows / STEP
        self.rows = min(max(round(target), FEWEST), MOST)
        return self.rows
