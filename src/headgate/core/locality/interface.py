"""The small interface a runtime or a simulation needs from a scheduler of operator tasks.

Facts in, instructions out. The runtime owns threads, semaphores, packets and clocks; a scheduler owns none of them
and never calls back. Each worker thread runs this loop, every call made under one lock:

    sleep until woken
    while (choice := scheduler.next_task(thread)) is not None:
        carry out choice.wakes
        run choice.operator without the lock; for each packet it sends, packet_received(receiver, thread);
        if it has more to do, schedule_self(operator, thread); carry out every Wake that comes back
        carry out scheduler.finished(thread)

A thread that got None is asleep for the scheduler until a Wake names it. Waking it more often does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.core.locality.instructions import Instruction, Wake
from headgate.core.locality.tasks import Choice, OperatorId, RequestId, StepLabel, ThreadId


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """Counters since the start, and the present size of things."""

    choices: Mapping[StepLabel, int]
    """How often each step decided, sleeping included."""
    steals: int
    wakes: int
    moves: int
    shares: int
    semaphore_operations: int
    """Acquires and releases the runtime had to make; each may be a system call."""
    tasks_created: int
    requests: int
    operators: int
    waiting_tasks: int
    running_threads: int
    sleeping_threads: int


class TaskScheduler(Protocol):
    """What both schedulers offer. Not thread-safe: the caller serialises all calls."""

    has_global_semaphore: bool
    """True if all threads acquire and release one semaphore; false if each sleeps on its own."""

    @property
    def semaphore_operations(self) -> int:
        """See :class:`SchedulerStatistics`; cheap enough to read after every call."""

    def submit_request(
        self, request: RequestId, operators: Iterable[OperatorId] = (), *, free_memory: Sequence[float] | None = None
    ) -> tuple[Instruction, ...]:
        """A new request arrives; its operators have nothing to do yet."""

    def add_operator(self, operator: OperatorId, request: RequestId) -> None:
        """The plan of a request grows."""

    def remove_operator(self, operator: OperatorId) -> None:
        """The plan of a request shrinks: a waiting task is dropped, a run in progress may end."""

    def remove_request(self, request: RequestId) -> None:
        """A request is complete or cancelled: as if all its operators were removed."""

    def packet_received(self, operator: OperatorId, by_thread: ThreadId) -> tuple[Wake, ...]:
        """The operator running on `by_thread` sent a packet to `operator`."""

    def schedule_self(self, operator: OperatorId, by_thread: ThreadId | None = None) -> tuple[Wake, ...]:
        """The operator has something to do that is not tied to a packet just made, e.g. more packets to generate."""

    def next_task(self, thread: ThreadId) -> Choice | None:
        """What this free thread runs now; None sends it to sleep."""

    def finished(self, thread: ThreadId) -> tuple[Wake, ...]:
        """The run on this thread has ended; the thread must ask for its next task."""

    def balance(self) -> tuple[Instruction, ...]:
        """One step of load balancing; call every ``BALANCE_PERIOD`` while a thread idles."""

    def statistics(self) -> SchedulerStatistics:
        """A frozen report."""

    def validate(self) -> None:
        """Check every invariant; raise :class:`InvariantError` on the first that fails. For tests and debugging."""
