"""Aurora's three ways to order the operators of a query: for throughput, for latency, for memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.flow import at_least_a_moment, output_rate
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView, in_view
from headgate.core.policy import Policy


@dataclass(frozen=True)
class MinCost(Policy):
    """Sweeps through the graph, upstream before downstream, every node once per sweep. A node then finds all that
    the sweep brought to it and is called once for it: fewest calls per tuple, so the highest throughput.

    Rule: ``-((position - last - 1) mod n)``, position being the place in topological order and last that of the
    node chosen before, which is the memory.
    Features: none.
    Fails: a tuple waits for a whole sweep at most, but each tuple does; gains nothing where calls cost nothing.
    Paper: Haren, section 8 (Aurora's Min-Cost).
    """

    name = "min-cost"
    summary = "the next node of a sweep from sources to sinks"
    paper = "Haren 8"

    def priorities(self, view: FeatureView) -> Floats:
        last = view.memory if isinstance(view.memory, int) else -1
        ahead = (view.graph.position - last - 1) % max(len(view.graph), 1)
        return -ahead.astype(np.float64)

    def remember(self, view: FeatureView, node: int) -> int:
        return int(view.graph.position[node])


@dataclass(frozen=True)
class MinLatency(Policy):
    """Finishes what has been begun: later operators before earlier ones, old tuples before new ones.
    Keeps the mean latency low.

    Rule: ``(-height, GS / GC)``, height being the longest way to a sink, GS and GC as in ``hr``.
    Features: cost, selectivity.
    Fails: under overload the first operators wait for ever while the last ones of other queries have input; queues at
    the sources grow.
    Paper: EdgeWise, section 3.4; Haren, section 8 (Aurora's Min-Latency).
    """

    name = "min-latency"
    summary = "the node nearest to a sink, then the highest output rate"
    paper = "EdgeWise 3.4, Haren 8"
    needs = ("cost", "selectivity")
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        rate = output_rate(view.graph, view["cost"], view["selectivity"])
        return np.column_stack((-view.graph.height, rate))


@dataclass(frozen=True)
class MinMemory(Policy):
    """Runs the operator that frees most queue space per second by itself; ``chain`` also looks at those behind it.
    Keeps the queues' memory low.

    Rule: ``(1 - s) / c``; at a sink ``1 / c``, as its output takes up no queue.
    Features: cost, selectivity.
    Fails: does not see that a slow operator leads to a fast filter (``chain`` does); what discards nothing waits,
    under overload for ever.
    Paper: Haren, section 8 (Aurora's Min-Memory).
    """

    name = "min-memory"
    summary = "the node that discards most tuples per second of work"
    paper = "Haren 8"
    needs = ("cost", "selectivity")
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        kept = np.where(in_view(view, view.graph.is_sink), 0.0, view["selectivity"])
        freed: Floats = (1.0 - kept) / at_least_a_moment(view["cost"])
        return freed
