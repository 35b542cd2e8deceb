"""A set of items for each of very many slots, most of them tiny: chains through one common log.

Adding is an append; taking a set out follows the chains of all slots asked for side by side, so the number of steps is
the length of the longest. Items may stand in a chain more than once: who takes them puts them in order anyway.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.stream import Ints
from workloads.tpcxbb.arrays import grown, packed, unpacked

_NONE = -1


class Chains:
    """Invariant: entries of the log that can be reached from a head are ``_live`` many; the rest is waste."""

    def __init__(self) -> None:
        #: of each slot, its newest entry
        self._head: Ints = np.full(1024, _NONE, dtype=np.int64)
        self._items: NDArray[np.int32] = np.empty(1024, dtype=np.int32)
        #: of each entry, the one before it in its chain
        self._before: Ints = np.empty(1024, dtype=np.int64)
        self._size = 0
        self._live = 0

    def append(self, slots: Ints, items: NDArray[np.int32]) -> None:
        """Rows of one slot must be neighbours."""
        if not len(slots):
            return
        self._make_room(len(slots))
        self._head = grown(self._head, int(slots.max()) + 1, _NONE)
        first = np.ones(len(slots), dtype=np.bool_)
        first[1:] = slots[1:] != slots[:-1]
        starts = np.flatnonzero(first)
        entries = np.arange(self._size, self._size + len(slots), dtype=np.int64)
        before = entries - 1
        before[starts] = self._head[slots[starts]]
        self._items[self._size : self._size + len(slots)] = items
        self._before[self._size : self._size + len(slots)] = before
        self._head[slots[starts]] = entries[np.append(starts[1:], len(slots)) - 1]
        self._size += len(slots)
        self._live += len(slots)

    def take(self, slots: Ints) -> tuple[Ints, NDArray[np.int32]]:
        """Empty the sets of these slots, each named once: of every item, the place of its slot in ``slots``, and it."""
        owner, items = self.look(slots)
        known = slots[slots < len(self._head)]
        self._head[known] = _NONE
        self._live -= len(items)
        return owner, items

    def look(self, slots: Ints) -> tuple[Ints, NDArray[np.int32]]:
        """As ``take``, but the sets stay."""
        owner = np.flatnonzero(slots < len(self._head))
        at = self._head[slots[owner]]
        owners, entries = [], []
        while True:
            held = np.flatnonzero(at != _NONE)
            if not len(held):
                break
            owner, at = owner[held], at[held]
            owners.append(owner)
            entries.append(at)
            at = self._before[at]
        if not owners:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return np.concatenate(owners), self._items[np.concatenate(entries)]

    def _make_room(self, count: int) -> None:
        if self._size + count <= len(self._items):
            return
        if self._live < self._size // 2:
            self._tidy()
        self._items = grown(self._items, self._size + count, 0)
        self._before = grown(self._before, self._size + count, _NONE)

    def _tidy(self) -> None:
        """Write the log anew, without waste and with every item once."""
        slots, items = unpacked(np.unique(packed(*self.look(np.arange(len(self._head), dtype=np.int64)))))
        self._head.fill(_NONE)
        self._size = self._live = 0
        self.append(slots.astype(np.int64), items)
