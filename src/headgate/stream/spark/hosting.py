"""What runs in a Python worker of Spark: one bucket's rows through the query, from the state of the last commit to the
next.

A task is given the rows of one bucket, in order, and the file with the bucket's state as the last commit names it. It
leaves a new file and tells its name; whether that file ever counts is decided by the commit that names it. So a task
that is retried, runs twice, or wakes up when everything is over does no harm.

A worker process lives on after its task, and so may its states: the next task of the bucket takes them up if the file
that it is to go on from is just the one that they were written to, and reads the file otherwise.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Snapshot, State
from headgate.stream.loops.serial import cycle
from headgate.stream.operators.partitioned import PartitionedOperator
from headgate.stream.operators.stateful import StatefulOperator
from headgate.stream.query import Query, Stream
from headgate.stream.query_run import QueryRun
from headgate.stream.sinks import Collect
from headgate.stream.sources import from_batches
from headgate.stream.spark.snapshot_file import read_snapshots, write_snapshots
from headgate.stream.statistics import query_statistics

Build = Callable[[Stream], Stream]
#: buckets whose states a worker process keeps after a task
KEPT_BUCKETS = 16


@dataclass(frozen=True)
class Task:
    """One bucket of one update, as the driver describes it; picklable."""

    name: str
    build: Build
    input: pa.Schema
    bucket: int
    #: the file with the states to go on from; None if there are none yet
    previous: str | None = None
    #: where new states go; None if the query keeps none
    folder: str | None = None
    update: int = 0
    packet_rows: int | None = None


@dataclass
class Done:
    """What a task tells the driver: the file with the new states, rows that were rejected, and what was measured."""

    bucket: int
    file: str | None
    rejected: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0


class LiveStates:
    """States that a worker process still holds, by query and bucket, each with the file that it was written to."""

    def __init__(self, most: int = KEPT_BUCKETS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str, int], tuple[str, Mapping[str, State]]] = OrderedDict()

    def take(self, task: Task) -> Mapping[str, State] | None:
        """The states of the task's bucket if they are those of the file it goes on from. They are gone from here: a
        task that fails must not leave half of what it did."""
        kept = self._kept.pop(self._key(task), None)
        return kept[1] if kept is not None and kept[0] == task.previous else None

    def keep(self, task: Task, file: str, states: Mapping[str, State]) -> None:
        self._kept[self._key(task)] = (file, states)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    @staticmethod
    def _key(task: Task) -> tuple[str, str, int]:
        return (task.folder or "", task.name, task.bucket)


def run_task(
    task: Task, batches: Iterator[pa.RecordBatch], live: LiveStates, done: Callable[[Done], None]
) -> Iterator[Any]:
    """The rows that the query makes of a bucket's rows, as they come."""
    began = time.perf_counter()
    sink = Collect()
    query = Query(task.name)
    task.build(query.source(from_batches(batches, task.input))).to(sink)
    run = QueryRun(query.spec(), time.perf_counter, packet_rows=task.packet_rows, flushes=task.folder is None)
    run.on_end = QueryRun.close
    _take_up(task, run, live)
    rows_out = 0
    operators = list(run.operators.values())
    while not run.stopped:
        cycle(operators)
        for batch in _emptied(sink):
            rows_out += batch.num_rows
            yield batch
    run.result()
    file = _put_down(task, run, live)
    statistics = query_statistics(run)
    done(
        Done(
            task.bucket,
            file,
            [row._asdict() for row in run.rejected],
            [_told(each) for each in statistics.operators],
            statistics.rows_in,
            rows_out,
            time.perf_counter() - began,
        )
    )


def _emptied(sink: Collect) -> list[pa.RecordBatch]:
    batches = list(sink.batches)
    sink.batches.clear()
    return batches


def _stateful(run: QueryRun) -> Iterator[tuple[str, PartitionedOperator | StatefulOperator]]:
    for name, operator in run.operators.items():
        if isinstance(operator, PartitionedOperator | StatefulOperator):
            yield name, operator


def _take_up(task: Task, run: QueryRun, live: LiveStates) -> None:
    if task.folder is None:
        return
    held = live.take(task)
    stored: Mapping[str, Snapshot] = {}
    if held is None and task.previous is not None:
        stored, _ = read_snapshots(Path(task.previous))
    for name, operator in _stateful(run):
        if held is not None and name in held:
            operator.take_state(held[name])
        elif name in stored:
            state = operator.new_state()
            state.restore(stored[name])
            operator.take_state(state)


def _put_down(task: Task, run: QueryRun, live: LiveStates) -> str | None:
    if task.folder is None:
        return None
    states = {name: operator.only_state() for name, operator in _stateful(run)}
    snapshots = {name: state.snapshot() for name, state in states.items()}
    note = {"query": task.name, "bucket": task.bucket, "update": task.update}
    file = str(write_snapshots(Path(task.folder), f"u{task.update}-b{task.bucket}", snapshots, note))
    live.keep(task, file, states)
    return file


def _told(operator: Any) -> dict[str, Any]:
    return {
        "name": operator.name,
        "kind": operator.kind,
        "rows_in": operator.rows_in,
        "rows_out": operator.rows_out,
        "processor": operator.processor,
        "peak_rows_waiting": operator.peak_rows_waiting,
        "utilisation": operator.utilisation,
    }
