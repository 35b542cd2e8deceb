"""Rows among the best of their key go out with their rank as they come, and the best of all at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, ParameterError
from headgate.stream.kernel import Part
from headgate.stream.keyed import TopK, plan
from tests.stream.keyed_driver import (
    KEYS,
    SCHEMA,
    Cutting,
    Row,
    batch_of,
    cuttings,
    drive,
    few_examples,
    in_key_order,
    key_of,
    same_for_any_cutting,
    streams,
)


def plain_top(rows: list[Row], keys: tuple[str, ...], by: str, k: int, descending: bool) -> list[Any]:
    best: dict[Any, list[Row]] = {}
    made: list[Any] = []
    for place, row in enumerate(rows):
        held = best.setdefault(key_of(row, keys), [])
        if row[by] is None:
            continue
        rank = sum(other[by] >= row[by] if descending else other[by] <= row[by] for other in held)
        if rank < k:
            held.insert(rank, row)
            del held[k:]
            made.append((place, {**row, "rank": rank + 1, "final": False}))
    for key in sorted(best, key=in_key_order):
        made += [(None, {**row, "rank": rank, "final": True}) for rank, row in enumerate(best[key], 1)]
    return made


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(exact=True), st.sampled_from(["value", "amount", "at"]), st.integers(1, 4), st.booleans(), cuttings())
def test_ranks_are_those_of_a_plain_list_per_key(
    keys: tuple[str, ...], rows: list[Row], by: str, k: int, descending: bool, cutting: Cutting
) -> None:
    batch = batch_of(rows)
    ran = same_for_any_cutting(plan(TopK, SCHEMA, keys, by, k, descending), batch, keys, cutting)
    assert ran.rows == plain_top(batch.to_pylist(), keys, by, k, descending)


@pytest.mark.parametrize("packet", [1, 2, 10])
def test_of_equal_rows_the_earlier_one_is_better(packet: int) -> None:
    batch = batch_of([{"user": 1, "amount": 5, "time": time} for time in range(4)])
    ran = drive(plan(TopK, SCHEMA, ["user"], "amount", 2), batch, ["user"], Cutting((packet,)))
    assert [(place, row["time"], row["rank"]) for place, row in ran.rows] == [
        (0, 0, 1),
        (1, 1, 2),
        (None, 0, 1),
        (None, 1, 2),
    ]


def test_a_row_without_a_number_is_never_among_the_best_but_an_infinite_one_may_be() -> None:
    values = [float("nan"), float("-inf"), 1.0, float("nan")]
    schema = pa.schema([("value", pa.float64())])
    batch = pa.RecordBatch.from_pylist([{"value": value} for value in values], schema=schema)
    ran = drive(plan(TopK, schema, [], "value", 3), batch, [])
    assert [(place, row["rank"]) for place, row in ran.rows] == [(1, 1), (2, 1), (None, 1), (None, 2)]


def test_overtaken_rows_are_forgotten() -> None:
    schema = pa.schema([("user", pa.int64()), ("value", pa.int64())])
    state = TopK(schema, ["user"], "value", 2)
    for begin in range(0, 20_000, 500):
        values = np.arange(begin, begin + 500)
        batch = pa.RecordBatch.from_arrays([pa.array(values % 3), pa.array(values)], schema=schema)
        assert state.process(Part.whole(batch)).batch.num_rows == 500
    assert state._store_rows < 2_000
    final = state.flush().batch
    assert final.column("value").to_pylist() == [19_998, 19_995, 19_999, 19_996, 19_997, 19_994]


def test_k_and_the_column_must_make_sense() -> None:
    with pytest.raises(ParameterError, match="k must be at least 1"):
        TopK(SCHEMA, ["user"], "value", 0)
    with pytest.raises(DeclarationError, match="column 'place' of type string cannot be ranked by"):
        TopK(SCHEMA, ["user"], "place", 3)
