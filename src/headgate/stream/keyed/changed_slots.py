"""States that hold one row for each key, and know which of these rows have changed since the last snapshot.

Only the changed rows have to be written again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Changes, Output, Rejected, Snapshot, TableChange
from headgate.stream.keyed.arrays import GrowingArray
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.rows import no_output
from headgate.stream.packet import Ints
from headgate.stream.spec import EventTime

#: so many slots may have changed in any case; otherwise a quarter of all
_TOLERATED = 1024


class ChangedSlots:
    """The slots whose rows have changed. It costs nothing until ``begin`` is called.

    1. It follows changes from ``begin`` on until ``stop``, or until more than a quarter of the slots have changed.
    2. Slots that were not there at the beginning have changed.
    3. A call costs as much as the slots that it is given or returns, whatever the number of all slots.
    """

    def __init__(self) -> None:
        #: how many slots there were at the beginning; None while changes are not followed
        self._since: int | None = None
        #: {slot: whether it is in ``_changed``}; those of the beginning only
        self._marks = GrowingArray(np.bool_, False)
        self._changed: list[Ints] = []
        self._count = 0

    def __bool__(self) -> bool:
        """Whether changes are followed."""
        return self._since is not None

    def begin(self, count: int) -> None:
        """Follow changes from now on; there are ``count`` slots."""
        self.stop()
        self._since = count
        self._marks.grow(count)

    def resume(self, slots: Ints) -> None:
        """Follow changes of a state that was restored, whose row i is now that of ``slots[i]``. Changes can be told by
        slot only if each row is at the place of its slot."""
        self.stop()
        if np.array_equal(slots, np.arange(len(slots))):
            self.begin(len(slots))

    def stop(self) -> None:
        """Follow changes no longer: only a whole snapshot will do."""
        for slots in self._changed:
            self._marks.values[slots] = False
        self._since, self._changed, self._count = None, [], 0

    def add(self, slots: Ints) -> None:
        """These slots change now; none is given twice."""
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
        """How many slots there were at the beginning, and those that have changed, ascending; there are ``count`` now.
        Then begin again. None if changes were not followed, or if there are too many."""
        since = self._since
        if since is None or self._count + count - since > max(_TOLERATED, since // 4):
            self.stop()
            return None
        new = np.arange(since, count, dtype=np.int64)
        changed = np.concatenate((np.sort(np.concatenate(self._changed)), new)) if self._changed else new
        self.begin(count)
        return since, changed


class SlotState(ABC):
    """A state with a row for each key, by slot.

    Its snapshot has a table ``keys`` by slot, to which rows are only added, and a table ``rows_table`` by slot, whose
    rows change. A slot is never given to another key, unless all slots are numbered anew: then the state calls
    ``stop`` of its changed slots.
    """

    #: the name of the table of rows in a snapshot
    rows_table: ClassVar[str]
    output_schema: pa.Schema
    event_time: EventTime | None = None

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._keys = RowKeys(schema, keys)
        self._changed = ChangedSlots()

    @abstractmethod
    def _row_count(self) -> int:
        """How many slots have a row."""

    @abstractmethod
    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        """The rows of these slots."""

    @abstractmethod
    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        """Take the rows of a snapshot; row i is that of ``slots[i]``."""

    def _values(self) -> dict[str, Any]:
        """What a snapshot has beside tables."""
        return {}

    def _no_output(self, rejected: tuple[Rejected, ...] = ()) -> Output:
        return no_output(self.output_schema, rejected)

    def flush(self) -> Output:
        return self._no_output()

    def snapshot(self) -> Snapshot:
        count = self._row_count()
        slots = np.arange(count, dtype=np.int64)
        self._changed.begin(count)
        tables = {"keys": self._keys.table(slots), self.rows_table: pa.table(self._columns(slots))}
        return Snapshot(tables, self._values())

    def changes(self) -> Changes | None:
        count = self._row_count()
        changed = self._changed.take(count)
        if changed is None:
            return None
        since, slots = changed
        rows = TableChange(slots, pa.table(self._columns(slots)), count)
        return Changes({"keys": self._new_keys(since, count), self.rows_table: rows}, self._values())

    def restore(self, snapshot: Snapshot) -> None:
        slots = self._remember_keys(snapshot.tables["keys"], snapshot.tables[self.rows_table].num_rows)
        self._restore_rows(slots, snapshot)
        # Changes must have the columns of the snapshot that they change, which an older version may have written.
        if snapshot.tables[self.rows_table].column_names == list(self._columns(np.empty(0, dtype=np.int64))):
            self._changed.resume(slots)

    def _new_keys(self, since: int, count: int) -> TableChange:
        if not self._keys.names:
            # A table without columns has no rows.
            return TableChange(np.empty(0, dtype=np.int64), self._keys.table(np.empty(0, dtype=np.int64)), 0)
        new = np.arange(since, count, dtype=np.int64)
        return TableChange(new, self._keys.table(new), count)

    def _remember_keys(self, table: pa.Table, count: int) -> Ints:
        """Take in the keys of a snapshot of ``count`` slots, so that each has the slot of its row: later changes then
        replace rows of the snapshot."""
        if len(self._keys.names) != 1 or not table.column(0).null_count:
            return self._keys.remember(table, count)
        # Of the new keys of one call a null comes last. There is one at most.
        null = int(np.argmax(table.column(0).is_null().to_numpy()))
        pieces = (table.slice(0, null), table.slice(null, 1), table.slice(null + 1))
        return np.concatenate([self._keys.remember(piece, piece.num_rows) for piece in pieces])
