"""Which bucket a row belongs to: by a hash of its key, or by the range that the key lies in.

A bucket number depends on the key's value and on nothing else: neither on the process nor on what was seen before.
State kept under a bucket number can so be taken up by another process.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core.errors import DeclarationError, ParameterError
from headgate.stream.packet import Ints

#: odd, and near 2**64 divided by the golden ratio: neighbouring keys are thrown far apart
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(40)
#: keys of several columns: hash by hash, so that (1, 2) and (2, 1) differ
_CHAIN = np.uint64(0xBF58476D1CE4E5B9)


class Partitioning(Protocol):
    """Sorts the rows of a batch into buckets."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def buckets(self, batch: pa.RecordBatch, count: int) -> NDArray[np.uint16]:
        """The bucket of each row, from 0 to ``count - 1``."""


@dataclass(frozen=True)
class ByHash:
    """Equal keys meet in one bucket, and buckets are about equally full unless few keys have most of the rows."""

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
    if pa.types.is_integer(column.type) or pa.types.is_temporal(column.type) or pa.types.is_boolean(column.type):
        return _integers(column).view(np.uint64) * _MULTIPLIER
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_binary(column.type):
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
