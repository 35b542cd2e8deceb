"""The agenda: what happens when, in virtual time.

Entries at the same moment are carried out by rank, then in the order in which they were made, so a run can be
repeated exactly.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any


class Rank(IntEnum):
    """What comes first at one moment."""

    CHANGE = 0
    WORK = 1
    ARRIVAL = 2
    SAMPLE = 3


class Agenda:
    """Actions in order of time. ``now`` only moves forward."""

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        self._made = 0

    def at(self, time: float, rank: int, action: Callable[[Any], None], argument: object = None) -> None:
        """Call ``action(argument)`` at ``time``, which must not have passed."""
        self._made += 1
        heapq.heappush(self._entries, (time, rank, self._made, action, argument))

    def next_time(self) -> float:
        """When something happens next; infinity if nothing does."""
        return self._entries[0][0] if self._entries else math.inf

    def step(self) -> None:
        """Go to the next moment and carry out everything that happens then, also what is added for that moment."""
        entries = self._entries
        self.now = now = entries[0][0]
        while entries and entries[0][0] == now:
            _, _, _, action, argument = heapq.heappop(entries)
            action(argument)
