"""A growing map from 64-bit integers to slots 0, 1, 2, ..., that looks up whole arrays at once.

Slots are found by a table of which there are two kinds: ``DirectTable`` for keys that lie close together, ``HashTable``
for all others. A table holds slots; the keys themselves are in an array by slot, which belongs to the index. A null can
be a key too: it has a slot like any other, but no place in a table.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.stream.keyed.arrays import Flags, GrowingArray, first_equals
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
#: more keys than this are moved into a larger table little by little, so that no lookup has to wait for all of them
_AT_ONCE = 1 << 15
#: keys that are moved for each that is new: all are in the larger table long before that is full
_MOVES = 4


class KeyIndex:
    """Which slot a key has.

    1. Slots are dense: a key first seen when n keys were known has slot n.
    2. Keys new in one array get slots in the order of their first appearance in it, a null after them.
    3. The cost of a lookup does not depend on the number of keys known; growing costs a constant per key.
    """

    def __init__(self) -> None:
        self._keys = GrowingArray(np.int64)
        self._null = -1
        self._table: SlotTable = HashTable(0)
        #: while keys are moved: the smaller table, which has all slots below ``_older_slots``, and how many have moved
        self._older: SlotTable | None = None
        self._older_slots = self._moved = 0

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
            return self._known_or_new(keys, repeats=True)
        slots = np.empty(len(keys), dtype=np.int64)
        slots[~nulls] = self._known_or_new(keys[~nulls], repeats=True)
        if self._null < 0 and nulls.any():
            self._null = len(self)
            self._keys.grow(self._null + 1)
        slots[nulls] = self._null
        return slots

    def slots_of_different(self, keys: Ints) -> Ints:
        """As ``slots``, of keys none of which comes twice: new ones need not be compared with each other."""
        return self._known_or_new(keys, repeats=False)

    def find(self, keys: Ints) -> Ints:
        """The slot of each key, -1 if unknown."""
        return self._find(_contiguous(keys)).astype(np.int64)

    def keep(self, kept: Flags) -> Ints:
        """Forget all slots but those marked, and number these anew in their order: {old slot: new slot, or -1}."""
        moved = np.full(len(self), -1, dtype=np.int64)
        moved[kept] = np.arange(np.count_nonzero(kept), dtype=np.int64)
        self._keys.replace(self._keys.values[kept])
        if self._null >= 0:
            self._null = int(moved[self._null])
        self._fill(self._best_table())
        return moved

    def _known_or_new(self, keys: Ints, repeats: bool) -> Ints:
        keys = _contiguous(keys)
        slots = self._find(keys).astype(np.int64)
        unknown = np.flatnonzero(slots < 0)
        if len(unknown) == len(keys):
            return self._insert(keys, repeats) if len(keys) else slots
        if len(unknown):
            slots[unknown] = self._insert(keys[unknown], repeats)
        return slots

    def _find(self, keys: Ints) -> Slots:
        slots = self._table.find(keys, self.keys)
        if self._older is not None:
            missing = np.flatnonzero(slots < 0)
            slots[missing] = self._older.find(keys[missing], self.keys)
        return slots

    def _insert(self, keys: Ints, repeats: bool) -> Ints:
        """Take in unknown keys and say their slots."""
        begin = len(self)
        if not begin:
            self._table = table_for(keys)
        elif not self._table.spans(keys, begin + len(keys)):
            self._fill(HashTable(begin))
        if repeats:
            first, which = self._table.firsts(keys)
            self._keys.append(keys[first])
        else:
            which = np.arange(len(keys), dtype=np.int64)
            self._keys.append(keys)
        if self._table.full(len(self)):
            self._grow(begin)
        else:
            self._place(begin, len(self))
            self._move(_MOVES * len(keys))
        which += begin
        return which

    def _grow(self, begin: int) -> None:
        """The table is too small for the slots from ``begin`` on, which are not in it."""
        table = self._best_table()
        if begin <= _AT_ONCE or self._older is not None or not isinstance(table, HashTable):
            self._fill(table)
            return
        self._older, self._older_slots, self._moved = self._table, begin, 0
        self._table = table
        self._place(begin, len(self))

    def _move(self, count: int) -> None:
        if self._older is None:
            return
        begin, self._moved = self._moved, min(self._moved + count, self._older_slots)
        self._place(begin, self._moved)
        if self._moved == self._older_slots:
            self._older = None

    def _best_table(self) -> SlotTable:
        return table_for(self.keys if self._null < 0 else np.delete(self.keys, self._null))

    def _fill(self, table: SlotTable) -> None:
        """Use this empty table from now on."""
        self._table, self._older = table, None
        self._place(0, len(self))

    def _place(self, begin: int, end: int) -> None:
        slots = np.arange(begin, end, dtype=np.int32)
        keys = self.keys[begin:end]
        if begin <= self._null < end:
            others = slots != self._null
            slots, keys = slots[others], keys[others]
        self._table.place(keys, slots)


def _contiguous(keys: Ints) -> Ints:
    return np.ascontiguousarray(keys, dtype=np.int64)


# --- tables --------------------------------------------------------------------------------------------------


class SlotTable(Protocol):
    """What ``KeyIndex`` asks of a table."""

    def spans(self, keys: Ints, count: int) -> bool:
        """Whether such keys may be placed; there will be ``count`` at most. A table may make room for them."""

    def full(self, count: int) -> bool:
        """Whether so many keys need a larger table."""

    def find(self, keys: Ints, known: Ints) -> Slots:
        """The slot of each key, -1 if unknown; ``known`` are the keys by slot."""

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
    """A place for every key of a range: there are no collisions."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._slots: Slots = np.full(high - low + 1, _EMPTY, dtype=np.int32)

    def spans(self, keys: Ints, count: int) -> bool:
        """The range is widened if keys lie close enough, at least to twice its width, so at constant cost per key."""
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
        cells = _cells(keys, len(self._table))
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
        leaders = first_equals(keys, _cells(keys, size))
        first = np.flatnonzero(leaders == np.arange(len(keys)))
        number = np.empty(len(keys), dtype=np.int64)
        number[first] = np.arange(len(first), dtype=np.int64)
        return first, number[leaders]

    def place(self, keys: Ints, slots: Slots) -> None:
        cells = _cells(keys, len(self._table))
        while len(slots):
            free = self._table.take(cells) < 0
            # Of several that want one cell one gets it, and the others see that they did not.
            self._table[cells[free]] = slots[free]
            left = self._table.take(cells) != slots
            cells, slots = (cells[left] + 1) & self._mask, slots[left]


def _cells(keys: Ints, size: int) -> Ints:
    """Hash keys to the cells of a table whose size is a power of two."""
    mixed = keys.view(np.uint64)
    mixed = (mixed ^ (mixed >> _FIRST_SHIFT)) * _FIRST_FACTOR
    mixed ^= mixed >> _SECOND_SHIFT
    mixed *= _SECOND_FACTOR
    mixed >>= np.uint64(64 - (size.bit_length() - 1))
    return mixed.view(np.int64)
