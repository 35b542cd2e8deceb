"""How much a worker takes from a node at one turn.

EdgeWise (section 4.2) names three rules and finds that a small constant does best; the ordered paper (section 6)
gives a worker a constant time and works out the tuples from the measured cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from headgate.core.errors import ParameterError


class Consumption(Protocol):
    """How many of ``pending`` tuples to take, each costing ``cost`` seconds; at least one if any wait."""

    def take(self, pending: int, cost: float) -> int: ...


@dataclass(frozen=True, slots=True)
class All:
    """Everything that waits."""

    def take(self, pending: int, cost: float) -> int:
        return pending

    def __str__(self) -> str:
        return "all"


@dataclass(frozen=True, slots=True)
class Half:
    """Half of what waits, rounded up."""

    def take(self, pending: int, cost: float) -> int:
        return -(-pending // 2)

    def __str__(self) -> str:
        return "half"


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most ``limit`` tuples: more decisions, nearer to the ideal schedule."""

    limit: int

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ParameterError(f"at-most takes a limit of at least 1 tuple; got {self.limit}")

    def take(self, pending: int, cost: float) -> int:
        return min(pending, self.limit)

    def __str__(self) -> str:
        return f"at-most-{self.limit}"


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """As many tuples as fit into ``seconds`` at the measured cost, and at least one."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ParameterError(f"a time slice takes a positive number of seconds; got {self.seconds}")

    def take(self, pending: int, cost: float) -> int:
        if pending * cost <= self.seconds:
            return pending
        return min(pending, max(1, math.floor(self.seconds / cost)))

    def __str__(self) -> str:
        return f"slice-{repr(self.seconds).removesuffix('.0')}s"


def consumption_from(text: str) -> Consumption:
    """``all``, ``half``, ``at-most-N`` or ``slice-Ns`` as a rule."""
    if text == "all":
        return All()
    if text == "half":
        return Half()
    try:
        if text.startswith("at-most-"):
            return AtMost(int(text.removeprefix("at-most-")))
        if text.startswith("slice-") and text.endswith("s"):
            return TimeSlice(float(text.removeprefix("slice-").removesuffix("s")))
    except ValueError:
        pass
    raise ParameterError(
        f"a consumption rule is all, half, at-most-N (tuples) or slice-Ns (seconds), as in at-most-50; got {text!r}"
    )
