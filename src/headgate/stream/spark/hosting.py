"""What runs in a Python worker of Spark: one bucket's rows through one or several queries, from the states of the last
commit to the next.

A task is given the rows of one bucket, in order, and for each query the files with the bucket's states as the table's
last commit names them. It leaves new files and tells their names; whether these ever count is decided by the commit
that names them. So a task that is retried, runs twice, or wakes up when everything is over does no harm.

A query that fails is told about like anything else, and the others of the task go on.
"""

from __future__ import annotations

import queue
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.engine import Engine
from headgate.stream.loops.serial import cycle
from headgate.stream.operators import Operator
from headgate.stream.query import Query
from headgate.stream.query_run import QueryRun
from headgate.stream.sinks import Collect
from headgate.stream.sources import from_batches
from headgate.stream.spark.feed import SharedBatches
from headgate.stream.spark.guest import Done, Guest, GuestError, Terms
from headgate.stream.spark.limits import Watch
from headgate.stream.spark.live_states import LiveStates, put_down, states_of, take_up
from headgate.stream.spec import QuerySpec
from headgate.stream.statistics import query_statistics


@dataclass(frozen=True)
class Task:
    """One bucket of one pass over the rows, for all guests of the pass."""

    bucket: int
    given: pa.Schema
    guests: tuple[Guest, ...]
    terms: Terms


#: where the code lies that is not the user's
_PACKAGE = Path(__file__).parents[2]

#: rows that a guest has made, by its number among the guests
Made = tuple[int, pa.RecordBatch]


def run_task(
    task: Task, batches: Iterator[pa.RecordBatch], live: LiveStates, told: Callable[[Done], None]
) -> Iterator[Made]:
    """The rows that each guest makes of a bucket's rows, as they come."""
    began = time.perf_counter()
    shared = SharedBatches(batches, len(task.guests))
    outlet: queue.SimpleQueue[Made] = queue.SimpleQueue()
    seats = [_Seat(number, guest, task, shared.of(number), outlet) for number, guest in enumerate(task.guests)]
    for made in _serial(seats, task, live) if task.terms.serial else _threaded(seats, task, live):
        seats[made[0]].rows_out += made[1].num_rows
        yield made
    for seat in seats:
        told(seat.done(live, time.perf_counter() - began))


class _Seat:
    """A guest in one task."""

    def __init__(
        self, number: int, guest: Guest, task: Task, batches: Iterator[pa.RecordBatch], outlet: queue.SimpleQueue[Made]
    ) -> None:
        self.guest = guest
        self._bucket = task.bucket
        self.outlet = outlet
        self.rejected = Collect()
        query = Query(guest.label, rejected=self.rejected)
        stream = guest.build(query.source(from_batches(batches, task.given)))
        stream.to(_Outlet(number, outlet))
        self.spec: QuerySpec = query.spec()
        self.run: QueryRun | None = None
        self.rows_out = 0

    def settings(self, parts: int, packet_rows: int | None) -> dict[str, Any]:
        """How this guest's run differs from others of its engine."""
        guest = self.guest
        return {
            "flushes": not guest.keeps_states,
            "buckets": parts,
            "ends_at": guest.ends_at,
            "packet_rows": packet_rows,
            "linger": 0.0,
        }

    def done(self, live: LiveStates, seconds: float) -> Done:
        """What to tell, when everything has run; states and rejected rows are written first."""
        run, guest = self.run, self.guest
        assert run is not None
        done = Done(guest.label, self._bucket, rows_out=self.rows_out, seconds=seconds)
        if run.error is not None:
            done.error = GuestError(str(run.error), _in_users_words(run.error.__cause__ or run.error))
            return done
        if guest.keeps_states:
            done.states = put_down(guest, self._bucket, states_of(run), live)
        rejected = self.rejected.table()
        done.rejected_rows = rejected.num_rows
        if guest.folder is not None and rejected.num_rows:
            done.rejected = f"rejected-u{guest.update}-b{self._bucket}-{uuid.uuid4().hex}.arrow"
            _write(Path(guest.folder) / done.rejected, rejected)
        statistics = query_statistics(run)
        done.rows_in = statistics.rows_in
        done.operators = [
            {
                "name": each.name,
                "kind": each.kind,
                "rows_in": each.rows_in,
                "rows_out": each.rows_out,
                "rejected": each.rejected,
                "processor": each.processor,
                "peak_rows_waiting": each.peak_rows_waiting,
                "utilisation": each.utilisation,
            }
            for each in statistics.operators
        ]
        return done


def _in_users_words(error: BaseException) -> str:
    """The traceback from where the user's own code begins; the engine's way there helps nobody."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
    heading = ["Traceback (most recent call last):\n"]
    return "".join([*heading, *traceback.format_list(own or frames), *traceback.format_exception_only(error)])


class _Outlet:
    """A sink that puts rows where the task's own thread takes them to Spark."""

    def __init__(self, number: int, outlet: queue.SimpleQueue[Made]) -> None:
        self._number = number
        self._outlet = outlet

    def open(self) -> _Outlet:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self._outlet.put((self._number, batch))

    def close(self) -> None:
        """Whoever takes rows out finds out from the queries that no more will come."""


def _serial(seats: Sequence[_Seat], task: Task, live: LiveStates) -> Iterator[Made]:
    """In the task's own thread, an operator of a query after the other."""
    operators: list[Operator] = []
    for seat in seats:
        held = take_up(seat.guest, task.bucket, live)
        run = QueryRun(seat.spec, time.perf_counter, **seat.settings(held.parts or 1, task.terms.packet_rows))
        run.on_end = QueryRun.close
        held.give(run)
        seat.run = run
        operators += run.operators.values()
    with _watch(operators, task):
        while not all(seat.run is not None and seat.run.stopped for seat in seats):
            cycle(operators)
            yield from _emptied(seats[0].outlet)
    yield from _emptied(seats[0].outlet)


def _threaded(seats: Sequence[_Seat], task: Task, live: LiveStates) -> Iterator[Made]:
    """On the workers of an engine, under its policy; the task's own thread takes rows to Spark meanwhile."""
    terms = task.terms
    stated = {name: value for name in ("loop", "policy") if (value := getattr(terms, name)) is not None}
    engine = Engine(workers=terms.workers or 1, **stated)
    # Only where several workers may run an operator at once are several parts of a bucket of any use.
    parts = terms.workers or 1 if terms.loop in (None, "dispatch") else 1
    operators: list[Operator] = []
    for seat in seats:
        held = take_up(seat.guest, task.bucket, live)
        run = engine.add(seat.spec, **seat.settings(held.parts or parts, terms.packet_rows))
        held.give(run)
        seat.run = run
        operators += run.operators.values()
    outlet = seats[0].outlet
    with _watch(operators, task), engine:
        for seat in seats:
            assert seat.run is not None
            while not seat.run.wait(_MOMENT):
                yield from _emptied(outlet)
    yield from _emptied(outlet)


#: seconds between looks at what the engine's workers have put out
_MOMENT = 0.005


def _emptied(outlet: queue.SimpleQueue[Made]) -> Iterator[Made]:
    while not outlet.empty():
        yield outlet.get()


def _watch(operators: Sequence[Operator], task: Task) -> Watch:
    folder = task.guests[0].folder
    verdict = None if folder is None else verdict_file(Path(folder), task.guests[0].update)
    return Watch(operators, time_limit=task.terms.time_limit, memory_limit=task.terms.memory_limit, verdict=verdict)


def verdict_file(folder: Path, update: int) -> Path:
    """Where a worker that had to end itself in an update says why."""
    return folder / f"verdict-u{update}.txt"


def _write(path: Path, table: pa.Table) -> None:
    """A file that is whole as soon as it has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    with pa.OSFile(str(hidden), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    hidden.replace(path)
