"""Vectorised tools of the keyed kernels: arrays that grow, groups of rows, and Arrow columns as numbers.

What is computed here group by group is computed strictly from the first row to the last, never in pairs or blocks: a
floating-point result does not depend on how the rows were cut into packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream.packet import Ints, empty_batch
from headgate.stream.sorting import stable_order
from headgate.stream.spec import EARLIEST, LATEST

Flags = NDArray[np.bool_]
Numbers = NDArray[Any]

_SMALLEST_ROOM = 16
#: what a state no longer needs is dropped when it is the greater part, and not before it is this much
TOLERATED_WASTE = 1024


class GrowingArray:
    """An array that grows at its end, at constant cost per element in the long run.

    ``values`` is a view of the elements. It may be written to until the array grows; then ask for a new view.
    """

    def __init__(self, dtype: Any, fill: Any = 0, columns: int | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._fill = fill
        self._columns = () if columns is None else (columns,)
        self._count = 0
        #: beyond ``_count`` it holds the fill
        self._room = self._empty(_SMALLEST_ROOM)

    def _empty(self, count: int) -> Numbers:
        shape = (count, *self._columns)
        # Pages of zeros cost nothing before they are used.
        return np.full(shape, self._fill, dtype=self._dtype) if self._fill else np.zeros(shape, dtype=self._dtype)

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> Numbers:
        return self._room[: self._count]

    def grow(self, count: int) -> None:
        """Have at least ``count`` elements; new ones hold the fill."""
        if count > len(self._room):
            room = self._empty(max(count, 2 * len(self._room)))
            room[: self._count] = self.values
            self._room = room
        self._count = max(self._count, count)

    def append(self, values: Numbers) -> None:
        begin = self._count
        self.grow(begin + len(values))
        self._room[begin : self._count] = values

    def replace(self, values: Numbers) -> None:
        """Hold these elements instead; memory that is no longer needed is freed."""
        self._room = self._empty(max(_SMALLEST_ROOM, len(values)))
        self._count = len(values)
        self._room[: self._count] = values


class Expiry:
    """Numbers with times, in the order of times; the oldest can be taken out without looking at all the others.

    A number may be put in again with a later time; its older entry stays. Who takes it out must check whether the time
    is still the current one.
    """

    def __init__(self) -> None:
        self._items = GrowingArray(np.int64)
        self._times = GrowingArray(np.int64)
        self._begin = 0

    def push(self, items: Ints, times: Ints) -> None:
        """No time may be older than one that was pushed before; within one push they may have any order."""
        order = np.argsort(times, kind="stable")
        self._items.append(items[order])
        self._times.append(times[order])

    def pop(self, before: int) -> tuple[Ints, Ints]:
        """Take out all entries of times below ``before``, which need not fit into 64 bits."""
        before = max(before, EARLIEST)
        end = self._begin + int(np.searchsorted(self._times.values[self._begin :], before, side="left"))
        expired = slice(self._begin, end)
        items, times = self._items.values[expired].copy(), self._times.values[expired].copy()
        self._begin = end
        if self._begin > TOLERATED_WASTE and 2 * self._begin > len(self._items):
            self._items.replace(self._items.values[self._begin :])
            self._times.replace(self._times.values[self._begin :])
            self._begin = 0
        return items, times


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows by group: group i, of code ``codes[i]``, has the rows ``order[starts[i] : starts[i] + sizes[i]]``, in their
    order. Codes ascend."""

    codes: Ints
    order: Ints
    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, codes: Ints) -> RowGroups:
        """``codes`` are not negative."""
        order = stable_order(codes)
        ordered = codes[order]
        starts = run_starts(ordered)
        return cls(ordered[starts], order, starts, np.diff(starts, append=len(codes)))

    @property
    def ends(self) -> Ints:
        """The place of the last row of each group in ``order``."""
        ends: Ints = self.starts + self.sizes - 1
        return ends

    def spread(self, values: Numbers) -> Numbers:
        """A value of each group, for each of its rows."""
        return np.repeat(values, self.sizes)


def first_equals(keys: Ints, cells: Ints) -> Ints:
    """The first row with the same key as each row, found without sorting.

    ``cells`` are the hash table cells of the keys; it is written to. The size of the table is the next power of two. In
    each round the first row of every cell becomes the leader of the rows of its key; the others try the next cell.
    """
    size = 1 << int(cells.max(initial=0)).bit_length()
    table = np.empty(size, dtype=np.int64)
    leaders = np.empty(len(keys), dtype=np.int64)
    pending = np.arange(len(keys), dtype=np.int64)
    while len(pending):
        cell = cells[pending]
        # From behind: of several rows assigned to one cell the last one stays.
        table[cell[::-1]] = pending[::-1]
        leader = table[cell]
        same_key = keys[leader] == keys[pending]
        leaders[pending[same_key]] = leader[same_key]
        pending = pending[~same_key]
        cells[pending] = (cells[pending] + 1) & (size - 1)
    return leaders


def run_starts(*ordered: Numbers) -> Ints:
    """Where runs of equal rows begin; the arguments are the columns of the rows."""
    count = len(ordered[0])
    changed = np.ones(count, dtype=np.bool_)
    if count:
        changed[1:] = False
        for column in ordered:
            changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed).astype(np.int64, copy=False)


def expand(firsts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The elements of ranges, and which range each belongs to.

    ``expand([5, 9], [2, 1])`` is ``[0, 0, 1], [5, 6, 9]``.
    """
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    ends = np.cumsum(counts)
    within = np.arange(len(owners), dtype=np.int64) - np.repeat(ends - counts, counts)
    return owners, np.repeat(firsts, counts) + within


def places_after(ordered: Ints, times: Ints, shift: int, side: Literal["left", "right"]) -> Ints:
    """``np.searchsorted(ordered, times + shift, side)``, also where ``times + shift`` does not fit into 64 bits."""
    bound = LATEST - shift if shift > 0 else EARLIEST - shift
    fits = times <= bound if shift > 0 else times >= bound
    places = np.searchsorted(ordered, np.where(fits, times, 0) + shift, side)
    return np.where(fits, places, len(ordered) if shift > 0 else 0).astype(np.int64, copy=False)


def accumulate(operation: np.ufunc, values: Numbers, groups: RowGroups, initial: Numbers) -> Numbers:
    """The running result of every group, starting from ``initial[group]``; ``values`` are in the groups' order.

    Groups of about one size make a matrix, padded at the end, and are computed side by side: a few calls for any number
    of groups of any size, each row computed from the one before it.
    """
    out = np.empty_like(values)
    # The smallest power of two that holds the group: n - 1 lies below two to this exponent.
    exponents = np.frexp((groups.sizes - 1).astype(np.float64))[1]
    with np.errstate(over="ignore", invalid="ignore"):
        for exponent in np.unique(exponents):
            members = np.flatnonzero(exponents == exponent)
            columns = np.arange(1 << int(exponent), dtype=np.int64)
            places = groups.starts[members, None] + columns
            inside = columns < groups.sizes[members, None]
            block = np.empty((len(members), len(columns) + 1), dtype=values.dtype)
            block[:, 0] = initial[members]
            block[:, 1:] = values[np.minimum(places, len(values) - 1)]
            out[places[inside]] = operation.accumulate(block, axis=1)[:, 1:][inside]
    return out


def plain(column: pa.Array) -> pa.Array:
    """The column as one array, dictionaries decoded."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_whole(kind: pa.DataType) -> bool:
    """Whether values are integers of up to 64 bits, or kept as such: times and booleans are."""
    if pa.types.is_temporal(kind):
        return not pa.types.is_interval(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def storage(kind: pa.DataType) -> np.dtype[Any]:
    """The NumPy type that holds every value of an Arrow type exactly."""
    if pa.types.is_floating(kind):
        return np.dtype(np.float64)
    return np.dtype(np.uint64) if kind == pa.uint64() else np.dtype(np.int64)


def numbers(column: pa.Array) -> tuple[Numbers, Flags | None]:
    """A column of numbers, times or booleans as ``storage`` says, with 0 for nulls; and where nulls are, if any."""
    column = plain(column)
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if nulls is not None:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    return column.to_numpy(zero_copy_only=False).astype(storage(kind), copy=False), nulls


def integers(column: pa.Array) -> tuple[Ints, Flags | None]:
    """A column as 64-bit integers that are equal where its values are; and where nulls are, if any."""
    values, nulls = numbers(column)
    return values.view(np.int64), nulls


def column_of(values: Numbers, nulls: Flags | None, kind: pa.DataType) -> pa.Array:
    """The opposite of ``numbers``."""
    if pa.types.is_temporal(kind):
        width = np.int32 if kind.bit_width == 32 else np.int64
        return pa.array(values.astype(width, copy=False), mask=nulls).view(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(np.bool_), mask=nulls)
    if kind == pa.uint64():
        return pa.array(values.view(np.uint64), mask=nulls)
    if pa.types.is_integer(kind):
        return pa.array(values.astype(str(kind), copy=False), mask=nulls)  # Arrow and NumPy name them alike
    column = pa.array(values, mask=nulls)
    return column if column.type == kind else column.cast(kind)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as a single record batch."""
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return empty_batch(table.schema)
