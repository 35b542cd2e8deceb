"""fcfs, fifo, round-robin and random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from headgate.core.graph import Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import FirstCome, RandomChoice, ReleaseOrder, RoundRobin
from headgate.core.policy import Policy
from headgate.testing import ranking

NODES = Graph("abc")
NOTHING_WAITS = float("inf")


def view_of(graph: Graph, **features: Sequence[float]) -> FeatureView:
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, graph)


@pytest.mark.parametrize(
    ("policy", "feature", "values", "order"),
    [
        pytest.param(FirstCome(), "head_time", [5, 3, 9], "bac", id="fcfs: the oldest tuple"),
        pytest.param(FirstCome(), "head_time", [5, NOTHING_WAITS, 9], "acb", id="fcfs: an empty queue comes last"),
        pytest.param(FirstCome(), "head_time", [5, 5, 3], "cab", id="fcfs: equal times by name"),
        pytest.param(ReleaseOrder(), "release_time", [7, 8, 6], "cab", id="fifo: the first released"),
        pytest.param(RoundRobin(), "last_turn", [4, 2, 3], "bca", id="round-robin: longest without a turn"),
        pytest.param(RoundRobin(), "last_turn", [0, -1, -1], "bca", id="round-robin: who never had one goes first"),
    ],
)
def test_order(policy: Policy, feature: str, values: list[float], order: str) -> None:
    assert ranking(policy, view_of(NODES, **{feature: values})) == list(order)


def chances(turn: int, seed: int = 0, names: str = "abc") -> dict[str, float]:
    graph = Graph(names)
    return dict(zip(names, RandomChoice().priorities(FeatureView({}, graph, turn=turn, seed=seed)), strict=True))


def test_chance_depends_on_seed_turn_and_name_only() -> None:
    assert chances(turn=7, seed=1) == chances(turn=7, seed=1)
    assert chances(turn=7, seed=1) != chances(turn=8, seed=1)
    assert chances(turn=7, seed=1) != chances(turn=7, seed=2)
    assert chances(turn=7, names="abc")["c"] == chances(turn=7, names="cx")["c"]


def test_everybody_is_equally_likely() -> None:
    turns = 600
    first = Counter(max(drawn, key=drawn.__getitem__) for drawn in map(chances, range(turns)))
    # 200 expected each, standard deviation sqrt(600 * 1/3 * 2/3) = 11.5; the turns are fixed, so this cannot flicker
    assert all(abs(first[name] - 200) < 4 * 11.5 for name in "abc")
