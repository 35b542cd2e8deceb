"""The top k rows of each key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, ParameterError
from headgate.stream.kernel import Changes, Output, Part, Snapshot, TableChange
from headgate.stream.keyed.arrays import (
    TOLERATED_WASTE,
    Flags,
    GrowingArray,
    Numbers,
    RowGroups,
    accumulate,
    is_whole,
    numbers,
    one_batch,
    plain_type,
    storage,
)
from headgate.stream.keyed.changed_slots import SlotState
from headgate.stream.keyed.keys import check_column
from headgate.stream.keyed.rows import ordered_output, output_schema
from headgate.stream.packet import Ints

_NONE = -1


class TopK(SlotState):
    """The ``k`` best rows of each key by the column ``by``: numbers, times or booleans, the largest first.

    A row that comes among the best of its key goes out at once, with the ``rank`` that it takes, from 1 to k, and
    ``final`` false. At the end all rows that are still among the best go out, in the order of keys and ranks, with
    ``final`` true. Of equal rows the earlier one is better. Rows whose value is null or NaN are never among the best.
    """

    rows_table = "best"

    def __init__(self, schema: pa.Schema, keys: Sequence[str], by: str, k: int, descending: bool = True) -> None:
        if k < 1:
            raise ParameterError(f"k must be at least 1; got {k}")
        kind = plain_type(check_column(schema, by).type)
        if not (is_whole(kind) or pa.types.is_floating(kind)):
            raise DeclarationError(f"column {by!r} of type {kind} cannot be ranked by: it must hold numbers or times")
        super().__init__(schema, keys)
        self._by, self._k, self._descending = by, k, descending
        #: the held rows of each slot, best first: their values, and where they stand in the store
        self._best_values = GrowingArray(storage(kind), columns=k)
        self._best_places = GrowingArray(np.int64, _NONE, columns=k)
        self._schema = schema
        self._store: list[pa.RecordBatch] = []
        self._store_rows = 0
        self._best_count = 0
        #: how many batches of the store were part of the last snapshot
        self._snapshot_batches = 0
        rank_fields = [pa.field("rank", pa.int64(), nullable=False), pa.field("final", pa.bool_(), nullable=False)]
        self.output_schema = output_schema([*schema, *rank_fields])

    def process(self, part: Part) -> Output:
        batch = part.batch
        slots = self._keys.slots(batch)
        self._best_values.grow(len(self._keys))
        self._best_places.grow(len(self._keys))
        values, nulls = numbers(batch.column(self._by))
        candidates = np.flatnonzero(self._may_enter(slots, values, nulls))
        if not len(candidates):
            return self._no_output()
        groups = RowGroups.of(slots[candidates])
        candidates, values = candidates[groups.order], values[candidates[groups.order]]
        merits, held = self._merits(values, groups)
        ahead = _ahead(merits, groups, held)
        entering = np.flatnonzero(ahead < self._k)
        self._take(batch, candidates, values, merits, groups, held, entering)
        order = np.argsort(candidates[entering])
        places = candidates[entering][order]
        rows = self._rows(batch.take(pa.array(places)), ahead[entering][order] + 1, final=False)
        return Output(rows, part.rows[places])

    def _may_enter(self, slots: Ints, values: Numbers, nulls: Flags | None) -> Flags:
        """Which rows are better than the worst that their key held before the packet; most are not."""
        worst = self._best_values.values[slots, -1]
        better = values > worst if self._descending else values < worst
        candidates: Flags = (self._best_places.values[slots, -1] == _NONE) | better
        if values.dtype.kind == "f":
            candidates &= ~np.isnan(values)
        return candidates if nulls is None else candidates & ~nulls

    def _merits(self, values: Numbers, groups: RowGroups) -> tuple[Ints, Ints]:
        """Values as integers, the larger the better: those of rows, and those held by group and rank, -1 for none."""
        occupied = self._best_places.values[groups.codes] != _NONE
        every = np.concatenate((values, self._best_values.values[groups.codes][occupied]))
        different, merit = np.unique(every, return_inverse=True)
        merit = merit.astype(np.int64, copy=False) if self._descending else len(different) - 1 - merit
        held = np.full(occupied.shape, _NONE, dtype=np.int64)
        held[occupied] = merit[len(values) :]
        return merit[: len(values)], held

    def _take(
        self,
        batch: pa.RecordBatch,
        candidates: Ints,
        values: Numbers,
        merits: Ints,
        groups: RowGroups,
        held: Ints,
        entering: Ints,
    ) -> None:
        """Hold the best of what was held and of what has entered."""
        groups_of = groups.spread(np.arange(len(groups.codes), dtype=np.int64))[entering]
        held_group, held_rank = np.nonzero(held != _NONE)
        slots = groups.codes
        group = np.concatenate((held_group, groups_of))
        merit = np.concatenate((held[held_group, held_rank], merits[entering]))
        value = np.concatenate((self._best_values.values[slots[held_group], held_rank], values[entering]))
        place = np.concatenate(
            (self._best_places.values[slots[held_group], held_rank], self._store_rows + np.arange(len(entering)))
        )
        # What was held stands first, by rank, then what has entered, by arrival: a stable sort keeps that for equals.
        order = np.lexsort((-merit, group))
        group, value, place = group[order], value[order], place[order]
        sizes = np.bincount(group, minlength=len(slots))
        rank = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        best = rank < self._k
        self._changed.add(slots)
        self._best_values.values[slots[group[best]], rank[best]] = value[best]
        self._best_places.values[slots[group[best]], rank[best]] = place[best]
        self._best_count += int(np.count_nonzero(best)) - len(held_group)
        if len(entering):
            self._store.append(batch.take(pa.array(candidates[entering])))
            self._store_rows += len(entering)
        if self._store_rows > 2 * self._best_count + TOLERATED_WASTE:
            self._drop_overtaken()

    def _drop_overtaken(self) -> None:
        self._changed.stop()
        occupied = self._best_places.values != _NONE
        rows = self._stored_rows(self._best_places.values[occupied])
        self._best_places.values[occupied] = np.arange(rows.num_rows, dtype=np.int64)
        self._store, self._store_rows = [rows], rows.num_rows

    def _stored_rows(self, places: Ints) -> pa.RecordBatch:
        return one_batch(pa.Table.from_batches(self._store, schema=self._schema).take(pa.array(places)))

    def _rows(self, rows: pa.RecordBatch, ranks: Ints, final: bool) -> pa.RecordBatch:
        marks = pa.array(np.full(len(ranks), final, dtype=np.bool_))
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(ranks), marks], schema=self.output_schema)

    def flush(self) -> Output:
        slots, ranks = np.nonzero(self._best_places.values != _NONE)
        rows = self._stored_rows(self._best_places.values[slots, ranks])
        order = self._keys.order([rows.column(name) for name in self._keys.names])
        return ordered_output(self._rows(rows, ranks + 1, final=True), [*order, pa.array(ranks)])

    # --- snapshots ------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        # The store as it is, with rows that have been overtaken: so a row keeps its place from one to the next.
        rows = one_batch(pa.Table.from_batches(self._store, schema=self._schema))
        self._store, self._snapshot_batches = [rows], 1
        return Snapshot({**super().snapshot().tables, "rows": pa.Table.from_batches([rows])})

    def changes(self) -> Changes | None:
        changes = super().changes()
        return None if changes is None else Changes({**changes.tables, "rows": self._added_rows()})

    def _row_count(self) -> int:
        return len(self._best_places)

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        """Where the best of each slot stand in the store, by rank."""
        return {str(rank): pa.array(self._best_places.values[slots, rank]) for rank in range(self._k)}

    def _added_rows(self) -> TableChange:
        """What has come into the store since the last snapshot."""
        rows = pa.Table.from_batches(self._store[self._snapshot_batches :], schema=self._schema)
        self._snapshot_batches = len(self._store)
        return TableChange(np.arange(self._store_rows - rows.num_rows, self._store_rows), rows, self._store_rows)

    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        rows, best = one_batch(snapshot.tables["rows"]), snapshot.tables[self.rows_table]
        self._best_values.grow(len(slots))
        self._best_places.grow(len(slots))
        for rank in range(self._k):
            self._best_places.values[slots, rank] = best.column(str(rank)).to_numpy()
        occupied = self._best_places.values != _NONE
        self._best_values.values[occupied] = numbers(rows.column(self._by))[0][self._best_places.values[occupied]]
        self._store, self._store_rows, self._best_count = [rows], rows.num_rows, int(np.count_nonzero(occupied))
        self._snapshot_batches = 1


def _ahead(merits: Ints, groups: RowGroups, held: Ints) -> Ints:
    """How many of the best k so far are at least as good as each row; rows are in the order of groups.

    Rank by rank: the best so far is a running maximum; what a row drives out of a rank, or the row itself, goes on to
    compete for the next one.
    """
    ahead = np.zeros(len(merits), dtype=np.int64)
    competing = merits
    for rank in range(held.shape[1]):
        best = accumulate(np.maximum, competing, groups, held[:, rank])
        before = np.empty_like(best)
        before[1:] = best[:-1]
        before[groups.starts] = held[:, rank]
        ahead += before >= merits
        competing = np.minimum(before, competing)
        if not (competing >= 0).any():
            break
    return ahead
