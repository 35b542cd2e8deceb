"""EdgeWise's capacity model (section 5.1), worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.capacity import best_weights, fair_weights, input_scaling, max_input_rate, relative_rates
from headgate.core.errors import ParameterError
from headgate.core.graph import Graph

#: parse passes everything on to filter, filter passes half of it on to store
PIPELINE = Graph(["parse", "filter", "store"], [("parse", "filter"), ("filter", "store")])
COST = np.array([1.0, 2.0, 1.0])
SELECTIVITY = np.array([1.0, 0.5, 1.0])


def test_the_factors_of_the_model() -> None:
    assert input_scaling(PIPELINE, SELECTIVITY).tolist() == [1.0, 1.0, 0.5]  # q: store sees every second tuple
    assert relative_rates(PIPELINE, COST).tolist() == [1.0, 0.5, 1.0]  # r: filter is half as fast as parse


@pytest.mark.parametrize(
    ("cores", "weights", "rate"),
    [
        # q / r = 1 : 2 : 1/2, so of one core 2/7, 4/7 and 1/7; parse does 2/7 tuples per second, as do the others
        pytest.param(1, [2 / 7, 4 / 7, 1 / 7], 2 / 7, id="proportional to q / r"),
        # 4/7, 8/7 and 2/7 of two cores: filter can only use one, the other two share the second core 2 : 1
        pytest.param(2, [2 / 3, 1, 1 / 3], 1 / 2, id="one worker per node, the surplus to the others"),
        # filter on its core is the limit whatever the others get
        pytest.param(3, [1, 1, 1], 1 / 2, id="a core each"),
        pytest.param(8, [1, 1, 1], 1 / 2, id="more cores than can be used"),
    ],
)
def test_best_weights_and_the_rate_they_allow(cores: float, weights: list[float], rate: float) -> None:
    assert best_weights(PIPELINE, COST, SELECTIVITY, cores).tolist() == pytest.approx(weights)
    assert max_input_rate(PIPELINE, COST, SELECTIVITY, cores) == pytest.approx(rate)


def test_fair_shares_make_the_heaviest_node_the_bottleneck() -> None:
    fair = fair_weights(PIPELINE, cores=1)
    assert fair.tolist() == pytest.approx([1 / 3] * 3)
    # parse could do 1/3, store 1/3 / 0.5 = 2/3, but filter only 1/3 / 2
    assert max_input_rate(PIPELINE, COST, SELECTIVITY, 1, weights=fair) == pytest.approx(1 / 6)


def test_a_node_that_may_run_on_two_workers_gets_up_to_two_cores() -> None:
    limits = np.array([1.0, 2.0, 1.0])
    assert best_weights(PIPELINE, COST, SELECTIVITY, 3.5, limits).tolist() == pytest.approx([1.0, 2.0, 0.5])
    weights = best_weights(PIPELINE, COST, SELECTIVITY, 3.5, limits)
    assert max_input_rate(PIPELINE, COST, SELECTIVITY, 3.5, weights) == pytest.approx(1.0)


def test_streams_that_meet_add_up() -> None:
    graph = Graph(["left", "right", "join"], [("left", "join"), ("right", "join")])
    # join gets two tuples for one at each source: 1 + 1 + 2 * 1 seconds of work for every step of the rate
    assert best_weights(graph, np.ones(3), np.ones(3), cores=1).tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    assert max_input_rate(graph, np.ones(3), np.ones(3), cores=1) == pytest.approx(1 / 4)


def test_a_node_that_nothing_reaches_gets_nothing() -> None:
    nothing_passes = np.array([0.0, 1.0, 1.0])
    assert best_weights(PIPELINE, COST, nothing_passes, cores=1).tolist() == [1.0, 0.0, 0.0]
    assert max_input_rate(PIPELINE, COST, nothing_passes, cores=1) == pytest.approx(1.0)


def test_what_costs_nothing_has_no_largest_rate() -> None:
    assert max_input_rate(PIPELINE, np.zeros(3), SELECTIVITY, cores=1) == np.inf


@pytest.mark.parametrize("cores", [0, -1, float("nan")])
def test_cores_must_be_positive(cores: float) -> None:
    with pytest.raises(ParameterError, match="cores must be greater than 0"):
        best_weights(PIPELINE, COST, SELECTIVITY, cores)


def test_weights_cannot_be_more_than_there_are_cores() -> None:
    with pytest.raises(ParameterError, match="must not add up to more than cores=2"):
        max_input_rate(PIPELINE, COST, SELECTIVITY, cores=2, weights=np.array([1.0, 1.0, 0.5]))


numbers = st.floats(0.05, 5.0)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.floats(0.1, 10.0))
@settings(max_examples=40)
def test_no_other_weights_allow_a_higher_rate(nodes: list[tuple[float, float]], cores: float) -> None:
    names = [f"n{i}" for i in range(len(nodes))]
    graph = Graph(names, pairwise(names))
    cost, selectivity = np.array(nodes).T
    weights = best_weights(graph, cost, selectivity, cores)
    assert weights.sum() == pytest.approx(min(cores, len(nodes)))
    assert (weights <= 1 + 1e-9).all()
    best = max_input_rate(graph, cost, selectivity, cores)
    # An input rate needs at least rate * q * c cores at each node: two bounds that nothing can beat.
    seconds = input_scaling(graph, selectivity) * cost
    assert best == pytest.approx(min(cores / seconds.sum(), 1 / seconds.max()))
    assert max_input_rate(graph, cost, selectivity, cores, fair_weights(graph, cores)) <= best * (1 + 1e-9)
