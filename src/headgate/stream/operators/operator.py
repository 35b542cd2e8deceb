"""An operator of a running query: its queue, its neighbours, and the turn of a worker.

Loops only use this class: whether an operator can run, what waits, and ``work``. It knows nothing of policies or
threads. Methods that several threads may call at once say so.

A packet goes from an operator to its readers in two steps. ``prepare`` finds out what a reader needs to know about the
packet, such as which rows belong to which bucket; several workers may do it at once. ``accept`` then puts the packet
into the reader's queue, in the order of serial numbers. So the part that has to be in order is short.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headgate.stream.counters import Counters
from headgate.stream.errors import QueryError
from headgate.stream.kernel import Rejected
from headgate.stream.packet import Packet
from headgate.stream.reorder import ReorderBuffer
from headgate.stream.spec import OperatorSpec

if TYPE_CHECKING:
    from headgate.stream.query_run import QueryRun

Clock = Callable[[], float]
#: more workers than any machine has: an operator that any number of workers may run
ANY_NUMBER = 1 << 20
#: seconds until a place in a full buffer is asked for again
_ROOM_SOON = 0.0005


@dataclass(frozen=True, slots=True)
class Answer:
    """An operator's answer to a packet, with what its readers prepared and the rows that it rejected."""

    packet: Packet
    prepared: tuple[Any, ...]
    rejected: tuple[Rejected, ...] = ()


class Operator(ABC):
    """One operator of a running query.

    Invariants:
    1. Packets leave in the order of their serial numbers, each exactly once (``deliver`` is never called by two
       threads at once).
    2. Nothing runs after the query has stopped, apart from turns that had begun.
    """

    max_workers = 1

    def __init__(self, spec: OperatorSpec, query: QueryRun, clock: Clock) -> None:
        self.spec = spec
        self.query = query
        self.name = f"{query.name}/{spec.name}"
        self.clock = clock
        self.counters = Counters(clock())
        #: readers, and at which of their inputs this operator is
        self.targets: tuple[tuple[Operator, int], ...] = ()
        self.upstream: tuple[Operator, ...] = ()
        #: number in the graph of the loop
        self.index = -1
        #: an operator downstream needs the origin of rows
        self.tracked = False
        self.capacity = query.capacity
        #: arrival of the newest rows taken so far, and of the newest that wait
        self.newest_taken = self.newest_waiting = clock()
        #: threads whose turn it is just now
        self.inside: set[int] = set()

    # --- for loops ------------------------------------------------------------------------------------------

    def can_run(self) -> bool:
        """It has input, room for its output, and its query has not stopped."""
        if self.query.stopped or not self.has_input():
            return False
        return all(target.has_room(port) for target, port in self.targets)

    @abstractmethod
    def has_input(self) -> bool:
        """Whether a worker would find something to do now."""

    def has_room(self, port: int) -> bool:
        """It can take more packets at this input; a bound that may be exceeded by as many packets as there are
        workers."""
        return self.counters.waiting < self.capacity

    @property
    def pending(self) -> int:
        """Rows that wait; at least one for each packet, since packets without rows are work as well."""
        return max(self.counters.rows_waiting, self.counters.waiting)

    def head_arrival(self) -> float:
        """When the oldest rows that wait came into the system; infinity if none do."""
        return math.inf

    def work(self, most: int) -> int:
        """A worker's turn: up to about ``most`` rows, at least one packet. Returns how many it took.

        May be called by up to ``max_workers`` threads at once. Whatever user code raises stops the query, also what is
        no ``Exception``, such as ``sys.exit()``: this is the engine's thread, and other queries need it.
        """
        began, processor, thread = time.perf_counter(), time.thread_time(), get_ident()
        self.inside.add(thread)
        try:
            rows_in, rows_out = self._work(most)
        except BaseException as error:
            self.query.fail(QueryError(self.query.name, self.spec.name, getattr(error, "_packet_serial", None), error))
            return 0
        finally:
            self.inside.discard(thread)
        self.counters.turn(rows_in, rows_out, time.perf_counter() - began, time.thread_time() - processor)
        return rows_in

    @abstractmethod
    def _work(self, most: int) -> tuple[int, int]:
        """Take packets and answer them; rows taken, and rows of the answers."""

    def close(self) -> None:  # noqa: B027 - most operators hold nothing
        """The query has ended: close files and connections."""

    # --- from one operator to the next ----------------------------------------------------------------------

    @abstractmethod
    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        """Put a packet into the queue, in order; True if the loop should look whether the operator can run."""

    def prepare(self, packet: Packet) -> Any:
        """What ``accept`` needs to know about a packet; may be called by several threads at once."""
        return None

    def answer(self, packet: Packet, rejected: tuple[Rejected, ...] = ()) -> Answer:
        """A packet with what its readers need to know about it."""
        return Answer(packet, tuple(target.prepare(packet) for target, _ in self.targets), rejected)

    def deliver(self, answer: Answer) -> None:
        """Hand a packet to all readers. Called in the order of serial numbers, by one thread at a time."""
        packet, now = answer.packet, self.clock()
        if answer.rejected:
            with self.counters.lock:
                self.counters.rejected += len(answer.rejected)
            self.query.reject(self.spec.name, packet.serial, answer.rejected)
        for (target, port), prepared in zip(self.targets, answer.prepared, strict=True):
            if target.accept(packet, port, prepared, now):
                self.query.on_input(target)

    def _count_entered(self, packet: Packet, now: float) -> None:
        """A packet comes into the queue."""
        self.newest_waiting = packet.last_arrival
        self.counters.entered(packet.rows, packet.batch.nbytes, now)

    def _count_taken(self, packet: Packet, entered: float) -> None:
        """A packet that came at ``entered`` leaves the queue."""
        self.newest_taken = packet.last_arrival
        self.counters.taken(packet.rows, packet.batch.nbytes, entered, self.clock())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.counters.waiting} packets wait>"


class PacketOperator(Operator):
    """An operator that takes packets one by one."""

    def _work(self, most: int) -> tuple[int, int]:
        rows_in = rows_out = 0
        while rows_in < most and self.can_run():
            step = self._step()
            if step is None:
                break
            rows_in += step[0]
            rows_out += step[1]
        return rows_in, rows_out

    @abstractmethod
    def _step(self) -> tuple[int, int] | None:
        """Take one packet and answer it: rows taken, at least 1, and rows of the answer. None if there was nothing,
        for example because another worker came first."""


class QueueOperator(PacketOperator):
    """An operator with one queue: first in, first out. Appending to a deque and taking from its left are atomic."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: packets, and when they came
        self._queue: deque[tuple[Packet, float]] = deque()

    def has_input(self) -> bool:
        return bool(self._queue)

    def head_arrival(self) -> float:
        try:
            return self._queue[0][0].first_arrival
        except IndexError:
            return math.inf

    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        self._count_entered(packet, now)
        self._queue.append((packet, now))
        # Looked at afterwards: a worker that takes what was there before looks again when it has done with that.
        return len(self._queue) <= 1

    def _step(self) -> tuple[int, int] | None:
        try:
            packet, entered = self._queue.popleft()
        except IndexError:
            return None
        self._count_taken(packet, entered)
        return max(packet.rows, 1), self._process(packet)

    @abstractmethod
    def _process(self, packet: Packet) -> int:
        """Answer a packet; the rows of the answer."""


def at_packet(error: BaseException, serial: int) -> BaseException:
    """The exception, which now knows at which packet it happened."""
    error._packet_serial = serial  # type: ignore[attr-defined]
    return error


def send_when_room(outlet: ReorderBuffer[Answer], serial: int, answer: Answer, query: QueryRun) -> None:
    """Put an answer into the buffer. It nearly always has room; if not, the worker with the answer that all wait for is
    about to make some. If that one fails instead, the query stops, and this answer is not wanted any more."""
    while not outlet.send(serial, answer) and not query.stopped:
        time.sleep(_ROOM_SOON)
