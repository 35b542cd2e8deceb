"""Where a new request goes, and when a request must change node (sections 5.1 and 5.2). Pure functions.

They read one :class:`NodeLoad` per node and know nothing of lists or threads, so a table of loads tests them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.core.locality.errors import SchedulerMisuseError
from headgate.core.locality.instructions import Move, Share
from headgate.core.locality.tasks import NodeId, RequestId

BALANCE_PERIOD = 0.1
"""Seconds between two calls of ``balance`` while a logical processor idles (section 5.2)."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """How busy a node is at one moment."""

    node: NodeId
    idle: int
    """Sleeping threads."""
    searching: int
    """Awake threads without a task; each is about to take one or to sleep."""
    waiting: int
    """Waiting tasks the node is responsible for."""
    requests: tuple[RequestId, ...]
    """The requests it evaluates, newest first."""

    @property
    def excess(self) -> int:
        """Waiting tasks that no thread of the node is about to take."""
        return self.waiting - self.searching

    @property
    def is_overloaded(self) -> bool:
        """More tasks than running threads, and nobody left to wake."""
        return self.excess > 0 and self.idle == 0

    @property
    def is_partially_idle(self) -> bool:
        return self.idle > 0


def choose_node(loads: Sequence[NodeLoad], free_memory: Sequence[float] | None) -> NodeId:
    """The node with the most free resources: idle threads, then free memory, then fewest requests, then lowest id.

    Threads come before memory because every request can use an idle thread at once, while how much memory it will
    allocate is unknown when it is created. `free_memory` is indexed by node, in any unit; None means "all equal".
    """
    if free_memory is not None and len(free_memory) != len(loads):
        raise SchedulerMisuseError(
            f"free_memory needs one number per node: expected {len(loads)}, got {len(free_memory)}"
        )

    def free_resources(load: NodeLoad) -> tuple[int, float, int, int]:
        memory = 0.0 if free_memory is None else free_memory[load.node]
        return load.idle, memory, -len(load.requests), -load.node

    return max(loads, key=free_resources).node


def plan_balance(loads: Sequence[NodeLoad]) -> Move | Share | None:
    """One step towards balance, or None if there is no imbalance that a step can lessen.

    The most overloaded node gives, the idlest node takes; ties go to the lower id. A node with several requests gives
    its newest, which has probably allocated least; a node with a single one shares it. A request the taker evaluates
    already cannot be given to it, so the next pair is tried.
    """
    givers = sorted((load for load in loads if load.is_overloaded), key=lambda load: (-load.excess, load.node))
    takers = sorted((load for load in loads if load.is_partially_idle), key=lambda load: (-load.idle, load.node))
    for giver in givers:
        for taker in takers:
            step = _relieve(giver, taker)
            if step is not None:
                return step
    return None


def _relieve(giver: NodeLoad, taker: NodeLoad) -> Move | Share | None:
    new_to_taker = [request for request in giver.requests if request not in taker.requests]
    if not new_to_taker:
        return None
    if len(giver.requests) == 1:
        return Share(giver.requests[0], giver.node, taker.node)
    return Move(new_to_taker[0], giver.node, taker.node)
