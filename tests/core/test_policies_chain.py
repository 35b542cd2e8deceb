"""Chain on charts drawn by hand, and against a slow and simple envelope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import Chain
from headgate.core.policy import rank


def view_of(graph: Graph, **features: Sequence[float]) -> FeatureView:
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, graph)


def slopes(graph: Graph, cost: Sequence[float], selectivity: Sequence[float]) -> list[float]:
    view = view_of(graph, cost=cost, selectivity=selectivity, head_time=[0] * len(graph))
    values: list[float] = Chain().priorities(view)[:, 0].tolist()
    return values


def pipeline(length: int) -> Graph:
    names = [f"op{i}" for i in range(length)]
    return Graph(names, pairwise(names))


@pytest.mark.parametrize(
    ("cost", "selectivity", "expected"),
    [
        # (0, 1) (1, 0.2) (3, 0): first 0.8 per second, then 0.2 in 2 s
        pytest.param([1, 10], [0.2, 1], [0.8, 0.1], id="a quick filter, a slow sink: two segments"),
        # (0, 1) (1, 0.9) (1.9, 0): 0.1 per second alone, but 1 in 1.9 s with the sink
        pytest.param([1, 1], [0.9, 1], [1 / 1.9, 1 / 1.9], id="a poor filter leads to a quick sink: joined"),
        # (0, 1) (1, 1) (2, 0.1) (3, 0): 0.9 in 2 s for the first two, then 0.1 in 1 s
        pytest.param([1, 1, 10], [1, 0.1, 1], [0.45, 0.45, 0.1], id="the first two joined, the sink alone"),
        # (0, 1) (1, 0.2) (3, 0.1) (4, 0): 0.8; then to the end 0.2 in 3 s is more than 0.1 in 2 s
        pytest.param([1, 10, 10], [0.2, 0.5, 1], [0.8, 0.2 / 3, 0.2 / 3], id="the first alone, the last two joined"),
        # (0, 1) (1, 3) (4, 0): down to 0 in 4 s, although the first step goes up
        pytest.param([1, 1], [3, 1], [0.25, 0.25], id="one that multiplies is joined to what discards"),
        # (0, 1) (1, 0.5) (2, 0.25) (4, 0): 0.5, then 0.25 per second and 0.125 per second
        pytest.param([1, 2, 8], [0.5, 0.5, 1], [0.5, 0.25, 0.125], id="three segments"),
        # (0, 1) (1, 0) and nothing moves any more: the sink is at the same point
        pytest.param([1, 1], [0, 1], [1, 1], id="one that lets nothing pass"),
        pytest.param([0.5], [1], [2], id="a sink alone"),
    ],
)
def test_slopes_of_a_pipeline(cost: list[float], selectivity: list[float], expected: list[float]) -> None:
    assert slopes(pipeline(len(cost)), cost, selectivity) == pytest.approx(expected)


def test_an_operator_belongs_to_the_segment_over_its_own_step() -> None:
    """filter discards 0.8 tuples per second and other 0.5, so filter goes first. The public code of Haren would give
    filter, the end of its segment, the slope of the next one, 0.1, and run other first."""
    graph = Graph(["filter", "sink", "other"], [("filter", "sink")])
    view = view_of(graph, cost=[1, 10, 2], selectivity=[0.2, 1, 1], head_time=[0, 0, 0])
    assert [graph.names[i] for i in rank(Chain(), view)] == ["filter", "other", "sink"]


def test_between_equal_slopes_the_oldest_tuple_goes_first() -> None:
    """young and old are one segment, although rounding makes their own slopes differ in the last digit."""
    graph = Graph(["young", "old", "sink"], [("young", "old"), ("old", "sink")])
    view = view_of(graph, cost=[0.1, 0.1, 100], selectivity=[0.8, 0.8, 1], head_time=[9, 1, 0])
    assert [graph.names[i] for i in rank(Chain(), view)] == ["old", "young", "sink"]


def test_each_path_of_a_graph_has_a_chart_of_its_own() -> None:
    """in goes on to main; side begins a chart at (0, 1), and so does late, whose output grows and goes to out,
    which is charted with main: (0, 1) (1, 0.5) (2, 0.25) (2.25, 0)."""
    graph = Graph(
        ["in", "main", "side", "late", "out"], [("in", "main"), ("in", "side"), ("main", "out"), ("late", "out")]
    )
    found = slopes(graph, cost=[1, 2, 4, 1, 1], selectivity=[0.5, 0.5, 1, 2, 1])
    # in: 0.5 alone; to the end 1 / 2.25 is less. main and out: 0.5 in 1.25 s, steeper than main alone
    assert found == pytest.approx([0.5, 0.4, 0.25, -1, 0.4])


def test_points_that_rounding_puts_in_one_place_make_one_segment() -> None:
    """A tuple in 1e18 passes the first operator: the time that the others add to its second is lost in rounding."""
    assert slopes(pipeline(3), cost=[1, 1, 1], selectivity=[1e-18, 0.5, 1]) == [1, 1, 1]


def test_a_short_path_beside_a_long_one_has_a_chart_of_its_own_length() -> None:
    """The table of paths is as wide as the longest; a big selectivity must not be raised to a power of that."""
    long = [f"op{i:02}" for i in range(40)]
    graph = Graph(["many", *long], [*pairwise(long), ("many", "op20")])
    found = slopes(graph, cost=[1] * 41, selectivity=[1e10] + [1] * 40)
    assert found == pytest.approx([1 - 1e10] + [1 / 40] * 40)


def test_operators_that_cost_nothing_have_finite_slopes() -> None:
    found = slopes(pipeline(3), cost=[0, 0, 0], selectivity=[0.5, 0, 1])
    assert all(map(math.isfinite, found))


def envelope(cost: Sequence[float], selectivity: Sequence[float]) -> list[float]:
    """The slow and simple way: operators as blocks; a block steeper than the one before it is joined with that."""
    blocks: list[tuple[float, float, int]] = []  # what is discarded, in which time, by how many operators
    left = 1.0
    for place, (c, s) in enumerate(zip(cost, selectivity, strict=True)):
        kept = 0.0 if place == len(cost) - 1 else left * s
        block = (left - kept, c * left, 1)
        while blocks and block[0] / block[1] >= blocks[-1][0] / blocks[-1][1]:
            drop, time, count = blocks.pop()
            block = (block[0] + drop, block[1] + time, block[2] + count)
        blocks.append(block)
        left = kept
    return [drop / time for drop, time, count in blocks for _ in range(count)]


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.05, 3)), min_size=1, max_size=12))
@example([(1.0, 0.5)] * 12)
@settings(max_examples=30)
def test_slopes_are_those_of_the_lower_envelope(operators: list[tuple[float, float]]) -> None:
    cost, selectivity = zip(*operators, strict=True)
    found = slopes(pipeline(len(operators)), cost, selectivity)
    assert found == pytest.approx(envelope(cost, selectivity), rel=1e-6)
