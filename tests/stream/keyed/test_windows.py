"""Tumbling and sliding windows close when the stream's time passes their end, whoever's row it is."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, ParameterError
from headgate.stream.kernel import Part
from headgate.stream.keyed import Aggregate, SlidingAggregate, TumblingAggregate, plan
from tests.stream.keyed_driver import (
    AGGREGATES,
    KEYS,
    SCHEMA,
    Cutting,
    Row,
    aggregated,
    batch_of,
    cuttings,
    drive,
    few_examples,
    in_key_order,
    key_of,
    same_for_any_cutting,
    streams,
)

Expected = tuple[list[tuple[int | None, Row]], list[int]]


def plain_windows(rows: list[Row], keys: tuple[str, ...], size: int, step: int, offset: int) -> Expected:
    """Row by row, window by window; a late row counts as of its pane."""
    open_windows: dict[tuple[int, Any], list[Row]] = {}
    made: list[tuple[int | None, Row]] = []
    rejected = []
    stream = -(10**9)

    def close(parent: int | None, until: int) -> None:
        done = [window for window in open_windows if window[0] + size <= until]
        for start, key in sorted(done, key=lambda window: (window[0], in_key_order(window[1]))):
            bounds = {"window_start": start, "window_end": start + size}
            held = sorted(open_windows.pop((start, key)), key=lambda row: (row["time"] - offset) // gcd(size, step))
            made.append((parent, {**dict(zip(keys, key, strict=True)), **bounds, **aggregated(held)}))

    for place, row in enumerate(rows):
        stream = max(stream, row["time"])
        close(place, stream)
        last_end = max(end for end in range(stream - step, stream + 1) if (end - offset - size) % step == 0)
        if row["time"] < last_end:
            rejected.append(place)
            continue
        for start in range(row["time"] - size + 1, row["time"] + 1):
            if (start - offset) % step == 0:
                open_windows.setdefault((start, key_of(row, keys)), []).append(row)
    close(None, 10**9)
    return made, rejected


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(late=True), st.integers(1, 12), st.integers(-20, 20), cuttings())
def test_tumbling_windows_are_those_of_a_plain_count_row_by_row(
    keys: tuple[str, ...], rows: list[Row], size: int, offset: int, cutting: Cutting
) -> None:
    batch = batch_of(rows)
    planned = plan(TumblingAggregate, SCHEMA, keys, "time", size, AGGREGATES, offset)
    ran = same_for_any_cutting(planned, batch, keys, cutting)
    expected, rejected = plain_windows(batch.to_pylist(), keys, size, size, offset)
    assert [repr(row) for row in ran.rows] == [repr(row) for row in expected]
    assert sorted(place for place, _ in ran.rejected) == rejected


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(late=True, exact=True, most=25), st.integers(1, 12), st.integers(1, 15), st.integers(-9, 9), cuttings())
def test_sliding_windows_are_those_of_a_plain_count_row_by_row(
    keys: tuple[str, ...], rows: list[Row], size: int, step: int, offset: int, cutting: Cutting
) -> None:
    batch = batch_of(rows)
    planned = plan(SlidingAggregate, SCHEMA, keys, "time", size, step, AGGREGATES, offset)
    ran = same_for_any_cutting(planned, batch, keys, cutting)
    expected, rejected = plain_windows(batch.to_pylist(), keys, size, step, offset)
    assert ran.rows == expected
    assert sorted(place for place, _ in ran.rejected) == rejected


@few_examples
@given(streams(), cuttings())
def test_sums_of_floats_over_sliding_windows_are_equal_to_the_last_bit(rows: list[Row], cutting: Cutting) -> None:
    planned = plan(SlidingAggregate, SCHEMA, ["user"], "time", 9, 6, [Aggregate("sum", "value")])
    same_for_any_cutting(planned, batch_of(rows), ["user"], cutting)


@few_examples
@given(st.integers(1, 9), st.integers(1, 9), st.integers(-9, 9), st.integers(-50, 50), st.integers(0, 20))
def test_a_bucket_hears_of_others_rows_exactly_when_they_reach_the_end_of_a_window(
    size: int, step: int, offset: int, before: int, more: int
) -> None:
    state = SlidingAggregate(SCHEMA, ["user"], "time", size, step, [], offset)
    ends = [end for end in range(before + 1, before + more + 1) if (end - offset - size) % step == 0]
    assert state.crosses(before, before + more) == bool(ends)
    assert not state.crosses(None, before)


def test_window_bounds_have_the_type_of_the_time_column() -> None:
    kind = pa.timestamp("ms", tz="UTC")
    schema = pa.schema([("user", pa.int32()), ("time", kind)])
    batch = pa.RecordBatch.from_pylist([{"user": 1, "time": 1_500}, {"user": 2, "time": 2_000}], schema=schema)
    planned = plan(TumblingAggregate, schema, ["user"], "time", 1_000, [Aggregate("count")])
    assert planned.schema.field("window_start").type == kind
    starts = [(row["user"], row["window_start"].timestamp()) for _, row in drive(planned, batch, ["user"]).rows]
    assert starts == [(1, 1.0), (2, 2.0)]


def test_a_row_without_a_time_is_rejected_and_says_why() -> None:
    rows = [{"user": 1, "time": 4}, {"user": 1, "time": None}, {"user": 1, "time": 5}]
    planned = plan(TumblingAggregate, SCHEMA, ["user"], "time", 10, [Aggregate("count")])
    ran = drive(planned, batch_of(rows), ["user"])
    assert ran.rejected == [(1, "its time 'time' is null")]
    assert ran.rows[0][1]["count"] == 2


def test_keys_whose_windows_have_closed_are_forgotten() -> None:
    schema = pa.schema([("user", pa.int64()), ("time", pa.int64())])
    state = TumblingAggregate(schema, ["user"], "time", 10, [Aggregate("count")])
    for begin in range(0, 20_000, 1_000):
        users = np.arange(begin, begin + 1_000)
        times = users // 10
        batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(times)], schema=schema)
        state.process(Part.whole(batch, times))
    assert len(state._panes.keys) < 4_000
    assert len(state.snapshot().tables["keys"]) == 100


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TumblingAggregate(SCHEMA, ["user"], "time", 0, []), "size must be at least 1"),
        (lambda: SlidingAggregate(SCHEMA, ["user"], "time", 5, -1, []), "step must be at least 1"),
    ],
    ids=["no size", "no step"],
)
def test_a_window_needs_a_size_and_a_step(make: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()


def test_the_event_time_must_be_one() -> None:
    with pytest.raises(DeclarationError, match="column 'place' of type string cannot be the event time"):
        TumblingAggregate(SCHEMA, ["user"], "place", 5, [])
