"""Path arithmetic, worked out by hand on small graphs and checked against plain recursion on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.flow import cumulative_selectivity, downstream_sums, inflow, longest_path, output_rate
from headgate.core.graph import Graph

CHAIN = Graph("abc", [("a", "b"), ("b", "c")])
#: a feeds b and c, which both feed d
DIAMOND = Graph("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
#: two sources, a and b, that meet in c
MERGE = Graph("abc", [("a", "c"), ("b", "c")])


@pytest.mark.parametrize(
    ("graph", "own", "factor", "expected"),
    [
        # c = 4, b = 2 + 3 * 4 = 14, a = 1 + 0.5 * 14 = 8
        pytest.param(CHAIN, [1, 2, 4], [0.5, 3, 9], [8, 14, 4], id="chain, from the end"),
        # d = 1, b = c = 1 + 1, a = 1 + (2 + 2): d is counted once for each way to it
        pytest.param(DIAMOND, [1, 1, 1, 1], [1, 1, 1, 1], [5, 2, 2, 1], id="a fork adds its branches"),
        pytest.param(Graph("ab"), [3, 4], [1, 1], [3, 4], id="nothing downstream"),
        pytest.param(Graph(""), [], [], [], id="no nodes"),
    ],
)
def test_downstream_sums(graph: Graph, own: list[float], factor: list[float], expected: list[float]) -> None:
    assert downstream_sums(graph, np.array(own), np.array(factor)).tolist() == expected


def test_several_sums_at_once_are_the_same_as_one_by_one() -> None:
    own, factor = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]]), np.array([0.5, 2.0, 3.0, 1.0])
    both = downstream_sums(DIAMOND, own, factor[:, np.newaxis])
    for column in range(2):
        assert both[:, column].tolist() == downstream_sums(DIAMOND, own[:, column], factor).tolist()


@pytest.mark.parametrize(
    ("graph", "selectivity", "arriving", "leaving"),
    [
        pytest.param(CHAIN, [0.5, 4, 1], [1, 0.5, 2], [0.5, 2, 2], id="chain: the product so far"),
        # each branch gets all 2 tuples of a; d gets 2 * 0.5 from b and 2 * 1 from c
        pytest.param(DIAMOND, [2, 0.5, 1, 1], [1, 2, 2, 3], [2, 1, 2, 3], id="a fork copies, a merge adds"),
        pytest.param(MERGE, [0.25, 0.5, 2], [1, 1, 0.75], [0.25, 0.5, 1.5], id="one tuple at each source"),
        pytest.param(CHAIN, [0, 4, 1], [1, 0, 0], [0, 0, 0], id="nothing passes the first"),
    ],
)
def test_flow_from_the_sources(
    graph: Graph, selectivity: list[float], arriving: list[float], leaving: list[float]
) -> None:
    assert inflow(graph, np.array(selectivity)).tolist() == arriving
    assert cumulative_selectivity(graph, np.array(selectivity)).tolist() == leaving


@pytest.mark.parametrize(
    ("graph", "cost", "through"),
    [
        pytest.param(CHAIN, [1, 2, 4], [7, 7, 7], id="every node of a chain lies on the one path"),
        pytest.param(DIAMOND, [1, 10, 2, 4], [15, 15, 7, 15], id="the longer branch counts, except for the shorter"),
        pytest.param(MERGE, [1, 5, 2], [3, 7, 7], id="the longer of two sources"),
    ],
)
def test_longest_path_through_a_node(graph: Graph, cost: list[float], through: list[float]) -> None:
    assert longest_path(graph, np.array(cost, dtype=float)).tolist() == through


def test_a_node_that_costs_nothing_has_a_finite_rate() -> None:
    rate = output_rate(CHAIN, np.zeros(3), np.ones(3))
    assert np.isfinite(rate).all()
    assert rate[2] > rate[1] > rate[0]  # still in the order of the work that is left


@st.composite
def weighted_graphs(draw: st.DrawFn) -> tuple[Graph, list[float], list[float]]:
    size = draw(st.integers(1, 9))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    edges = [(f"n{a}", f"n{b}") for (a, b), keep in zip(pairs, kept, strict=True) if keep]
    numbers = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=size, max_size=size)
    return Graph([f"n{i}" for i in range(size)], edges), draw(numbers), draw(numbers)


@given(weighted_graphs())
@settings(max_examples=40)
def test_levels_give_what_recursion_gives(case: tuple[Graph, list[float], list[float]]) -> None:
    graph, cost, selectivity = case

    def reaching(i: int) -> float:
        return sum(reaching(j) * selectivity[j] for j in graph.upstream[i]) if graph.upstream[i] else 1.0

    def work(i: int) -> float:
        return cost[i] + selectivity[i] * sum(map(work, graph.downstream[i]))

    def after(i: int) -> float:
        return max((cost[j] + after(j) for j in graph.downstream[i]), default=0.0)

    def before(i: int) -> float:
        return max((cost[j] + before(j) for j in graph.upstream[i]), default=0.0)

    nodes = range(len(graph))
    s, c = np.array(selectivity), np.array(cost)
    assert inflow(graph, s).tolist() == pytest.approx([reaching(i) for i in nodes])
    assert downstream_sums(graph, c, s).tolist() == pytest.approx([work(i) for i in nodes])
    assert longest_path(graph, c).tolist() == pytest.approx([before(i) + cost[i] + after(i) for i in nodes])
