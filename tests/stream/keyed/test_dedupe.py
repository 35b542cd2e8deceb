"""The first row of a key passes; with a horizon, again the first one after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import ParameterError
from headgate.stream.kernel import Part
from headgate.stream.keyed import Dedupe, plan
from tests.stream.keyed_driver import (
    KEYS,
    SCHEMA,
    Cutting,
    Row,
    batch_of,
    cuttings,
    drive,
    few_examples,
    key_of,
    same_for_any_cutting,
    streams,
)


def plain_dedupe(rows: list[Row], keys: tuple[str, ...], within: int | None) -> tuple[list[int], list[int]]:
    passed_at: dict[Any, int] = {}
    passed, rejected, stream = [], [], -(10**9)
    for place, row in enumerate(rows):
        if within is not None and row["time"] < stream:
            rejected.append(place)
            continue
        stream = row["time"]
        last = passed_at.get(key_of(row, keys))
        if last is None or (within is not None and stream > last + within):
            passed_at[key_of(row, keys)] = stream
            passed.append(place)
    return passed, rejected


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(late=True), st.none() | st.integers(0, 7), cuttings())
def test_rows_pass_as_a_plain_look_row_by_row_says(
    keys: tuple[str, ...], rows: list[Row], within: int | None, cutting: Cutting
) -> None:
    batch = batch_of(rows)
    planned = plan(Dedupe, SCHEMA, keys, within, None if within is None else "time")
    ran = same_for_any_cutting(planned, batch, keys, cutting)
    seen = batch.to_pylist()
    passed, rejected = plain_dedupe(seen, keys, within)
    assert ran.rows == [(place, seen[place]) for place in passed]
    assert sorted(place for place, _ in ran.rejected) == rejected


@pytest.mark.parametrize("packet", [1, 2, 10])
def test_the_horizon_itself_belongs_to_it_and_counts_from_the_row_that_passed(packet: int) -> None:
    batch = batch_of([{"user": 1, "time": time} for time in (0, 3, 5, 6, 10, 11, 12)])
    ran = drive(plan(Dedupe, SCHEMA, ["user"], 5, "time"), batch, ["user"], Cutting((packet,)))
    assert [row["time"] for _, row in ran.rows] == [0, 6, 12]


def test_keys_beyond_the_horizon_are_forgotten_without_letting_a_row_pass_too_early() -> None:
    schema = pa.schema([("user", pa.int64()), ("time", pa.int64())])
    state = Dedupe(schema, ["user"], within=50, time="time")
    passed = 0
    for begin in range(0, 30_000, 1_000):
        times = np.arange(begin, begin + 1_000)
        # Every user comes twice, the second time 25 later, and never again.
        users = np.where(times % 2 == 0, times, times - 25)
        batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(times)], schema=schema)
        passed += state.process(Part.whole(batch, times)).batch.num_rows
    assert passed == 15_000 + 12
    assert len(state._keys) < 4_000


def test_a_horizon_needs_a_time() -> None:
    with pytest.raises(ParameterError, match="'within' and 'time' go together"):
        Dedupe(SCHEMA, ["user"], within=5)
