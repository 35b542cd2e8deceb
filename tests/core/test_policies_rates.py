"""hr, rb and lsf, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import HighestRate, LongestStretch, RateBased
from headgate.testing import ranking


def view_of(graph: Graph, now: float = 0.0, **features: Sequence[float]) -> FeatureView:
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, graph, now)


@pytest.mark.parametrize(
    ("graph", "cost", "selectivity", "rates"),
    [
        # b: one result in 2 s. a: half a result in 1 + 0.5 * 2 = 2 s.
        pytest.param(Graph("ab", [("a", "b")]), [1, 2], [0.5, 1], [0.25, 0.5], id="two operators"),
        # c: 1 in 1 s. b: 0.5 in 2 + 0.5 * 1 = 2.5 s. a: 2 * 0.5 = 1 in 1 + 2 * 2.5 = 6 s.
        pytest.param(
            Graph("abc", [("a", "b"), ("b", "c")]), [1, 2, 1], [2, 0.5, 1], [1 / 6, 0.2, 1], id="one that multiplies"
        ),
        # A tuple of a goes to b and to c: 1 + 1 results in 2 + 1 + 1 s.
        pytest.param(Graph("abc", [("a", "b"), ("a", "c")]), [2, 1, 1], [1, 1, 1], [0.5, 1, 1], id="a fork adds up"),
        # c: 1 in 2 s. a: 1 in 1 + 2 s. b: 0.5 in 1 + 0.5 * 2 = 2 s.
        pytest.param(
            Graph("abc", [("a", "c"), ("b", "c")]), [1, 1, 2], [1, 0.5, 1], [1 / 3, 0.25, 0.5], id="two that meet"
        ),
        pytest.param(Graph("ab", [("a", "b")]), [1, 1], [0, 1], [0, 1], id="one that lets nothing pass"),
        # The selectivity of a sink does not matter: what it takes in is a result.
        pytest.param(Graph("a"), [4], [0], [0.25], id="a sink makes one result of each tuple"),
    ],
)
def test_highest_rate(graph: Graph, cost: list[float], selectivity: list[float], rates: list[float]) -> None:
    view = view_of(graph, cost=cost, selectivity=selectivity)
    assert HighestRate().priorities(view).tolist() == pytest.approx(rates)


def test_highest_rate_where_the_public_code_of_haren_differs() -> None:
    """At a fork that code multiplies GS: 1 * 1 = 1 result in 4 s for fork, a rate of 0.25, which is less than the 0.4
    of other; but both branches do get the tuple, so fork brings two results in those 4 s."""
    graph = Graph(["fork", "left", "right", "other"], [("fork", "left"), ("fork", "right")])
    view = view_of(graph, cost=[2, 1, 1, 2.5], selectivity=[1, 1, 1, 1])
    assert HighestRate().priorities(view).tolist() == pytest.approx([0.5, 1.0, 1.0, 0.4])
    assert ranking(HighestRate(), view) == ["left", "right", "fork", "other"]


TWO_QUERIES = Graph(["p1", "p2", "q1", "q2"], [("p1", "p2"), ("q1", "q2")])


@pytest.mark.parametrize(
    ("last_turn", "order"),
    [
        pytest.param([-1, -1, -1, -1], ["q2", "p2", "q1", "p1"], id="at the start: by rate"),
        pytest.param([-1, -1, -1, 0], ["p2", "p1", "q2", "q1"], id="q had a turn, so all of p goes first"),
        pytest.param([-1, 1, -1, 0], ["q2", "q1", "p2", "p1"], id="then p had one, so q goes first"),
        pytest.param([3, 1, -1, 2], ["q2", "q1", "p2", "p1"], id="the latest turn in the query counts"),
    ],
)
def test_rate_based_lets_queries_take_turns(last_turn: list[float], order: list[str]) -> None:
    # rates: p2 1/2, p1 1/4; q2 1, q1 1/3
    view = view_of(TWO_QUERIES, last_turn=last_turn, cost=[2, 2, 2, 1], selectivity=[1, 1, 1, 1])
    assert ranking(RateBased(), view) == order


def test_rate_based_takes_queries_as_they_are_declared() -> None:
    """Two connected operators of different queries do not share a turn."""
    graph = Graph("ab", [("a", "b")], queries={"a": "first", "b": "second"})
    view = view_of(graph, last_turn=[-1, 0], cost=[1, 1], selectivity=[1, 1])
    assert ranking(RateBased(), view) == ["a", "b"]


def test_longest_stretch_measures_waiting_in_ideal_times() -> None:
    """light needs 0.1 + 0.1 s from end to end and has waited 1 s: stretch 5. heavy needs 4 s and has waited 8 s: 2."""
    graph = Graph(["light1", "light2", "heavy"], [("light1", "light2")])
    view = view_of(graph, now=10.0, cost=[0.1, 0.1, 4], head_time=[9, float("inf"), 2])
    assert LongestStretch().priorities(view).tolist() == pytest.approx([5, -np.inf, 2])
    assert ranking(LongestStretch(), view) == ["light1", "heavy", "light2"]


def test_longest_stretch_counts_what_is_before_and_after_a_node() -> None:
    """The tuple at mid has a way of 1 + 2 + 7 s through the longer branch, wherever on it it is now."""
    graph = Graph(["in", "mid", "short", "long"], [("in", "mid"), ("mid", "short"), ("mid", "long")])
    view = view_of(graph, now=20.0, cost=[1, 2, 2, 7], head_time=[0, 0, 0, 0])
    assert LongestStretch().priorities(view).tolist() == pytest.approx([2, 2, 4, 2])
