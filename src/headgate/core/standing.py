"""A node's standing in the *rounds* loop: where it is in its worker's list, and what could bring it forward.

Data first and text second, like ``explain``, which does the same for the dispatch loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a node stands in its worker's list at one moment, and what could bring it forward."""

    node: str
    now: float
    policy: str
    worker: int
    place: int
    of: int
    priority: tuple[float, ...]
    ahead: tuple[str, ...]
    equal: tuple[str, ...]
    running: bool
    last_run: float
    forced_after: float
    runnable_since: float
    guard_deadline: float

    @property
    def forced_next(self) -> bool:
        """It has not run for longer than the delay: if that stays so, it is forced after the next meeting."""
        return self.now > self.forced_after

    @property
    def overdue(self) -> bool:
        """Its patience has run out: the guard puts it in front."""
        return self.now >= self.guard_deadline

    def __str__(self) -> str:
        numbers = ", ".join(f"{p:.6g}" for p in self.priority)
        doing = "running on" if self.running else "waiting on"
        lines = [
            f"{self.node}: {doing} worker {self.worker}, place {self.place} of {self.of} "
            f"by {self.policy}, priority ({numbers})",
            f"  ahead of it: {_listed(self.ahead)}; equal to it: {_listed(self.equal)}",
            f"  last ran {self.now - self.last_run:.3g} s ago; {self._forced()}",
            f"  {self._guard()}",
        ]
        return "\n".join(lines)

    def _forced(self) -> str:
        if self.forced_after == math.inf:
            return "never forced"
        if self.forced_next:
            return "longer than the delay, so it is forced after the next meeting"
        return f"forced after a meeting that comes more than {self.forced_after - self.now:.3g} s from now"

    def _guard(self) -> str:
        if self.guard_deadline == math.inf:
            seen = "has no limit to its patience" if self.runnable_since < math.inf else "has not seen it waiting"
            return f"the guard {seen}"
        if self.overdue:
            return f"overdue for {self.now - self.guard_deadline:.3g} s: the guard puts it in front"
        return f"the guard puts it in front in {self.guard_deadline - self.now:.3g} s"


def _listed(names: tuple[str, ...], most: int = 5) -> str:
    if not names:
        return "nobody"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
