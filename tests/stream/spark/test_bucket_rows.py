"""The rows of several buckets in one task: each bucket gets its own, whatever the batches are cut like."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvariantError
from headgate.stream.spark.task import BucketRows


def batches(numbers: list[int], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Rows (bucket, place), cut into batches of these sizes, again and again; some of them may be empty."""
    rows = pa.RecordBatch.from_pydict(
        {"bucket": pa.array(numbers, pa.int32()), "place": pa.array(range(len(numbers)), pa.int64())}
    )
    start = 0
    while start < len(numbers):
        for size in sizes:
            yield rows.slice(start, size)
            start += size


def places(found: Iterator[pa.RecordBatch]) -> list[int]:
    return [place for batch in found for place in batch.column("place").to_pylist()]


SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any)


@given(numbers=st.lists(st.integers(0, 5)).map(sorted), sizes=SIZES)
def test_every_bucket_gets_its_own_rows_in_their_order(numbers: list[int], sizes: list[int]) -> None:
    rows = BucketRows(batches(numbers, sizes), "bucket")
    found = {bucket: places(rows.of(bucket)) for bucket in range(6)}
    assert found == {bucket: [place for place, n in enumerate(numbers) if n == bucket] for bucket in range(6)}


@given(numbers=st.lists(st.integers(0, 5)).map(sorted), sizes=SIZES, taken=st.lists(st.integers(0, 3), min_size=6))
def test_rows_that_a_bucket_has_not_asked_for_go_to_no_other(
    numbers: list[int], sizes: list[int], taken: list[int]
) -> None:
    rows = BucketRows(batches(numbers, sizes), "bucket")
    for bucket in range(6):
        own = rows.of(bucket)
        found = [batch for _, batch in zip(range(taken[bucket]), own, strict=False)]
        assert {number for batch in found for number in batch.column("bucket").to_pylist()} <= {bucket}


def test_rows_that_are_not_sorted_are_refused() -> None:
    with pytest.raises(InvariantError, match="not sorted"):
        places(BucketRows(batches([0, 2, 1], [3]), "bucket").of(0))
