"""A worker's list: what one worker of the *rounds* loop runs between two reschedulings (Haren, algorithm 1).

A ``Worklist`` returns one step at a time and is told when a run has ended. It knows its nodes, best first, but no
features, policies or other workers; ``rounds`` has what happens at a rescheduling. It uses no clock: ``now`` is passed
in.

Where it goes beyond the algorithm as printed:

* Forced runs stop at the end of the period (the longest neglected node goes first, so the rest lead in the rounds
  after), and a round does not end before the policy's order was looked at once. As printed, delayed nodes that fill
  the period keep the other workers waiting at the barrier and leave the policy nothing at all.
* A delayed node that cannot run is left alone: without input it would measure nothing, without room for its output it
  would block the worker.
* The guard against starvation, described at ``Worklist``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import InvariantError, ParameterError
from headgate.core.graph import Floats, Ints
from headgate.core.loop import Reason, Start
from headgate.core.policy import best_first

CanRun = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Wait:
    """No node of this worker can run: ask again after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reschedule:
    """The period is over: take part in the rescheduling."""


Step = Start | Wait | Reschedule

RESCHEDULE = Reschedule()


@dataclass(frozen=True, slots=True)
class RoundsConfig:
    """How rounds are run; Haren's P, b and d, and where its back-off starts. Times are in seconds.

    ``delay`` left out is twice the period, as in Haren's code; infinity means that no node is ever forced.
    """

    period: float = 0.1
    batch: int = 10
    delay: float | None = None
    backoff_min: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        _demand(0 < self.period < math.inf, "period", "a finite number of seconds above 0", self.period)
        _demand(self.batch >= 1, "batch", "at least 1 tuple", self.batch)
        _demand(self.delay is None or self.delay >= 0, "delay", "seconds, at least 0, or None", self.delay)
        _demand(0 < self.backoff_min < math.inf, "backoff_min", "a finite number of seconds above 0", self.backoff_min)

    @property
    def longest_delay(self) -> float:
        """A node that has not run for longer than this is forced."""
        return 2 * self.period if self.delay is None else self.delay


def _demand(fulfilled: bool, name: str, expected: str, got: object) -> None:
    if not fulfilled:
        raise ParameterError(f"{name} of the rounds loop must be {expected}; got {got}")


class NodeRecords:
    """What is kept about each node from one round to the next, whichever worker has it.

    Between two reschedulings an entry is touched by the worker whose list holds the node, and by nobody else.
    """

    __slots__ = ("last_run", "runnable_since")

    def __init__(self, nodes: int, now: float) -> None:
        #: when the last run of each node ended (Haren's LU); when it came into the loop, if it never ran
        self.last_run: list[float] = [now] * nodes
        #: since when each node has been seen runnable at every look without running; infinity if it has not
        self.runnable_since: list[float] = [math.inf] * nodes

    def follow(self, old: Ints, now: float) -> None:
        """Move to another graph: ``old[i]`` is the former index of node i, -1 if it is new."""
        self.last_run = [self.last_run[i] if i >= 0 else now for i in old.tolist()]
        self.runnable_since = [self.runnable_since[i] if i >= 0 else math.inf for i in old.tolist()]


@dataclass(slots=True)
class Counts:
    """What a worker has done since it was added."""

    starts: dict[Reason, int] = field(default_factory=lambda: {"policy": 0, "tie": 0, "forced": 0, "guard": 0})
    backoffs: int = 0
    values_read: int = 0

    def plus(self, others: Iterable[Counts]) -> Counts:
        """These counts and all the others added up."""
        total = Counts(dict(self.starts), self.backoffs, self.values_read)
        for other in others:
            for reason, count in other.starts.items():
                total.starts[reason] += count
            total.backoffs += other.backoffs
            total.values_read += other.values_read
        return total


class Phase(Enum):
    """The phases of a worker between two reschedulings, in this order."""

    DEALT = "has been given its nodes and must sort them"
    SORTED = "has sorted its list and may begin the round"
    EXECUTING = "is in the round"
    ARRIVED = "has arrived at the barrier and waits for its nodes"


#: no group has this number, so the walk starts from the top
_FROM_TOP = -2
#: ends the list of groups, so that the walk needs no look at its length
_END = -1
#: in ``Worklist.running``
NOBODY = -1


class Worklist:
    """The nodes of one worker, best first, and how far it has come in the round.

    **Order.** A step runs the first node that can run. After it come the nodes of *equal* priority behind it, each at
    most once, then the walk starts from the top again: equals share, nobody else is waited for. Priorities are
    compared by tie-group number, worked out when the list is sorted.

    **The guard.** At its first step of a round a worker looks at all its nodes of finite patience and notes since when
    each has been runnable at every such look without having run; this costs one ``can_run`` per node and round, and
    nothing for nodes of infinite patience. A node whose patience has run out goes before all others, the most
    overdue first. After such a run the policy's order is looked at before the next one, in the same round if need be.

    The bound: let T be the longest time from the first step of one round to that of the next: the period, two
    of the longest runs (the one under way when the period ends, and the look that is owed then) and the rescheduling.
    A node that is and stays runnable starts to run within ``patience + (k + 2) T``, where k counts the other nodes, on
    any worker, that become overdue before it: up to one T until it is seen, then in every round at least one run for
    the most overdue node of its worker; a node that was served is overdue again only after this one.

    Invariants:
    1. ``table`` has a row per node of ``nodes``, rows in descending lexicographic order; two neighbours have the same
       group if and only if their rows are equal.
    2. ``running`` is a node of ``nodes``, or nobody; nobody unless the phase is EXECUTING.
    3. ``executed`` holds all and only the nodes that ended a run since the list was dealt (Haren's E), with the seconds
       they took; all of them are in ``nodes``.
    """

    def __init__(self, worker: int, records: NodeRecords, config: RoundsConfig) -> None:
        self.worker = worker
        self.config = config
        self.phase = Phase.DEALT
        self.nodes: list[int] = []
        self.groups: list[int] = [_END]
        self.table: Floats = np.empty((0, 1))
        #: {node: how much of what is pending a run may take}, of those for which the policy limits it
        self.portions: dict[int, float] = {}
        self.running = NOBODY
        self.executed: dict[int, float] = {}
        #: what of ``executed`` has been reported
        self._reported: dict[int, float] = {}
        #: the independent features of ``executed`` have been read since they ran
        self.refreshed = False
        self.counts = Counts()
        self._records = records
        self._running_since = 0.0
        self._forces = False
        #: (node, patience) of all and only the nodes of finite patience, in the order of names
        self._guarded: list[tuple[int, float]] = []
        # of the round under way
        self._ends = -math.inf
        self._at = 0
        self._group = _FROM_TOP
        self._pause = 0.0
        #: the policy's order was looked at since the round began and since the last guard run; a round ends only then
        self._looked = True
        #: the policy's order was looked at since the last guard run; so always true when a round begins (no round
        #: ends before, and none is cut short)
        self._guard_may_strike = True
        #: the round before was cut short by a rescheduling before the policy's order was looked at
        self._owes_look = False
        self._neglected_before = -math.inf
        #: nodes that had not run for longer than the delay when the round began, the longest neglected first
        self._delayed: deque[int] = deque()
        #: (deadline, node) of guarded nodes whose patience runs out in this round, in this order
        self._due: deque[tuple[float, int]] = deque()

    # --- at the rescheduling --------------------------------------------------------------------------------

    def deal(self, nodes: Ints, config: RoundsConfig) -> None:
        """Take over these nodes, unsorted; what was run before has been reported."""
        self.nodes = nodes.tolist()
        self.groups = [0] * len(self.nodes) + [_END]
        self.table = np.zeros((len(self.nodes), 1))
        self.portions = {}
        self.config = config
        self.executed.clear()
        self._reported = {}
        self.refreshed = False
        self.phase = Phase.DEALT

    def report(self) -> dict[int, float]:
        """What ended a run since the last report, with the seconds it took."""
        executed = self.executed.copy()
        before, self._reported = self._reported, executed
        if not before:
            return executed
        return {node: spent - before.get(node, 0.0) for node, spent in executed.items() if spent != before.get(node)}

    def sort(
        self,
        table: Floats,
        ties: tuple[NDArray[Any], ...],
        patience: Floats,
        *,
        forces: bool,
        portions: Floats | None = None,
    ) -> None:
        """Put the nodes dealt in order; row k of each argument is about the k-th of them.

        Among equals the one that ran longest ago goes first, or a period shorter than one walk along the equals would
        serve the same few in every round; then as ``ties`` says, the first of which is the rank of the name. ``forces``
        says whether delayed nodes are to be forced. ``portions`` are those of the policy, if it has any.
        """
        nodes = np.array(self.nodes, dtype=np.intp)
        last_run = np.array([self._records.last_run[node] for node in self.nodes])
        order = best_first(table, *ties, last_run)
        self.nodes = nodes[order].tolist()
        self.table = table[order]
        self.groups = [*_tie_groups(self.table), _END]
        guarded = np.flatnonzero(patience < math.inf)
        guarded = guarded[np.argsort(ties[0][guarded])]
        self._guarded = list(zip(nodes[guarded].tolist(), patience[guarded].tolist(), strict=True))
        self._forces = forces
        if portions is not None:
            limited = np.flatnonzero(portions < math.inf)
            self.portions = dict(zip(nodes[limited].tolist(), portions[limited].tolist(), strict=True))
        self.phase = Phase.SORTED

    # --- in the round ---------------------------------------------------------------------------------------

    def next_step(self, now: float, can_run: CanRun) -> Step:
        """What the worker does now: its most overdue node, a delayed node, or the best one that can run."""
        if self.phase is not Phase.EXECUTING:
            self._begin(now, can_run)
        if self.running != NOBODY:
            raise InvariantError(
                f"worker {self.worker} asks for a step while it runs node {self.running}: "
                "call finished() when a run ends"
            )
        if now < self._ends:
            if self._due and self._guard_may_strike and self._due[0][0] <= now:
                node = self._overdue(now, can_run)
                if node != NOBODY:
                    self._looked = self._guard_may_strike = False
                    return self._start(node, now, "guard")
            if self._delayed and not self._owes_look:
                node = self._neglected(can_run)
                if node != NOBODY:
                    return self._start(node, now, "forced")
        elif self._looked:
            return RESCHEDULE
        return self._look(now, can_run)

    def finished(self, now: float) -> None:
        """The run that the last step asked for has ended."""
        node = self.running
        if node == NOBODY:
            raise InvariantError(f"worker {self.worker} is said to be done, but was given nothing to do")
        self.running = NOBODY
        self.executed[node] = self.executed.get(node, 0.0) + (now - self._running_since)
        self._records.last_run[node] = now
        self._records.runnable_since[node] = math.inf

    def withdraw(self, step: Start) -> None:
        """The run that the last step asked for does not take place."""
        self.running = NOBODY
        self.counts.starts[step.reason] -= 1

    @property
    def may_be_cut_short(self) -> bool:
        """Whether a rescheduling may end the round early. Not after a guard run: the policy's order must then be used
        once in the same round. After forced runs, that may be in the next round."""
        return self.phase is Phase.EXECUTING and self._guard_may_strike

    def arrive(self) -> None:
        """The worker is at the barrier and runs nothing until it has sorted a new list."""
        if self.phase is not Phase.EXECUTING or self.running != NOBODY:
            raise InvariantError(
                f"worker {self.worker} cannot arrive at the barrier: it {self.phase.value}"
                + (f" and runs node {self.running}" if self.running != NOBODY else "")
            )
        self.phase = Phase.ARRIVED

    def _begin(self, now: float, can_run: CanRun) -> None:
        if self.phase is not Phase.SORTED:
            raise InvariantError(f"worker {self.worker} cannot run anything now: it {self.phase.value}")
        self.phase = Phase.EXECUTING
        self._ends = now + self.config.period
        self._at, self._group = 0, _FROM_TOP
        self._pause = self.config.backoff_min
        self._owes_look = not self._looked
        self._looked = False
        self._neglected_before = now - self.config.longest_delay
        self._delayed = self._not_run_lately() if self._forces else deque()
        self._due = self._falling_due(now, can_run)

    def _not_run_lately(self) -> deque[int]:
        last_run, latest = self._records.last_run, self._neglected_before
        return deque(sorted((node for node in self.nodes if last_run[node] < latest), key=last_run.__getitem__))

    def _falling_due(self, now: float, can_run: CanRun) -> deque[tuple[float, int]]:
        """Look at all guarded nodes, and return those whose patience runs out before the round ends."""
        since = self._records.runnable_since
        due = []
        for node, patience in self._guarded:
            if not can_run(node):
                since[node] = math.inf
                continue
            since[node] = min(since[node], now)
            deadline = since[node] + patience
            if deadline < self._ends:
                due.append((deadline, node))
        due.sort(key=itemgetter(0))
        return deque(due)

    def _neglected(self, can_run: CanRun) -> int:
        """The longest neglected node that the guard has not run in this round and that can run, or nobody."""
        while self._delayed:
            node = self._delayed.popleft()
            if self._records.last_run[node] < self._neglected_before and can_run(node):
                return node
        return NOBODY

    def _overdue(self, now: float, can_run: CanRun) -> int:
        """The most overdue node that has not run in this round and can run, or nobody."""
        since = self._records.runnable_since
        while self._due and self._due[0][0] <= now:
            _, node = self._due.popleft()
            if since[node] < math.inf:
                if can_run(node):
                    return node
                since[node] = math.inf
        return NOBODY

    def _look(self, now: float, can_run: CanRun) -> Step:
        """The policy's order: the next equal of the node just run, else the first node that can run."""
        self._looked = self._guard_may_strike = True
        self._owes_look = False
        nodes, groups, at, group = self.nodes, self.groups, self._at, self._group
        while groups[at] == group:
            node = nodes[at]
            at += 1
            if can_run(node):
                self._at = at
                return self._start(node, now, "tie")
        for at, node in enumerate(nodes):
            if can_run(node):
                self._at, self._group = at + 1, groups[at]
                return self._start(node, now, "policy")
        self._at, self._group = 0, _FROM_TOP
        return self._back_off(now)

    def _start(self, node: int, now: float, reason: Reason) -> Start:
        self.running = node
        self._running_since = now
        self.counts.starts[reason] += 1
        batch = self.config.batch
        if self.portions and (portion := self.portions.get(node, math.inf)) < math.inf:
            return Start(node, self.worker, reason, max(1, min(batch, math.floor(portion))), portion)
        return Start(node, self.worker, reason, batch)

    def _back_off(self, now: float) -> Wait | Reschedule:
        rest = self._ends - now
        if rest <= 0:
            return RESCHEDULE
        pause = min(self._pause, rest)
        self._pause *= 2
        self.counts.backoffs += 1
        return Wait(pause)

    # --- reports --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check the invariants in the docstring of the class."""
        if len(self.table) != len(self.nodes) or len(self.groups) != len(self.nodes) + 1:
            raise InvariantError(
                f"inv1: worker {self.worker} has {len(self.nodes)} nodes, {len(self.table)} priorities"
            )
        for k, (row, below) in enumerate(zip(self.table.tolist(), self.table[1:].tolist(), strict=False)):
            if row < below or (self.groups[k] == self.groups[k + 1]) != (row == below):
                raise InvariantError(f"inv1: worker {self.worker} has priority {row} before {below} at place {k}")
        if self.running != NOBODY and (self.running not in self.nodes or self.phase is not Phase.EXECUTING):
            raise InvariantError(f"inv2: worker {self.worker} runs node {self.running}, but {self.phase.value}")
        if not self.executed.keys() <= set(self.nodes):
            raise InvariantError(f"inv3: worker {self.worker} ran {sorted(self.executed)}, but has {self.nodes}")


def _tie_groups(table: Floats) -> list[int]:
    """The number of the tie group of each row of a sorted table, from 0."""
    changes = np.any(table[1:] != table[:-1], axis=1)
    groups: list[int] = np.concatenate(([0], np.cumsum(changes)))[: len(table)].tolist()
    return groups
