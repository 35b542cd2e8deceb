"""Policies that compare how many results a second of work brings, or how long a tuple may fairly take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.flow import at_least_a_moment, longest_path, output_rate
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy


@dataclass(frozen=True)
class HighestRate(Policy):
    """Most results per second of work first: productive and cheap paths before barren and dear ones.
    Keeps the mean latency over all queries low.

    Rule: ``GS / GC``, with
    ``GS(i) = s(i) * sum of GS(d)`` over the nodes d that i feeds, 1 at a sink, and
    ``GC(i) = c(i) + s(i) * sum of GC(d)``.
    An output tuple is sent to every node downstream, so at a fork the results of the branches add up. (The public
    code of Haren multiplies the GS of the branches there; along a chain the two are the same.)
    Features: cost, selectivity.
    Fails: under overload a query with a low rate waits for ever, however old its tuples are.
    Paper: Haren, section 7.2.
    """

    name = "hr"
    summary = "the node that yields most results per second of work"
    paper = "Haren 7.2"
    needs = ("cost", "selectivity")
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return output_rate(view.graph, view["cost"], view["selectivity"])


@dataclass(frozen=True)
class RateBased(Policy):
    """Queries take turns; inside the query whose turn it is, the node with the highest output rate runs.
    Rates are only compared where they mean the same: within one query (Aurora's two levels).

    Rule: ``(-(latest last_turn among the nodes of the query), GS / GC)``, GS and GC as in ``hr``.
    Features: last_turn, cost, selectivity.
    Fails: a query with a hundred nodes gets as many turns as one with three; inside a query with several sources the
    slower branch can wait for ever.
    Paper: Haren, section 8.
    """

    name = "rb"
    summary = "queries in turn; inside a query, the highest output rate"
    paper = "Haren 8"
    needs = ("last_turn", "cost", "selectivity")
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        graph = view.graph
        latest = np.full(len(graph.query_names), -np.inf)
        np.maximum.at(latest, graph.query, view["last_turn"])
        return np.column_stack((-latest[graph.query], output_rate(graph, view["cost"], view["selectivity"])))


@dataclass(frozen=True)
class LongestStretch(Policy):
    """Whoever has waited longest for its size goes first: a second is much for a tuple that needs a millisecond.
    Keeps the maximum slowdown low, so that light and heavy queries suffer alike.

    Rule: ``(now - head_time) / ideal``, ideal being the cost of the longest path through the node: what a tuple
    would take if it never had to wait.
    Features: head_time, cost.
    Fails: under lasting overload the waiting time of a light query grows faster, in terms of its ideal, than that of a
    heavy one, which then waits for ever.
    Paper: Haren, section 8.
    """

    name = "lsf"
    summary = "the tuple that has waited longest compared with the time it needs"
    paper = "Haren 8"
    needs = ("head_time", "cost")
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        ideal = longest_path(view.graph, view["cost"])
        stretch: Floats = (view.now - view["head_time"]) / at_least_a_moment(ideal)
        return stretch
