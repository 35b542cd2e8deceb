"""Where the slots of integer keys stand: a table for keys that lie close together, and one for all others.

Keys are looked up and taken in as whole arrays. What a table holds is slots; the keys themselves stand in an array by
slot, ``known``, which belongs to whoever has the table.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.stream.keyed.arrays import first_equals
from headgate.stream.packet import Ints

Slots = NDArray[np.int32]

_EMPTY = -1
_SMALLEST_TABLE = 64
#: keys lie close together if there are so few places for each, or so few in all
_CLOSE, _ALWAYS_CLOSE = 8, 1 << 16
_FIRST_SHIFT, _SECOND_SHIFT = np.uint64(32), np.uint64(29)
#: any large odd numbers without a pattern; they differ from those that choose the bucket, so that the keys of one
#: bucket are spread over its whole table
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)


class SlotTable(Protocol):
    """What ``KeyIndex`` asks of a table."""

    def spans(self, keys: Ints, count: int) -> bool:
        """Whether such keys may be placed; there will be ``count`` at most. A table may make room for them."""

    def full(self, count: int) -> bool:
        """Whether a greater table is wanted for so many keys."""

    def find(self, keys: Ints, known: Ints) -> Slots:
        """The slot of each key, -1 if unknown."""

    def firsts(self, keys: Ints) -> tuple[Ints, Ints]:
        """Of unknown keys, which may repeat: the rows that have a key first, and for each row which of these it is."""

    def place(self, keys: Ints, slots: Slots) -> None:
        """Take in keys that are not in the table, each once."""


def table_for(keys: Ints) -> SlotTable:
    """An empty table that suits these keys, which may repeat."""
    if len(keys):
        low, high = int(keys.min()), int(keys.max())
        if _is_close(high - low + 1, len(keys)):
            return DirectTable(low, high)
    return HashTable(len(keys))


def _is_close(width: int, count: int) -> bool:
    return width <= max(_CLOSE * count, _ALWAYS_CLOSE)


class DirectTable:
    """A place for every key of a range: nothing is ever in the way of anything else."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._slots: Slots = np.full(high - low + 1, _EMPTY, dtype=np.int32)

    def spans(self, keys: Ints, count: int) -> bool:
        """The range is widened if keys lie close enough, at least to twice its width: at constant cost in the end."""
        low, high = int(keys.min()), int(keys.max())
        end = self._low + len(self._slots)
        if self._low <= low and high < end:
            return True
        first, last = min(low, self._low), max(high, end - 1)
        if not _is_close(last - first + 1, count):
            return False
        spare = max(2 * len(self._slots) - (last - first + 1), 0)
        # Room goes where keys go; both bounds stay within 64 bits.
        first = max(first - spare, -(1 << 63)) if low < self._low else first
        last = min(last + spare, (1 << 63) - 1) if high >= end else last
        wider = np.full(last - first + 1, _EMPTY, dtype=np.int32)
        wider[self._low - first : end - first] = self._slots
        self._low, self._slots = first, wider
        return True

    def full(self, count: int) -> bool:
        return False

    def find(self, keys: Ints, known: Ints) -> Slots:
        if not len(keys) or (keys.min() >= self._low and keys.max() < self._low + len(self._slots)):
            return self._slots.take(keys - self._low)
        found = np.full(len(keys), _EMPTY, dtype=np.int32)
        inside = np.flatnonzero((keys >= self._low) & (keys <= self._low + (len(self._slots) - 1)))
        found[inside] = self._slots.take(keys[inside] - self._low)
        return found

    def firsts(self, keys: Ints) -> tuple[Ints, Ints]:
        places = keys - self._low
        rows = np.arange(len(keys), dtype=np.int32)
        # From behind: of several rows assigned to one place the last one stays.
        self._slots[places[::-1]] = rows[::-1]
        first = np.flatnonzero(self._slots.take(places) == rows)
        self._slots[places[first]] = np.arange(len(first), dtype=np.int32)
        which = self._slots.take(places).astype(np.int64)
        self._slots[places] = _EMPTY
        return first, which

    def place(self, keys: Ints, slots: Slots) -> None:
        self._slots[keys - self._low] = slots


class HashTable:
    """Open addressing with linear probing: all keys of an array take their first probe together, those that met another
    key their second, and so on. The table is never more than half full, so few rounds are needed."""

    def __init__(self, count: int) -> None:
        size = max(_SMALLEST_TABLE, 1 << (4 * count).bit_length())
        self._table: Slots = np.full(size, _EMPTY, dtype=np.int32)
        self._mask = size - 1

    def spans(self, keys: Ints, count: int) -> bool:
        return True

    def full(self, count: int) -> bool:
        return 2 * count > len(self._table)

    def find(self, keys: Ints, known: Ints) -> Slots:
        if not len(known):
            return np.full(len(keys), _EMPTY, dtype=np.int32)
        cells = _spread(keys, len(self._table))
        slots = self._table.take(cells)
        # An empty cell reads the key of slot -1, the last one: any will do.
        pending = np.flatnonzero((slots >= 0) & (known.take(slots) != keys))
        while len(pending):
            cells[pending] = nearby = (cells[pending] + 1) & self._mask
            slots[pending] = met = self._table.take(nearby)
            pending = pending[(met >= 0) & (known.take(met) != keys[pending])]
        return slots

    def firsts(self, keys: Ints) -> tuple[Ints, Ints]:
        size = max(_SMALLEST_TABLE, 1 << (2 * len(keys)).bit_length())
        leaders = first_equals(keys, _spread(keys, size))
        first = np.flatnonzero(leaders == np.arange(len(keys)))
        number = np.empty(len(keys), dtype=np.int64)
        number[first] = np.arange(len(first), dtype=np.int64)
        return first, number[leaders]

    def place(self, keys: Ints, slots: Slots) -> None:
        cells = _spread(keys, len(self._table))
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
