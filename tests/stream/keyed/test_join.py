"""An interval join finds every pair once, when the later of its rows comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import ParameterError
from headgate.stream.kernel import Part
from headgate.stream.keyed import IntervalJoin, plan
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

LEFT, RIGHT = ("time", "amount"), ("time", "value", "place")


def plain_join(
    rows: list[Row], keys: tuple[str, ...], before: int, after: int
) -> tuple[list[tuple[int | None, Row]], list[int]]:
    made: list[tuple[int | None, Row]] = []
    rejected, earlier, stream = [], list[Row](), -(10**9)
    for place, row in enumerate(rows):
        if row["time"] < stream:
            rejected.append(place)
            continue
        stream = row["time"]
        for other in earlier:
            left, right = (row, other) if row["side"] == "left" else (other, row)
            near = left["time"] - before <= right["time"] <= left["time"] + after
            if other["side"] != row["side"] and key_of(other, keys) == key_of(row, keys) and near:
                key = {name: row[name] for name in keys}
                pair = {f"left_{name}": left[name] for name in LEFT} | {f"right_{name}": right[name] for name in RIGHT}
                made.append((place, key | pair))
        if None not in key_of(row, keys):
            earlier.append(row)
    return made, rejected


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(late=True), st.integers(-3, 8), st.integers(-3, 8), cuttings())
def test_pairs_are_those_of_comparing_every_row_with_all_before_it(
    keys: tuple[str, ...], rows: list[Row], before: int, after: int, cutting: Cutting
) -> None:
    before = max(before, -after)
    batch = batch_of(rows)
    planned = plan(IntervalJoin, SCHEMA, keys, "time", LEFT, RIGHT, before, after, "side")
    ran = same_for_any_cutting(planned, batch, keys, cutting)
    expected, rejected = plain_join(batch.to_pylist(), keys, before, after)
    assert ran.rows == expected
    assert sorted(place for place, _ in ran.rejected) == rejected


@pytest.mark.parametrize("packet", [1, 2, 10])
@pytest.mark.parametrize(
    ("first", "second", "span"), [("right", "left", 4), ("left", "right", 7)], ids=["right first", "left first"]
)
def test_a_row_at_the_very_end_of_the_interval_has_not_been_forgotten(
    first: str, second: str, span: int, packet: int
) -> None:
    rows = [
        {"user": 1, "time": 0, "side": first},
        *({"user": 2, "time": span, "side": side} for side in ("left", "right")),
        {"user": 1, "time": span, "side": second},
        {"user": 1, "time": span + 1, "side": second},
    ]
    planned = plan(IntervalJoin, SCHEMA, ["user"], "time", LEFT, RIGHT, 4, 7, "side")
    ran = drive(planned, batch_of(rows), ["user"], Cutting((packet,)))
    assert [(place, row["user"]) for place, row in ran.rows] == [(2, 2), (3, 1)]


def test_rows_that_can_find_no_partner_any_more_are_forgotten_with_their_keys() -> None:
    schema = pa.schema([("user", pa.int64()), ("time", pa.int64()), ("right", pa.bool_())])
    state = IntervalJoin(schema, ["user"], "time", ["time"], ["time"], 3, 30, "right", sides=(False, True))
    pairs = 0
    for begin in range(0, 40_000, 500):
        times = np.arange(begin, begin + 500)
        # A left row, and 20 later its right row.
        right = times % 2 == 1
        users = np.where(right, times - 21, times)
        batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(times), pa.array(right)], schema=schema)
        pairs += state.process(Part.whole(batch, times)).batch.num_rows
    assert pairs == 20_000 - 10
    assert len(state._held[0]) + len(state._held[1]) < 4_000
    assert len(state._keys) < 10_000


def test_a_row_of_neither_side_is_rejected() -> None:
    rows = [{"user": 1, "time": 1, "side": side} for side in ("left", "middle", None, "right")]
    planned = plan(IntervalJoin, SCHEMA, ["user"], "time", LEFT, RIGHT, 0, 0, "side")
    ran = drive(planned, batch_of(rows), ["user"])
    assert [place for place, _ in ran.rejected] == [1, 2]
    assert [place for place, _ in ran.rows] == [3]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: IntervalJoin(SCHEMA, ["user"], "time", LEFT, RIGHT, -5, 4, "side"), "is empty"),
        (lambda: IntervalJoin(SCHEMA, ["user"], "time", (), RIGHT, 0, 4, "side"), "at least one of each"),
    ],
    ids=["no interval", "no left column"],
)
def test_a_join_needs_an_interval_and_columns_of_both_sides(make: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()
