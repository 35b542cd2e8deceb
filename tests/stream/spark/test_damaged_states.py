"""States that are not what was written fail their own query, by name, and no other query of the task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.stream import Stream
from headgate.stream.spark.hosted_query import EngineOptions, HostedQuery, TaskReport
from headgate.stream.spark.states import LiveStates
from headgate.stream.spark.task import Task, run_task

SCHEMA = pa.schema([("user", pa.int64()), ("price", pa.int64())])
OUTPUT = pa.schema([("user", pa.int64()), ("n", pa.int64())])


def counts(stream: Stream) -> Stream:
    return stream.key_by("user").running(n="count")


def run_queries(
    queries: list[HostedQuery], options: EngineOptions, users: list[int]
) -> tuple[dict[str, TaskReport], dict[int, int]]:
    """The report of each query, and how many rows each had."""
    reports: list[TaskReport] = []
    batch = pa.RecordBatch.from_pydict({"user": users, "price": users}, SCHEMA)
    rows = [0] * len(queries)
    # New live states, as in a worker process that has just started.
    for number, found in run_task(
        Task(0, SCHEMA, tuple(queries), options), iter([batch]), LiveStates(), reports.append
    ):
        rows[number] += found.num_rows
    return {report.query: report for report in reports}, dict(enumerate(rows))


@pytest.mark.parametrize("options", [EngineOptions(), EngineOptions(workers=2)], ids=["serial", "threaded"])
def test_a_damaged_state_fails_its_query_and_no_other(tmp_path: Path, options: EngineOptions) -> None:
    queries = [HostedQuery("", name, counts, OUTPUT, stateful=True, folder=tmp_path / name, update=1) for name in "ab"]
    first, _ = run_queries(queries, options, [1, 2, 3])
    again = []
    for query in queries:
        states = first[query.name].states
        assert states is not None
        again.append(replace(query, update=2, previous={0: states}))
    (damaged,) = (tmp_path / "a").iterdir()
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])

    second, rows = run_queries(again, options, [1, 2])
    failure = second["a"].failure
    assert failure is not None and failure.damaged_states and str(damaged) in failure.message
    assert (second["a"].states, rows[0]) == (None, 0)
    assert second["b"].failure is None and second["b"].states is not None
    assert rows[1] == 2


@pytest.mark.parametrize("options", [EngineOptions(), EngineOptions(workers=2)], ids=["serial", "threaded"])
def test_a_task_whose_only_query_cannot_start_ends(tmp_path: Path, options: EngineOptions) -> None:
    query = HostedQuery("", "a", counts, OUTPUT, stateful=True, folder=tmp_path, previous={0: ("gone.state",)})
    reports, rows = run_queries([query], options, [1])
    failure = reports["a"].failure
    assert failure is not None and failure.damaged_states and rows == {0: 0}
