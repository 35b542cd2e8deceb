"""The heuristics of ordered stream processing (6.1 to 6.4) and EdgeWise's longest queue, on small pipelines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headgate.core.errors import ParameterError
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import EstimatedTime, LastInPipeline, LongestQueue, LowestThroughput, QueueThrottle
from headgate.testing import ranking

#: map -> filter -> fold, a pipeline as in the paper
PIPELINE = Graph(["map", "filter", "fold"], [("map", "filter"), ("filter", "fold")])
NOTHING_WAITS = float("inf")


def view_of(graph: Graph = PIPELINE, **features: Sequence[float]) -> FeatureView:
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, graph)


# --- 6.1 queue-size throttling ----------------------------------------------------------------------------------


def test_qst_thresholds_follow_the_flow() -> None:
    """cs = 2, 2 * 0.5 = 1 and 1 * 1 = 1, of 4 in all: 1000 tuples are shared out 2 : 1 : 1."""
    thresholds = QueueThrottle().thresholds(PIPELINE, np.array([2.0, 0.5, 1.0]))
    assert thresholds.tolist() == pytest.approx([500, 250, 250])


def test_qst_shares_the_capacity_query_by_query() -> None:
    graph = Graph("abc", [("a", "b")])
    assert QueueThrottle(capacity=60).thresholds(graph, np.array([1.0, 1.0, 9.0])).tolist() == pytest.approx(
        [30, 30, 60]
    )


@pytest.mark.parametrize(
    ("output_pending", "order"),
    [
        pytest.param([0, 0, 0], ["map", "filter", "fold"], id="all below: the earliest"),
        pytest.param([500, 249, 0], ["filter", "fold", "map"], id="map has filled its queue: the next"),
        pytest.param([500, 250, 0], ["fold", "filter", "map"], id="two are full: those drain from the end"),
        pytest.param([499, 250, 0], ["map", "fold", "filter"], id="one tuple below is below"),
    ],
)
def test_qst_runs_the_earliest_operator_below_its_threshold(output_pending: list[float], order: list[str]) -> None:
    assert ranking(QueueThrottle(), view_of(output_pending=output_pending, selectivity=[2, 0.5, 1])) == order


def test_qst_never_takes_an_empty_queue_for_full() -> None:
    """Nothing has been seen to pass filter yet, so the flow behind it and with it the threshold is 0."""
    view = view_of(output_pending=[1000, 0, 0], selectivity=[1, 0, 1])
    assert ranking(QueueThrottle(), view) == ["filter", "fold", "map"]


def test_qst_thresholds_do_not_depend_on_the_order_of_nodes_not_even_by_rounding() -> None:
    """0.3 + 0.1 + 0.2 + 0.7 and 0.7 + 0.2 + 0.1 + 0.3 differ in the last digit."""
    selectivity = {"a": 0.3, "b": 0.1, "c": 0.2, "d": 0.7}

    def thresholds(order: str) -> dict[str, float]:
        graph = Graph(order, queries=dict.fromkeys(order, "query"))
        values = QueueThrottle().thresholds(graph, np.array([selectivity[name] for name in order]))
        return dict(zip(order, values.tolist(), strict=True))

    assert thresholds("abcd") == thresholds("dcba")


@pytest.mark.parametrize("capacity", [0.0, -5.0, float("nan")])
def test_qst_needs_a_capacity(capacity: float) -> None:
    with pytest.raises(ParameterError, match="'qst': capacity, in tuples, must be greater than 0"):
        QueueThrottle(capacity)


# --- 6.2 last in pipeline ---------------------------------------------------------------------------------------


def test_lp_runs_the_latest_operator() -> None:
    assert ranking(LastInPipeline(), view_of(head_time=[1, 2, 3])) == ["fold", "filter", "map"]


def test_lp_takes_the_oldest_tuple_among_operators_equally_late() -> None:
    graph = Graph("abcd", [("a", "b"), ("c", "d")])
    assert ranking(LastInPipeline(), view_of(graph, head_time=[0, 7, 1, 6])) == ["d", "b", "a", "c"]


# --- 6.3 estimated time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "priorities", "order"),
    [
        # I c / (w + 1): 100 * 1, 30 * 4, 10 * 5
        pytest.param([0, 0, 0], [100, 120, 50], ["filter", "map", "fold"], id="seconds of work, not tuples"),
        pytest.param([0, 1, 0], [100, 60, 50], ["map", "filter", "fold"], id="a worker is already on filter"),
        pytest.param([3, 2, 0], [25, 40, 50], ["fold", "filter", "map"], id="workers everywhere else"),
        # fold is stateful: one worker at most
        pytest.param([0, 1, 1], [100, 60, 0], ["map", "filter", "fold"], id="no more workers allowed"),
    ],
)
def test_et_runs_what_would_take_longest(workers: list[float], priorities: list[float], order: list[str]) -> None:
    view = view_of(pending=[100, 30, 10], cost=[1, 4, 5], workers=workers, max_workers=[8, 8, 1])
    assert EstimatedTime().priorities(view).tolist() == priorities
    assert ranking(EstimatedTime(), view) == order


# --- 6.4 current throughput -------------------------------------------------------------------------------------


def test_ct_runs_the_operator_that_has_processed_least() -> None:
    """Seconds for one tuple at the ingress, c cs: map 0.01 * 2, filter 0.02 * 1, fold 0.01 * 1. In the window map
    has had 0.4 s, filter 0.2 s and fold 0.15 s: good for 20, 10 and 15 tuples at the ingress."""
    view = view_of(window_time=[0.4, 0.2, 0.15], workers=[0, 0, 0], cost=[0.01, 0.02, 0.01], selectivity=[2, 0.5, 1])
    assert LowestThroughput().priorities(view).tolist() == pytest.approx([-20, -10, -15])
    assert ranking(LowestThroughput(), view) == ["filter", "fold", "map"]


def test_ct_counts_the_slices_under_way() -> None:
    """Two workers are on filter with 0.1 s each: with that it will have done 20 tuples and is not the last any more."""
    view = view_of(window_time=[0.4, 0.2, 0.15], workers=[0, 2, 0], cost=[0.01, 0.02, 0.01], selectivity=[2, 0.5, 1])
    assert LowestThroughput(slice_seconds=0.1).priorities(view).tolist() == pytest.approx([-20, -20, -15])


def test_ct_adds_the_flows_of_streams_that_meet() -> None:
    """merge gets a tuple from each side, so it needs 2 s where the sides need 1 s; after 1 s each it is behind."""
    graph = Graph(["left", "right", "merge"], [("left", "merge"), ("right", "merge")])
    view = view_of(graph, window_time=[1, 1, 1], workers=[0, 0, 0], cost=[1, 1, 1], selectivity=[1, 1, 1])
    assert LowestThroughput().priorities(view).tolist() == pytest.approx([-1, -1, -0.5])


def test_ct_needs_a_time_slice() -> None:
    with pytest.raises(ParameterError, match="'ct': slice_seconds must be greater than 0; got 0"):
        LowestThroughput(slice_seconds=0)


# --- EdgeWise 4.1 -----------------------------------------------------------------------------------------------


def test_longest_queue_runs_what_has_most_waiting() -> None:
    """EdgeWise's figure 4: the queue of the second operation is full, so that one runs and none overflows."""
    graph = Graph(["op1", "op2"], [("op1", "op2")])
    assert ranking(LongestQueue(), view_of(graph, pending=[1, 2])) == ["op2", "op1"]
    assert ranking(LongestQueue(), view_of(graph, pending=[2, 2])) == ["op2", "op1"], "downstream first"
