"""Finding rows by their keys: which rows of a file belong to one of some keys. Null equals null."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import HeadgateError

#: codes are numbered anew when there could be more of them than this
_MOST_CODES = 1 << 22


def look_up(keys: pa.Table, rows: pa.Table) -> NDArray[np.int64]:
    """For each row of ``rows`` the place of its key in ``keys``, -1 if it is not there.

    Both have columns of the same types; no two rows of ``keys`` are the same.
    """
    size = keys.num_rows
    codes = codes_of([keys, rows])
    if codes is None:
        raise HeadgateError(
            f"rows cannot be found by keys of these types: {', '.join(map(str, keys.schema.types))}; state "
            "mode='whole' for the table, or a key without lists and maps"
        )
    places = np.full(int(codes.max()) + 1 if len(codes) else 1, -1, dtype=np.int64)
    places[codes[:size]] = np.arange(size)
    return places[codes[size:]]


def codes_of(tables: Sequence[pa.Table]) -> NDArray[np.int64] | None:
    """A number for each row of all ``tables``, the same for rows that are the same; None if a type has no such numbers.

    All have columns of the same types, which may have different names.
    """
    codes = np.zeros(sum(table.num_rows for table in tables), dtype=np.int64)
    count = 1
    for parts in zip(*map(list, map(_flat, tables)), strict=True):
        kind = parts[0].type
        column = pa.chunked_array([chunk for part in parts for chunk in part.cast(kind).chunks], type=kind)
        if pa.types.is_nested(kind):
            return None
        if pa.types.is_floating(kind):  # Arrow cannot join dictionaries of several chunks that have NaN and null
            column = column.combine_chunks()
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        size = max(1, len(encoded.dictionary))
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        count *= size
        if count > _MOST_CODES:
            _, codes = np.unique(codes, return_inverse=True)
            count = int(codes.max()) + 1 if len(codes) else 1
    return codes


def _flat(table: pa.Table) -> Iterator[pa.ChunkedArray]:
    """The columns, with structs taken apart."""
    for column in table.columns:
        if pa.types.is_struct(column.type):
            yield column.is_valid()
            fields = [pc.struct_field(column, i) for i in range(column.type.num_fields)]
            yield from _flat(pa.table(fields, names=[str(i) for i in range(len(fields))]))
        else:
            yield column
