"""A task in a Python worker of Spark: the rows of one bucket go through one or several stream queries.

A task gets the rows of one bucket, in order, and for each query the state files of the bucket that the table's last
commit names. It writes new files and reports their names. They count only when a commit names them, so a task that is
retried, runs twice or ends too late does no harm.

If a query fails, that is reported, and the other queries of the task continue.
"""

from __future__ import annotations

import queue
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import InvariantError
from headgate.places.place import AnyPath
from headgate.stream.engine import Engine
from headgate.stream.loops.serial import cycle
from headgate.stream.query import Query
from headgate.stream.query_run import QueryRun
from headgate.stream.sinks.sink import Collect
from headgate.stream.sources.batches import from_batches
from headgate.stream.spark.hosted_query import EngineOptions, HostedQuery, TaskFailure, TaskReport
from headgate.stream.spark.limits import Watch
from headgate.stream.spark.state_files import SnapshotError, write_rejected
from headgate.stream.spark.states import LiveStates, RestoredStates, restore_states, save_states, states_of
from headgate.stream.spec import QuerySpec
from headgate.stream.statistics import query_statistics

if TYPE_CHECKING:
    from headgate.stream.operators import Operator


@dataclass(frozen=True)
class Task:
    """One bucket of one pass over the rows, for all queries of the pass."""

    bucket: int
    input: pa.Schema
    queries: tuple[HostedQuery, ...]
    options: EngineOptions


#: what the queries of several tables run by, unless stated: the rows of a more important table leave first
SHARED_POLICY = "multi-class:0=lp,default=lp"

#: the folder of our code: other frames of a traceback are the user's
_PACKAGE = Path(__file__).parents[2]

#: (number of the query in the task, its rows)
QueryRows = tuple[int, pa.RecordBatch]


def run_task(
    task: Task, batches: Iterator[pa.RecordBatch], live: LiveStates, report: Callable[[TaskReport], None]
) -> Iterator[QueryRows]:
    """The rows of each query, as soon as they are computed."""
    began = time.perf_counter()
    shared = SharedBatches(batches, len(task.queries))
    outlet: queue.SimpleQueue[QueryRows] = queue.SimpleQueue()
    runs = [_TaskQuery(number, query, task, shared.of(number), outlet) for number, query in enumerate(task.queries)]
    run_all = _serial if task.options.is_serial(len(runs)) else _threaded
    for rows in run_all(runs, task, live):
        runs[rows[0]].rows_out += rows[1].num_rows
        yield rows
    for run in runs:
        report(run.report(live, time.perf_counter() - began))


class _TaskQuery:
    """A query in one task."""

    def __init__(
        self,
        number: int,
        hosted: HostedQuery,
        task: Task,
        batches: Iterator[pa.RecordBatch],
        outlet: queue.SimpleQueue[QueryRows],
    ) -> None:
        self.hosted = hosted
        self._bucket = task.bucket
        self.outlet = outlet
        self.rejected = Collect()
        query = Query(
            hosted.label,
            priority=hosted.priority,
            importance_class=hosted.importance_class,
            rejected=self.rejected,
        )
        stream = hosted.build(query.source(from_batches(batches, task.input)))
        stream.to(_Outlet(number, outlet))
        self.spec: QuerySpec = query.spec()
        self.run: QueryRun | None = None
        #: why it could not start; then there is no run
        self.failure: TaskFailure | None = None
        self.rows_out = 0

    def restore(self, live: LiveStates) -> RestoredStates | None:
        """The states to start from; None if they are damaged, which is this query's failure and no other's."""
        try:
            return restore_states(self.hosted, self._bucket, live)
        except SnapshotError as error:
            self.failure = TaskFailure(str(error), "", damaged_states=True)
            return None

    def settings(self, parts: int, packet_rows: int | None) -> dict[str, Any]:
        """The arguments of this query's run."""
        return {
            "flushes": not self.hosted.keeps_states,
            "buckets": parts,
            "ends_at": self.hosted.ends_at,
            "packet_rows": packet_rows,
            "linger": 0.0,
        }

    def report(self, live: LiveStates, seconds: float) -> TaskReport:
        """Write states and rejected rows, and return the report; called when all queries have ended."""
        run, hosted = self.run, self.hosted
        report = TaskReport(hosted.label, self._bucket, rows_out=self.rows_out, seconds=seconds, failure=self.failure)
        if run is None:
            return report
        if run.error is not None:
            report.failure = TaskFailure(str(run.error), _users_traceback(run.error.__cause__ or run.error))
            return report
        if hosted.keeps_states:
            report.states = save_states(hosted, self._bucket, states_of(run), live)
        rejected = self.rejected.table()
        report.rejected_rows = rejected.num_rows
        if hosted.folder is not None and rejected.num_rows:
            name = f"rejected-u{hosted.update}-b{self._bucket}"
            report.rejected = write_rejected(hosted.folder, name, rejected)
        statistics = query_statistics(run)
        report.rows_in = statistics.rows_in
        report.operators = [
            {
                "name": each.name,
                "kind": each.kind,
                "rows_in": each.rows_in,
                "rows_out": each.rows_out,
                "rejected": each.rejected,
                "processor": each.processor,
                "peak_rows_waiting": each.peak_rows_waiting,
                "utilisation": each.utilisation,
                "in_queue": each.in_queue,
                "for_a_turn": each.for_a_turn,
                "computing": each.computing,
                "inputs": run.spec.by_name[each.name].inputs,
            }
            for each in statistics.operators
        ]
        return report


def _users_traceback(error: BaseException) -> str:
    """The traceback without the frames of the engine."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    heading = ["Traceback (most recent call last):\n"]
    return "".join([*heading, *traceback.format_list(users or frames), *traceback.format_exception_only(error)])


class _Outlet:
    """A sink that puts rows into the queue from which the task's thread passes them to Spark."""

    def __init__(self, number: int, outlet: queue.SimpleQueue[QueryRows]) -> None:
        self._number = number
        self._outlet = outlet

    def open(self) -> _Outlet:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self._outlet.put((self._number, batch))

    def close(self) -> None:
        """Nothing to do: the task's thread sees by the queries that there are no more rows."""


def _serial(queries: Sequence[_TaskQuery], task: Task, live: LiveStates) -> Iterator[QueryRows]:
    """Run the operators in the task's thread, one after the other."""
    operators: list[Operator] = []
    for query in queries:
        if (restored := query.restore(live)) is None:
            continue
        settings = query.settings(restored.parts or 1, task.options.packet_rows)
        run = QueryRun(query.spec, time.perf_counter, **settings)
        run.on_end = QueryRun.close
        restored.give(run)
        query.run = run
        operators += run.operators.values()
    with _watch(operators, task):
        while not all(query.run is None or query.run.stopped for query in queries):
            cycle(operators)
            yield from _emptied(queries[0].outlet)
    yield from _emptied(queries[0].outlet)


def _threaded(queries: Sequence[_TaskQuery], task: Task, live: LiveStates) -> Iterator[QueryRows]:
    """Run the operators on the workers of an engine; the task's thread passes rows to Spark."""
    options = task.options
    stated = {} if options.loop not in (None, "dispatch", "rounds") else {"policy": SHARED_POLICY}
    engine = Engine(workers=options.workers or 1, **{**stated, **options.stated})
    # Several parts help only if several workers may run an operator at once.
    parts = options.workers or 1 if options.loop in (None, "dispatch") else 1
    operators: list[Operator] = []
    for query in queries:
        if (restored := query.restore(live)) is None:
            continue
        run = engine.add(query.spec, **query.settings(restored.parts or parts, options.packet_rows))
        restored.give(run)
        query.run = run
        operators += run.operators.values()
    outlet = queries[0].outlet
    with _watch(operators, task), engine:
        for query in queries:
            while query.run is not None and not query.run.wait(_MOMENT):
                yield from _emptied(outlet)
    yield from _emptied(outlet)


#: seconds between two checks for output of the engine's workers
_MOMENT = 0.005


def _emptied(outlet: queue.SimpleQueue[QueryRows]) -> Iterator[QueryRows]:
    while not outlet.empty():
        yield outlet.get()


def _watch(operators: Sequence[Operator], task: Task) -> Watch:
    query, options = task.queries[0], task.options
    verdict = None if query.folder is None else verdict_file(query.folder, query.update)
    return Watch(operators, time_limit=options.time_limit, memory_limit=options.memory_limit, verdict=verdict)


def verdict_file(folder: AnyPath, update: int) -> AnyPath:
    """The file in which a worker that ends itself in an update says why."""
    return folder / f"verdict-u{update}.txt"


# --- the rows of a task ----------------------------------------------------------------------------------------


class BucketRows:
    """The rows of several buckets in one task, sorted by the column ``name``, the number of the bucket.

    With many rows, one task for each bucket is faster. With few, starting tasks is most of the work: Spark and a Python
    worker need about 25 ms for each.

    Invariant: ``_rest`` are the rows that were read but not returned; all rows before them were returned or skipped.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], name: str) -> None:
        self._batches = batches
        self._name = name
        self._rest: pa.RecordBatch | None = None

    def of(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """The rows of a bucket; to be called in ascending order.

        Rows of earlier buckets may be left, because a query that failed stops reading. They are skipped.
        """
        while (batch := self._rest if self._rest is not None else next(self._batches, None)) is not None:
            numbers = batch.column(self._name).to_numpy()
            if len(numbers) > 1 and (np.diff(numbers) < 0).any():
                raise InvariantError("rows of several buckets are not sorted by bucket")
            first, last = np.searchsorted(numbers, [bucket, bucket + 1])
            ended = last < len(numbers)
            self._rest = batch.slice(last) if ended else None
            if first < last:
                yield batch.slice(first, last - first)
            if ended:
                return


class SharedBatches:
    """The rows of a task for several queries: each reads all of them, at its own pace, on any thread.

    Invariant: a batch that was read from the iterator waits for exactly those readers that have not read it yet. So if
    one query goes first, all rows of the task are in memory until the others have read them.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], readers: int) -> None:
        self._batches = batches
        self._lock = Lock()
        self._error: BaseException | None = None
        self._waiting: list[deque[pa.RecordBatch]] = [deque() for _ in range(readers)]

    def of(self, reader: int) -> Iterator[pa.RecordBatch]:
        """All batches, for one of the readers."""
        if len(self._waiting) == 1:
            yield from self._batches
            return
        mine = self._waiting[reader]
        while True:
            with self._lock:
                if not mine:
                    if self._error is not None:
                        raise self._error
                    try:
                        batch = next(self._batches, None)
                    except BaseException as error:  # an iterator that has raised looks like one that has ended
                        self._error = error
                        raise
                    if batch is None:
                        return
                    for waiting in self._waiting:
                        waiting.append(batch)
                batch = mine.popleft()
            yield batch
