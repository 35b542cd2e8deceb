"""Sorting rows by several columns at once, without comparing them column by column.

Columns of integers are packed into one number per row, and rows are sorted by it. Where these numbers lie close
together and no two rows are equal, as for the keys of a window, no comparison is needed. Other columns are left to
Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream.packet import Ints

#: numbers lie close together if there are so few for each row
_CLOSE = 8
_BITS = 63
#: bits of a digit; and how many digits are sorted faster one by one than as a whole
_DIGIT, _LOW_DIGIT, _MOST_DIGITS = 16, 0xFFFF, 3
#: Arrow is told per column where nulls go since version 25; before, once for all columns
_NULLS_BY_COLUMN = int(pa.__version__.partition(".")[0]) >= 25


def sorted_places(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Ints:
    """The order that sorts rows by these columns, ascending, nulls first; equal rows stay as they are."""
    count = len(columns[0])
    if count < 2:
        return np.arange(count, dtype=np.int64)
    if all(pa.types.is_integer(column.type) and not column.null_count for column in columns):
        codes = _codes(columns)
        if codes is not None:
            return places_by_code(*codes)
    names = [str(number) for number in range(len(columns))]
    table = pa.Table.from_arrays(list(columns), names=names)
    if _NULLS_BY_COLUMN:
        options = pc.SortOptions([(name, "ascending", "at_start") for name in names])
    else:
        options = pc.SortOptions([(name, "ascending") for name in names], null_placement="at_start")
    places: Ints = pc.sort_indices(table, options=options).to_numpy().astype(np.int64, copy=False)
    return places


def places_by_code(codes: Ints, width: int) -> Ints:
    """The order that sorts codes from 0 up to, but not including, ``width``; equal ones stay as they are."""
    count = len(codes)
    if width <= _CLOSE * count:
        present = np.zeros(width, dtype=np.bool_)
        present[codes] = True
        sorted_codes = np.flatnonzero(present)
        if len(sorted_codes) == count:
            place = np.empty(width, dtype=np.int64)
            place[codes] = np.arange(count, dtype=np.int64)
            return place[sorted_codes]
    return stable_order(codes)


def stable_order(values: Ints) -> Ints:
    """The order that sorts integers; equal ones stay as they are."""
    if len(values) < 2:
        return np.arange(len(values), dtype=np.int64)
    bits = values.view(np.uint64)
    # NumPy sorts 16-bit integers by radix, many times as fast as wider ones: digit by digit, the lowest first.
    varying = int(np.bitwise_or.reduce(bits ^ bits[0]))
    shifts = [shift for shift in range(0, 64, _DIGIT) if varying >> shift & _LOW_DIGIT]
    if len(shifts) > _MOST_DIGITS or varying >> _BITS:
        return np.argsort(values, kind="stable").astype(np.int64, copy=False)
    order = np.arange(len(values), dtype=np.int64)
    for number, shift in enumerate(shifts):
        digits = ((bits[order] if number else bits) >> np.uint64(shift)).astype(np.uint16)
        by_digit = np.argsort(digits, kind="stable")
        order = order[by_digit] if number else by_digit.astype(np.int64, copy=False)
    return order


def _codes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Ints, int] | None:
    """One code per row, and how many codes there can be; None if 63 bits do not hold them."""
    codes: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    width = 1
    for column in columns:
        values = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
        low, high = int(values.min()), int(values.max())
        if low == high:
            continue
        if width > 1:
            # Few windows stretch over many units of time: without the gaps between them all codes are close together.
            codes, width = _without_gaps(codes, width)
        wide = high - low + 1
        if (width * wide - 1).bit_length() > _BITS:
            return None
        if values.dtype == np.uint64:
            offsets = (values - np.uint64(low)).view(np.int64)
        else:
            offsets = values.astype(np.int64, copy=False) - low
        codes = offsets if width == 1 else codes * wide + offsets
        width *= wide
    return codes, width


def _without_gaps(codes: Ints, width: int) -> tuple[Ints, int]:
    """Codes that sort as before, numbered one after the other; as they are if that would cost more than it saves."""
    if width > _CLOSE * len(codes):
        return codes, width
    present = np.zeros(width, dtype=np.bool_)
    present[codes] = True
    used = np.flatnonzero(present)
    number = np.empty(width, dtype=np.int64)
    number[used] = np.arange(len(used), dtype=np.int64)
    return number[codes], len(used)
