"""Explanations: what was runnable, how it was ranked, why this node and not the others.

Explanations are data with a text: ``str()`` gives the paragraph that a user reads, the fields are for programs. They
are computed on request; a loop records past decisions only if it was created with a history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.core.lengths import in_seconds
from headgate.core.matrix import FeatureView
from headgate.core.placement import Lane
from headgate.core.policy import Policy, as_table, best_first, priorities_of, ties

#: Above this, a number of seconds is a moment since the epoch, which people cannot read as a number. Smaller ones are
#: of clocks that begin with a run.
_EPOCHAL = 1e8
#: a policy that puts the earliest first gives a moment, negated
_MOMENT = -_EPOCHAL


@dataclass(frozen=True, slots=True)
class Ranked:
    """A runnable node and the priority that the policy gave it."""

    name: str
    priority: tuple[float, ...]
    waiting: float

    def __str__(self) -> str:
        return self.told(math.inf)

    def told(self, now: float) -> str:
        """As text; priorities that are moments are told from ``now``, if it is finite."""
        return f"{self.name} ({_numbers(self.priority, now)}; waiting {in_seconds(self.waiting)})"


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

    @property
    def place(self) -> int:
        """The position of the chosen node in the policy's ranking, from 1."""
        return 1 + next(i for i, entry in enumerate(self.ranking) if entry.name == self.node)

    def __str__(self) -> str:
        head = f"turn {self.turn} at {_time_of(self.now)}: {self.node} on worker {self.worker}"
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
    """Why a node runs or does not run at one moment, for every loop that ranks by a policy."""

    node: str
    now: float
    policy: str
    #: the workers that run the node now
    running_on: tuple[int, ...]
    #: its position among the nodes it competes with, from 1; None if it cannot run
    place: int | None
    priority: tuple[float, ...]
    #: when the guard puts it in front; infinity if the guard does not watch it
    guard_deadline: float

    @property
    def overdue(self) -> bool:
        """Its patience has run out: the guard puts it in front."""
        return self.now >= self.guard_deadline

    def _guard(self, where: str = "") -> str:
        if self.overdue:
            return f"overdue for {in_seconds(self.now - self.guard_deadline)}: the guard puts it in front{where}"
        return f"the guard puts it in front in {in_seconds(self.guard_deadline - self.now)}"


@dataclass(frozen=True, slots=True)
class DispatchExplanation(Explanation):
    """Why the dispatch loop runs a node or does not."""

    ahead: tuple[Ranked, ...]
    lane: Lane
    busy: Mapping[int, str]
    #: what else a user should know about the node
    notes: tuple[str, ...] = ()
    #: how much of what is pending the policy lets one run take
    portion: float = math.inf

    @property
    def state(self) -> str:
        if self.running_on:
            return "running"
        return "waiting" if self.place is not None else "idle"

    def __str__(self) -> str:
        lines = []
        if self.state == "idle":
            lines.append(f"{self.node}: idle, nothing is pending for it")
        if self.running_on:
            lines.append(f"{self.node}: running on worker {', '.join(map(str, self.running_on))}")
        if self.place is not None:
            numbers = _numbers(self.priority, self.now)
            lines.append(f"{self.node}: number {self.place} of the runnable by {self.policy}, priority ({numbers})")
            if self.ahead:
                lines.append(f"  ahead of it: {_some([entry.told(self.now) for entry in self.ahead])}")
            lines.append(f"  {self._where()}")
            if self.guard_deadline < math.inf:
                lines.append(f"  {self._guard(' of its lane')}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _where(self) -> str:
        homes = ", ".join(f"{w} ({self.busy.get(w, 'free')})" for w in self.lane.home)
        if not self.lane.spare:
            return f"may run on workers {homes}"
        how = "at any time" if self.lane.aggressive else "when nobody at home there can run"
        return f"at home on workers {homes}; may borrow {', '.join(map(str, self.lane.spare))} {how}"


@dataclass(frozen=True, slots=True)
class RoundsExplanation(Explanation):
    """The position of a node in the list of its worker in the rounds loop, and what could bring it forward."""

    #: the worker whose list it is in, and how long that list is
    worker: int
    of: int
    ahead: tuple[str, ...]
    equal: tuple[str, ...]
    last_run: float
    forced_after: float
    runnable_since: float

    @property
    def forced_next(self) -> bool:
        """It has not run for longer than the delay: if that stays so, it is forced in the next round."""
        return self.now > self.forced_after

    def __str__(self) -> str:
        doing = "running on" if self.running_on else "waiting on"
        return "\n".join(
            [
                f"{self.node}: {doing} worker {self.worker}, place {self.place} of {self.of} "
                f"by {self.policy}, priority ({_numbers(self.priority, self.now)})",
                f"  ahead of it: {_some(self.ahead) or 'nobody'}; equal to it: {_some(self.equal) or 'nobody'}",
                f"  last ran {in_seconds(self.now - self.last_run)} ago; {self._forced()}",
                f"  {self._guarded()}",
            ]
        )

    def _forced(self) -> str:
        if self.forced_after == math.inf:
            return "never forced"
        if self.forced_next:
            return "longer than the delay, so it is forced in the next round"
        return f"forced in a round that begins more than {in_seconds(self.forced_after - self.now)} from now"

    def _guarded(self) -> str:
        if self.guard_deadline < math.inf:
            return self._guard()
        if self.runnable_since < math.inf:
            return "its patience has no limit, so the guard leaves it alone"
        return "the guard has not seen it waiting"


def _numbers(priority: Sequence[float], now: float) -> str:
    return ", ".join(f"{p:.6g}" if not p <= _MOMENT or math.inf in (now, -p) else _moment(-p, now) for p in priority)


def _moment(moment: float, now: float) -> str:
    return f"{in_seconds(now - moment)} ago" if moment <= now else f"in {in_seconds(moment - now)}"


def _time_of(now: float) -> str:
    if now < _EPOCHAL:
        return f"{now:.6g} s"
    return f"{np.datetime64(round(now * 1000), 'ms')}Z"


def _some(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def ranked(view: FeatureView, policy: Policy, runnable: Mapping[int, float]) -> tuple[Ranked, ...]:
    """All runnable nodes with their priorities, best first."""
    nodes = np.fromiter(runnable, dtype=np.intp)
    table = as_table(priorities_of(policy, view))[nodes]
    return tuple(
        Ranked(view.graph.names[nodes[k]], tuple(table[k].tolist()), view.now - runnable[int(nodes[k])])
        for k in best_first(table, *ties(view.only(nodes)))
    )
