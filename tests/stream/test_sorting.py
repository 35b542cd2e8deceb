"""Rows are sorted by several columns as Python's stable sort of tuples would sort them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.stream.sorting import sorted_places, stable_order
from tests.stream.keyed_driver import few_examples

INT64 = st.integers(-(2**63), 2**63 - 1)
KINDS = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-3, 3),
    pa.int64(): st.integers(0, 5).map(lambda hour: hour * 3_600) | INT64,
    pa.uint64(): st.integers(0, 3) | st.integers(0, 2**64 - 1),
    pa.string(): st.sampled_from(["", "a", "b"]),
}


@st.composite
def columns_of_rows(draw: st.DrawFn) -> list[pa.Array]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    has_nulls, count = draw(st.booleans()), draw(st.integers(0, 30))
    values = [st.none() | KINDS[kind] if has_nulls else KINDS[kind] for kind in kinds]
    return [
        pa.array(draw(st.lists(value, min_size=count, max_size=count)), type=kind)
        for kind, value in zip(kinds, values, strict=True)
    ]


def right(columns: list[Any]) -> list[int]:
    """Nulls first: False sorts before True."""
    rows = list(zip(*([(value is not None, value) for value in column.to_pylist()] for column in columns), strict=True))
    return sorted(
        range(len(rows)), key=lambda place: [(known, value) if known else (False,) for known, value in rows[place]]
    )


@few_examples
@given(columns_of_rows())
def test_rows_are_sorted_column_by_column_and_equal_ones_stay_as_they_are(columns: list[pa.Array]) -> None:
    assert sorted_places(columns).tolist() == right(columns)
    assert sorted_places([pa.chunked_array([column]) for column in columns]).tolist() == right(columns)


HOURS = np.repeat(np.arange(5) * 3_600, 200)
SHUFFLED = np.random.default_rng(0).permutation(1_000)


@pytest.mark.parametrize(
    "columns",
    [
        [SHUFFLED],
        [HOURS, SHUFFLED],
        [HOURS, SHUFFLED // 3],
        [HOURS, HOURS * 2**20, SHUFFLED * 2**20],
        [HOURS, SHUFFLED * 2**50],
        [SHUFFLED * 2**40, SHUFFLED * 2**50],
        [np.zeros(1_000, dtype=np.int64)],
    ],
    ids=["different", "hours", "repeated", "gaps", "wide", "too wide", "all equal"],
)
def test_many_rows_are_sorted_however_their_values_lie(columns: list[Any]) -> None:
    arrays = [pa.array(column) for column in columns]
    assert sorted_places(arrays).tolist() == right(arrays)


@few_examples
@given(st.lists(INT64, max_size=30) | st.lists(st.integers(-(2**40), -(2**40) + 99), max_size=30))
def test_integers_of_any_size_and_sign_are_sorted_and_equal_ones_stay_as_they_are(values: list[int]) -> None:
    order = stable_order(np.array(values, dtype=np.int64))
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


@pytest.mark.parametrize("shift", [0, 10, 32, 47], ids=["one digit", "two", "pairs", "all"])
def test_thousands_of_integers_are_sorted_digit_by_digit(shift: int) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(50, size=5_000) << shift | generator.integers(50, size=5_000)
    assert stable_order(values).tolist() == sorted(range(len(values)), key=values.tolist().__getitem__)
