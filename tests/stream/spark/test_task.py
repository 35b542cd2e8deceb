"""Several queries in one task: what leaves first is a scheduler's choice, and what leaves is that of a serial run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from headgate.core import ParameterError, UnknownNameError
from headgate.stream import Stream
from headgate.stream.spark.hosted_query import EngineOptions, HostedQuery, TaskReport
from headgate.stream.spark.on_spark import _check_options
from headgate.stream.spark.states import LiveStates
from headgate.stream.spark.task import Task, run_task

SCHEMA = pa.schema([("n", pa.int64())])
BATCHES = [pa.record_batch({"n": range(100 * number, 100 * number + 100)}, SCHEMA) for number in range(30)]
NUMBERS = list(range(3000))


def all_of(rows: Stream) -> Stream:
    return rows.filter(pc.field("n") >= 0).project("n")


def sums_by_remainder(rows: Stream) -> Stream:
    """Each row with the sum of all rows so far that have the same remainder."""
    return rows.project("n", key=pc.bit_wise_and(pc.field("n"), 7)).key_by("key").running(n=("sum", "n")).project("n")


LOW = HostedQuery("low", "query", all_of, SCHEMA, stateful=False)
HIGH = replace(LOW, table="high", importance_class=1)


def left(*queries: HostedQuery, **options: Any) -> list[tuple[str, int]]:
    """(table, number) of each row, in the order in which rows leave the task."""
    reports: list[TaskReport] = []
    task = Task(0, SCHEMA, queries, EngineOptions(packet_rows=100, **options))
    rows = [
        (queries[number].table, value.as_py())
        for number, batch in run_task(task, iter(BATCHES), LiveStates(), reports.append)
        for value in batch.column("n")
    ]
    assert [report.failure for report in reports] == [None] * len(queries)
    return rows


def test_rows_of_a_more_important_table_leave_first() -> None:
    rows = left(LOW, HIGH)
    assert rows == [*(("high", n) for n in NUMBERS), *(("low", n) for n in NUMBERS)]


def test_a_policy_that_is_stated_decides_instead() -> None:
    turns = left(LOW, HIGH, policy="round-robin", consumption="at-most-1")
    assert {table for table, _ in turns[: len(NUMBERS)]} == {"low", "high"}, "both leave from the beginning"


def test_without_a_scheduler_every_query_has_its_turn() -> None:
    turns = left(LOW, HIGH, loop="serial")
    assert {table for table, _ in turns[:200]} == {"low", "high"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loop": "serial"},
        {"workers": 2},
        {"loop": "rounds", "period": 0.01, "batch": 50},
        {"loop": "threads"},
        {"loop": "locality"},
        {"policy": "fcfs", "placement": "least-loaded", "workers": 2},
        {"consumption": "at-most-100", "scheme": "shared"},
    ],
    ids=str,
)
def test_every_query_has_its_rows_in_order_whatever_is_stated(options: dict[str, Any]) -> None:
    sums = replace(HIGH, table="sums", build=sums_by_remainder)
    rows = left(LOW, HIGH, sums, **options)
    for table in ("low", "high"):
        assert [n for where, n in rows if where == table] == NUMBERS
    so_far = Counter[int]()
    expected = []
    for n in NUMBERS:
        so_far[n % 8] += n
        expected.append(so_far[n % 8])
    assert [n for where, n in rows if where == "sums"] == expected


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"loop": "circle"}, ParameterError),
        ({"scheme": "none"}, ParameterError),
        ({"period": 0.0}, ParameterError),
        ({"batch": 0}, ParameterError),
        ({"consumption": "most"}, ParameterError),
        ({"policy": "best"}, UnknownNameError),
        ({"placement": "there"}, UnknownNameError),
    ],
    ids=str,
)
def test_what_an_engine_does_not_take_is_refused_before_it_is_sent(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        _check_options(EngineOptions(**options))
