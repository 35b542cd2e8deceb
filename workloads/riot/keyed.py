"""State by key in arrays, so that a packet's rows are worked on together though each key goes its own way.

A key gets a number, its slot, when it is first seen; what is kept for it stands at that place of the arrays. Slots
differ from bucket to bucket and never show in the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import Ints
from workloads.riot.schema import SENSORS, Floats

#: places kept for each source: one for every observable
FIELDS = len(SENSORS) + 1


class KeySlots:
    """Numbers texts from 0 in the order in which they come."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def of(self, keys: pa.Array) -> Ints:
        """The slot of each key; new keys get the next ones."""
        encoded = keys.dictionary_encode()
        words = encoded.dictionary.to_pylist()
        slots = self._slots
        numbers = np.fromiter((slots.setdefault(word, len(slots)) for word in words), np.int64, len(words))
        slots_of_rows: Ints = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return slots_of_rows

    def of_observations(self, batch: pa.RecordBatch) -> Ints:
        """The slots of (source, obstype): ``FIELDS`` in a row for each source."""
        slots: Ints = self.of(batch.column("source")) * FIELDS + batch.column("obstype").to_numpy()
        return slots

    def column(self, first: int = 0) -> pa.Array:
        """The keys by slot from slot ``first`` on; from all of them ``restore`` makes the same numbers."""
        return pa.array(islice(self._slots, first, None), pa.string())

    def restore(self, column: pa.ChunkedArray) -> None:
        self._slots = {key: slot for slot, key in enumerate(column.to_pylist())}


def grown(array: NDArray[Any], size: int, fill: float = 0) -> NDArray[Any]:
    """The array itself if it has ``size`` places, otherwise a copy with at least twice as many, filled up."""
    if len(array) >= size:
        return array
    larger = np.full((max(size, 2 * len(array)), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def rounds(slots: Ints) -> Iterator[Ints]:
    """First the rows with each slot's first occurrence, then those with its second, and so on.

    No slot occurs twice in a round, so a recurrence can take a round at once, in as many steps as the busiest slot
    has rows.
    """
    if not len(slots):
        return
    groups = SlotGroups(slots)
    rank = np.arange(len(slots)) - groups.first[groups.of_sorted]
    rows = groups.order[np.argsort(rank, kind="stable")]
    end = 0
    for size in np.bincount(rank).tolist():
        yield rows[end : end + size]
        end += size


class SlotGroups:
    """Rows grouped by slot: ``order`` sorts them, ``first`` is where each group begins in that order."""

    __slots__ = ("first", "of_sorted", "order", "slots")

    def __init__(self, slots: Ints) -> None:
        self.order = np.argsort(slots, kind="stable")
        in_order = slots[self.order]
        begins = np.empty(len(slots), dtype=bool)
        begins[0] = True
        np.not_equal(in_order[1:], in_order[:-1], out=begins[1:])
        self.first = np.flatnonzero(begins)
        #: of each row in order, the number of its group
        self.of_sorted = np.cumsum(begins) - 1
        self.slots = in_order[self.first]


class LastValues:
    """The last ``width`` values of every slot."""

    def __init__(self, width: int) -> None:
        self.width = width
        #: right-aligned: the newest value stands last
        self._values = np.zeros((0, width))
        self._held = np.zeros(0, dtype=np.int64)

    def extend(self, slots: Ints, values: Floats, kept: NDArray[np.bool_], asked: Ints) -> tuple[Floats, Ints]:
        """Take the rows where ``kept``. For the rows ``asked``: the slot's values up to that row, and how many.

        A window is right-aligned as the history is, and 0 where the slot has not had so many values.
        """
        if not len(slots):
            return np.zeros((0, self.width)), np.zeros(0, dtype=np.int64)
        self._reserve(int(slots.max()) + 1)
        groups = SlotGroups(slots)
        group = groups.of_sorted
        keeps = kept[groups.order]
        kept_so_far = np.cumsum(keeps)
        kept_before: Ints = kept_so_far[groups.first] - keeps[groups.first]
        held = self._held[groups.slots]
        lengths = held + np.add.reduceat(keeps.astype(np.int64), groups.first)
        # One run per group: what was held, then what is new. ``newest`` is where a row's newest value stands.
        begin = np.cumsum(lengths) - lengths
        newest = (begin + held - kept_before - 1)[group] + kept_so_far
        run = np.zeros(max(int(lengths.sum()), 1))
        self._write_held(run, groups.slots, begin, held)
        run[newest[keeps]] = values[groups.order[keeps]]

        place = np.empty(len(slots), dtype=np.int64)
        place[groups.order] = np.arange(len(slots))
        place = place[asked]
        answer = self._windows(run, newest[place], begin[group[place]])
        self._values[groups.slots], self._held[groups.slots] = self._windows(run, begin + lengths - 1, begin)
        return answer

    def _write_held(self, run: Floats, slots: Ints, begin: Ints, held: Ints) -> None:
        group = np.repeat(np.arange(len(slots)), held)
        offset = np.arange(len(group)) - np.repeat(np.cumsum(held) - held, held)
        run[begin[group] + offset] = self._values[slots[group], self.width - held[group] + offset]

    def _windows(self, run: Floats, newest: Ints, begin: Ints) -> tuple[Floats, Ints]:
        places = newest[:, None] + np.arange(1 - self.width, 1)
        windows = np.where(places >= begin[:, None], run[np.maximum(places, 0)], 0.0)
        return windows, np.minimum(newest - begin + 1, self.width)

    def _reserve(self, size: int) -> None:
        self._values = grown(self._values, size)
        self._held = grown(self._held, size)

    def table(self, size: int) -> pa.Table:
        """The first ``size`` slots, for a snapshot."""
        self._reserve(size)
        return pa.table({"held": self._held[:size].copy(), "values": list_column(self._values[:size])})

    def restore(self, table: pa.Table) -> None:
        self._held = table.column("held").to_numpy().copy()
        self._values = list_matrix(table.column("values"), self.width)


def list_column(matrix: NDArray[Any]) -> pa.Array:
    """A matrix as a column of lists, one for each row."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel().copy()), matrix.shape[1])


def list_matrix(column: pa.ChunkedArray, width: int) -> NDArray[Any]:
    """The inverse of ``list_column``; it can be written to."""
    matrix: NDArray[Any] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width).copy()
    return matrix
