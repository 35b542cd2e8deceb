"""The locality loop's decisions: which task a free thread runs, which thread wakes, which node evaluates a request.

After Falt and Yaghob, "Task Scheduling in Data Stream Processing" (Bobox), sections 3.1, 5.1 and 5.2.
Pure logic: no clock, no thread, no semaphore, no packet. See ``interface`` for the loop a runtime runs around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headgate.core.locality.balance import NodeLoad, choose_node, plan_balance
from headgate.core.locality.errors import SchedulerMisuseError
from headgate.core.locality.explanation import ChoiceExplanation, explain
from headgate.core.locality.instructions import Instruction, Move, Place, Wake
from headgate.core.locality.interface import SchedulerStatistics
from headgate.core.locality.invariants import check_invariants
from headgate.core.locality.structures import NumaNode, SharedRequest, Task, Thread
from headgate.core.locality.table import OperatorTable
from headgate.core.locality.tasks import (
    Choice,
    OperatorId,
    OperatorState,
    RequestId,
    Step,
    TaskKind,
    ThreadId,
)

_IMMEDIATE = TaskKind.IMMEDIATE
_DEFERRED = TaskKind.DEFERRED
_SCHEDULED = OperatorState.SCHEDULED


class LocalityScheduler:
    """Gives tasks to threads so that packets are processed where they are still in a cache.

    Use it when operators pass packets to each other on a machine whose caches or memory nodes matter; where every
    task should simply go to the best-ranked operator, use the dispatch loop.

    **Callers.** Not thread-safe: one lock around every call. Any caller may submit, remove, schedule and balance;
    ``packet_received``, ``next_task`` and ``finished`` are called by (or for) the thread they name.

    **Invariants** (``validate`` checks them under these numbers):

    1. An operator is RUNNING or RUNNING_AND_SCHEDULED exactly if one thread runs it, and then only that one does.
    2. An operator is SCHEDULED exactly if it is in one list: the deferred tasks of its request, or the immediate
       tasks of its home thread. It is never in two.
    3. A node's ``waiting`` is the number of waiting tasks it is responsible for: the immediate tasks of its threads
       and those deferred tasks that were assigned to it. A deferred task is assigned to a node of its request.
    4. No lost wake-up: a node with a sleeping thread has no more waiting tasks than searching threads.
    5. A request is in the list of exactly the nodes that evaluate it, and there is at least one.
    6. Every node of a request with deferred tasks can find it in step 3.
    7. A node's immediate tasks are those of its threads, each thread's in the same order.
    8. A thread is asleep exactly if it is in its node's list of sleepers; then it runs nothing and its list is empty.

    **Order.** Immediate tasks newest first on their own thread, oldest first for thieves; deferred tasks oldest first
    within a request; requests oldest first within a node. No fairness beyond that: an old request may hold up a newer
    one for as long as it has tasks.

    **Removal and failure.** A removed operator's waiting task is dropped; a run in progress may end. A call that
    raises :class:`SchedulerMisuseError` has changed nothing. A run that failed still ends with ``finished``.

    **Cost.** O(1) per task, plus O(log r) when a request's first deferred task appears, r being the requests of the
    node. Submitting, removing and balancing are O(requests + nodes + tasks of the request).

    >>> scheduler = LocalityScheduler([2])
    >>> scheduler.submit_request("query", ["scan", "filter"])
    (Place(request='query', node=0), Wake(thread=1))
    >>> scheduler.schedule_self("scan")
    ()
    >>> scheduler.next_task(1)
    Choice(step=<Step.OLDEST_REQUEST: 3>, operator='scan', request='query', wakes=())
    >>> scheduler.packet_received("filter", by_thread=1)
    (Wake(thread=0),)
    >>> scheduler.finished(1)
    ()
    >>> scheduler.next_task(1)
    Choice(step=<Step.OWN_NEWEST: 1>, operator='filter', request='query', wakes=())
    """

    has_global_semaphore = False

    def __init__(self, threads_per_node: Sequence[int]) -> None:
        """Threads are numbered from 0, node after node. All start asleep. A machine without NUMA is one node."""
        if not threads_per_node or min(threads_per_node) < 1:
            raise SchedulerMisuseError(
                f"threads_per_node needs at least one node and one thread in each; got {list(threads_per_node)}"
            )
        self._nodes = [NumaNode(node) for node in range(len(threads_per_node))]
        self._threads: list[Thread] = []
        for node, count in zip(self._nodes, threads_per_node, strict=True):
            for _ in range(count):
                thread = Thread(len(self._threads), node)
                self._threads.append(thread)
                node.threads.append(thread)
                node.sleeping[thread] = None
        self._table = OperatorTable(SharedRequest)
        self._operators = self._table.operators
        self._choices = [0] * (len(Step) + 1)
        self._wakes = self._moves = self._shares = self._tasks_created = 0

    # --- requests and operators come and go -----------------------------------------------------------------------

    def submit_request(
        self, request: RequestId, operators: Iterable[OperatorId] = (), *, free_memory: Sequence[float] | None = None
    ) -> tuple[Instruction, ...]:
        """Place a new request on the node with the most free resources and wake a thread there.

        `free_memory` has one number per node, in any unit. Start its sources with ``schedule_self``.
        """
        node = self._nodes[choose_node(self.node_loads(), free_memory)]
        record = self._table.add_request(request, operators)
        record.nodes = (node,)
        node.requests[request] = record
        woken = self._wake(node) if node.sleeping and not node.searching else ()
        return (Place(request, node.id), *woken)

    def add_operator(self, operator: OperatorId, request: RequestId) -> None:
        """Add an operator, with nothing to do, to a request being evaluated."""
        self._table.add_operator(operator, request)

    def remove_operator(self, operator: OperatorId) -> None:
        """Forget an operator: its waiting task is dropped, its run in progress is its last."""
        known = self._table.operator(operator)
        if known.state is _SCHEDULED:
            self._unlist(known)
            known.withdraw()
        self._table.remove_operator(known)

    def remove_request(self, request: RequestId) -> None:
        """Forget a request and all its operators."""
        record = self._table.request(request)
        for operator in tuple(record.operators):
            self.remove_operator(operator)
        for node in record.nodes:
            del node.requests[request]
        for listed in tuple(record.listed):
            self._nodes[listed].unlist(record)
        record.nodes = ()
        self._table.remove_request(record)

    # --- tasks are created ----------------------------------------------------------------------------------------

    def packet_received(self, operator: OperatorId, by_thread: ThreadId) -> tuple[Wake, ...]:
        """`operator` got a packet from the operator running on `by_thread`: an immediate task, in that thread's list.

        A packet from outside the pool is in no thread's cache: report it with ``schedule_self``.
        """
        sender = self._thread(by_thread)
        if sender.operator is None:
            raise SchedulerMisuseError(
                f"thread {by_thread} runs nothing, so it cannot have sent a packet to operator {operator!r}; "
                "report packets before finished(), and packets from outside the pool with schedule_self()"
            )
        task = self._operators.get(operator) or self._table.operator(operator)
        return self._create(task, _IMMEDIATE, sender) if task.schedule(_IMMEDIATE) else ()

    def schedule_self(self, operator: OperatorId, by_thread: ThreadId | None = None) -> tuple[Wake, ...]:
        """`operator` has something to do at any time and place: a deferred task, in its request's list.

        `by_thread` is part of the interface and makes no difference here: deferred tasks belong to no thread.
        """
        task = self._operators.get(operator) or self._table.operator(operator)
        return self._create(task, _DEFERRED, None) if task.schedule(_DEFERRED) else ()

    def _create(self, task: Task, kind: TaskKind, creator: Thread | None) -> tuple[Wake, ...]:
        self._tasks_created += 1
        if creator is not None and kind is _IMMEDIATE:
            node = creator.node
            creator.immediate[task] = None
            node.immediate[task] = None
            task.home = creator.id
        else:
            request = task.request
            node = request.next_responsible()
            if not request.deferred:
                for sharing in request.nodes:
                    sharing.list_ready(request)
            request.deferred[task] = None
        task.responsible = node.id
        node.waiting += 1
        return self._wake(node) if node.sleeping and node.waiting > node.searching else ()

    def _unlist(self, task: Task) -> NumaNode:
        """Take a waiting task out of its list; the node that was responsible for it."""
        if task.home is None:
            del task.request.deferred[task]
        else:
            home = self._threads[task.home]
            del home.immediate[task]
            del home.node.immediate[task]
        assert task.responsible is not None
        responsible = self._nodes[task.responsible]
        responsible.waiting -= 1
        return responsible

    # --- threads ask and report -----------------------------------------------------------------------------------

    def next_task(self, thread: ThreadId) -> Choice | None:
        """The task this free thread must run now, by the five steps; None: it sleeps until a Wake names it."""
        seeker = self._thread(thread)
        if seeker.operator is not None:
            raise SchedulerMisuseError(
                f"thread {thread} still runs operator {seeker.operator.id!r}; call finished({thread}) first"
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
        seeker.operator = task
        seeker.last_request = task.request
        node = seeker.node
        node.searching -= 1
        self._choices[step] += 1
        choice = task.chosen_by(step)
        # A task of another node's leaves the tasks this thread was woken for still waiting.
        if responsible is not node and node.lacks_runners:
            return replace(choice, wakes=self._wake(node))
        return choice

    def finished(self, thread: ThreadId) -> tuple[Wake, ...]:
        """The run on this thread has ended. If its operator was scheduled meanwhile, this thread creates the task."""
        worker = self._thread(thread)
        task = worker.operator
        if task is None:
            raise SchedulerMisuseError(
                f"thread {thread} runs nothing that could finish; call next_task({thread}) first"
            )
        worker.operator = None
        worker.node.searching += 1
        if task.leaving:
            self._table.has_left(task)
            return ()
        kind = task.finish()
        return () if kind is None else self._create(task, kind, worker)

    def _suspend(self, thread: Thread) -> None:
        thread.asleep = True
        thread.node.searching -= 1
        thread.node.sleeping[thread] = None
        self._choices[Step.SLEEP] += 1

    def _wake(self, node: NumaNode) -> tuple[Wake, ...]:
        # The thread that slept last has the warmest cache; the others may stay in their low-power state.
        thread = next(reversed(node.sleeping))
        self._rouse(thread)
        self._wakes += 1
        return thread.wake

    def _rouse(self, thread: Thread) -> None:
        thread.asleep = False
        del thread.node.sleeping[thread]
        thread.node.searching += 1

    def _thread(self, thread: ThreadId) -> Thread:
        if 0 <= thread < len(self._threads):
            return self._threads[thread]
        raise SchedulerMisuseError(f"thread {thread!r} is unknown; expected 0 to {len(self._threads) - 1}")

    # --- load balancing -------------------------------------------------------------------------------------------

    def balance(self) -> tuple[Instruction, ...]:
        """Take one step against an imbalance between nodes, if there is one.

        Immediate tasks and runs in progress stay where they are, beside their packets; what changes node are the
        deferred tasks, so a moved request leaves its old node gradually.
        """
        step = plan_balance(self.node_loads())
        if step is None:
            return ()
        request = self._table.request(step.request)
        source, target = self._nodes[step.source], self._nodes[step.target]
        if isinstance(step, Move):
            self._moves += 1
            self._hand_over(request, source, target)
        else:
            self._shares += 1
            request.nodes = (*request.nodes, target)
        target.requests[request.id] = request
        if request.deferred:
            target.list_ready(request)
        return (step, *self._wake_for(target, request))

    def _hand_over(self, request: SharedRequest, source: NumaNode, target: NumaNode) -> None:
        del source.requests[request.id]
        request.nodes = tuple(target if node is source else node for node in request.nodes)
        handed = [task for task in request.deferred if task.responsible == source.id]
        for task in handed:
            task.responsible = target.id
        source.waiting -= len(handed)
        target.waiting += len(handed)

    def _wake_for(self, node: NumaNode, request: SharedRequest) -> list[Wake]:
        """Wakes for a request that is new to the node."""
        wakes: list[Wake] = []
        # In a shared request the waiting tasks are still the other nodes' responsibility, yet they may be run here.
        if request.deferred and node.sleeping and not node.searching:
            wakes += self._wake(node)
        while node.lacks_runners:
            wakes += self._wake(node)
        return wakes

    # --- looking without touching ---------------------------------------------------------------------------------

    def node_loads(self) -> tuple[NodeLoad, ...]:
        """How busy each node is."""
        return tuple(
            NodeLoad(
                node=node.id,
                idle=len(node.sleeping),
                searching=node.searching,
                waiting=node.waiting,
                requests=tuple(record.id for record in sorted(node.requests.values(), key=lambda record: -record.age)),
            )
            for node in self._nodes
        )

    def explain(self, thread: ThreadId) -> ChoiceExplanation:
        """What this thread would choose if it were free now: each step's candidate, and why."""
        return explain(self._thread(thread))

    def state_of(self, operator: OperatorId) -> OperatorState:
        """The state of an operator."""
        return self._table.operator(operator).state

    def nodes_of(self, request: RequestId) -> tuple[int, ...]:
        """The nodes that evaluate a request."""
        return tuple(node.id for node in self._table.request(request).nodes)

    @property
    def semaphore_operations(self) -> int:
        """One release per wake, one acquire per sleep: none while every thread has work."""
        return self._wakes + self._choices[Step.SLEEP]

    def statistics(self) -> SchedulerStatistics:
        """Counters since the start, and the present size of things."""
        return SchedulerStatistics(
            choices={step: self._choices[step] for step in Step},
            steals=self._choices[Step.STEAL],
            wakes=self._wakes,
            moves=self._moves,
            shares=self._shares,
            semaphore_operations=self.semaphore_operations,
            tasks_created=self._tasks_created,
            requests=len(self._table.requests),
            operators=len(self._operators),
            waiting_tasks=sum(node.waiting for node in self._nodes),
            running_threads=sum(thread.operator is not None for thread in self._threads),
            sleeping_threads=sum(len(node.sleeping) for node in self._nodes),
        )

    def validate(self) -> None:
        """Check the numbered invariants of the class docstring."""
        check_invariants(self._nodes, self._threads, self._table)

    def __repr__(self) -> str:
        busy = sum(thread.operator is not None for thread in self._threads)
        waiting = sum(node.waiting for node in self._nodes)
        return (
            f"<LocalityScheduler: {busy} of {len(self._threads)} threads run, {waiting} tasks wait, "
            f"{len(self._table.requests)} requests on {len(self._nodes)} nodes>"
        )
