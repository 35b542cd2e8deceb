"""The rounds loop in virtual time: periods, batches, meetings and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.placements import Anywhere, RandomWorker, RoundRobinQueries
from headgate.core.policies import FirstCome, HighestRate, LongestQueue
from headgate.core.policy import Policy
from headgate.sim import (
    ConstantArrivals,
    OperatorModel,
    OperatorResult,
    OperatorScenario,
    OperatorSimulation,
    QueryModel,
    RecordedArrivals,
    RoundsModel,
    chain,
    simulate_operators,
)
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.rounds_run import RoundsRun


def chains(count: int, cost: float = 0.001, rate: float = 20.0) -> tuple[QueryModel, ...]:
    return tuple(
        chain(f"q{n}", [OperatorModel(f"o{k}", cost, 0.9) for k in range(4)], ConstantArrivals(rate))
        for n in range(count)
    )


def run(loop: RoundsModel, queries: tuple[QueryModel, ...], workers: int = 2, seconds: float = 5.0) -> OperatorResult:
    return simulate_operators(OperatorScenario(queries, workers, loop, horizon=seconds), FirstCome(), RandomWorker())


def test_workers_meet_once_a_period() -> None:
    result = run(RoundsModel(period=0.1), chains(3))
    assert 45 <= result.scheduling.decisions <= 50


def test_a_meeting_that_costs_nothing_takes_no_time_but_that_of_waiting_for_each_other() -> None:
    result = run(RoundsModel(period=0.1), chains(3, cost=0.007))
    assert {part: seconds > 0 for part, seconds in result.scheduling.parts.items()} == {
        "update": False,
        "wait": True,
        "read": False,
        "place": False,
        "rank": False,
    }


def test_workers_wait_at_the_meeting_for_the_one_with_the_longest_tuple() -> None:
    slow = QueryModel("slow", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((0.0,) * 5)),))
    fast = QueryModel("fast", (OperatorModel("o", 0.001, arrivals=RecordedArrivals((0.0,) * 5)),))
    scenario = OperatorScenario((slow, fast), 2, RoundsModel(period=0.1, batch=1))
    result = simulate_operators(scenario, FirstCome(), RoundRobinQueries())
    assert result.seconds == pytest.approx(5.0, abs=0.3)
    assert result.scheduling.parts["wait"] > 3.5


def test_the_share_of_scheduling_is_what_the_modelled_costs_add_up_to() -> None:
    loop = RoundsModel(period=0.1, place_cost=0.001, rank_cost=0.002)
    result = run(loop, chains(3), workers=1)
    meetings, nodes = result.scheduling.decisions, 12
    assert result.scheduling.parts["place"] == pytest.approx(meetings * nodes * 0.001, rel=0.05)
    assert result.scheduling.parts["rank"] == pytest.approx(meetings * nodes * 0.002, rel=0.05)
    assert result.scheduling.share == pytest.approx(sum(result.scheduling.parts.values()) / 5.0)


def test_shorter_periods_and_more_queries_cost_more_scheduling() -> None:
    """Haren, figures 5 and 7."""
    costs = {"feature_cost": 2e-5, "place_cost": 1e-5, "rank_cost": 1e-5}
    share = {
        (period, count): run(RoundsModel(period=period, **costs), chains(count), seconds=3.0).scheduling.share
        for period in (0.05, 0.2)
        for count in (2, 8)
    }
    assert share[0.05, 2] > share[0.2, 2]
    assert share[0.05, 8] > share[0.2, 8]
    assert share[0.05, 8] > share[0.05, 2]
    assert share[0.2, 8] > share[0.2, 2]


def test_selective_update_reads_less_than_everything() -> None:
    scenario = OperatorScenario(chains(6, rate=5.0), 2, RoundsModel(period=0.05), horizon=3.0)
    simulation = OperatorSimulation(scenario, LongestQueue(), RandomWorker())
    simulation.run()
    executor = simulation.executor
    assert isinstance(executor, RoundsRun)
    statistics = executor.rounds.statistics()
    assert 0 < statistics.values_read < statistics.values_full / 4


@dataclass(frozen=True)
class Witness(Policy):
    """Ranks by what waits, and writes down what it was shown beside what is really there."""

    nodes: dict[str, SimulatedNode] = field(default_factory=dict)
    seen: list[tuple[list[float], list[float]]] = field(default_factory=list)

    name = "witness"
    summary = "most waiting tuples"
    paper = "none"
    needs = ("pending", "output_pending")

    def priorities(self, view: FeatureView) -> Floats:
        there = [self.nodes[name] for name in view.graph.names]
        self.seen.append((view["pending"].tolist(), [node.length for node in there]))
        waiting = [sum(reader.length for reader in node.downstream) for node in there]
        self.seen.append((view["output_pending"].tolist(), waiting))
        return view["pending"]


def test_selective_update_misses_nothing() -> None:
    policy = Witness()
    scenario = OperatorScenario(chains(4, cost=0.007, rate=30.0), 2, RoundsModel(period=0.03, batch=2), horizon=3.0)
    simulation = OperatorSimulation(scenario, policy, RandomWorker())
    policy.nodes.update(simulation.network.nodes)
    simulation.run()
    assert len(policy.seen) > 100
    assert all(shown == there for shown, there in policy.seen)
    assert any(max(shown) > 3 for shown, _ in policy.seen)


def test_a_run_takes_at_most_a_batch() -> None:
    query = QueryModel("q", (OperatorModel("o", 0.001, arrivals=RecordedArrivals((0.0,) * 100)),))
    result = run(RoundsModel(batch=10), (query,), workers=1)
    assert result.runs == 10


def test_each_node_runs_on_one_worker_even_if_it_may_have_more() -> None:
    query = QueryModel("q", (OperatorModel("o", 0.05, arrivals=RecordedArrivals((0.0,) * 20), max_workers=3),))
    simulation = OperatorSimulation(OperatorScenario((query,), 3, RoundsModel(batch=1)), FirstCome(), Anywhere())
    while simulation.advance():
        assert simulation.network.nodes["q/o"].running <= 1


def test_an_idle_worker_sleeps_longer_and_longer_and_finds_work_only_when_it_wakes() -> None:
    """Haren, section 7.3: at low load the operating system reacts faster than threads that back off."""
    query = chain("q", [OperatorModel("o", 0.0001)], ConstantArrivals(3.0, offset=0.5))
    result = run(RoundsModel(period=0.1, backoff_min=0.001), (query,), workers=1)
    assert result.overall.latency.mean > 0.0001
    assert result.overall.latency.max < 0.1


def test_costs_that_policies_go_by_are_those_measured() -> None:
    scenario = OperatorScenario(chains(2), 2, RoundsModel(period=0.05), horizon=2.0)
    simulation = OperatorSimulation(scenario, HighestRate(), RandomWorker())
    simulation.run()
    executor = simulation.executor
    assert isinstance(executor, RoundsRun)
    assert executor.rounds.matrix.columns["cost"].tolist() == pytest.approx([0.001] * 8)
