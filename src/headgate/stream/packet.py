"""A packet: an Arrow record batch moving between two operators, with a serial number and arrival times.

Every operator answers every packet with exactly one packet of the same serial number, empty if need be. That is what
makes order cheap: whoever wants the serial sequence puts packets back into the order of their numbers.

A packet knows which row of the source's packet each of its rows comes from (``origin``), so that branches that meet
again can be put together row by row: the result does not depend on how many rows a packet has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows on their way through a query. Never changed; an operator makes a new one.

    ``origin[i]`` is the row of the source's packet that row i comes from, never decreasing; None means that rows are
    those of the source's packet. ``last`` is the packet after which none comes: operators answer it with what they
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
        """The origin of every row, written out."""
        return np.arange(self.rows, dtype=np.int64) if self.origin is None else self.origin
