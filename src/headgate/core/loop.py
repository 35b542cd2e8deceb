"""The interface of the core: facts in, instructions out.

An engine (the simulator, the stream engine, the warehouse) owns clocks, threads, queues and the work itself. A loop
only decides what runs next. The engine tells it facts and gets back a ``Start``: run this node on that worker. All
loops have *nodes* (what is scheduled), *workers* (what runs nodes, counted from 0) and *queries* (nodes that belong
together).

    loop       the engine tells                                   and asks
    Dispatch   set_ready, note_change, finished                   decide: what do all free workers start now?
    Rounds     finished; what can run when it is asked            next_step: what does this worker do now?
    Locality   note_ready, packet_received, finished              next_start: what does this worker start now?

``Dispatch`` and ``Rounds`` rank nodes by a policy and place them by a placement; the protocol ``Loop`` is what they
have in common. Locality does not use policies; see ``headgate.core.locality``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from headgate.core.explain import Explanation
from headgate.core.graph import Graph
from headgate.core.placement import Placement, Workers
from headgate.core.policy import Policy

#: why a node runs: first in the policy's order; equal to the node run just before; not run for longer than the delay;
#: runnable for longer than its patience
Reason = Literal["policy", "tie", "forced", "guard"]


class Start(NamedTuple):
    """Run ``node`` on ``worker`` now, on up to ``batch`` tuples; 0 leaves the number to the engine.

    ``portion`` is how much of what is pending the policy lets the run take: seconds of data of a table, tuples of an
    operator. The engine's own limits apply as well.

    A tuple and not a frozen dataclass: one is created for every run, and a tuple takes a third of the time.
    """

    node: int
    worker: int
    reason: Reason
    batch: int = 0
    portion: float = math.inf

    def at_most(self, tuples: int) -> int:
        """How many of so many tuples the run may take: at least one, or it would do nothing."""
        return tuples if tuples <= self.portion else max(1, math.floor(self.portion))


@dataclass(frozen=True, slots=True)
class LoopStatistics:
    """Counts since the loop was created. ``decisions`` are turns of the dispatch loop, or rounds."""

    decisions: int
    starts: Mapping[Reason, int]
    nodes: int
    workers: int

    @property
    def guard_strikes(self) -> int:
        return self.starts["guard"]


class Loop(Protocol):
    """What the loops that rank by a policy have in common: changes while running, and reports."""

    policy: Policy
    placement: Placement
    workers: Workers

    @property
    def graph(self) -> Graph:
        """The nodes as they are numbered now."""

    def finished(self, worker: int, now: float) -> None:
        """The run of this worker's node has ended."""

    def replace_policy(self, policy: Policy) -> None:
        """Rank by another policy; refused at once if it reads a feature that nobody provides."""

    def replace_placement(self, placement: Placement) -> None:
        """Place by another rule; refused at once if it reads a feature that nobody provides."""

    def set_workers(self, workers: Workers) -> None:
        """Change the number of workers; one that is removed while it is busy finishes its run."""

    def regraph(self, graph: Graph) -> object:
        """Add or remove nodes. Nodes are known by name: their numbers may change."""

    def explain(self, node: int, now: float) -> Explanation:
        """Why this node runs or does not run at this moment."""

    def statistics(self) -> LoopStatistics:
        """Counts since the loop was created."""

    def validate(self) -> None:
        """Check every invariant; raises ``InvariantError``. For tests and debugging."""
