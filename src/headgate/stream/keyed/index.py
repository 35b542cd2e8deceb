"""A growing map from 64-bit integers to slots 0, 1, 2, ..., that looks up whole arrays at once.

Open addressing with linear probing: all keys of an array take their first probe together, those that met another key
their second, and so on. The table is never more than half full, so few rounds are needed. What is stored per table
cell is the slot only; the keys stand in an array of their own, by slot.

A null can be a key too: it has a slot like any other, but no cell in the table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.stream.keyed.arrays import Flags, Growing, first_equals
from headgate.stream.packet import Ints

_EMPTY = -1
_SMALLEST_TABLE = 64
_FIRST_SHIFT, _SECOND_SHIFT = np.uint64(32), np.uint64(29)
#: any large odd numbers without a pattern; they differ from those that choose the bucket, so that the keys of one
#: bucket are spread over its whole table
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)


class KeyIndex:
    """Which slot a key has.

    1. Slots are dense: a key first seen when n keys were known has slot n.
    2. Keys new in one array get slots in the order of their first appearance in it, a null after them.
    3. The cost of a lookup does not depend on the number of keys known; growing costs a constant per key.
    """

    def __init__(self) -> None:
        self._keys = Growing(np.int64)
        self._null = -1
        self._resize()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Ints:
        """The key of each slot, not to be written to; that of a null is 0."""
        return self._keys.values

    @property
    def null(self) -> int:
        """The slot of null, or -1."""
        return self._null

    def slots(self, keys: Ints, nulls: Flags | None = None) -> Ints:
        """The slot of each key; unknown ones are taken in. ``nulls`` says which are null, whatever their value."""
        if nulls is None:
            return self._known_or_new(keys)
        slots = np.empty(len(keys), dtype=np.int64)
        slots[~nulls] = self._known_or_new(keys[~nulls])
        if self._null < 0 and nulls.any():
            self._null = len(self)
            self._keys.grow(self._null + 1)
        slots[nulls] = self._null
        return slots

    def find(self, keys: Ints) -> Ints:
        """The slot of each key, -1 if unknown."""
        return self._probe(_contiguous(keys)).astype(np.int64)

    def keep(self, kept: Flags) -> Ints:
        """Forget all slots but those marked, and number these anew in their order: {old slot: new slot, or -1}."""
        moved = np.full(len(self), -1, dtype=np.int64)
        moved[kept] = np.arange(np.count_nonzero(kept), dtype=np.int64)
        self._keys.replace(self._keys.values[kept])
        if self._null >= 0:
            self._null = int(moved[self._null])
        self._resize()
        return moved

    def _known_or_new(self, keys: Ints) -> Ints:
        keys = _contiguous(keys)
        slots = self._probe(keys).astype(np.int64)
        unknown = np.flatnonzero(slots < 0)
        if len(unknown):
            slots[unknown] = self._insert(keys[unknown])
        return slots

    def _probe(self, keys: Ints) -> NDArray[np.int32]:
        if not len(self):
            return np.full(len(keys), _EMPTY, dtype=np.int32)
        known = self._keys.values
        cells = _spread(keys, len(self._table))
        slots = self._table.take(cells)
        # An empty cell reads the key of slot -1, the last one: any will do.
        pending = np.flatnonzero((slots >= 0) & (known.take(slots) != keys))
        while len(pending):
            cells[pending] = nearby = (cells[pending] + 1) & self._mask
            slots[pending] = met = self._table.take(nearby)
            pending = pending[(met >= 0) & (known.take(met) != keys[pending])]
        return slots

    def _insert(self, keys: Ints) -> Ints:
        """Take in unknown keys, which may repeat, and say their slots."""
        size = max(_SMALLEST_TABLE, 1 << (2 * len(keys)).bit_length())
        leaders = first_equals(keys, _spread(keys, size))
        first = np.flatnonzero(leaders == np.arange(len(keys)))
        begin = len(self)
        self._keys.append(keys[first])
        slots = np.empty(len(keys), dtype=np.int64)
        slots[first] = np.arange(begin, len(self), dtype=np.int64)
        if 2 * len(self) > len(self._table):
            self._resize()
        else:
            self._place(np.arange(begin, len(self), dtype=np.int32))
        return slots[leaders]

    def _resize(self) -> None:
        size = max(_SMALLEST_TABLE, 1 << (4 * len(self) - 1).bit_length()) if len(self) else _SMALLEST_TABLE
        self._table = np.full(size, _EMPTY, dtype=np.int32)
        self._mask = size - 1
        slots = np.arange(len(self), dtype=np.int32)
        self._place(slots if self._null < 0 else slots[slots != self._null])

    def _place(self, slots: NDArray[np.int32]) -> None:
        """Give slots whose keys are not in the table a cell each."""
        cells = _spread(self._keys.values[slots], len(self._table))
        while len(slots):
            free = self._table.take(cells) < 0
            # Of several that want one cell one gets it, and the others see that they did not.
            self._table[cells[free]] = slots[free]
            left = self._table.take(cells) != slots
            cells, slots = (cells[left] + 1) & self._mask, slots[left]


def _spread(keys: Ints, size: int) -> Ints:
    """Throw keys into a table whose size is a power of two."""
    mixed = keys.view(np.uint64)
    mixed = (mixed ^ (mixed >> _FIRST_SHIFT)) * _FIRST_FACTOR
    mixed ^= mixed >> _SECOND_SHIFT
    mixed *= _SECOND_FACTOR
    mixed >>= np.uint64(64 - (size.bit_length() - 1))
    return mixed.view(np.int64)


def _contiguous(keys: Ints) -> Ints:
    return np.ascontiguousarray(keys, dtype=np.int64)
