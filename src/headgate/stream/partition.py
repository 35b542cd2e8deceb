"""Splitting a packet into parts by bucket, and putting the outputs of its parts together again.

A row belongs to a bucket by a hash of its key, or by the range that the key lies in. The bucket depends on the key's
value and on nothing else: neither on the process nor on what was seen before. So the state of a bucket can be taken up
by another process.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import DeclarationError, ParameterError
from headgate.stream.kernel import Output, Part, Rejected
from headgate.stream.packet import Ints
from headgate.stream.sorting import sorted_places

#: odd, and near 2**64 divided by the golden ratio: neighbouring keys end up far apart
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(40)
#: keys of several columns: hash by hash, so that (1, 2) and (2, 1) differ
_CHAIN = np.uint64(0xBF58476D1CE4E5B9)


class Partitioning(Protocol):
    """Assigns the rows of a batch to buckets."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def buckets(self, batch: pa.RecordBatch, count: int) -> NDArray[np.uint16]:
        """The bucket of each row, from 0 to ``count - 1``."""


@dataclass(frozen=True)
class ByHash:
    """By a hash of the key. Buckets are about equally full unless few keys have most of the rows."""

    columns: tuple[str, ...]

    def buckets(self, batch: pa.RecordBatch, count: int) -> NDArray[np.uint16]:
        hashed = key_hash(batch, self.columns)
        bucket: NDArray[np.uint16] = ((hashed >> _SHIFT) % np.uint64(count)).astype(np.uint16)
        return bucket


@dataclass(frozen=True)
class ByRange:
    """Bucket i has the keys from ``bounds[i - 1]`` up to, but not including, ``bounds[i]``."""

    column: str
    bounds: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(a >= b for a, b in zip(self.bounds, self.bounds[1:], strict=False)):
            raise ParameterError(f"bounds of a range partitioning must grow; got {self.bounds}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def buckets(self, batch: pa.RecordBatch, count: int) -> NDArray[np.uint16]:
        if len(self.bounds) >= count:
            raise ParameterError(f"{len(self.bounds)} bounds make {len(self.bounds) + 1} buckets; got buckets={count}")
        values = batch.column(self.column).to_numpy(zero_copy_only=False)
        bucket: NDArray[np.uint16] = np.searchsorted(np.asarray(self.bounds), values, side="right").astype(np.uint16)
        return bucket


def key_hash(batch: pa.RecordBatch, columns: tuple[str, ...]) -> NDArray[np.uint64]:
    """A hash of each row's key; rows with equal keys have equal hashes, in every process."""
    hashed: NDArray[np.uint64] = _column_hash(batch.column(columns[0]), columns[0])
    for name in columns[1:]:
        hashed = hashed * _CHAIN ^ _column_hash(batch.column(name), name)
    return hashed


def _column_hash(column: pa.Array, name: str) -> NDArray[np.uint64]:
    if pa.types.is_dictionary(column.type):
        # One more for rows without a value, which have no word: it is the last, and so number -1.
        words = np.append(_column_hash(column.dictionary, name), np.uint64(0))
        hashed: NDArray[np.uint64] = words[pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)]
        return hashed
    kind, types = column.type, pa.types
    is_time = types.is_temporal(kind) and not types.is_interval(kind)
    if types.is_integer(kind) or types.is_boolean(kind) or is_time:
        return _integers(column).view(np.uint64) * _MULTIPLIER
    if any(
        is_text(kind) for is_text in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    ):
        return _text_hash(column)
    raise DeclarationError(
        f"rows cannot be partitioned by column {name!r} of type {column.type}: a key is made of integers, times, "
        "booleans or strings; map it to one of these first"
    )


def _integers(column: pa.Array) -> Ints:
    """Nulls count as 0: they need a bucket, and which one does not matter."""
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = column.view(width)
    if column.null_count:
        column = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
    values: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _text_hash(column: pa.Array) -> NDArray[np.uint64]:
    # One look at each different text; texts repeat, as keys do.
    encoded = column.dictionary_encode(null_encoding="encode")
    words = encoded.dictionary.to_pylist()
    hashes = np.fromiter((_word_hash(word) for word in words), dtype=np.uint64, count=len(words))
    hashed: NDArray[np.uint64] = hashes[encoded.indices.to_numpy(zero_copy_only=False)] * _MULTIPLIER
    return hashed


def _word_hash(word: str | bytes | None) -> int:
    if word is None:
        return 0
    return zlib.crc32(word.encode("utf-8") if isinstance(word, str) else word)


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of a batch by bucket: those of ``buckets[i]`` are ``rows[bounds[i]:bounds[i + 1]]``, in their order."""

    buckets: tuple[int, ...]
    rows: Ints
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, batch: pa.RecordBatch, partitioning: Partitioning, count: int) -> Split:
        """Buckets without rows are left out."""
        if not batch.num_rows:
            return cls((), np.empty(0, dtype=np.int64), (0,))
        bucket = partitioning.buckets(batch, count)
        # A stable sort of small integers is a radix sort: no comparisons.
        rows = np.argsort(bucket, kind="stable").astype(np.int64, copy=False)
        sizes = np.bincount(bucket, minlength=count)
        present = np.flatnonzero(sizes)
        bounds = np.concatenate(([0], np.cumsum(sizes[present])))
        return cls(tuple(present.tolist()), rows, tuple(bounds.tolist()))

    def rows_of(self, place: int) -> Ints:
        return self.rows[self.bounds[place] : self.bounds[place + 1]]


def combine_outputs(outputs: Sequence[Output], parts: Sequence[Part]) -> Output:
    """The output of a packet, made of those of its parts: rows in the order of their parents, then of ``order``.

    Rows with the same parent come from one bucket, where they are in order already, unless outputs have an ``order``.
    """
    rejected = tuple(each for output in outputs for each in output.rejected)
    if len(outputs) > 1 and rejected:
        rejected = tuple(sorted(rejected, key=_row_of))
    with_rows = [place for place, output in enumerate(outputs) if output.batch.num_rows]
    if len(with_rows) <= 1:
        place = with_rows[0] if with_rows else 0
        return Output(outputs[place].batch, _parents(outputs[place], parts[place]), (), rejected)
    batch = pa.concat_batches([outputs[place].batch for place in with_rows])
    parents = np.concatenate([_parents(outputs[place], parts[place]) for place in with_rows])
    sort_columns = [outputs[place].order for place in with_rows]
    if sort_columns[0]:
        order = sorted_places([pa.array(parents), *_chunked(sort_columns)])
    else:
        order = np.argsort(parents, kind="stable")
    return Output(batch.take(pa.array(order)), parents[order], (), rejected)


def combine_flushed(outputs: Sequence[Output]) -> pa.RecordBatch:
    """One batch of what the states of several buckets had kept, in the order of keys."""
    with_rows = [output for output in outputs if output.batch.num_rows]
    if len(with_rows) <= 1:
        return (with_rows or outputs)[0].batch
    batch = pa.concat_batches([output.batch for output in with_rows])
    if not with_rows[0].order:
        return batch
    return batch.take(pa.array(sorted_places(_chunked([output.order for output in with_rows]))))


def _parents(output: Output, part: Part) -> Ints:
    """The rows of the packet that an output's rows come from, as an array in any case."""
    return part.rows if output.parents is None else output.parents


def _row_of(rejected: Rejected) -> int:
    return rejected.row


def _chunked(columns: Sequence[tuple[pa.Array, ...]]) -> list[pa.ChunkedArray]:
    """Columns of several batches one below the other."""
    return [pa.chunked_array(column) for column in zip(*columns, strict=True)]
