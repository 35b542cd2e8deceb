"""Numbers in text, and which of them are none. Whether a text is taken never depends on the texts beside it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from workloads.riot.schema import Floats

#: how an absent value is written
NULL = "null"
_DECIMAL = r"^[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
#: decimal digits that always fit into 64 bits
LONGEST = 18


def parse_numbers(texts: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
    """The finite decimal number in each text, NaN for ``null``; and which texts are neither (NaN as well).

    What counts as a number is what Arrow casts to one. It refuses a whole column for one text, so a column that it
    refuses is taken apart: plain decimals together, what is left text by text.
    """
    absent = pc.equal(texts, NULL).fill_null(True)
    texts = pc.if_else(absent, None, texts) if pc.any(absent).as_py() else texts
    try:
        values: Floats = _cast(texts)
    except pa.ArrowInvalid:
        values = _cast_one_by_one(texts)
    bad = ~np.isfinite(values) & texts.is_valid().to_numpy(zero_copy_only=False)
    values = np.where(bad, np.nan, values)
    return values, bad


def parse_number(text: str) -> float | None:
    """``parse_numbers`` for one text: None if it is null; ValueError if it is no finite number."""
    values, bad = parse_numbers(pa.array([text], pa.string()))
    if bad[0]:
        raise ValueError(text)
    return None if np.isnan(values[0]) else float(values[0])


def transposed(flat: pa.Array, width: int) -> list[pa.Array]:
    """The columns of a table whose rows of ``width`` texts come one after the other."""
    rows = len(flat) // width
    by_column = flat.take(pa.array(np.arange(len(flat)).reshape(rows, width).T.ravel()))
    return [by_column.slice(place * rows, rows) for place in range(width)]


def is_whole(text: str) -> bool:
    """A time in milliseconds: only digits, and not too many."""
    return text.isascii() and text.isdigit() and len(text) <= LONGEST


def _cast(texts: pa.Array) -> Floats:
    values: Floats = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _cast_one_by_one(texts: pa.Array) -> Floats:
    plain = pc.match_substring_regex(texts, _DECIMAL)
    values = _cast(pc.if_else(plain, texts, None)).copy()
    odd = np.flatnonzero(pc.fill_null(pc.invert(plain), False).to_numpy(zero_copy_only=False))
    for row in odd.tolist():
        try:
            values[row] = texts[row].cast(pa.float64()).as_py()
        except pa.ArrowInvalid:
            values[row] = np.inf  # not finite, so the caller counts it as bad
    return values
