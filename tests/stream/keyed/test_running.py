"""A running aggregate says for every row what its key has come to."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.stream.keyed import Aggregate, RunningAggregate, plan
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
    key_of,
    same_for_any_cutting,
    streams,
)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(), cuttings())
def test_every_row_gets_the_aggregates_of_all_rows_of_its_key_so_far(
    keys: tuple[str, ...], rows: list[Row], cutting: Cutting
) -> None:
    batch = batch_of(rows)
    ran = same_for_any_cutting(plan(RunningAggregate, SCHEMA, keys, AGGREGATES), batch, keys, cutting)
    so_far = defaultdict[Any, list[Row]](list)
    expected = []
    for place, row in enumerate(batch.to_pylist()):
        so_far[key_of(row, keys)].append(row)
        key = {name: row[name] for name in keys}
        expected.append((place, {**key, **aggregated(so_far[key_of(row, keys)])}))
    assert [repr(row) for row in ran.rows] == [repr(row) for row in expected]


@few_examples
@given(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, 0.1, None]), max_size=20), cuttings())
def test_infinities_and_nan_are_values_like_others_for_any_cutting(
    values: list[float | None], cutting: Cutting
) -> None:
    schema = pa.schema([("value", pa.float64())])
    aggregates = [Aggregate(name, "value") for name in ("sum", "mean", "min", "max", "first", "last")]
    batch = pa.RecordBatch.from_pylist([{"value": value} for value in values], schema=schema)
    ran = same_for_any_cutting(plan(RunningAggregate, schema, [], aggregates), batch, [], cutting)
    if any(value is not None and math.isnan(value) for value in values):
        assert all(math.isnan(ran.rows[-1][1][f"{name}_value"]) for name in ("sum", "mean", "min", "max"))


@pytest.mark.parametrize("packet", [1_000, 4_096])
def test_a_few_keys_with_very_many_rows_give_sums_that_are_equal_to_the_last_bit(packet: int) -> None:
    chance = np.random.default_rng(5)
    users = np.minimum(chance.geometric(0.4, 10_000), 300)
    schema = pa.schema([("user", pa.int64()), ("value", pa.float64())])
    batch = pa.RecordBatch.from_arrays([pa.array(users), pa.array(chance.normal(size=10_000))], schema=schema)
    planned = plan(RunningAggregate, schema, ["user"], [Aggregate("sum", "value"), Aggregate("max", "value")])
    whole = drive(planned, batch, ["user"])
    assert drive(planned, batch, ["user"], Cutting((packet,), buckets=3)).rows == whole.rows
    total = 0.0
    for user, value in zip(users.tolist(), batch.column("value").to_pylist(), strict=True):
        total += value if user == 1 else 0.0
    assert [row["sum_value"] for _, row in whole.rows if row["user"] == 1][-1] == total


@pytest.mark.parametrize(
    ("aggregate", "kind", "result"),
    [
        (Aggregate("sum", "x"), pa.int8(), pa.int64()),
        (Aggregate("sum", "x"), pa.bool_(), pa.int64()),
        (Aggregate("sum", "x"), pa.float32(), pa.float64()),
        (Aggregate("mean", "x"), pa.uint64(), pa.float64()),
        (Aggregate("min", "x"), pa.date32(), pa.date32()),
        (Aggregate("last", "x"), pa.dictionary(pa.int8(), pa.int16()), pa.int16()),
        (Aggregate("count", "x"), pa.string(), pa.int64()),
    ],
    ids=str,
)
def test_result_types_are_those_of_the_table_in_the_module(
    aggregate: Aggregate, kind: pa.DataType, result: pa.DataType
) -> None:
    assert aggregate.field(pa.schema([("x", kind)])).type == result


def test_unsigned_integers_are_compared_and_added_as_such() -> None:
    schema = pa.schema([("x", pa.uint64())])
    batch = pa.RecordBatch.from_pylist([{"x": 2**64 - 1}, {"x": 5}], schema=schema)
    planned = plan(RunningAggregate, schema, [], [Aggregate("max", "x"), Aggregate("min", "x"), Aggregate("sum", "x")])
    assert drive(planned, batch, []).rows[-1] == (1, {"max_x": 2**64 - 1, "min_x": 5, "sum_x": 4})


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Aggregate("sums", "x"), UnknownNameError, "Did you mean 'sum'"),
        (lambda: Aggregate("sum"), DeclarationError, "'sum' needs a column"),
        (
            lambda: plan(RunningAggregate, SCHEMA, ["user"], [Aggregate("sum", "place")]),
            DeclarationError,
            "type string",
        ),
        (lambda: plan(RunningAggregate, SCHEMA, ["user"], [Aggregate("mean", "at")]), DeclarationError, "numbers"),
        (lambda: plan(RunningAggregate, SCHEMA, ["user"], []), DeclarationError, "at least one aggregate"),
        (
            lambda: plan(RunningAggregate, SCHEMA, ["user"], [Aggregate("count", name="user")]),
            DeclarationError,
            "several columns called 'user'",
        ),
    ],
    ids=["no such function", "no column", "of text", "mean of times", "none at all", "a name taken twice"],
)
def test_what_cannot_be_computed_is_said_before_anything_runs(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
