"""Aurora's three policies, and what each goal would run in the query of Haren's figure 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import Chain, LastInPipeline, MinCost, MinLatency, MinMemory, QueueThrottle
from headgate.core.policy import Policy, rank
from headgate.testing import ranking


def view_of(graph: Graph, memory: object = None, **features: Sequence[float]) -> FeatureView:
    columns = {name: np.array(values, dtype=float) for name, values in features.items()}
    return FeatureView(columns, graph, memory=memory)


@pytest.mark.parametrize(
    ("goal", "policy", "runs"),
    [
        pytest.param("latency", MinLatency(), "egress", id="latency: min-latency runs the egress"),
        pytest.param("latency", LastInPipeline(), "egress", id="latency: lp runs the egress"),
        pytest.param("memory", MinMemory(), "op1", id="memory: min-memory runs op1"),
        pytest.param("throughput", QueueThrottle(), "ingress", id="throughput: qst runs the ingress"),
        pytest.param("throughput", MinCost(), "ingress", id="throughput: min-cost starts with the ingress"),
    ],
)
def test_haren_figure_1(goal: str, policy: Policy, runs: str) -> None:
    """Ingress -> op1 (adds a and b up) -> op2 (the largest sum of ten minutes) -> egress, all with tuples waiting.

    Section 2: running the egress is best for latency, op1 for memory, the ingress for throughput. The paper gives no
    costs. Selectivity is taken by volume, as the goal is memory: op1 turns the attributes (ta, a, b) into (ta, c), two
    thirds, with one addition; op2 keeps almost nothing, but looks into its window for each tuple; delivering a tuple
    to the user costs most. Freed per microsecond: ingress 0, op1 1/3 / 1, op2 0.99 / 5, egress 1 / 10.
    """
    graph = Graph(["ingress", "op1", "op2", "egress"], [("ingress", "op1"), ("op1", "op2"), ("op2", "egress")])
    view = view_of(
        graph,
        cost=[1e-6, 1e-6, 5e-6, 10e-6],
        selectivity=[1, 2 / 3, 0.01, 1],
        head_time=[4, 3, 2, 1],
        output_pending=[4, 3, 1, 0],
    )
    assert ranking(policy, view)[0] == runs, f"to favour {goal}"


DIAMOND = Graph(["in", "left", "right", "out"], [("in", "left"), ("in", "right"), ("left", "out"), ("right", "out")])


def test_min_cost_sweeps_from_sources_to_sinks_and_starts_again() -> None:
    memory, swept = None, []
    for _ in range(6):
        view = view_of(DIAMOND, memory)
        best = int(rank(MinCost(), view)[0])
        memory = MinCost().remember(view, best)
        swept.append(DIAMOND.names[best])
    assert swept == ["in", "left", "right", "out", "in", "left"]


def test_min_cost_goes_on_behind_the_node_that_ran_and_does_not_turn_back() -> None:
    """left just ran. right and out are still to come in this sweep; in has to wait for the next."""
    view = view_of(DIAMOND)
    after_left = view_of(DIAMOND, MinCost().remember(view, DIAMOND.index["left"]))
    assert ranking(MinCost(), after_left) == ["right", "out", "in", "left"]


def test_min_latency_prefers_what_is_near_a_sink_and_then_the_higher_rate() -> None:
    """out is a sink; left and right are one step away, right the cheaper; in is two steps away, though it is free."""
    view = view_of(DIAMOND, cost=[0, 5, 1, 100], selectivity=[1, 1, 1, 1])
    assert ranking(MinLatency(), view) == ["out", "right", "left", "in"]


def test_min_latency_counts_the_longest_way_to_a_sink() -> None:
    graph = Graph("abcd", [("a", "b"), ("b", "c"), ("a", "d")])
    view = view_of(graph, cost=[1, 1, 2, 1], selectivity=[1, 1, 1, 1])
    assert ranking(MinLatency(), view) == ["d", "c", "b", "a"]  # a feeds the sink d, but also b two steps before c


@pytest.mark.parametrize(
    ("cost", "selectivity", "freed"),
    [
        pytest.param(2, 0.5, 0.25, id="discards half in two seconds"),
        pytest.param(4, 1, 0, id="discards nothing"),
        pytest.param(1, 3, -2, id="makes two more"),
    ],
)
def test_min_memory_counts_what_a_node_frees_per_second(cost: float, selectivity: float, freed: float) -> None:
    graph = Graph("ab", [("a", "b")])
    view = view_of(graph, cost=[cost, 4], selectivity=[selectivity, 1])
    assert MinMemory().priorities(view).tolist() == [freed, 1 / 4]  # the sink frees every tuple, in 4 s


def test_min_memory_does_not_see_past_the_node_but_chain_does() -> None:
    """slow frees nothing itself, but leads to a quick filter: together a tuple in 1.1 s, where other takes 10 s."""
    graph = Graph(["slow", "filter", "rest", "other"], [("slow", "filter"), ("filter", "rest")])
    view = view_of(graph, cost=[1, 0.1, 50, 10], selectivity=[1, 0, 1, 1], head_time=[0, 0, 0, 0])
    assert ranking(MinMemory(), view) == ["filter", "other", "rest", "slow"]
    # nothing passes the filter, so it and the rest are equal, and downstream goes first
    assert ranking(Chain(), view) == ["rest", "filter", "slow", "other"]
