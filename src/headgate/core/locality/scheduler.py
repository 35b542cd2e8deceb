"""The locality loop's decisions: which task a free worker runs, which worker wakes, which group evaluates a query.

After Falt and Yaghob, "Task Scheduling in Data Stream Processing" (Bobox), sections 3.1, 5.1 and 5.2.
Pure logic: no clock, no thread, no semaphore, no packet. See ``TaskScheduler`` for the loop a runtime runs around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headgate.core.errors import SchedulerMisuseError
from headgate.core.locality.groups import (
    GroupLoad,
    LocalityTask,
    LocalityWorker,
    SharedQuery,
    WorkerGroup,
    choose_group,
    plan_balance,
)
from headgate.core.locality.reports import SearchExplanation, explain
from headgate.core.locality.tasks import (
    Instruction,
    MoveQuery,
    NodeId,
    NodeState,
    NodeTable,
    PlaceQuery,
    QueryId,
    SearchStep,
    StepLabel,
    TaskKind,
    TaskStart,
    Wake,
    WorkerId,
)

_IMMEDIATE = TaskKind.IMMEDIATE
_DEFERRED = TaskKind.DEFERRED
_SCHEDULED = NodeState.SCHEDULED


@dataclass(frozen=True, slots=True)
class LocalityStatistics:
    """Counters since the start, and the present size of things."""

    steps: Mapping[StepLabel, int]
    """How often each step decided, sleeping included."""
    steals: int
    wakes: int
    moves: int
    shares: int
    semaphore_operations: int
    """Acquires and releases the runtime had to make; each may be a system call."""
    tasks_created: int
    queries: int
    nodes: int
    waiting_tasks: int
    running_workers: int
    sleeping_workers: int


class TaskScheduler(Protocol):
    """What both schedulers offer to a runtime or a simulation: facts in, instructions out.

    The runtime owns threads, semaphores, packets and clocks; a scheduler owns none of them and never calls back. Each
    worker thread runs this loop, every call made under one lock:

        sleep until woken
        while (start := scheduler.next_start(worker)) is not None:
            carry out start.wakes
            run start.node without the lock; for each packet it sends, packet_received(receiver, worker);
            if it has more to do, note_ready(node, worker); carry out every Wake that comes back
            carry out scheduler.finished(worker)

    A worker that got None is asleep for the scheduler until a Wake names it. Waking it more often does no harm.
    Not thread-safe: the caller serialises all calls.
    """

    has_global_semaphore: bool
    """True if all workers acquire and release one semaphore; false if each sleeps on its own."""

    @property
    def semaphore_operations(self) -> int:
        """See :class:`LocalityStatistics`; cheap enough to read after every call."""

    def add_query(
        self, query: QueryId, nodes: Iterable[NodeId] = (), *, free_memory: Sequence[float] | None = None
    ) -> tuple[Instruction, ...]:
        """A new query arrives; its nodes have nothing to do yet."""

    def add_node(self, node: NodeId, query: QueryId) -> None:
        """The plan of a query grows."""

    def remove_node(self, node: NodeId) -> None:
        """The plan of a query shrinks: a waiting task is dropped, a run in progress may end."""

    def remove_query(self, query: QueryId) -> None:
        """A query is complete or cancelled: as if all its nodes were removed."""

    def packet_received(self, node: NodeId, by_worker: WorkerId) -> tuple[Wake, ...]:
        """The node running on `by_worker` sent a packet to `node`."""

    def note_ready(self, node: NodeId, by_worker: WorkerId | None = None) -> tuple[Wake, ...]:
        """The node has something to do that is not tied to a packet just made, e.g. more packets to generate."""

    def next_start(self, worker: WorkerId) -> TaskStart | None:
        """What this free worker runs now; None sends it to sleep."""

    def finished(self, worker: WorkerId) -> tuple[Wake, ...]:
        """The run on this worker has ended; the worker must ask for its next task."""

    def balance(self) -> tuple[Instruction, ...]:
        """One step of load balancing; call every ``BALANCE_PERIOD`` while a worker idles."""

    def statistics(self) -> LocalityStatistics:
        """A frozen report."""


class LocalityScheduler:
    """Gives tasks to workers so that packets are processed where they are still in a cache.

    Use it when nodes pass packets to each other on a machine whose caches or memory nodes matter; where every
    task should simply go to the best-ranked node, use the dispatch loop.

    **Callers.** Not thread-safe: one lock around every call. Any caller may submit, remove, schedule and balance;
    ``packet_received``, ``next_start`` and ``finished`` are called by (or for) the worker they name.

    **Invariants** (tests check them under these numbers):

    1. A node is RUNNING or RUNNING_AND_SCHEDULED exactly if one worker runs it, and then only that one does.
    2. A node is SCHEDULED exactly if it is in one list: the deferred tasks of its query, or the immediate
       tasks of its home worker. It is never in two.
    3. A group's ``waiting`` is the number of waiting tasks it is responsible for: the immediate tasks of its workers
       and those deferred tasks that were assigned to it. A deferred task is assigned to a group of its query.
    4. No lost wake-up: a group with a sleeping worker has no more waiting tasks than searching workers.
    5. A query is in the list of exactly the groups that evaluate it, and there is at least one.
    6. Every group of a query with deferred tasks can find it in step 3.
    7. A group's immediate tasks are those of its workers, each worker's in the same order.
    8. A worker is asleep exactly if it is in its group's list of sleepers; then it runs nothing and its list is empty.

    **Order.** Immediate tasks newest first on their own worker, oldest first for thieves; deferred tasks oldest first
    within a query; queries oldest first within a group. No fairness beyond that: an old query may hold up a newer
    one for as long as it has tasks.

    **Removal and failure.** A removed node's waiting task is dropped; a run in progress may end. A call that
    raises :class:`SchedulerMisuseError` has changed nothing. A run that failed still ends with ``finished``.

    **Cost.** O(1) per task, plus O(log r) when a query's first deferred task appears, r being the queries of the
    group. Submitting, removing and balancing are O(queries + groups + tasks of the query).

    >>> scheduler = LocalityScheduler([2])
    >>> scheduler.add_query("query", ["scan", "filter"])
    (PlaceQuery(query='query', group=0), Wake(worker=1))
    >>> scheduler.note_ready("scan")
    ()
    >>> scheduler.next_start(1)
    TaskStart(step=<SearchStep.OLDEST_QUERY: 3>, node='scan', query='query', wakes=())
    >>> scheduler.packet_received("filter", by_worker=1)
    (Wake(worker=0),)
    >>> scheduler.finished(1)
    ()
    >>> scheduler.next_start(1)
    TaskStart(step=<SearchStep.OWN_NEWEST: 1>, node='filter', query='query', wakes=())
    """

    has_global_semaphore = False

    def __init__(self, workers_per_group: Sequence[int]) -> None:
        """Workers are numbered from 0, group after group. All start asleep. A machine without NUMA is one group."""
        if not workers_per_group or min(workers_per_group) < 1:
            raise SchedulerMisuseError(
                f"workers_per_group needs at least one group and one worker in each; got {list(workers_per_group)}"
            )
        self._groups = [WorkerGroup(group) for group in range(len(workers_per_group))]
        self._workers: list[LocalityWorker] = []
        for group, count in zip(self._groups, workers_per_group, strict=True):
            for _ in range(count):
                worker = LocalityWorker(len(self._workers), group)
                self._workers.append(worker)
                group.workers.append(worker)
                group.sleeping[worker] = None
        self._table = NodeTable(SharedQuery)
        self._nodes = self._table.nodes
        self._steps = [0] * (len(SearchStep) + 1)
        self._wakes = self._moves = self._shares = self._tasks_created = 0

    # --- queries and nodes come and go -----------------------------------------------------------------------

    def add_query(
        self, query: QueryId, nodes: Iterable[NodeId] = (), *, free_memory: Sequence[float] | None = None
    ) -> tuple[Instruction, ...]:
        """PlaceQuery a new query on the group with the most free resources and wake a worker there.

        `free_memory` has one number per group, in any unit. Start its sources with ``note_ready``.
        """
        group = self._groups[choose_group(self.group_loads(), free_memory)]
        record = self._table.add_query(query, nodes)
        record.groups = (group,)
        group.queries[query] = record
        woken = self._wake(group) if group.sleeping and not group.searching else ()
        return (PlaceQuery(query, group.id), *woken)

    def add_node(self, node: NodeId, query: QueryId) -> None:
        """Add a node, with nothing to do, to a query being evaluated."""
        self._table.add_node(node, query)

    def remove_node(self, node: NodeId) -> None:
        """Forget a node: its waiting task is dropped, its run in progress is its last."""
        known = self._table.node(node)
        if known.state is _SCHEDULED:
            self._unlist(known)
            known.withdraw()
        self._table.remove_node(known)

    def remove_query(self, query: QueryId) -> None:
        """Forget a query and all its nodes."""
        record = self._table.query(query)
        for node in tuple(record.nodes):
            self.remove_node(node)
        for group in record.groups:
            del group.queries[query]
        for listed in tuple(record.listed):
            self._groups[listed].unlist(record)
        record.groups = ()
        self._table.remove_query(record)

    # --- tasks are created ----------------------------------------------------------------------------------------

    def packet_received(self, node: NodeId, by_worker: WorkerId) -> tuple[Wake, ...]:
        """`node` got a packet from the node running on `by_worker`: an immediate task, in that worker's list.

        A packet from outside the pool is in no thread's cache: report it with ``note_ready``.
        """
        sender = self._worker(by_worker)
        if sender.node is None:
            raise SchedulerMisuseError(
                f"worker {by_worker} runs nothing, so it cannot have sent a packet to node {node!r}; "
                "report packets before finished(), and packets from outside the pool with note_ready()"
            )
        task = self._nodes.get(node) or self._table.node(node)
        return self._create(task, _IMMEDIATE, sender) if task.schedule(_IMMEDIATE) else ()

    def note_ready(self, node: NodeId, by_worker: WorkerId | None = None) -> tuple[Wake, ...]:
        """`node` has something to do at any time and place: a deferred task, in its query's list.

        `by_worker` is part of the interface and makes no difference here: deferred tasks belong to no thread.
        """
        task = self._nodes.get(node) or self._table.node(node)
        return self._create(task, _DEFERRED, None) if task.schedule(_DEFERRED) else ()

    def _create(self, task: LocalityTask, kind: TaskKind, creator: LocalityWorker | None) -> tuple[Wake, ...]:
        self._tasks_created += 1
        if creator is not None and kind is _IMMEDIATE:
            group = creator.group
            creator.immediate[task] = None
            group.immediate[task] = None
            task.home = creator.id
        else:
            query = task.query
            group = query.next_responsible()
            if not query.deferred:
                for sharing in query.groups:
                    sharing.list_ready(query)
            query.deferred[task] = None
        task.responsible = group.id
        group.waiting += 1
        return self._wake(group) if group.sleeping and group.waiting > group.searching else ()

    def _unlist(self, task: LocalityTask) -> WorkerGroup:
        """Take a waiting task out of its list; the group that was responsible for it."""
        if task.home is None:
            del task.query.deferred[task]
        else:
            home = self._workers[task.home]
            del home.immediate[task]
            del home.group.immediate[task]
        assert task.responsible is not None
        responsible = self._groups[task.responsible]
        responsible.waiting -= 1
        return responsible

    # --- workers ask and report -----------------------------------------------------------------------------------

    def next_start(self, worker: WorkerId) -> TaskStart | None:
        """The task this free worker must run now, by the five steps; None: it sleeps until a Wake names it."""
        seeker = self._worker(worker)
        if seeker.node is not None:
            raise SchedulerMisuseError(
                f"worker {worker} still runs node {seeker.node.id!r}; call finished({worker}) first"
            )
        if seeker.asleep:
            self._rouse(seeker)
        chosen = seeker.choose()
        if chosen is None:
            self._suspend(seeker)
            return None
        step, task = chosen
        responsible = self._unlist(task)
        task.start()
        seeker.node = task
        seeker.last_query = task.query
        group = seeker.group
        group.searching -= 1
        self._steps[step] += 1
        start = task.chosen_by(step)
        # A task of another group's leaves the tasks this worker was woken for still waiting.
        if responsible is not group and group.lacks_runners:
            return replace(start, wakes=self._wake(group))
        return start

    def finished(self, worker: WorkerId) -> tuple[Wake, ...]:
        """The run on this worker has ended. If its node was scheduled meanwhile, this worker creates the task."""
        ended = self._worker(worker)
        task = ended.node
        if task is None:
            raise SchedulerMisuseError(
                f"worker {worker} runs nothing that could finish; call next_start({worker}) first"
            )
        ended.node = None
        ended.group.searching += 1
        if task.leaving:
            self._table.has_left(task)
            return ()
        kind = task.finish()
        return () if kind is None else self._create(task, kind, ended)

    def _suspend(self, worker: LocalityWorker) -> None:
        worker.asleep = True
        worker.group.searching -= 1
        worker.group.sleeping[worker] = None
        self._steps[SearchStep.SLEEP] += 1

    def _wake(self, group: WorkerGroup) -> tuple[Wake, ...]:
        # The worker that slept last has the warmest cache; the others may stay in their low-power state.
        worker = next(reversed(group.sleeping))
        self._rouse(worker)
        self._wakes += 1
        return worker.wake

    def _rouse(self, worker: LocalityWorker) -> None:
        worker.asleep = False
        del worker.group.sleeping[worker]
        worker.group.searching += 1

    def _worker(self, worker: WorkerId) -> LocalityWorker:
        if 0 <= worker < len(self._workers):
            return self._workers[worker]
        raise SchedulerMisuseError(f"worker {worker!r} is unknown; expected 0 to {len(self._workers) - 1}")

    # --- load balancing -------------------------------------------------------------------------------------------

    def balance(self) -> tuple[Instruction, ...]:
        """Take one step against an imbalance between groups, if there is one.

        Immediate tasks and runs in progress stay where they are, beside their packets; what changes group are the
        deferred tasks, so a moved query leaves its old group gradually.
        """
        step = plan_balance(self.group_loads())
        if step is None:
            return ()
        query = self._table.query(step.query)
        source, target = self._groups[step.source], self._groups[step.target]
        if isinstance(step, MoveQuery):
            self._moves += 1
            self._hand_over(query, source, target)
        else:
            self._shares += 1
            query.groups = (*query.groups, target)
        target.queries[query.id] = query
        if query.deferred:
            target.list_ready(query)
        return (step, *self._wake_for(target, query))

    def _hand_over(self, query: SharedQuery, source: WorkerGroup, target: WorkerGroup) -> None:
        del source.queries[query.id]
        query.groups = tuple(target if group is source else group for group in query.groups)
        handed = [task for task in query.deferred if task.responsible == source.id]
        for task in handed:
            task.responsible = target.id
        source.waiting -= len(handed)
        target.waiting += len(handed)

    def _wake_for(self, group: WorkerGroup, query: SharedQuery) -> list[Wake]:
        """Wakes for a query that is new to the group."""
        wakes: list[Wake] = []
        # In a shared query the waiting tasks are still the other groups' responsibility, yet they may be run here.
        if query.deferred and group.sleeping and not group.searching:
            wakes += self._wake(group)
        while group.lacks_runners:
            wakes += self._wake(group)
        return wakes

    # --- looking without touching ---------------------------------------------------------------------------------

    def group_loads(self) -> tuple[GroupLoad, ...]:
        """How busy each group is."""
        return tuple(
            GroupLoad(
                group=group.id,
                idle=len(group.sleeping),
                searching=group.searching,
                waiting=group.waiting,
                queries=tuple(record.id for record in sorted(group.queries.values(), key=lambda record: -record.age)),
            )
            for group in self._groups
        )

    def explain(self, worker: WorkerId) -> SearchExplanation:
        """What this worker would choose if it were free now: each step's candidate, and why."""
        return explain(self._worker(worker))

    def state_of(self, node: NodeId) -> NodeState:
        """The state of a node."""
        return self._table.node(node).state

    def groups_of(self, query: QueryId) -> tuple[int, ...]:
        """The groups that evaluate a query."""
        return tuple(group.id for group in self._table.query(query).groups)

    @property
    def semaphore_operations(self) -> int:
        """One release per wake, one acquire per sleep: none while every worker has work."""
        return self._wakes + self._steps[SearchStep.SLEEP]

    def statistics(self) -> LocalityStatistics:
        """Counters since the start, and the present size of things."""
        return LocalityStatistics(
            steps={step: self._steps[step] for step in SearchStep},
            steals=self._steps[SearchStep.STEAL],
            wakes=self._wakes,
            moves=self._moves,
            shares=self._shares,
            semaphore_operations=self.semaphore_operations,
            tasks_created=self._tasks_created,
            queries=len(self._table.queries),
            nodes=len(self._nodes),
            waiting_tasks=sum(group.waiting for group in self._groups),
            running_workers=sum(worker.node is not None for worker in self._workers),
            sleeping_workers=sum(len(group.sleeping) for group in self._groups),
        )

    def __repr__(self) -> str:
        busy = sum(worker.node is not None for worker in self._workers)
        waiting = sum(group.waiting for group in self._groups)
        return (
            f"<LocalityScheduler: {busy} of {len(self._workers)} workers run, {waiting} tasks wait, "
            f"{len(self._table.queries)} queries on {len(self._groups)} groups>"
        )
