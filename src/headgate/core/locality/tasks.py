"""Operators, their four states, and the tasks that changes of state create (Falt and Yaghob, section 3.1).

An operator runs on at most one thread at a time. Being scheduled while it runs is remembered, not acted on:

    state                    scheduled              started    finished
    nothing                  scheduled, new task    -          -
    scheduled                scheduled              running    -
    running                  running and scheduled  -          nothing
    running and scheduled    unchanged              -          scheduled, new task

So an operator has at most one waiting task, and the operator itself can stand for that task in every list.
This module knows the states; it does not know lists, threads or nodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.core.locality.errors import broken_invariant

if TYPE_CHECKING:
    from headgate.core.locality.instructions import Wake

RequestId = Hashable
OperatorId = Hashable
ThreadId = int
NodeId = int


class Request:
    """One execution plan being evaluated: a name, an age and the names of its operators."""

    __slots__ = ("age", "id", "operators")

    def __init__(self, request: RequestId, age: int) -> None:
        self.id = request
        #: running number of submission; smaller is older; unique
        self.age = age
        #: ids of all and only the operators added and not removed, in that order
        self.operators: dict[OperatorId, None] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}: age {self.age}, {len(self.operators)} operators>"


RequestT = TypeVar("RequestT", bound=Request)


class OperatorState(Enum):
    """What an operator is doing; the table in the module docstring gives the transitions."""

    NOTHING = "nothing"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    RUNNING_AND_SCHEDULED = "running and scheduled"


class TaskKind(Enum):
    """Why a task exists, which decides where it waits."""

    IMMEDIATE = "immediate"
    """A packet was received: its content is hot in the cache of the thread that made it."""
    DEFERRED = "deferred"
    """The operator scheduled itself: no packet is waiting in a cache, any thread at any time will do."""


class StepLabel(IntEnum):
    """Base of the labels that say by which rule a task was chosen."""

    @property
    def reason(self) -> str:
        """The rule in words; of a label that does not say it better, its name."""
        return self.name.replace("_", " ").lower()


class Step(StepLabel):
    """The five steps in which a free thread looks for a task (section 5.1)."""

    OWN_NEWEST = 1
    LAST_REQUEST = 2
    OLDEST_REQUEST = 3
    STEAL = 4
    SLEEP = 5

    @property
    def reason(self) -> str:
        return _STEP_REASONS[self]


_STEP_REASONS = {
    Step.OWN_NEWEST: "newest immediate task of this thread: its packet is most likely still in this cache",
    Step.LAST_REQUEST: "oldest deferred task of the request this thread evaluated last: its data is still warm",
    Step.OLDEST_REQUEST: "oldest deferred task of the node's oldest request: finishing it frees most resources",
    Step.STEAL: "oldest immediate task of another thread of the node: better than leaving this thread idle",
    Step.SLEEP: "nothing waits that this thread may run",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The task a thread must run now, and the step that found it."""

    step: StepLabel
    operator: OperatorId
    request: RequestId
    wakes: tuple[Wake, ...] = ()
    """Threads to wake as well; non-empty only when the task was another node's responsibility."""


_NOTHING = OperatorState.NOTHING
_SCHEDULED = OperatorState.SCHEDULED
_RUNNING = OperatorState.RUNNING
_RUNNING_AND_SCHEDULED = OperatorState.RUNNING_AND_SCHEDULED
_IMMEDIATE = TaskKind.IMMEDIATE


class Operator(Generic[RequestT]):
    """One operator of one request, and, while its state is SCHEDULED, its one waiting task.

    Changed only by the scheduler that owns it.
    """

    __slots__ = ("_choices", "home", "id", "leaving", "pending", "request", "responsible", "state")

    def __init__(self, operator: OperatorId, request: RequestT) -> None:
        self.id = operator
        self.request = request
        self.state = _NOTHING
        #: kind of the task to create when the run ends; not None exactly in RUNNING_AND_SCHEDULED
        self.pending: TaskKind | None = None
        #: thread whose list holds the waiting task; None if it waits elsewhere or nothing waits
        self.home: ThreadId | None = None
        #: node that must see to the waiting task; None when nothing waits
        self.responsible: NodeId | None = None
        #: removed by the caller while running: forgotten when the run ends
        self.leaving = False
        # A choice depends only on the operator and the step: built once each, so the hot path allocates none.
        self._choices: dict[StepLabel, Choice] = {}

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
        """The waiting task was taken by a thread."""
        if self.state is not _SCHEDULED:
            raise broken_invariant(1, f"operator {self.id!r} was started while {self.state.value}")
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

    def chosen_by(self, step: StepLabel) -> Choice:
        """The choice of this operator's task by `step`."""
        choice = self._choices.get(step)
        if choice is None:
            choice = self._choices[step] = Choice(step, self.id, self.request.id)
        return choice

    def __repr__(self) -> str:
        return f"<Operator {self.id!r}: {self.state.value}>"
