"""Explanations: what was runnable, how it was ranked, why this node and not the others.

Explanations are data first and text second: ``str()`` of one is the paragraph a person reads, the fields are for
programs. They are worked out when asked for; a loop records past decisions only if it is told to keep a history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.core.matrix import FeatureView
from headgate.core.placement import Lane
from headgate.core.policy import Policy, as_table, best_first, priorities_of


@dataclass(frozen=True, slots=True)
class Ranked:
    """A runnable node and the priority that the policy gave it."""

    name: str
    priority: tuple[float, ...]
    waiting: float

    def __str__(self) -> str:
        numbers = ", ".join(f"{p:.6g}" for p in self.priority)
        return f"{self.name} ({numbers}; waiting {self.waiting:.3g} s)"


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice that was made."""

    turn: int
    now: float
    node: str
    worker: int
    reason: str
    policy: str
    ranking: tuple[Ranked, ...]

    @classmethod
    def record(
        cls, node: int, worker: int, reason: str, view: FeatureView, policy: Policy, runnable: Mapping[int, float]
    ) -> Decision:
        ranking = ranked(view, policy, runnable)
        return cls(view.turn, view.now, view.graph.names[node], worker, reason, str(policy), ranking)

    @property
    def place(self) -> int:
        """Where the chosen node stood in the policy's ranking, from 1."""
        return 1 + next(i for i, entry in enumerate(self.ranking) if entry.name == self.node)

    def __str__(self) -> str:
        head = f"turn {self.turn} at {self.now:.6g} s: {self.node} on worker {self.worker}"
        if self.reason == "guard":
            why = f"it had waited longer than its patience ({self.policy} put it at place {self.place})"
        elif self.place == 1:
            why = f"best of {len(self.ranking)} runnable by {self.policy}"
        else:
            ahead = _some([entry.name for entry in self.ranking[: self.place - 1]])
            why = f"best that placement allows on a free worker; ahead by {self.policy}: {ahead}"
        return f"{head}: {why}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a node runs or does not run at one moment."""

    node: str
    now: float
    policy: str
    running_on: tuple[int, ...]
    place: int | None
    priority: tuple[float, ...]
    ahead: tuple[Ranked, ...]
    lane: Lane
    busy: Mapping[int, str]
    guard_deadline: float

    @property
    def state(self) -> str:
        if self.running_on:
            return "running"
        return "waiting" if self.place is not None else "idle"

    def __str__(self) -> str:
        if self.state == "idle":
            return f"{self.node}: idle, nothing is pending for it"
        lines = []
        if self.running_on:
            lines.append(f"{self.node}: running on worker {', '.join(map(str, self.running_on))}")
        if self.place is not None:
            numbers = ", ".join(f"{p:.6g}" for p in self.priority)
            lines.append(f"{self.node}: number {self.place} of the runnable by {self.policy}, priority ({numbers})")
            if self.ahead:
                lines.append(f"  ahead of it: {_some([str(entry) for entry in self.ahead])}")
            lines.append(f"  {self._where()}")
            if self.guard_deadline < math.inf:
                lines.append(f"  {self._guard()}")
        return "\n".join(lines)

    def _where(self) -> str:
        homes = ", ".join(f"{w} ({self.busy.get(w, 'free')})" for w in self.lane.home)
        if not self.lane.spare:
            return f"may run on workers {homes}"
        how = "at any time" if self.lane.aggressive else "when nobody at home there can run"
        return f"at home on workers {homes}; may borrow {', '.join(map(str, self.lane.spare))} {how}"

    def _guard(self) -> str:
        overdue = self.now - self.guard_deadline
        if overdue >= 0:
            return f"overdue for {overdue:.3g} s: the guard puts it in front of its lane"
        return f"the guard puts it in front in {-overdue:.3g} s"


def _some(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def ranked(view: FeatureView, policy: Policy, runnable: Mapping[int, float]) -> tuple[Ranked, ...]:
    """All runnable nodes with their priorities, best first."""
    nodes = np.fromiter(runnable, dtype=np.intp)
    table = as_table(priorities_of(policy, view))[nodes]
    return tuple(
        Ranked(view.graph.names[nodes[k]], tuple(table[k].tolist()), view.now - runnable[int(nodes[k])])
        for k in best_first(table, view.graph.tie[nodes])
    )


def explain_node(
    node: int,
    *,
    view: FeatureView,
    policy: Policy,
    runnable: Mapping[int, float],
    lane: Lane,
    running_on: tuple[int, ...],
    busy: Mapping[int, str],
    guard_deadline: float,
) -> Explanation:
    """Put together what a loop knows about one node."""
    name = view.graph.names[node]
    ranking = ranked(view, policy, runnable) if node in runnable else ()
    place = next((i for i, entry in enumerate(ranking) if entry.name == name), None)
    return Explanation(
        node=name,
        now=view.now,
        policy=str(policy),
        running_on=running_on,
        place=None if place is None else place + 1,
        priority=() if place is None else ranking[place].priority,
        ahead=ranking[: place or 0],
        lane=lane,
        busy=dict(busy),
        guard_deadline=guard_deadline,
    )
