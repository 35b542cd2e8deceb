"""An operator at work: its queue, its place among the others, and the turn of a worker.

Loops know operators by this class alone: whether they can run, what waits, and ``work``. Nothing here knows of
policies or threads; whatever may be called by several threads at once says so.

Rows go from an operator to its readers in three steps: ``prepare`` (by any worker, side by side: what a reader needs to
know about a packet, such as which rows belong to which bucket), then, in the order of serial numbers, ``accept``. So
the part that has to be in order is short.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headgate.stream.books import Books
from headgate.stream.errors import QueryError
from headgate.stream.kernel import Rejected
from headgate.stream.packet import Packet
from headgate.stream.spec import OperatorSpec

if TYPE_CHECKING:
    from headgate.stream.query_run import QueryRun

Clock = Callable[[], float]
#: more workers than any machine has: an operator that any number of workers may run
ANY_NUMBER = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """An operator's answer to a packet, with what its readers prepared and the rows it could not take."""

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
        self.books = Books(clock())
        #: readers, and at which of their inputs this operator is
        self.targets: tuple[tuple[Operator, int], ...] = ()
        self.upstream: tuple[Operator, ...] = ()
        #: number in the graph of the loop
        self.index = -1
        #: somebody downstream needs to know where rows come from
        self.tracked = False
        self.capacity = query.capacity
        #: arrival of the newest rows taken so far, and of the newest that wait
        self.newest_taken = self.newest_waiting = clock()
        #: threads whose turn it is just now
        self.inside: set[int] = set()

    # --- asked by loops -------------------------------------------------------------------------------------

    def can_run(self) -> bool:
        """It has input, room for what becomes of it, and its query has not stopped."""
        if self.query.stopped or not self.has_input():
            return False
        return all(target.has_room(port) for target, port in self.targets)

    @abstractmethod
    def has_input(self) -> bool:
        """A worker that came now would find something to do."""

    def has_room(self, port: int) -> bool:
        """It can take more packets at this input; a bound that may be overstepped by as many packets as there are
        workers."""
        return self.books.waiting < self.capacity

    @property
    def pending(self) -> int:
        """Rows that wait; at least one for each packet, since packets without rows are work as well."""
        return max(self.books.rows_waiting, self.books.waiting)

    def head_arrival(self) -> float:
        """When the oldest rows that wait came into the system; infinity if none do."""
        return math.inf

    def work(self, most: int) -> int:
        """A worker's turn: up to about ``most`` rows, at least one packet. Returns how many it took.

        May be called by up to ``max_workers`` threads at once. An exception of user code stops the query.
        """
        began, processor, thread = time.perf_counter(), time.thread_time(), get_ident()
        self.inside.add(thread)
        try:
            taken, made = self._work(most)
        except Exception as error:
            self.query.fail(QueryError(self.query.name, self.spec.name, getattr(error, "_packet_serial", None), error))
            return 0
        finally:
            self.inside.discard(thread)
        self.books.turn(taken, made, time.perf_counter() - began, time.thread_time() - processor)
        return taken

    @abstractmethod
    def _work(self, most: int) -> tuple[int, int]:
        """Take packets, answer them; returns rows taken and rows made."""

    def close(self) -> None:  # noqa: B027 - most operators hold nothing
        """The query has ended: let go of files and connections."""

    # --- from one operator to the next ----------------------------------------------------------------------

    @abstractmethod
    def accept(self, packet: Packet, port: int, prepared: Any, now: float) -> bool:
        """Take a packet into the queue, in order; True if a loop should be told that there may be something to do."""

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
            with self.books.lock:
                self.books.rejected += len(answer.rejected)
            self.query.reject(self.spec.name, packet.serial, answer.rejected)
        for (target, port), prepared in zip(self.targets, answer.prepared, strict=True):
            if target.accept(packet, port, prepared, now):
                self.query.on_input(target)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.books.waiting} packets wait>"


def at_packet(error: Exception, serial: int) -> Exception:
    """The exception, which now knows at which packet it happened."""
    error._packet_serial = serial  # type: ignore[attr-defined]
    return error
