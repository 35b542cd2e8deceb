"""The simple queue of operators that take packets one by one: first in, first out."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from headgate.stream.operators.operator import Operator
from headgate.stream.packet import Packet


class QueueOperator(Operator):
    """An operator with one queue. Appending and taking from the left of a deque are atomic."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._queue: deque[tuple[Packet, int, float]] = deque()

    def has_input(self) -> bool:
        return bool(self._queue)

    def head_arrival(self) -> float:
        try:
            return self._queue[0][0].first_arrival
        except IndexError:
            return math.inf

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        self.newest_waiting = packet.last_arrival
        self.books.entered(packet.rows, packet.batch.nbytes, now)
        self._queue.append((packet, port, now))
        # Looked at afterwards: a worker that takes what was there before looks again when it has done with that.
        return len(self._queue) <= 1

    def take(self) -> tuple[Packet, int] | None:
        """The packet at the head; None if somebody else had it. Several threads may ask."""
        try:
            packet, port, entered = self._queue.popleft()
        except IndexError:
            return None
        self.newest_taken = packet.last_arrival
        self.books.taken(packet.rows, packet.batch.nbytes, entered, self.clock())
        return packet, port
