"""Event time is cut into partitions whose names sort like time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.partitions import (
    format_time,
    parse_time,
    partition_label,
    partition_start,
    split_by_partition,
)
from tests.warehouse.storage_helpers import HOUR, SECOND, TIME, clicks

YEAR_1, YEAR_9999 = -62_135_596_800 * SECOND, 253_402_300_799 * SECOND
times = st.integers(YEAR_1 + 40 * 86_400 * SECOND, YEAR_9999)
lengths = st.sampled_from([1, 7, 60, 600, 3_600, 86_400, 604_800])


@pytest.mark.parametrize(
    ("micros", "length", "label"),
    [
        pytest.param(1_794_736_800_000_000, 3600, "2026-11-15T10:00:00Z", id="the first microsecond"),
        pytest.param(1_794_740_399_999_999, 3600, "2026-11-15T10:00:00Z", id="the last microsecond"),
        pytest.param(1_794_740_399_999_999, 600, "2026-11-15T10:50:00Z", id="shorter partitions"),
        pytest.param(0, 3600, "1970-01-01T00:00:00Z", id="the epoch"),
        pytest.param(-1, 3600, "1969-12-31T23:00:00Z", id="before the epoch time is rounded down too"),
        pytest.param(-60_000_000_000 * SECOND, 3600, "0068-09-03T13:00:00Z", id="years have four digits"),
    ],
)
def test_a_partition_is_called_by_its_start(micros: int, length: int, label: str) -> None:
    assert partition_label(micros, length) == label


@given(times, lengths)
def test_a_time_lies_in_its_partition(micros: int, length: int) -> None:
    start = partition_start(partition_label(micros, length))
    assert start <= micros < start + length * SECOND
    assert start % (length * SECOND) == 0


@given(times, times, lengths)
def test_names_sort_like_time(one: int, other: int, length: int) -> None:
    assert (partition_label(one, length) < partition_label(other, length)) == (
        one // (length * SECOND) < other // (length * SECOND)
    )


@given(st.lists(times, max_size=20), lengths)
def test_rows_go_to_the_partitions_that_their_times_are_in(micros: list[int], length: int) -> None:
    parts = split_by_partition(pa.table({"ts": pa.array(micros, TIME)}), "ts", length)
    labels = [label for label, part in parts for _ in range(part.num_rows)]
    assert [label for label, _ in parts] == sorted({partition_label(time, length) for time in micros})
    assert sorted(labels) == sorted(partition_label(time, length) for time in micros)


@given(times)
def test_times_of_the_log_are_read_as_they_were_written(micros: int) -> None:
    assert parse_time(format_time(micros)) == micros


def test_rows_are_split_by_partition_and_keep_their_order() -> None:
    rows = clicks(2 * HOUR, 5, HOUR + 1, 3, 2 * HOUR + 1, 4)
    parts = {label: part.column("v").to_pylist() for label, part in split_by_partition(rows, "ts", HOUR)}
    assert parts == {
        "1970-01-01T00:00:00Z": [5 * SECOND, 3 * SECOND, 4 * SECOND],
        "1970-01-01T01:00:00Z": [(HOUR + 1) * SECOND],
        "1970-01-01T02:00:00Z": [2 * HOUR * SECOND, (2 * HOUR + 1) * SECOND],
    }


@pytest.mark.parametrize("length", [0, -60, 0.5, 90.5], ids=str)
def test_a_partition_takes_whole_seconds(length: float) -> None:
    with pytest.raises(StorageError, match="whole number of seconds"):
        partition_label(0, length)


@pytest.mark.parametrize("label", ["", "2026-11-15", "2026-11-15T10:00:00", "2026-11-15T10:00:00+00:00", "x", "2026"])
def test_other_ways_to_write_a_time_are_no_names_of_partitions(label: str) -> None:
    with pytest.raises(StorageError, match=r"expected its start, such as '2026-11-15T10:00:00Z'"):
        partition_start(label)


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        pytest.param(pa.array([1, None], TIME), "1 of 2 rows have no event time", id="null"),
        pytest.param(pa.array([1], pa.timestamp("us")), "event times must be", id="no time zone"),
        pytest.param(pa.array([2**62], TIME), "outside the years 1 to 9999", id="beyond the calendar"),
    ],
)
def test_rows_that_belong_to_no_partition_are_refused(column: pa.Array, complaint: str) -> None:
    with pytest.raises(StorageError, match=complaint):
        split_by_partition(pa.table({"ts": column}), "ts", HOUR)
