"""Arrow columns as NumPy arrays and back, and the few array idioms that the queries share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream import Ints, Output

_LOW_HALF = np.int64(0xFFFF_FFFF)


def values(batch: pa.RecordBatch | pa.Table, name: str) -> NDArray[Any]:
    """A column without nulls, not copied unless it has to be."""
    column = batch.column(name)
    array: NDArray[Any] = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(False)
    return array


def record(schema: pa.Schema, *columns: NDArray[Any] | pa.Array) -> pa.RecordBatch:
    """A batch whose columns are of the schema's types already, or can be made so without loss."""
    arrays = [pa.array(column, type=wanted.type) for column, wanted in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table(**columns: NDArray[Any]) -> pa.Table:
    """Columns copied, for a snapshot: the arrays of a state go on changing."""
    return pa.table({name: pa.array(column.copy()) for name, column in columns.items()})


def nothing(schema: pa.Schema) -> Output:
    """No rows out, of none or of any number in."""
    empty = [pa.array([], type=wanted.type) for wanted in schema]
    return Output(pa.RecordBatch.from_arrays(empty, schema=schema), np.empty(0, dtype=np.int64))


def grown(array: NDArray[Any], size: int, fill: int) -> NDArray[Any]:
    """The array itself if it has room for ``size`` rows, else a copy at least twice as long."""
    if len(array) >= size:
        return array
    shape = (max(size, 2 * len(array)), *array.shape[1:])
    # Pages of zeros cost nothing before they are used.
    longer = np.full(shape, fill, dtype=array.dtype) if fill else np.zeros(shape, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def spread(counts: Ints) -> tuple[Ints, Ints]:
    """For things that stand for several rows each: of each row, whose it is and its number among that thing's rows."""
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(len(owner), dtype=np.int64) - before[owner]


def packed(high: NDArray[Any], low: NDArray[Any]) -> Ints:
    """Two numbers below 2**31, none negative, as one that sorts as the pair does."""
    pairs: Ints = (high.astype(np.int64) << 32) | low
    return pairs


def unpacked(pairs: Ints) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return (pairs >> 32).astype(np.int32), (pairs & _LOW_HALF).astype(np.int32)


def stretches(column: NDArray[Any]) -> list[tuple[int, int]]:
    """From where to where neighbouring rows have the same value; at least one row."""
    changes = np.flatnonzero(column[1:] != column[:-1]) + 1
    bounds = [0, *changes.tolist(), len(column)]
    return list(pairwise(bounds))


def lookup(chosen: tuple[int, ...] | None, size: int) -> NDArray[np.bool_]:
    """Of each number below ``size`` whether it is among the chosen; None chooses all.

    The last place, which NumPy finds by -1, is that of NULL: it is among no chosen numbers.
    """
    if chosen is None:
        return np.ones(size + 1, dtype=np.bool_)
    flags = np.zeros(size + 1, dtype=np.bool_)
    flags[[number for number in chosen if 0 <= number < size]] = True
    return flags
