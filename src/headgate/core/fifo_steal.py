"""The simple scheduler that the locality loop is compared with (Falt and Yaghob, section 6).

It knows neither kinds of tasks nor nodes. Each thread runs its own list first in, first out; a thread with an empty
list steals from the others in round-robin order; all threads sleep on one global semaphore whose value is the number
of waiting tasks. Same interface as :class:`LocalityScheduler`, same pure logic: no clock, no thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from headgate.core.locality.errors import SchedulerMisuseError, broken_invariant
from headgate.core.locality.instructions import Instruction, Wake
from headgate.core.locality.interface import SchedulerStatistics
from headgate.core.locality.table import OperatorTable
from headgate.core.locality.tasks import (
    Choice,
    Operator,
    OperatorId,
    OperatorState,
    Request,
    RequestId,
    StepLabel,
    TaskKind,
    ThreadId,
)

_DEFERRED = TaskKind.DEFERRED


class FifoStep(StepLabel):
    """How the simple scheduler finds a task."""

    OWN_OLDEST = 1
    STEAL = 2
    SLEEP = 3

    @property
    def reason(self) -> str:
        return _FIFO_REASONS[self]


_FIFO_REASONS = {
    FifoStep.OWN_OLDEST: "oldest task in this thread's list",
    FifoStep.STEAL: "oldest task of the next thread, in round-robin order, that has one",
    FifoStep.SLEEP: "the semaphore is zero: no task waits anywhere",
}


class _Thread:
    __slots__ = ("id", "operator", "tasks", "wake")

    def __init__(self, thread: ThreadId) -> None:
        self.id = thread
        #: oldest first
        self.tasks: OrderedDict[Operator[Request], None] = OrderedDict()
        self.operator: Operator[Request] | None = None
        self.wake: tuple[Wake, ...] = (Wake(thread),)


class FifoStealScheduler:
    """First in, first out per thread, then stealing, then the global semaphore. A baseline: prefer the locality loop.

    **Callers.** Not thread-safe: one lock around every call.

    **Invariants** (``validate`` checks them under these numbers):

    1. An operator is RUNNING or RUNNING_AND_SCHEDULED exactly if one thread runs it, and then only that one does.
    2. An operator is SCHEDULED exactly if it is in the list of its home thread, and in no other.
    3. The semaphore's value is the number of waiting tasks.
    4. No lost wake-up: while a thread sleeps there are no more waiting tasks than searching threads.

    **Order.** Oldest first per list; sleepers wake in the order in which they fell asleep. **Cost.** O(1) per task,
    O(threads) per steal. **Removal.** As in :class:`LocalityScheduler`.
    """

    has_global_semaphore = True

    def __init__(self, threads: int) -> None:
        """Threads are numbered from 0. All start asleep."""
        if threads < 1:
            raise SchedulerMisuseError(f"threads must be at least 1; got {threads}")
        self._threads = [_Thread(thread) for thread in range(threads)]
        self._table: OperatorTable[Request] = OperatorTable(Request)
        self._operators = self._table.operators
        self._semaphore = 0
        self._sleeping: OrderedDict[ThreadId, None] = OrderedDict.fromkeys(range(threads))
        self._next_outside = 0
        self._choices = [0] * (len(FifoStep) + 1)
        self._wakes = self._tasks_created = self._semaphore_operations = 0

    def submit_request(
        self, request: RequestId, operators: Iterable[OperatorId] = (), *, free_memory: Sequence[float] | None = None
    ) -> tuple[Instruction, ...]:
        """A new request; it is placed nowhere in particular, so `free_memory` makes no difference."""
        self._table.add_request(request, operators)
        return ()

    def add_operator(self, operator: OperatorId, request: RequestId) -> None:
        """Add an operator, with nothing to do, to a request being evaluated."""
        self._table.add_operator(operator, request)

    def remove_operator(self, operator: OperatorId) -> None:
        """Forget an operator: its waiting task is dropped, its run in progress is its last."""
        known = self._table.operator(operator)
        if known.state is OperatorState.SCHEDULED:
            self._unlist(known)
            self._semaphore_operations += 1
            known.withdraw()
        self._table.remove_operator(known)

    def remove_request(self, request: RequestId) -> None:
        """Forget a request and all its operators."""
        record = self._table.request(request)
        for operator in tuple(record.operators):
            self.remove_operator(operator)
        self._table.remove_request(record)

    def packet_received(self, operator: OperatorId, by_thread: ThreadId) -> tuple[Wake, ...]:
        """A packet came: a task at the end of the sending thread's list."""
        if self._thread(by_thread).operator is None:
            raise SchedulerMisuseError(
                f"thread {by_thread} runs nothing, so it cannot have sent a packet to operator {operator!r}; "
                "report packets before finished(), and packets from outside the pool with schedule_self()"
            )
        return self.schedule_self(operator, by_thread)

    def schedule_self(self, operator: OperatorId, by_thread: ThreadId | None = None) -> tuple[Wake, ...]:
        """Something to do: a task at the end of the creating thread's list; without a creator, of each list in turn."""
        creator = None if by_thread is None else self._thread(by_thread)
        task = self._operators.get(operator) or self._table.operator(operator)
        if not task.schedule(_DEFERRED):
            return ()
        if creator is None:
            creator = self._threads[self._next_outside]
            self._next_outside = (self._next_outside + 1) % len(self._threads)
        return self._create(task, creator)

    def _create(self, task: Operator[Request], creator: _Thread) -> tuple[Wake, ...]:
        self._tasks_created += 1
        self._semaphore_operations += 1
        self._semaphore += 1
        creator.tasks[task] = None
        task.home = creator.id
        if not self._sleeping:
            return ()
        sleeper, _ = self._sleeping.popitem(last=False)
        self._wakes += 1
        return self._threads[sleeper].wake

    def _unlist(self, task: Operator[Request]) -> None:
        assert task.home is not None
        del self._threads[task.home].tasks[task]
        self._semaphore -= 1

    def next_task(self, thread: ThreadId) -> Choice | None:
        """The oldest own task, or a stolen one; None: the thread sleeps on the semaphore until a Wake names it."""
        seeker = self._thread(thread)
        if seeker.operator is not None:
            raise SchedulerMisuseError(
                f"thread {thread} still runs operator {seeker.operator.id!r}; call finished({thread}) first"
            )
        self._semaphore_operations += 1
        if self._semaphore == 0:
            self._sleeping[thread] = None
            self._choices[FifoStep.SLEEP] += 1
            return None
        self._sleeping.pop(thread, None)
        step, victim = (FifoStep.OWN_OLDEST, seeker) if seeker.tasks else (FifoStep.STEAL, self._victim(thread))
        task = next(iter(victim.tasks))
        self._unlist(task)
        task.start()
        seeker.operator = task
        self._choices[step] += 1
        return task.chosen_by(step)

    def _victim(self, thief: ThreadId) -> _Thread:
        count = len(self._threads)
        for distance in range(1, count):
            other = self._threads[(thief + distance) % count]
            if other.tasks:
                return other
        raise broken_invariant(3, f"the semaphore is {self._semaphore} but no thread has a task")

    def finished(self, thread: ThreadId) -> tuple[Wake, ...]:
        """The run on this thread has ended. If its operator was scheduled meanwhile, this thread creates the task."""
        worker = self._thread(thread)
        task = worker.operator
        if task is None:
            raise SchedulerMisuseError(
                f"thread {thread} runs nothing that could finish; call next_task({thread}) first"
            )
        worker.operator = None
        if task.leaving:
            self._table.has_left(task)
            return ()
        return () if task.finish() is None else self._create(task, worker)

    def balance(self) -> tuple[Instruction, ...]:
        """Nothing to do: stealing across all threads is all the balancing there is."""
        return ()

    def _thread(self, thread: ThreadId) -> _Thread:
        if 0 <= thread < len(self._threads):
            return self._threads[thread]
        raise SchedulerMisuseError(f"thread {thread!r} is unknown; expected 0 to {len(self._threads) - 1}")

    def state_of(self, operator: OperatorId) -> OperatorState:
        """The state of an operator."""
        return self._table.operator(operator).state

    @property
    def semaphore_operations(self) -> int:
        """One release per task created, one acquire per task sought or dropped."""
        return self._semaphore_operations

    def statistics(self) -> SchedulerStatistics:
        """Counters since the start, and the present size of things."""
        return SchedulerStatistics(
            choices={step: self._choices[step] for step in FifoStep},
            steals=self._choices[FifoStep.STEAL],
            wakes=self._wakes,
            moves=0,
            shares=0,
            semaphore_operations=self._semaphore_operations,
            tasks_created=self._tasks_created,
            requests=len(self._table.requests),
            operators=len(self._operators),
            waiting_tasks=self._semaphore,
            running_threads=sum(thread.operator is not None for thread in self._threads),
            sleeping_threads=len(self._sleeping),
        )

    def validate(self) -> None:
        """Check the numbered invariants of the class docstring."""
        running = [thread.operator for thread in self._threads if thread.operator is not None]
        if len(set(running)) != len(running):
            raise broken_invariant(1, "an operator runs on two threads")
        listed = [(task, thread.id) for thread in self._threads for task in thread.tasks]
        for task in self._operators.values():
            if task.is_running != (task in running):
                raise broken_invariant(1, f"operator {task.id!r} is {task.state.value}, against the threads' word")
            lists = [home for other, home in listed if other is task]
            expected = [task.home] if task.state is OperatorState.SCHEDULED else []
            if lists != expected:
                raise broken_invariant(2, f"operator {task.id!r} is in lists {lists}, expected {expected}")
        if self._semaphore != len(listed):
            raise broken_invariant(3, f"the semaphore is {self._semaphore}, {len(listed)} tasks wait")
        searching = len(self._threads) - len(running) - len(self._sleeping)
        if self._sleeping and self._semaphore > searching:
            raise broken_invariant(4, f"{self._semaphore} tasks wait, {searching} threads search, others sleep")
