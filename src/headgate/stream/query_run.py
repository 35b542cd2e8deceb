"""A query that runs: its operators, wired to each other, how it stands, and what came out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from threading import Event, Lock
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import HeadgateError
from headgate.core.latency import LatencyRecorder, LatencySummary
from headgate.stream.bucket_queues import BucketQueues, bucket_queues
from headgate.stream.counters import MiddleOfRun, Throughput
from headgate.stream.errors import QueryError
from headgate.stream.kernel import Rejected
from headgate.stream.operators import OPERATORS, Operator, SourceOperator
from headgate.stream.operators.merging import UnionOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.packet import Ints, Packet
from headgate.stream.reorder import LockedBuffer, NonBlockingBuffer, ReorderBuffer
from headgate.stream.spec import Kind, OperatorSpec, QuerySpec

Scheme = Literal["hybrid", "partitioned", "shared"]
Buffer = Literal["non-blocking", "locked"]
Item = TypeVar("Item")

#: rejected rows that are remembered if the query has no sink for them
KEPT_REJECTED = 100_000
REJECTED_SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("serial", pa.int64()),
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
    ]
)

#: packets that wait at an operator before the one that feeds it has to pause
CAPACITY = 16


class Ending(Enum):
    """How a query stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class RejectedRow(NamedTuple):
    """A row that did not go through: where, and why. ``row`` counts from 0 in the packet as the operator got it."""

    operator: str
    serial: int
    row: int
    reason: str
    raw: str


class QueryRun:
    """A query at work. Made by the engine; several threads use it.

    ``on_input`` is the loop's: called when an operator may have something to do that had nothing.
    """

    def __init__(
        self,
        spec: QuerySpec,
        clock: Clock,
        *,
        scheme: Scheme = "hybrid",
        buffer: Buffer = "non-blocking",
        capacity: int = CAPACITY,
        packet_rows: int | None = None,
        buckets: int = 1,
        flushes: bool = True,
        linger: float = 0.0,
        ends_at: tuple[str, int] | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.clock = clock
        self.capacity = capacity
        self.packet_rows = packet_rows or spec.packet_rows
        #: of partitioned operators that do not say
        self.buckets = buckets
        #: when sources end, states give out what they have kept; otherwise they are to be taken up again later
        self.flushes = flushes
        #: seconds between two packets of a source that are not full
        self.linger = linger
        #: a column of event time and how far the stream has come by the end of the run, whatever rows were seen
        self.ends_at = ends_at
        self.ending = Ending.RUNNING
        self.error: HeadgateError | None = None
        self.on_input: Callable[[Operator], None] = _nobody_listens
        self.on_end: Callable[[QueryRun], None] = _nobody_listens
        self.began = clock()
        self.ended_at: float | None = None
        self.latency = LatencyRecorder()
        self.throughput = Throughput()
        self._scheme, self._buffer = scheme, buffer
        self._lock = Lock()
        self._rejecting = Lock()
        self._finished = Event()
        self._rejected: deque[RejectedRow] = deque(maxlen=KEPT_REJECTED)
        self._rejects = None if spec.rejected is None else spec.rejected.open()
        self._sinks_left = len(spec.sinks)
        self.operators = self._wired()

    def _wired(self) -> dict[str, Operator]:
        operators: dict[str, Operator] = {}
        try:
            for spec in self.spec.operators:
                operators[spec.name] = OPERATORS[spec.kind](spec, self, self.clock)
        except BaseException:
            self.operators = operators
            self.close()
            raise
        tracked = _needs_origin(self.spec)
        for name, operator in operators.items():
            operator.tracked = name in tracked
            operator.upstream = tuple(operators[feeder] for feeder in dict.fromkeys(operator.spec.inputs))
            operator.targets = tuple(
                (operators[reader.name], port)
                for reader in self.spec.readers(name)
                for port, feeder in enumerate(reader.inputs)
                if feeder == name
            )
            if isinstance(operator, UnionOperator):
                operator.bounded = not _meet_again(self.spec, operator.spec)
        return operators

    # --- parts for operators --------------------------------------------------------------------------------

    def reorder_buffer(self, deliver: Callable[[Item], None]) -> ReorderBuffer[Item]:
        """A buffer of the kind that was asked for."""
        return NonBlockingBuffer(deliver) if self._buffer == "non-blocking" else LockedBuffer(deliver)

    def bucket_queues(self, buckets: int) -> BucketQueues[Any]:
        """Queues of the scheme that was asked for."""
        return bucket_queues(self._scheme, buckets)

    def time_at_end(self, operator: OperatorSpec, known: Ints | None) -> Ints | None:
        """The time that windows of an operator go by at the last packet: how far the stream has come, if that is known.

        Windows of windows go by the rows they get: what comes out of the first may be older than the stream.
        """
        if operator.time is None or self.ends_at is None or operator.time.column != self.ends_at[0]:
            return known
        above = _above(self.spec, operator.name) - {operator.name}
        if any(self.spec.by_name[name].time is not None for name in above):
            return known
        return np.array([self.ends_at[1]], dtype=np.int64)

    # --- told by operators ----------------------------------------------------------------------------------

    def reject(self, operator: str, serial: int, rejected: tuple[Rejected, ...]) -> None:
        rows = [RejectedRow(operator, serial, *each) for each in rejected]
        if self._rejects is None:
            with self._lock:
                self._rejected.extend(rows)
            return
        with self._rejecting:
            self._rejects.write(pa.RecordBatch.from_pylist([row._asdict() for row in rows], REJECTED_SCHEMA))

    def delivered(self, sink: str, packet: Packet, now: float) -> None:
        """A packet has reached a sink."""
        with self._lock:
            if packet.rows:
                # The mean of its rows, taken to have come evenly.
                self.latency.add(max(now - (packet.first_arrival + packet.last_arrival) / 2, 0.0), packet.rows)
            if packet.source_rows:
                self.throughput.note(sink, packet.source_rows, packet.first_arrival, packet.last_arrival, now)

    def sink_ended(self, sink: str) -> None:
        with self._lock:
            self._sinks_left -= 1
            over = not self._sinks_left
        if over:
            self._end(Ending.DONE)

    def fail(self, error: HeadgateError) -> None:
        """An operator raised, or the policy did: nothing of the query runs any more."""
        with self._lock:
            if self.error is None and self.ending is Ending.RUNNING:
                self.error = error
        self._end(Ending.FAILED)

    # --- told by the engine ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Read no more, let what was read go through."""
        for operator in self.operators.values():
            if isinstance(operator, SourceOperator):
                operator.drain()
                self.on_input(operator)

    def stop(self) -> None:
        """Stop at once: packets under way are dropped."""
        self._end(Ending.STOPPED)

    def _end(self, ending: Ending) -> None:
        with self._lock:
            if self.ending is not Ending.RUNNING:
                return
            self.ending = ending
            self.ended_at = self.clock()
        self.on_end(self)

    def close(self) -> None:
        """Let go of everything; the loop calls it when no worker is in an operator of this query any more."""
        closers = [(operator.spec.name, operator.close) for operator in self.operators.values()]
        if self._rejects is not None:
            closers.append(("rejected", self._rejects.close))
        for name, close in closers:
            try:
                close()
            except Exception as error:
                if self.error is None:
                    self.error = QueryError(self.name, name, None, error)
                    self.ending = Ending.FAILED
        self._finished.set()

    # --- asked by anybody -----------------------------------------------------------------------------------

    def flow(self) -> tuple[LatencySummary, MiddleOfRun]:
        """Latency of all rows so far, and throughput and latency in the middle of the run."""
        with self._lock:
            return self.latency.summary(), self.throughput.middle()

    def worker_seconds(self) -> float:
        """Seconds that workers have spent in the query's operators, waiting for the interpreter included."""
        return sum(operator.counters.computed for operator in self.operators.values())

    @property
    def stopped(self) -> bool:
        return self.ending is not Ending.RUNNING

    @property
    def rejected(self) -> tuple[RejectedRow, ...]:
        """Rows that did not go through, by packet, then by the operator's place in the query, then by row. Only the
        last of them if there are very many, and none if the query has a sink for them."""
        place = {name: number for number, name in enumerate(self.operators)}
        with self._lock:
            return tuple(sorted(self._rejected, key=lambda each: (each.serial, place[each.operator], each.row)))

    def wait(self, timeout: float | None = None) -> bool:
        """Until the query has ended and let go of everything; False if it took longer than ``timeout`` seconds."""
        return self._finished.wait(timeout)

    def result(self, timeout: float | None = None) -> QueryRun:
        """Waits for the end and raises the query's error if it has one."""
        if not self.wait(timeout):
            raise TimeoutError(f"query {self.name!r} has not ended within {timeout} s")
        if self.error is not None:
            raise self.error
        return self


def _nobody_listens(_: Any) -> None:
    """Until a loop takes the query."""


def _meet_again(spec: QuerySpec, union: OperatorSpec) -> bool:
    """Whether two inputs of a union come from one operator."""
    seen: set[str] = set()
    for name in union.inputs:
        above = _above(spec, name)
        if seen & above:
            return True
        seen |= above
    return False


def _above(spec: QuerySpec, name: str) -> set[str]:
    """An operator and all that feed it."""
    found: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += spec.by_name[each].inputs
    return found


def _needs_origin(spec: QuerySpec) -> set[str]:
    """Operators from which a merge can be reached: they must remember where rows come from."""
    needed: set[str] = set()
    todo: list[OperatorSpec] = [operator for operator in spec.operators if operator.kind is Kind.MERGE]
    while todo:
        for name in todo.pop().inputs:
            if name not in needed:
                needed.add(name)
                todo.append(spec.by_name[name])
    return needed
