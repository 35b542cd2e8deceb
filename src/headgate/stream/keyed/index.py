"""A growing map from 64-bit integers to slots 0, 1, 2, ..., that looks up whole arrays at once.

Where slots are found depends on how the keys lie (see ``slot_tables``) and is changed as keys come and go. A null can
be a key too: it has a slot like any other, but no place in a table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.stream.keyed.arrays import Flags, Growing
from headgate.stream.keyed.slot_tables import HashTable, SlotTable, table_for
from headgate.stream.packet import Ints

#: more keys than this are moved into a greater table little by little, so that no lookup has to wait for all of them
_AT_ONCE = 1 << 15
#: keys that are moved for each that is new: all are in the greater table long before that is full
_MOVES = 4


class KeyIndex:
    """Which slot a key has.

    1. Slots are dense: a key first seen when n keys were known has slot n.
    2. Keys new in one array get slots in the order of their first appearance in it, a null after them.
    3. The cost of a lookup does not depend on the number of keys known; growing costs a constant per key.
    """

    def __init__(self) -> None:
        self._keys = Growing(np.int64)
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

    def _find(self, keys: Ints) -> NDArray[np.int32]:
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
