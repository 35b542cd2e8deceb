"""A queue of things that become old, for states that must not look through all they hold to find these."""

from __future__ import annotations

import numpy as np

from headgate.stream.keyed.arrays import Growing
from headgate.stream.packet import Ints

_TOLERATED = 1024


class Expiry:
    """Numbers with times, in the order of times: taken out from the oldest on.

    A number may be put in again with a later time; its older entry stays. Who takes it out must check whether the time
    is still the one that counts.
    """

    def __init__(self) -> None:
        self._items = Growing(np.int64)
        self._times = Growing(np.int64)
        self._begin = 0

    def push(self, items: Ints, times: Ints) -> None:
        """No time may be older than one that was pushed before; within one push they may have any order."""
        order = np.argsort(times, kind="stable")
        self._items.append(items[order])
        self._times.append(times[order])

    def pop(self, before: int) -> tuple[Ints, Ints]:
        """Take out all entries of times below ``before``."""
        end = self._begin + int(np.searchsorted(self._times.values[self._begin :], before, side="left"))
        taken = slice(self._begin, end)
        items, times = self._items.values[taken].copy(), self._times.values[taken].copy()
        self._begin = end
        if self._begin > _TOLERATED and 2 * self._begin > len(self._items):
            self._items.replace(self._items.values[self._begin :])
            self._times.replace(self._times.values[self._begin :])
            self._begin = 0
        return items, times
