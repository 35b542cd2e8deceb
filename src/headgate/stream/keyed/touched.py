"""Which slots of a state have changed since it was last put down, so that only these have to be put down again.

The states that use it keep a table of their keys by slot, to which rows are only added, beside tables by slot whose
rows change. A slot is never given to another key, unless all are numbered anew: then the state calls ``stop``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import TableChange
from headgate.stream.keyed.arrays import Growing
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.packet import Ints

#: so many slots may have changed in any case; otherwise a quarter of all
_TOLERATED = 1024


class Touched:
    """The slots whose rows have changed. It costs nothing until it is begun.

    1. It follows changes from ``begin`` on until ``stop``, or until more than a quarter of the slots have changed.
    2. Slots that were not there at the beginning have changed.
    3. Every call costs as much as the slots that it is given or gives, whatever the number of all.
    """

    def __init__(self) -> None:
        #: how many slots there were at the beginning; None while changes are not followed
        self._since: int | None = None
        #: {slot: whether it is in ``_changed``}; those of the beginning only
        self._marks = Growing(np.bool_, False)
        self._changed: list[Ints] = []
        self._count = 0

    def __bool__(self) -> bool:
        """Whether changes are followed."""
        return self._since is not None

    def begin(self, count: int) -> None:
        """Follow changes from here on, where there are ``count`` slots."""
        self.stop()
        self._since = count
        self._marks.grow(count)

    def resume(self, slots: Ints) -> None:
        """Follow changes of a state that was restored, whose row i is now that of ``slots[i]``: only if each row stands
        at its slot can changes be told by slot."""
        self.stop()
        if np.array_equal(slots, np.arange(len(slots))):
            self.begin(len(slots))

    def stop(self) -> None:
        """Changes can no longer be told: nothing but a whole snapshot will do."""
        for slots in self._changed:
            self._marks.values[slots] = False
        self._since, self._changed, self._count = None, [], 0

    def add(self, slots: Ints) -> None:
        """These change now; each of them once."""
        if self._since is None:
            return
        slots = slots[slots < self._since]
        slots = slots[~self._marks.values[slots]]
        if not len(slots):
            return
        self._marks.values[slots] = True
        self._changed.append(slots)
        self._count += len(slots)
        if self._count > max(_TOLERATED, self._since // 4):
            self.stop()

    def take(self, count: int) -> tuple[int, Ints] | None:
        """How many slots there were, and those that have changed, ascending, now that there are ``count``; and begin
        again. None if it does not know, or if these are too many."""
        since = self._since
        if since is None or self._count + count - since > max(_TOLERATED, since // 4):
            self.stop()
            return None
        new = np.arange(since, count, dtype=np.int64)
        changed = np.concatenate((np.sort(np.concatenate(self._changed)), new)) if self._changed else new
        self.begin(count)
        return since, changed


def added_keys(keys: RowKeys, since: int, count: int) -> TableChange:
    """What has become of a table of the keys of all slots, of which there were ``since``, and are ``count`` now."""
    if not keys.names:
        # A table without columns has no rows.
        return TableChange(np.empty(0, dtype=np.int64), keys.table(np.empty(0, dtype=np.int64)), 0)
    new = np.arange(since, count, dtype=np.int64)
    return TableChange(new, keys.table(new), count)


def changed_rows(slots: Ints, columns: Mapping[str, Any], count: int) -> TableChange:
    """What has become of a table by slot: the rows of these slots, of ``count``."""
    return TableChange(slots, pa.table(dict(columns)), count)


def remember_keys(keys: RowKeys, table: pa.Table, count: int) -> Ints:
    """Take in the keys of a snapshot of ``count`` slots into a state that has none, so that each has the slot of its
    row: what changes from now on stands in the rows of the snapshot."""
    if len(keys.names) != 1 or not table.column(0).null_count:
        return keys.remember(table, count)
    # Of the new keys of one call a null comes last. There is one at most.
    null = int(np.argmax(table.column(0).is_null().to_numpy()))
    pieces = (table.slice(0, null), table.slice(null, 1), table.slice(null + 1))
    return np.concatenate([keys.remember(piece, piece.num_rows) for piece in pieces])
