"""A running query: its operators, wired to each other, its state, and its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from threading import Event, Lock
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import HeadgateError, LatencyRecorder, LatencySummary
from headgate.stream.bucket_queues import BucketQueues, Scheme, bucket_queues
from headgate.stream.counters import MiddleOfRun, Throughput
from headgate.stream.errors import QueryError
from headgate.stream.kernel import Rejected
from headgate.stream.operators import OPERATORS, Operator, SourceOperator
from headgate.stream.operators.merging import UnionOperator
from headgate.stream.operators.operator import Clock
from headgate.stream.packet import Ints, Packet
from headgate.stream.reorder import LockedBuffer, NonBlockingBuffer, ReorderBuffer
from headgate.stream.spec import Kind, OperatorSpec, QuerySpec

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
    """Whether a query runs, or how it ended."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class RejectedRow(NamedTuple):
    """A rejected row: where, and why. ``row`` counts from 0 in the packet as the operator got it."""

    operator: str
    serial: int
    row: int
    reason: str
    raw: str


class QueryRun:
    """A running query, made by the engine. Several threads use it.

    The loop sets ``on_input``, which is called when an operator may have something to do that had nothing, and
    ``on_end``.
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
        #: buckets of partitioned operators that leave the number open
        self.buckets = buckets
        #: whether states give out what they have kept when sources end; if not, a later run goes on from them
        self.flushes = flushes
        #: seconds between two packets of a source that are not full
        self.linger = linger
        #: a column of event time, and the stream's time at the end of the run, whatever rows were seen
        self.ends_at = ends_at
        self.ending = Ending.RUNNING
        self.error: HeadgateError | None = None
        self.on_input: Callable[[Operator], None] = _ignore
        self.on_end: Callable[[QueryRun], None] = _ignore
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
        self.operators = self._wire()

    def _wire(self) -> dict[str, Operator]:
        operators: dict[str, Operator] = {}
        try:
            for spec in self.spec.operators:
                operators[spec.name] = OPERATORS[spec.kind](spec, self, self.clock)
        except BaseException:
            self.operators = operators
            self.close()
            raise
        tracked = _tracked_operators(self.spec)
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
                operator.bounded = not _have_common_source(self.spec, operator.spec)
        return operators

    # --- parts for operators --------------------------------------------------------------------------------

    def reorder_buffer(self, deliver: Callable[[Item], None]) -> ReorderBuffer[Item]:
        """A buffer of the kind in the settings."""
        return NonBlockingBuffer(deliver) if self._buffer == "non-blocking" else LockedBuffer(deliver)

    def bucket_queues(self, buckets: int) -> BucketQueues[Any]:
        """Queues of the scheme in the settings."""
        return bucket_queues(self._scheme, buckets)

    def time_at_end(self, operator: OperatorSpec, times: Ints | None) -> Ints | None:
        """The times by which an operator closes windows at the last packet: the stream's time, if ``ends_at`` says it,
        otherwise ``times``.

        Windows over the rows of other windows go by the rows they get, which may be older than the stream.
        """
        if operator.time is None or self.ends_at is None or operator.time.column != self.ends_at[0]:
            return times
        upstream = _upstream(self.spec, operator.name) - {operator.name}
        if any(self.spec.by_name[name].time is not None for name in upstream):
            return times
        return np.array([min(max(self.ends_at[1], operator.time.earliest), operator.time.latest)], dtype=np.int64)

    # --- called by operators --------------------------------------------------------------------------------

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
                # The mean latency of its rows, as if they had arrived evenly.
                self.latency.add(max(now - (packet.first_arrival + packet.last_arrival) / 2, 0.0), packet.rows)
            if packet.source_rows:
                self.throughput.note(sink, packet.source_rows, packet.first_arrival, packet.last_arrival, now)

    def sink_ended(self, sink: str) -> None:
        with self._lock:
            self._sinks_left -= 1
            all_ended = not self._sinks_left
        if all_ended:
            self._end(Ending.DONE)

    def fail(self, error: HeadgateError) -> None:
        """An operator raised, or the policy did: stop the query."""
        with self._lock:
            if self.error is None and self.ending is Ending.RUNNING:
                self.error = error
        self._end(Ending.FAILED)

    # --- called by the engine and its loop ------------------------------------------------------------------

    def drain(self) -> None:
        """Stop reading, and process what was read."""
        for operator in self.operators.values():
            if isinstance(operator, SourceOperator):
                operator.drain()
                self.on_input(operator)

    def stop(self) -> None:
        """Stop at once: packets in the queues are dropped."""
        self._end(Ending.STOPPED)

    def _end(self, ending: Ending) -> None:
        with self._lock:
            if self.ending is not Ending.RUNNING:
                return
            self.ending = ending
            self.ended_at = self.clock()
        self.on_end(self)

    def close(self) -> None:
        """Close all operators; the loop calls it when no worker is in an operator of this query any more."""
        closers = [(operator.spec.name, operator.close) for operator in self.operators.values()]
        if self._rejects is not None:
            closers.append(("rejected", self._rejects.close))
        for name, close in closers:
            try:
                close()
            except BaseException as error:
                if self.error is None:
                    self.error = QueryError(self.name, name, None, error)
                    self.ending = Ending.FAILED
        self._finished.set()

    # --- for everybody --------------------------------------------------------------------------------------

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
        """Rejected rows, by packet, then by the operator's place in the query, then by row. Only the last of them if
        there are very many, and none if the query has a sink for them."""
        place = {name: number for number, name in enumerate(self.operators)}
        with self._lock:
            return tuple(sorted(self._rejected, key=lambda each: (each.serial, place[each.operator], each.row)))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended and is closed; False if it took longer than ``timeout`` seconds."""
        return self._finished.wait(timeout)

    def result(self, timeout: float | None = None) -> QueryRun:
        """Wait for the end; raises the query's error if it has one."""
        if not self.wait(timeout):
            raise TimeoutError(f"query {self.name!r} has not ended within {timeout} s")
        if self.error is not None:
            raise self.error
        return self


def _ignore(_: Any) -> None:
    """The callback until a loop sets another."""


def _have_common_source(spec: QuerySpec, union: OperatorSpec) -> bool:
    """Whether two inputs of a union come from one operator."""
    upstream: set[str] = set()
    for name in union.inputs:
        input_upstream = _upstream(spec, name)
        if upstream & input_upstream:
            return True
        upstream |= input_upstream
    return False


def _upstream(spec: QuerySpec, name: str) -> set[str]:
    """An operator and all that feed it."""
    upstream: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        if each not in upstream:
            upstream.add(each)
            todo += spec.by_name[each].inputs
    return upstream


def _tracked_operators(spec: QuerySpec) -> set[str]:
    """Operators upstream of a merge: they must remember where rows come from."""
    tracked: set[str] = set()
    todo: list[OperatorSpec] = [operator for operator in spec.operators if operator.kind is Kind.MERGE]
    while todo:
        for name in todo.pop().inputs:
            if name not in tracked:
                tracked.add(name)
                todo.append(spec.by_name[name])
    return tracked
