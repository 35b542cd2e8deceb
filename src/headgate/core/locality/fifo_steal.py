"""The simple scheduler that the locality loop is compared with (Falt and Yaghob, section 6).

It knows neither kinds of tasks nor groups. Each worker runs its own list first in, first out; a worker with an empty
list steals from the others in round-robin order; all workers sleep on one global semaphore whose value is the number
of waiting tasks. Same interface as :class:`LocalityScheduler`, same pure logic: no clock, no thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from headgate.core.errors import SchedulerMisuseError
from headgate.core.locality.scheduler import LocalityStatistics
from headgate.core.locality.tasks import (
    Instruction,
    NodeId,
    NodeState,
    NodeTable,
    QueryId,
    StepLabel,
    TaskKind,
    TaskNode,
    TaskQuery,
    TaskStart,
    Wake,
    WorkerId,
    broken_invariant,
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
    FifoStep.OWN_OLDEST: "oldest task in this worker's list",
    FifoStep.STEAL: "oldest task of the next worker, in round-robin order, that has one",
    FifoStep.SLEEP: "the semaphore is zero: no task waits anywhere",
}


class FifoWorker:
    __slots__ = ("id", "node", "tasks", "wake")

    def __init__(self, worker: WorkerId) -> None:
        self.id = worker
        #: oldest first
        self.tasks: OrderedDict[TaskNode[TaskQuery], None] = OrderedDict()
        self.node: TaskNode[TaskQuery] | None = None
        self.wake: tuple[Wake, ...] = (Wake(worker),)


class FifoStealScheduler:
    """First in, first out per worker, then stealing, then the global semaphore. A baseline: prefer the locality loop.

    **Callers.** Not thread-safe: one lock around every call.

    **Invariants** (tests check them under these numbers):

    1. A node is RUNNING or RUNNING_AND_SCHEDULED exactly if one worker runs it, and then only that one does.
    2. A node is SCHEDULED exactly if it is in the list of its home worker, and in no other.
    3. The semaphore's value is the number of waiting tasks.
    4. No lost wake-up: while a worker sleeps there are no more waiting tasks than searching workers.

    **Order.** Oldest first per list; sleepers wake in the order in which they fell asleep. **Cost.** O(1) per task,
    O(workers) per steal. **Removal.** As in :class:`LocalityScheduler`.
    """

    has_global_semaphore = True

    def __init__(self, workers: int) -> None:
        """Workers are numbered from 0. All start asleep."""
        if workers < 1:
            raise SchedulerMisuseError(f"workers must be at least 1; got {workers}")
        self._workers = [FifoWorker(worker) for worker in range(workers)]
        self._table: NodeTable[TaskQuery] = NodeTable(TaskQuery)
        self._nodes = self._table.nodes
        self._semaphore = 0
        self._sleeping: OrderedDict[WorkerId, None] = OrderedDict.fromkeys(range(workers))
        self._next_outside = 0
        self._steps = [0] * (len(FifoStep) + 1)
        self._wakes = self._tasks_created = self._semaphore_operations = 0

    def add_query(
        self, query: QueryId, nodes: Iterable[NodeId] = (), *, free_memory: Sequence[float] | None = None
    ) -> tuple[Instruction, ...]:
        """A new query; it is placed nowhere in particular, so `free_memory` makes no difference."""
        self._table.add_query(query, nodes)
        return ()

    def add_node(self, node: NodeId, query: QueryId) -> None:
        """Add a node, with nothing to do, to a query being evaluated."""
        self._table.add_node(node, query)

    def remove_node(self, node: NodeId) -> None:
        """Forget a node: its waiting task is dropped, its run in progress is its last."""
        known = self._table.node(node)
        if known.state is NodeState.SCHEDULED:
            self._unlist(known)
            self._semaphore_operations += 1
            known.withdraw()
        self._table.remove_node(known)

    def remove_query(self, query: QueryId) -> None:
        """Forget a query and all its nodes."""
        record = self._table.query(query)
        for node in tuple(record.nodes):
            self.remove_node(node)
        self._table.remove_query(record)

    def packet_received(self, node: NodeId, by_worker: WorkerId) -> tuple[Wake, ...]:
        """A packet came: a task at the end of the sending worker's list."""
        if self._worker(by_worker).node is None:
            raise SchedulerMisuseError(
                f"worker {by_worker} runs nothing, so it cannot have sent a packet to node {node!r}; "
                "report packets before finished(), and packets from outside the pool with note_ready()"
            )
        return self.note_ready(node, by_worker)

    def note_ready(self, node: NodeId, by_worker: WorkerId | None = None) -> tuple[Wake, ...]:
        """Something to do: a task at the end of the creating worker's list; without a creator, of each list in turn."""
        creator = None if by_worker is None else self._worker(by_worker)
        task = self._nodes.get(node) or self._table.node(node)
        if not task.schedule(_DEFERRED):
            return ()
        if creator is None:
            creator = self._workers[self._next_outside]
            self._next_outside = (self._next_outside + 1) % len(self._workers)
        return self._create(task, creator)

    def _create(self, task: TaskNode[TaskQuery], creator: FifoWorker) -> tuple[Wake, ...]:
        self._tasks_created += 1
        self._semaphore_operations += 1
        self._semaphore += 1
        creator.tasks[task] = None
        task.home = creator.id
        if not self._sleeping:
            return ()
        sleeper, _ = self._sleeping.popitem(last=False)
        self._wakes += 1
        return self._workers[sleeper].wake

    def _unlist(self, task: TaskNode[TaskQuery]) -> None:
        assert task.home is not None
        del self._workers[task.home].tasks[task]
        self._semaphore -= 1

    def next_start(self, worker: WorkerId) -> TaskStart | None:
        """The oldest own task, or a stolen one; None: the worker sleeps on the semaphore until a Wake names it."""
        seeker = self._worker(worker)
        if seeker.node is not None:
            raise SchedulerMisuseError(
                f"worker {worker} still runs node {seeker.node.id!r}; call finished({worker}) first"
            )
        self._semaphore_operations += 1
        if self._semaphore == 0:
            self._sleeping[worker] = None
            self._steps[FifoStep.SLEEP] += 1
            return None
        self._sleeping.pop(worker, None)
        step, victim = (FifoStep.OWN_OLDEST, seeker) if seeker.tasks else (FifoStep.STEAL, self._victim(worker))
        task = next(iter(victim.tasks))
        self._unlist(task)
        task.start()
        seeker.node = task
        self._steps[step] += 1
        return task.chosen_by(step)

    def _victim(self, thief: WorkerId) -> FifoWorker:
        count = len(self._workers)
        for distance in range(1, count):
            other = self._workers[(thief + distance) % count]
            if other.tasks:
                return other
        raise broken_invariant(3, f"the semaphore is {self._semaphore} but no worker has a task")

    def finished(self, worker: WorkerId) -> tuple[Wake, ...]:
        """The run on this worker has ended. If its node was scheduled meanwhile, this worker creates the task."""
        ended = self._worker(worker)
        task = ended.node
        if task is None:
            raise SchedulerMisuseError(
                f"worker {worker} runs nothing that could finish; call next_start({worker}) first"
            )
        ended.node = None
        if task.leaving:
            self._table.has_left(task)
            return ()
        return () if task.finish() is None else self._create(task, ended)

    def balance(self) -> tuple[Instruction, ...]:
        """Nothing to do: stealing across all workers is all the balancing there is."""
        return ()

    def _worker(self, worker: WorkerId) -> FifoWorker:
        if 0 <= worker < len(self._workers):
            return self._workers[worker]
        raise SchedulerMisuseError(f"worker {worker!r} is unknown; expected 0 to {len(self._workers) - 1}")

    def state_of(self, node: NodeId) -> NodeState:
        """The state of a node."""
        return self._table.node(node).state

    @property
    def semaphore_operations(self) -> int:
        """One release per task created, one acquire per task sought or dropped."""
        return self._semaphore_operations

    def statistics(self) -> LocalityStatistics:
        """Counters since the start, and the present size of things."""
        return LocalityStatistics(
            steps={step: self._steps[step] for step in FifoStep},
            steals=self._steps[FifoStep.STEAL],
            wakes=self._wakes,
            moves=0,
            shares=0,
            semaphore_operations=self._semaphore_operations,
            tasks_created=self._tasks_created,
            queries=len(self._table.queries),
            nodes=len(self._nodes),
            waiting_tasks=self._semaphore,
            running_workers=sum(worker.node is not None for worker in self._workers),
            sleeping_workers=len(self._sleeping),
        )
