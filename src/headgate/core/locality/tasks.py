"""Nodes, their four states, and the tasks that changes of state create (Falt and Yaghob, section 3.1).

A node runs on at most one worker at a time. Being scheduled while it runs is remembered, not acted on:

    state                    scheduled              started    finished
    nothing                  scheduled, new task    -          -
    scheduled                scheduled              running    -
    running                  running and scheduled  -          nothing
    running and scheduled    unchanged              -          scheduled, new task

So a node has at most one waiting task, and the node itself can stand for that task in every list. This module also
knows which queries and nodes exist, and the instructions that schedulers give; it knows neither lists nor workers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Generic, TypeVar

from headgate.core.errors import InvariantError, SchedulerMisuseError

QueryId = Hashable
NodeId = Hashable
WorkerId = int
GroupId = int


def broken_invariant(number: int, detail: str) -> InvariantError:
    """The error for a numbered invariant that does not hold: nothing the scheduler says can be trusted any more."""
    return InvariantError(f"inv{number}: {detail}; this is a bug in the scheduler, not in its caller")


# --- instructions: frozen facts, the scheduler has already noted each as done ------------------------------------


@dataclass(frozen=True, slots=True)
class Wake:
    """Release the semaphore of this sleeping worker; it must then call ``next_start``."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class PlaceQuery:
    """This new query is evaluated by this group: allocate its memory there."""

    query: QueryId
    group: GroupId


@dataclass(frozen=True, slots=True)
class MoveQuery:
    """`source` has handed its part in the query to `target`; packets already made stay where they are."""

    query: QueryId
    source: GroupId
    target: GroupId


@dataclass(frozen=True, slots=True)
class ShareQuery:
    """`target` now evaluates the query too, beside `source` and any group that shares it already."""

    query: QueryId
    source: GroupId
    target: GroupId


Instruction = Wake | PlaceQuery | MoveQuery | ShareQuery


# --- nodes and their states ----------------------------------------------------------------------------------------


class TaskQuery:
    """One execution plan being evaluated: a name, an age and the names of its nodes."""

    __slots__ = ("age", "id", "nodes")

    def __init__(self, query: QueryId, age: int) -> None:
        self.id = query
        #: running number of submission; smaller is older; unique
        self.age = age
        #: ids of all and only the nodes added and not removed, in that order
        self.nodes: dict[NodeId, None] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}: age {self.age}, {len(self.nodes)} nodes>"


QueryT = TypeVar("QueryT", bound=TaskQuery)


class NodeState(Enum):
    """What a node is doing; the table in the module docstring gives the transitions."""

    NOTHING = "nothing"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    RUNNING_AND_SCHEDULED = "running and scheduled"


class TaskKind(Enum):
    """Why a task exists, which decides where it waits."""

    IMMEDIATE = "immediate"
    """A packet was received: its content is hot in the cache of the worker that made it."""
    DEFERRED = "deferred"
    """The node scheduled itself: no packet is waiting in a cache, any worker at any time will do."""


class StepLabel(IntEnum):
    """Base of the labels that say by which rule a task was chosen."""

    @property
    def reason(self) -> str:
        """The rule in words; of a label that does not say it better, its name."""
        return self.name.replace("_", " ").lower()


class SearchStep(StepLabel):
    """The five steps in which a free worker looks for a task (section 5.1)."""

    OWN_NEWEST = 1
    LAST_QUERY = 2
    OLDEST_QUERY = 3
    STEAL = 4
    SLEEP = 5

    @property
    def reason(self) -> str:
        return _STEP_REASONS[self]


_STEP_REASONS = {
    SearchStep.OWN_NEWEST: "newest immediate task of this worker: its packet is most likely still in this cache",
    SearchStep.LAST_QUERY: "oldest deferred task of the query this worker evaluated last: its data is still warm",
    SearchStep.OLDEST_QUERY: "oldest deferred task of the group's oldest query: finishing it frees most resources",
    SearchStep.STEAL: "oldest immediate task of another worker of the group: better than leaving this worker idle",
    SearchStep.SLEEP: "nothing waits that this worker may run",
}


@dataclass(frozen=True, slots=True)
class TaskStart:
    """The task a worker must run now, and the step that found it."""

    step: StepLabel
    node: NodeId
    query: QueryId
    wakes: tuple[Wake, ...] = ()
    """Workers to wake as well; non-empty only when the task was another group's responsibility."""


_NOTHING = NodeState.NOTHING
_SCHEDULED = NodeState.SCHEDULED
_RUNNING = NodeState.RUNNING
_RUNNING_AND_SCHEDULED = NodeState.RUNNING_AND_SCHEDULED
_IMMEDIATE = TaskKind.IMMEDIATE


class TaskNode(Generic[QueryT]):
    """One node of one query, and, while its state is SCHEDULED, its one waiting task.

    Changed only by the scheduler that owns it.
    """

    __slots__ = ("_starts", "home", "id", "leaving", "pending", "query", "responsible", "state")

    def __init__(self, node: NodeId, query: QueryT) -> None:
        self.id = node
        self.query = query
        self.state = _NOTHING
        #: kind of the task to create when the run ends; not None exactly in RUNNING_AND_SCHEDULED
        self.pending: TaskKind | None = None
        #: worker whose list holds the waiting task; None if it waits elsewhere or nothing waits
        self.home: WorkerId | None = None
        #: group that must see to the waiting task; None when nothing waits
        self.responsible: GroupId | None = None
        #: removed by the caller while running: forgotten when the run ends
        self.leaving = False
        # A start depends only on the node and the step: built once each, so the hot path allocates none.
        self._starts: dict[StepLabel, TaskStart] = {}

    def schedule(self, kind: TaskKind) -> bool:
        """Note that there is something to do; true if a task must be created now."""
        state = self.state
        if state is _NOTHING:
            self.state = _SCHEDULED
            return True
        if state is not _SCHEDULED:
            self.state = _RUNNING_AND_SCHEDULED
            # One task will follow. If a packet is among its reasons the task is about that packet.
            if kind is _IMMEDIATE or self.pending is None:
                self.pending = kind
        return False

    def start(self) -> None:
        """The waiting task was taken by a worker."""
        if self.state is not _SCHEDULED:
            raise broken_invariant(1, f"node {self.id!r} was started while {self.state.value}")
        self.state = _RUNNING
        self.home = None
        self.responsible = None

    def finish(self) -> TaskKind | None:
        """The run has ended; the kind of task to create now, or None."""
        kind = self.pending
        self.pending = None
        self.state = _NOTHING if kind is None else _SCHEDULED
        return kind

    def withdraw(self) -> None:
        """The waiting task was dropped without running."""
        self.state = _NOTHING
        self.home = None
        self.responsible = None

    @property
    def is_running(self) -> bool:
        return self.state is _RUNNING or self.state is _RUNNING_AND_SCHEDULED

    def chosen_by(self, step: StepLabel) -> TaskStart:
        """The instruction to run this node's task, which `step` found."""
        start = self._starts.get(step)
        if start is None:
            start = self._starts[step] = TaskStart(step, self.id, self.query.id)
        return start

    def __repr__(self) -> str:
        return f"<TaskNode {self.id!r}: {self.state.value}>"


# --- which queries and nodes exist ---------------------------------------------------------------------------------


class NodeTable(Generic[QueryT]):
    """All queries and nodes of one scheduler.

    A node removed while it runs is unknown to everybody at once, but its id stays taken until the run ends:
    otherwise a node added under the same name could run beside its predecessor.
    """

    __slots__ = ("_leaving", "_make_query", "_next_age", "nodes", "queries")

    def __init__(self, make_query: Callable[[QueryId, int], QueryT]) -> None:
        self._make_query = make_query
        self._next_age = 0
        self.queries: dict[QueryId, QueryT] = {}
        #: mutually exclusive with _leaving
        self.nodes: dict[NodeId, TaskNode[QueryT]] = {}
        self._leaving: set[NodeId] = set()

    def query(self, query: QueryId) -> QueryT:
        """The query of that id."""
        known = self.queries.get(query)
        if known is None:
            raise SchedulerMisuseError(f"query {query!r} is unknown; expected one that was submitted and not removed")
        return known

    def node(self, node: NodeId) -> TaskNode[QueryT]:
        """The node of that id."""
        known = self.nodes.get(node)
        if known is None:
            raise SchedulerMisuseError(
                f"node {node!r} is unknown; expected one that was added and not removed. "
                "Stop sending to a node before removing it"
            )
        return known

    def add_query(self, query: QueryId, nodes: Iterable[NodeId]) -> QueryT:
        """A new query with these nodes; it is the newest one. All or nothing."""
        if query in self.queries:
            raise SchedulerMisuseError(f"query {query!r} is already being evaluated; remove it first or use another id")
        names = tuple(nodes)
        for name in names:
            self._check_free(name)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchedulerMisuseError(f"query {query!r} lists node {twice!r} twice; node ids must be unique")
        record = self.queries[query] = self._make_query(query, self._next_age)
        self._next_age += 1
        for name in names:
            self._add(name, record)
        return record

    def add_node(self, node: NodeId, query: QueryId) -> None:
        """One more node, doing nothing, for a query that is being evaluated."""
        record = self.query(query)
        self._check_free(node)
        self._add(node, record)

    def _add(self, node: NodeId, query: QueryT) -> None:
        self.nodes[node] = TaskNode(node, query)
        query.nodes[node] = None

    def _check_free(self, node: NodeId) -> None:
        if node in self.nodes:
            owner = self.nodes[node].query.id
            raise SchedulerMisuseError(f"node {node!r} already belongs to query {owner!r}; ids must be unique")
        if node in self._leaving:
            raise SchedulerMisuseError(
                f"node {node!r} was removed while running and has not finished; wait for its finished()"
            )

    def remove_node(self, node: TaskNode[QueryT]) -> None:
        """Make it unknown. If it runs, it leaves when its run ends."""
        del self.nodes[node.id]
        del node.query.nodes[node.id]
        if node.is_running:
            node.leaving = True
            self._leaving.add(node.id)

    def remove_query(self, query: QueryT) -> None:
        """Forget a query that has no nodes left."""
        del self.queries[query.id]

    def has_left(self, node: TaskNode[QueryT]) -> None:
        """The last run of a removed node has ended: its id is free again."""
        self._leaving.discard(node.id)
