"""Sessions end by a pause of their key, as soon as the stream's time shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.stream.kernel import Part
from headgate.stream.keyed import Aggregate, SessionAggregate, plan
from tests.stream.keyed_driver import (
    AGGREGATES,
    KEYS,
    SCHEMA,
    Cutting,
    Row,
    aggregated,
    batch_of,
    cuttings,
    few_examples,
    in_key_order,
    key_of,
    same_for_any_cutting,
    streams,
)


def plain_sessions(rows: list[Row], keys: tuple[str, ...], gap: int) -> tuple[list[tuple[int | None, Row]], list[int]]:
    sessions: dict[Any, list[Row]] = {}
    made: list[tuple[int | None, Row]] = []
    rejected = []
    stream = -(10**9)

    def close(parent: int | None, now: int) -> None:
        done = [key for key, held in sessions.items() if held[-1]["time"] + gap < now]
        for key in sorted(done, key=lambda key: (sessions[key][0]["time"], in_key_order(key))):
            held = sessions.pop(key)
            bounds = {"window_start": held[0]["time"], "window_end": held[-1]["time"]}
            made.append((parent, {**dict(zip(keys, key, strict=True)), **bounds, **aggregated(held)}))

    for place, row in enumerate(rows):
        if row["time"] < stream:
            rejected.append(place)
            continue
        stream = row["time"]
        close(place, stream)
        sessions.setdefault(key_of(row, keys), []).append(row)
    close(None, 10**9)
    return made, rejected


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(late=True), st.integers(0, 7), cuttings())
def test_sessions_are_those_of_a_plain_count_row_by_row(
    keys: tuple[str, ...], rows: list[Row], gap: int, cutting: Cutting
) -> None:
    batch = batch_of(rows)
    ran = same_for_any_cutting(plan(SessionAggregate, SCHEMA, keys, "time", gap, AGGREGATES), batch, keys, cutting)
    expected, rejected = plain_sessions(batch.to_pylist(), keys, gap)
    assert [repr(row) for row in ran.rows] == [repr(row) for row in expected]
    assert sorted(place for place, _ in ran.rejected) == rejected


def test_closed_sessions_and_their_keys_are_forgotten_and_later_ones_are_right() -> None:
    schema = pa.schema([("user", pa.int64()), ("time", pa.int64())])
    state = SessionAggregate(schema, ["user"], "time", 5, [Aggregate("count")])
    closed: list[Row] = []
    for begin in range(0, 20_000, 1_000):
        users = np.arange(begin, begin + 1_000) // 2
        times = users // 10
        batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(times)], schema=schema)
        closed += state.process(Part.whole(batch, times)).batch.to_pylist()
    assert len(state._keys) < 4_000
    assert [row["user"] for row in closed] == list(range(len(closed)))
    assert len(closed) == 10 * (9_999 // 10 - 5)
    assert all(row["count"] == 2 and row["window_start"] == row["user"] // 10 for row in closed)


def test_a_bucket_hears_of_others_rows_whenever_time_goes_on() -> None:
    crosses = SessionAggregate.crosses
    assert [crosses(None, 3), crosses(3, 3), crosses(3, 4)] == [False, False, True]
