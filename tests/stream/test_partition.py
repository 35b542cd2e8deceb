"""Rows find their buckets: by the key's value and nothing else, and in their own order."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, ParameterError
from headgate.stream.partition import ByHash, ByRange, Split


def bucket(number: int) -> int:
    """The rule in plain integers: multiply, drop all but the upper bits, take the rest."""
    return (number * 0x9E3779B97F4A7C15 % 2**64 >> 40) % 5


def of_text(text: str) -> int:
    return bucket(zlib.crc32(text.encode()))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(pa.array([1, 2, 3, 1]), [bucket(1), bucket(2), bucket(3), bucket(1)], id="integers"),
        pytest.param(pa.array([1, None, 3, 1]), [bucket(1), 0, bucket(3), bucket(1)], id="null counts as 0"),
        pytest.param(
            pa.array([1, 2, 3, 1], pa.timestamp("us")), [bucket(1), bucket(2), bucket(3), bucket(1)], id="times"
        ),
        pytest.param(pa.array(["a", "b", None, "a"]), [of_text("a"), of_text("b"), 0, of_text("a")], id="texts"),
        pytest.param(
            pa.array(["a", "b", None, "a"]).dictionary_encode(),
            [of_text("a"), of_text("b"), 0, of_text("a")],
            id="dictionary",
        ),
        pytest.param(pa.array([True, False, True, None]), [bucket(1), 0, bucket(1), 0], id="booleans"),
    ],
)
def test_a_bucket_is_the_same_in_every_process(values: pa.Array, expected: list[int]) -> None:
    assert ByHash(("k",)).buckets(batch(k=values), 5).tolist() == expected


def test_keys_of_several_columns_differ_by_their_order() -> None:
    rows = batch(a=pa.array([1, 2]), b=pa.array([2, 1]))
    one, other = ByHash(("a", "b")).buckets(rows, 1000).tolist()
    assert one != other


def test_ranges_take_their_lower_bound() -> None:
    rows = batch(k=pa.array([-5.0, 0.0, 0.5, 1.0, 9.0]))
    assert ByRange("k", (0.0, 1.0)).buckets(rows, 3).tolist() == [0, 1, 1, 2, 2]


def test_ranges_that_do_not_grow_or_do_not_fit_are_refused() -> None:
    with pytest.raises(ParameterError, match="must grow"):
        ByRange("k", (1.0, 1.0))
    with pytest.raises(ParameterError, match="3 buckets; got buckets=2"):
        ByRange("k", (0.0, 1.0)).buckets(batch(k=pa.array([1.0])), 2)


def test_a_key_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(DeclarationError, match="cannot be partitioned by column 'k' of type double"):
        ByHash(("k",)).buckets(batch(k=pa.array([1.0])), 2)


@given(st.lists(st.integers(-(2**62), 2**62), max_size=200), st.integers(1, 20))
def test_a_split_has_every_row_once_in_its_bucket_and_in_order(keys: list[int], count: int) -> None:
    rows = batch(k=pa.array(keys, pa.int64()))
    split = Split.of(rows, ByHash(("k",)), count)
    bucket_of = ByHash(("k",)).buckets(rows, count)
    seen = []
    for place, bucket in enumerate(split.buckets):
        mine = split.rows_of(place)
        assert len(mine) and set(bucket_of[mine].tolist()) == {bucket}
        assert np.all(np.diff(mine) > 0)
        seen += mine.tolist()
    assert sorted(seen) == list(range(len(keys)))
