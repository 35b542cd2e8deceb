"""The keys of rows: one or several columns of integers, times, booleans or strings, numbered by slot.

Two rows have the same slot if and only if all their key columns are equal, where null equals null: nothing is decided
by a hash. The key columns of a slot can be read back, as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import DeclarationError, UnknownNameError
from headgate.stream.keyed.arrays import Flags, column_of, integers, is_whole, numbers, plain, plain_type
from headgate.stream.keyed.index import KeyIndex
from headgate.stream.packet import Ints

#: a slot is below 2**31, so two of them make one 64-bit integer without loss
_HALF = 32
_LOW_HALF = (1 << _HALF) - 1


class _ColumnKeys(Protocol):
    """The different values of one column, by slot."""

    def __len__(self) -> int: ...

    def slots(self, column: pa.Array) -> Ints: ...

    def column(self, slots: Ints) -> pa.Array: ...


class IntegerKeys:
    """Integers, times and booleans."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._index = KeyIndex()

    def __len__(self) -> int:
        return len(self._index)

    def slots(self, column: pa.Array) -> Ints:
        return self._index.slots(*integers(column))

    def column(self, slots: Ints) -> pa.Array:
        nulls = slots == self._index.null if self._index.null >= 0 else None
        return column_of(self._index.keys[slots], nulls, self._kind)


class TextKeys:
    """Strings. Only the different strings of a batch are looked at one by one; Arrow finds out which these are."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._slot: dict[str | bytes | None, int] = {}
        self._words: list[str | bytes | None] = []

    def __len__(self) -> int:
        return len(self._words)

    def slots(self, column: pa.Array) -> Ints:
        encoded = plain(column).dictionary_encode(null_encoding="encode")
        words = encoded.dictionary.to_pylist()
        slot = self._slot
        for word in words:
            if word not in slot:
                slot[word] = len(self._words)
                self._words.append(word)
        by_word = np.fromiter((slot[word] for word in words), dtype=np.int64, count=len(words))
        slots: Ints = by_word[encoded.indices.to_numpy(zero_copy_only=False)]
        return slots

    def column(self, slots: Ints) -> pa.Array:
        return pa.array([self._words[slot] for slot in slots.tolist()], type=self._kind)


class RowKeys:
    """The keys of rows, by slot. Without key columns all rows have the same key.

    Several columns are numbered one by one; pairs of numbers are then numbered in turn, from the left.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        for name in columns:
            check_column(schema, name)
        self.names = tuple(columns)
        self.fields: tuple[pa.Field, ...] = tuple(schema.field(name) for name in columns)
        self._clear()

    def _clear(self) -> None:
        self._columns = [_column_keys(field) for field in self.fields]
        self._pairs = [KeyIndex() for _ in self.fields[1:]]

    def __len__(self) -> int:
        if self._pairs:
            return len(self._pairs[-1])
        return len(self._columns[0]) if self._columns else 1

    def slots(self, rows: pa.RecordBatch | pa.Table) -> Ints:
        """The slot of each row; unknown keys are taken in."""
        if not self._columns:
            return np.zeros(rows.num_rows, dtype=np.int64)
        return self._slots([rows.column(name) for name in self.names])

    def _slots(self, columns: Sequence[pa.Array]) -> Ints:
        slots = self._columns[0].slots(columns[0])
        for pairs, numbered, column in zip(self._pairs, self._columns[1:], columns[1:], strict=True):
            slots = pairs.slots(slots << _HALF | numbered.slots(column))
        return slots

    def columns(self, slots: Ints) -> list[pa.Array]:
        """The key columns of the slots, each of its own type."""
        columns: list[pa.Array] = []
        for place in range(len(self._pairs) - 1, -1, -1):
            pair = self._pairs[place].keys[slots]
            columns.append(self._column(place + 1, pair & _LOW_HALF))
            slots = pair >> _HALF
        if self._columns:
            columns.append(self._column(0, slots))
        return columns[::-1]

    def _column(self, place: int, slots: Ints) -> pa.Array:
        column, kind = self._columns[place].column(slots), self.fields[place].type
        if not pa.types.is_dictionary(kind):
            return column
        encoded = column.dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered
        )

    def table(self, slots: Ints) -> pa.Table:
        """The keys of the slots, for a snapshot."""
        return pa.Table.from_arrays(self.columns(slots), schema=pa.schema(self.fields))

    def remember(self, table: pa.Table, count: int) -> Ints:
        """Take in the keys of a snapshot of ``count`` slots; their slots from now on."""
        return self.slots(table) if self._columns else np.zeros(count, dtype=np.int64)

    def order(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Arrays without nulls by which rows with these key columns sort: column by column, nulls first."""
        arrays: list[pa.Array] = []
        for field, column in zip(self.fields, map(plain, columns), strict=True):
            if field.nullable:
                arrays.append(_validity(column))
            arrays.append(_comparable(column))
        return arrays

    def keep(self, kept: Flags) -> Ints:
        """Forget all slots but those marked, and number these anew: {old slot: new slot, or -1}."""
        if not self._columns:
            return np.zeros(1, dtype=np.int64)
        moved = np.full(len(self), -1, dtype=np.int64)
        columns = self.columns(np.flatnonzero(kept))
        self._clear()
        moved[kept] = self._slots(columns)
        return moved

    def any_null(self, batch: pa.RecordBatch) -> Flags:
        """Which rows have a null in their key."""
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        for name in self.names:
            column = plain(batch.column(name))
            if column.null_count:
                found |= column.is_null().to_numpy(zero_copy_only=False)
        return found


def check_column(schema: pa.Schema, name: str) -> pa.Field:
    """The field of that name, which must be there exactly once."""
    if schema.get_field_index(name) < 0:
        if name in schema.names:
            raise DeclarationError(f"column {name!r} is there more than once in {schema.names}: rename one of them")
        raise UnknownNameError("column", name, schema.names)
    return schema.field(name)


def _column_keys(field: pa.Field) -> _ColumnKeys:
    kind = plain_type(field.type)
    if is_whole(kind):
        return IntegerKeys(kind)
    if _is_text(kind):
        return TextKeys(kind)
    raise DeclarationError(
        f"column {field.name!r} of type {field.type} cannot be a key: a key is made of integers, times, booleans or "
        "strings; map it to one of these first"
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def _validity(column: pa.Array) -> pa.Array:
    if not column.null_count:
        return pa.array(np.ones(len(column), dtype=np.int8))
    return column.is_valid().cast(pa.int8())


def _comparable(column: pa.Array) -> pa.Array:
    if _is_text(column.type):
        blank = "" if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) else b""
        return pc.fill_null(column, pa.scalar(blank, column.type))
    return pa.array(numbers(column)[0])
