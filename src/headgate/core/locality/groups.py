"""The lists of section 5.1 and the balance between groups of workers (section 5.2).

Queries per group, deferred tasks per query, immediate tasks per worker. The records hold the lists and answer "which
task would this step take?" without changing anything; only ``LocalityScheduler`` changes them. Lists of tasks are
ordered dicts keyed by node: a node has at most one waiting task, both ends are O(1), and so is taking a task out of the
middle (a steal, a removal).

Where a new query goes, and when a query must change group, are pure functions of one ``GroupLoad`` per group.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from headgate.core.errors import SchedulerMisuseError
from headgate.core.locality.tasks import (
    GroupId,
    MoveQuery,
    QueryId,
    SearchStep,
    ShareQuery,
    TaskNode,
    TaskQuery,
    Wake,
    WorkerId,
)

BALANCE_PERIOD = 0.1
"""Seconds between two calls of ``balance`` while a logical processor idles (section 5.2)."""


class SharedQuery(TaskQuery):
    """A query together with its deferred tasks and the groups that evaluate it."""

    __slots__ = ("_turn", "deferred", "groups", "listed")

    def __init__(self, query: QueryId, age: int) -> None:
        super().__init__(query, age)
        #: oldest first
        self.deferred: OrderedDict[LocalityTask, None] = OrderedDict()
        #: never empty while the query is known; more than one exactly if it is shared
        self.groups: tuple[WorkerGroup, ...] = ()
        #: groups whose `ready` heap holds this query; may include groups it has left
        self.listed: set[GroupId] = set()
        self._turn = 0

    def next_responsible(self) -> WorkerGroup:
        """The group that must see to the next deferred task: round robin among the sharing groups."""
        groups = self.groups
        if len(groups) == 1:
            return groups[0]
        self._turn += 1
        return groups[self._turn % len(groups)]


LocalityTask = TaskNode[SharedQuery]


class LocalityWorker:
    """A worker thread as the scheduler sees it: running, searching (awake, no task) or sleeping."""

    __slots__ = ("asleep", "group", "id", "immediate", "last_query", "node", "wake")

    def __init__(self, worker: WorkerId, group: WorkerGroup) -> None:
        self.id = worker
        self.group = group
        #: created by this worker, oldest first; empty while it sleeps
        self.immediate: OrderedDict[LocalityTask, None] = OrderedDict()
        #: what it runs now; None while searching or sleeping
        self.node: LocalityTask | None = None
        #: query of the last task it took; may since have been moved or removed
        self.last_query: SharedQuery | None = None
        self.asleep = True
        #: the instruction to wake it, built once
        self.wake: tuple[Wake, ...] = (Wake(worker),)

    def newest_own(self) -> LocalityTask | None:
        """Step 1."""
        return next(reversed(self.immediate)) if self.immediate else None

    def oldest_of_last_query(self) -> LocalityTask | None:
        """Step 2. A query that has left the group is no longer this worker's business."""
        query = self.last_query
        if query is None or not query.deferred or self.group not in query.groups:
            return None
        return next(iter(query.deferred))

    def choose(self) -> tuple[SearchStep, LocalityTask] | None:
        """The first of the steps 1 to 4 that finds a task; None means step 5."""
        if (task := self.newest_own()) is not None:
            return SearchStep.OWN_NEWEST, task
        if (task := self.oldest_of_last_query()) is not None:
            return SearchStep.LAST_QUERY, task
        if (task := self.group.oldest_of_oldest_query()) is not None:
            return SearchStep.OLDEST_QUERY, task
        if (task := self.group.oldest_immediate()) is not None:
            return SearchStep.STEAL, task
        return None


class WorkerGroup:
    """Workers that share memory, such as a NUMA node: the queries they evaluate, and the count that wakes them."""

    __slots__ = ("id", "immediate", "queries", "ready", "searching", "sleeping", "waiting", "workers")

    def __init__(self, group: GroupId) -> None:
        self.id = group
        self.workers: list[LocalityWorker] = []
        self.queries: dict[QueryId, SharedQuery] = {}
        #: immediate tasks of all its workers, oldest first: the head is what a thief takes
        self.immediate: OrderedDict[LocalityTask, None] = OrderedDict()
        #: heap of (age, query): every query of the group with deferred tasks, and some without (lazily dropped)
        self.ready: list[tuple[int, SharedQuery]] = []
        #: waiting tasks it is responsible for
        self.waiting = 0
        #: workers awake without a task
        self.searching = 0
        #: sleeping workers, the one that fell asleep last at the end
        self.sleeping: OrderedDict[LocalityWorker, None] = OrderedDict()

    def oldest_of_oldest_query(self) -> LocalityTask | None:
        """Step 3: the oldest query *that has a task*, so that no task is stranded behind an empty old query."""
        ready = self.ready
        while ready:
            query = ready[0][1]
            if query.deferred and self in query.groups:
                return next(iter(query.deferred))
            heappop(ready)
            query.listed.discard(self.id)
        return None

    def oldest_immediate(self) -> LocalityTask | None:
        """Step 4: asked only by a worker without immediate tasks, so it is always another worker's."""
        return next(iter(self.immediate)) if self.immediate else None

    def list_ready(self, query: SharedQuery) -> None:
        """The query has deferred tasks: step 3 must find it."""
        if self.id not in query.listed:
            query.listed.add(self.id)
            heappush(self.ready, (query.age, query))

    def unlist(self, query: SharedQuery) -> None:
        """Drop a removed query at once: a long-lived older one would keep lazy deletion from ever reaching it."""
        if self.id in query.listed:
            query.listed.discard(self.id)
            self.ready = [entry for entry in self.ready if entry[1] is not query]
            heapify(self.ready)

    @property
    def lacks_runners(self) -> bool:
        """More tasks than running workers although a worker sleeps: one must be woken."""
        return self.waiting > self.searching and bool(self.sleeping)


# --- balance -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """How busy a group is at one moment."""

    group: GroupId
    idle: int
    """Sleeping workers."""
    searching: int
    """Awake workers without a task; each is about to take one or to sleep."""
    waiting: int
    """Waiting tasks the group is responsible for."""
    queries: tuple[QueryId, ...]
    """The queries it evaluates, newest first."""

    @property
    def excess(self) -> int:
        """Waiting tasks that no worker of the group is about to take."""
        return self.waiting - self.searching

    @property
    def is_overloaded(self) -> bool:
        """More tasks than running workers, and nobody left to wake."""
        return self.excess > 0 and self.idle == 0

    @property
    def is_partially_idle(self) -> bool:
        return self.idle > 0


def choose_group(loads: Sequence[GroupLoad], free_memory: Sequence[float] | None) -> GroupId:
    """The group with the most free resources: idle workers, then free memory, then fewest queries, then lowest id.

    Workers come before memory because every query can use an idle worker at once, while how much memory it will
    allocate is unknown when it is created. `free_memory` is indexed by group, in any unit; None means "all equal".
    """
    if free_memory is not None and len(free_memory) != len(loads):
        raise SchedulerMisuseError(
            f"free_memory needs one number per group: expected {len(loads)}, got {len(free_memory)}"
        )

    def free_resources(load: GroupLoad) -> tuple[int, float, int, int]:
        memory = 0.0 if free_memory is None else free_memory[load.group]
        return load.idle, memory, -len(load.queries), -load.group

    return max(loads, key=free_resources).group


def plan_balance(loads: Sequence[GroupLoad]) -> MoveQuery | ShareQuery | None:
    """One step towards balance, or None if there is no imbalance that a step can lessen.

    The most overloaded group gives, the idlest group takes; ties go to the lower id. A group with several queries gives
    its newest, which has probably allocated least; a group with a single one shares it. A query the taker evaluates
    already cannot be given to it, so the next pair is tried.
    """
    givers = sorted((load for load in loads if load.is_overloaded), key=lambda load: (-load.excess, load.group))
    takers = sorted((load for load in loads if load.is_partially_idle), key=lambda load: (-load.idle, load.group))
    for giver in givers:
        for taker in takers:
            step = _relieve(giver, taker)
            if step is not None:
                return step
    return None


def _relieve(giver: GroupLoad, taker: GroupLoad) -> MoveQuery | ShareQuery | None:
    new_to_taker = [query for query in giver.queries if query not in taker.queries]
    if not new_to_taker:
        return None
    if len(giver.queries) == 1:
        return ShareQuery(giver.queries[0], giver.group, taker.group)
    return MoveQuery(new_to_taker[0], giver.group, taker.group)
