"""Rows of a key pass in the order of their time; those that come late are rejected and say why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from headgate.core.errors import DeclarationError
from headgate.stream import Collect, Query, from_batches, run
from headgate.stream.kernel import Part
from headgate.stream.keyed import InOrder, plan
from tests.stream.keyed_driver import (
    KEYS,
    SCHEMA,
    Cutting,
    Row,
    batch_of,
    cuttings,
    few_examples,
    key_of,
    same_for_any_cutting,
    streams,
)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@few_examples
@given(streams(late=True), cuttings())
def test_rows_pass_as_a_plain_look_row_by_row_says(keys: tuple[str, ...], rows: list[Row], cutting: Cutting) -> None:
    batch = batch_of(rows)
    ran = same_for_any_cutting(plan(InOrder, SCHEMA, keys, "time"), batch, keys, cutting)
    latest: dict[Any, int] = {}
    passed, rejected = [], []
    for place, row in enumerate(batch.to_pylist()):
        seen = latest.setdefault(key_of(row, keys), row["time"])
        if row["time"] >= seen:
            latest[key_of(row, keys)] = row["time"]
            passed.append((place, row))
        else:
            reason = f"it is late: its time {row['time']} lies before {seen} that its key has already seen"
            rejected.append((place, reason))
    assert ran.rows == passed
    assert sorted(ran.rejected) == rejected


def test_a_row_without_a_time_is_rejected_and_moves_nothing() -> None:
    state = InOrder(SCHEMA, ["user"], "time")
    rows = [{"user": 1, "time": -5}, {"user": 1, "time": None}, {"user": 1, "time": -5}]
    output = state.process(Part.whole(batch_of(rows)))
    assert output.batch.column("time").to_pylist() == [-5, -5]
    assert [(each.row, each.reason) for each in output.rejected] == [(1, "its time 'time' is null")]


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (pa.timestamp("ms"), "2024-05-06 07:08:09.000"),
        (pa.timestamp("ns"), "2024-05-06 07:08:09.000000000"),
        (pa.timestamp("s", "Europe/Berlin"), "2024-05-06 07:08:09"),
    ],
    ids=str,
)
def test_reasons_name_times_as_people_write_them(kind: pa.DataType, seen: str) -> None:
    schema = pa.schema([("user", pa.int64()), ("at", kind)])
    moments = [datetime(2024, 5, 6, 7, 8, second, tzinfo=UTC) for second in (9, 3)]
    columns = [pa.array([1, 1]), pa.array(moments, type=pa.timestamp(kind.unit, "UTC")).cast(kind)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    (rejected,) = InOrder(schema, ["user"], "at").process(Part.whole(batch)).rejected
    assert f"lies before {seen} that" in rejected.reason
    assert '"user": 1' in rejected.raw


def test_a_query_takes_it_like_any_other_step_after_its_key() -> None:
    table = pa.table({"user": [1, 2, 1, 1], "ts": [5, 1, 4, 5]})
    sink, query = Collect(), Query("q")
    query.source(from_batches(table)).key_by("user").in_order("ts").to(sink)
    run(query, workers=1)
    assert [(row["user"], row["ts"]) for row in sink.rows()] == [(1, 5), (2, 1), (1, 5)]


def test_the_time_must_be_a_time() -> None:
    with pytest.raises(DeclarationError, match="cannot be the event time"):
        InOrder(SCHEMA, ["user"], "value")
