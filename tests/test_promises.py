"""What holds under every shipped policy, whatever the nodes look like."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.dispatch import Dispatch
from headgate.core.features import FEATURES, features_named
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureMatrix
from headgate.core.placement import Placement, Workers
from headgate.core.registry import PLACEMENTS, POLICIES, placement_from, policy_from
from headgate.sim import (
    ConstantArrivals,
    DispatchModel,
    OperatorModel,
    OperatorScenario,
    RoundsModel,
    Slowdown,
    Table,
    TableScenario,
    chain,
    simulate_operators,
    simulate_tables,
)

RUN = 1.0
PATIENCE = 20.0
#: turns after which a node that never came is called starved, in rounds of all nodes
MANY_ROUNDS = 60


@dataclass
class Outcome:
    turns: dict[int, int]
    longest_wait: float


class Overload:
    """More nodes than workers, each with work again as soon as it has run: the machine is never enough.

    The features are drawn at random once and then move as they would: what waits gets older and more.
    """

    def __init__(self, policy: str, placement: Placement, nodes: int, workers: int, seed: int, patience: float) -> None:
        rng = np.random.default_rng(seed)
        names = [f"n{i}" for i in range(nodes)]
        edges = [(names[i], names[i + 1]) for i in range(nodes - 1) if rng.random() < 0.5]
        self.matrix = FeatureMatrix(Graph(names, edges), features_named(FEATURES))
        for name in ("priority", "cost", "setup_time", "time_per_unit", "output_pending", "period"):
            self.matrix.fill(name, rng.uniform(0.5, 5.0, nodes))
        self.matrix.fill("selectivity", rng.uniform(0.2, 1.5, nodes))
        self.matrix.fill("class", rng.integers(0, 3, nodes).astype(float))
        self.matrix.fill("patience", [patience] * nodes)
        self.loop = Dispatch(self.matrix, policy_from(policy), placement, Workers.of(workers), seed=seed)
        self.running: dict[int, int] = {}
        self.since = [0.0] * nodes
        self.outcome = Outcome(dict.fromkeys(range(nodes), 0), 0.0)

    def run(self, turns: int) -> Outcome:
        for node in range(len(self.matrix.graph)):
            self._release(node, 0.0)
        ends: list[tuple[float, int]] = []
        now = 0.0
        for _ in range(turns):
            for start in self.loop.decide(now):
                assert start.node not in self.running.values(), "a node on two workers at once"
                assert start.worker not in self.running, "a worker with two nodes"
                self.running[start.worker] = start.node
                self.outcome.turns[start.node] += 1
                self._note_wait(start.node, now)
                self.loop.set_ready(start.node, False, now)
                heapq.heappush(ends, (now + RUN, start.worker))
            self.loop.validate()
            now, worker = heapq.heappop(ends)
            node = self.running.pop(worker)
            self.loop.finished(worker, now)
            self._release(node, now)
        for node in set(range(len(self.matrix.graph))) - set(self.running.values()):
            self._note_wait(node, now)
        return self.outcome

    def _note_wait(self, node: int, now: float) -> None:
        self.outcome.longest_wait = max(self.outcome.longest_wait, now - self.since[node])

    def _release(self, node: int, now: float) -> None:
        self.since[node] = now
        columns = self.matrix.columns
        columns["head_time"][node] = columns["release_time"][node] = now
        columns["next_release"][node] = now + columns["period"][node]
        columns["pending"][node] = columns["freshness_delta"][node] = columns["period"][node]
        columns["execution_time"][node] = RUN
        self.loop.set_ready(node, True, now)


@pytest.mark.parametrize("policy", [name for name, kind in POLICIES.items() if not kind.starves])
@pytest.mark.parametrize("seed", range(3))
def test_a_policy_that_says_it_starves_nobody_starves_nobody_even_without_the_guard(policy: str, seed: int) -> None:
    nodes = 7
    outcome = Overload(policy, placement_from("anywhere"), nodes, 2, seed, math.inf).run(nodes * MANY_ROUNDS)
    assert min(outcome.turns.values()) > 0
    assert outcome.longest_wait < nodes * MANY_ROUNDS / 4


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=8)
@given(nodes=st.integers(2, 9), workers=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_nobody_waits_longer_than_the_guard_allows_under_any_policy(
    policy: str, nodes: int, workers: int, seed: int
) -> None:
    outcome = Overload(policy, placement_from("anywhere"), nodes, workers, seed, PATIENCE).run(300)
    # Guard.__doc__: the patience, then one run for the node itself and for every other node that may be overdue before.
    assert outcome.longest_wait <= PATIENCE + (nodes + 1) * RUN


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("policy", ["max-benefit", "random", "chain"])
def test_placement_never_puts_a_node_on_two_workers_nor_leaves_one_out(policy: str, placement: str) -> None:
    for seed in range(4):
        outcome = Overload(policy, placement_from(placement), 9, 3, seed, PATIENCE).run(300)
        assert min(outcome.turns.values()) > 0


def some_tables() -> TableScenario:
    """A bit of everything, on a machine that is too small."""
    return TableScenario(
        (
            Table("a", period=5.0, priority=3.0),
            Table("b", period=7.0, setup_time=2.0, importance_class=2),
            Table("c", sources=("a",), priority=10.0),
            Table("d", sources=("a", "b"), importance_class=1),
        ),
        tracks=1,
        chop=3.0,
        slowdown=Slowdown(2.0, 50.0, 25.0),
        events=400,
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run_of_tables_byte_for_byte(policy: str) -> None:
    runs = [
        repr(simulate_tables(some_tables(), policy_from(policy), placement_from("proportional"), seed))
        for seed in (5, 5, 6)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("loop", [DispatchModel(), RoundsModel(period=0.02)], ids=["dispatch", "rounds"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run_of_operators_byte_for_byte(
    policy: str, loop: DispatchModel | RoundsModel
) -> None:
    queries = tuple(
        chain(
            f"q{number}",
            (OperatorModel("in", 0.001), OperatorModel("filter", 0.002, 0.5, spread=0.3), OperatorModel("out", 0.001)),
            ConstantArrivals(300.0),
            importance_class=number,
        )
        for number in range(2)
    )
    scenario = OperatorScenario(queries, workers=2, loop=loop, horizon=0.5)
    runs = [
        repr(simulate_operators(scenario, policy_from(policy), placement_from("random"), seed)) for seed in (5, 5, 6)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
