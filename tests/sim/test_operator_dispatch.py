"""The dispatch loop in virtual time: who runs, what deciding costs, what policies get to know."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from headgate.core.consumption import All, AtMost, TimeSlice
from headgate.core.dispatch import LOOP_FEATURES
from headgate.core.errors import MissingFeatureError, ScenarioError
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.placements import Anywhere, LeastLoaded
from headgate.core.policies import (
    EarliestDeadline,
    HighestRate,
    LongestQueue,
    MaxBenefit,
    MaxBenefitLookahead,
    QueueThrottle,
    ReleaseOrder,
)
from headgate.core.policy import Policy
from headgate.sim import (
    ConstantArrivals,
    DispatchModel,
    OperatorModel,
    OperatorResult,
    OperatorScenario,
    OperatorSimulation,
    PoissonArrivals,
    QueryModel,
    RecordedArrivals,
    RoundsModel,
    chain,
    simulate_operators,
)
from headgate.sim.operators.dispatch_run import DispatchRun
from tests.sim.oracles import check_network


@dataclass(frozen=True)
class EarliestOperator(Policy):
    """The wrong order for a small queue: whatever comes first in the pipeline."""

    name = "earliest-operator"
    summary = "the operator nearest to the source"
    paper = "the schedule on the left of EdgeWise's figure 4"

    def priorities(self, view: FeatureView) -> Floats:
        return -view.graph.depth.astype(float)


@dataclass(frozen=True)
class Mixture(Policy):
    """Reads all that a simulated operator tells about itself; which order that makes does not matter."""

    name = "mixture"
    summary = "a bit of everything"
    paper = "none"
    needs = (
        "pending",
        "head_time",
        "output_pending",
        "release_time",
        "freshness_delta",
        "execution_time",
        "selectivity",
    )

    def priorities(self, view: FeatureView) -> Floats:
        times = np.column_stack((view["head_time"], view["release_time"], view["freshness_delta"]))
        wave = np.sin(7.0 * np.nan_to_num(times, posinf=0.0)).sum(axis=1)
        backlog = 3.0 * view["pending"] + 5.0 * view["output_pending"] + 40.0 * view["execution_time"]
        mixed: Floats = np.cos(backlog) + wave * view["selectivity"]
        return mixed


@dataclass(frozen=True)
class LocalMixture(Mixture):
    """The same, ranked again only where something is said to have changed."""

    name = Mixture.name
    local = True


@dataclass(frozen=True)
class NeedsTheWeather(Policy):
    name = "weather"
    summary = "whatever suits the weather"
    paper = "none"
    needs = ("rainfall",)

    def priorities(self, view: FeatureView) -> Floats:
        return view["rainfall"]


def one(cost: float, times: tuple[float, ...], name: str = "q", **about: float) -> QueryModel:
    return QueryModel(name, (OperatorModel("o", cost, arrivals=RecordedArrivals(times)),), **about)  # type: ignore[arg-type]


def run(
    *queries: QueryModel, loop: DispatchModel | None = None, policy: Policy | None = None, **about: float
) -> OperatorResult:
    scenario = OperatorScenario(queries, loop=loop or DispatchModel(), **about)  # type: ignore[arg-type]
    return simulate_operators(scenario, policy or LongestQueue(), Anywhere())


def refusals(policy: Policy) -> int:
    """How often the operator that a policy ranks first, among those with input, has no room for its output."""
    operators = [OperatorModel("upstream", 1.0, capacity=2), OperatorModel("downstream", 1.0, capacity=2)]
    query = chain("q", operators, PoissonArrivals(0.45))
    scenario = OperatorScenario((query,), 1, DispatchModel(AtMost(1)), events=200)
    simulation = OperatorSimulation(scenario, policy, Anywhere())
    executor = simulation.executor
    assert isinstance(executor, DispatchRun)
    refused = 0
    while simulation.network.present or simulation.network.arrived < 200:
        simulation.events.run_moment()
        ranks = policy.priorities(executor.matrix.view()).tolist()
        with_input = [node for node in simulation.network.nodes.values() if node.length]
        if with_input and executor.dispatch.statistics().free_workers:
            best = max(with_input, key=lambda node: (ranks[node.index], node.name == "q/downstream"))
            refused += best.blocked > 0
        executor.settle(simulation.events.now)
    return refused


def test_longest_queue_first_avoids_the_backpressure_that_the_order_of_the_pipeline_causes() -> None:
    """EdgeWise, figure 4: two operators on one worker, queues of size two."""
    assert refusals(LongestQueue()) == 0
    assert refusals(EarliestOperator()) > 50


@pytest.mark.parametrize("max_workers", [1, 2, 3])
def test_a_node_runs_on_as_many_workers_as_it_may_and_no_more(max_workers: int) -> None:
    query = QueryModel("q", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((0.0,) * 12), max_workers=max_workers),))
    simulation = OperatorSimulation(OperatorScenario((query,), 4, DispatchModel(AtMost(1))), LongestQueue(), Anywhere())
    most = 0
    while simulation.advance():
        most = max(most, simulation.network.nodes["q/o"].running)
    assert most == max_workers
    assert simulation.result().seconds == 12 / max_workers


def test_workers_sent_to_a_node_that_has_no_tuple_left_for_them_go_elsewhere_at_once() -> None:
    wide = QueryModel("wide", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((0.0,)), max_workers=4),))
    result = run(wide, one(1.0, (0.0,), "other"), workers=2)
    assert result.seconds == 1.0


def test_upstream_nodes_that_share_the_last_room_downstream_do_not_both_take_it() -> None:
    operators = (
        OperatorModel("a", 1.0, arrivals=RecordedArrivals((0.0,) * 4)),
        OperatorModel("b", 1.0, arrivals=RecordedArrivals((0.0,) * 4)),
        OperatorModel("sink", 0.5, inputs=("a", "b"), capacity=1),
    )
    scenario = OperatorScenario((QueryModel("q", operators),), 2, DispatchModel(AtMost(4)))
    simulation = OperatorSimulation(scenario, LongestQueue(), Anywhere())
    while simulation.advance():
        check_network(simulation.network)
    assert simulation.result().overall.results == 8


@pytest.mark.parametrize(
    ("consumption", "runs"),
    [
        pytest.param(AtMost(5), 4, id="five at a time"),
        pytest.param(All(), 1, id="everything"),
        pytest.param(TimeSlice(0.4), 5, id="as many as fit into a slice"),
    ],
)
def test_a_turn_takes_what_the_consumption_rule_says(consumption: AtMost, runs: int) -> None:
    result = run(one(0.1, (0.0,) * 20), loop=DispatchModel(consumption), workers=1, known=True)
    assert result.runs == runs


def test_outputs_are_handed_on_while_the_turn_goes_on() -> None:
    query = chain("q", [OperatorModel("a", 1.0), OperatorModel("b", 1.0)], RecordedArrivals((0.0,) * 10))
    ends = {hand_over: run(query, workers=2, hand_over=hand_over).seconds for hand_over in (1, 5, 10)}
    assert ends == {1: 11.0, 5: 15.0, 10: 20.0}


def test_a_turn_ends_early_when_the_queue_downstream_is_full() -> None:
    query = chain("q", [OperatorModel("a", 1.0), OperatorModel("b", 1.0, capacity=4)], RecordedArrivals((0.0,) * 8))
    result = run(query, loop=DispatchModel(All()), workers=1, hand_over=2)
    assert {node.name: node.runs for node in result.nodes} == {"q/a": 2, "q/b": 2}


# --- what deciding costs ------------------------------------------------------------------------------------------


def test_one_lock_for_all_decisions_limits_the_rate_of_turns() -> None:
    queries = [one(0.0005, (0.0,) * 100, f"q{n}") for n in range(8)]
    result = run(*queries, loop=DispatchModel(AtMost(1), decision_cost=0.001), workers=4)
    assert result.seconds == pytest.approx(800 * 0.001 + 0.0005)
    assert result.scheduling.parts["decide"] == pytest.approx(800 * 0.001)
    assert result.scheduling.parts["lock"] > 0.0
    assert result.scheduling.share + sum(result.worker_utilisation) / 4 == pytest.approx(1.0, abs=0.01)


def test_going_to_another_node_costs_and_staying_does_not() -> None:
    stay = run(one(1.0, (0.0,) * 10), loop=DispatchModel(AtMost(1), switch_cost=0.5), workers=1)
    assert stay.seconds == 10.5
    go = run(
        one(1.0, (0.0,) * 5, "a"), one(1.0, (0.0,) * 5, "b"), loop=DispatchModel(AtMost(1), switch_cost=0.5), workers=1
    )
    assert go.seconds == 15.0
    assert go.scheduling.parts["switch"] == 5.0
    assert (go.scheduling.switch_share, go.scheduling.share) == (pytest.approx(1 / 3), 0.0)


# --- what policies get to know ------------------------------------------------------------------------------------


def columns_after(
    query: QueryModel, seconds: float, policy: Policy, *, known: bool = False
) -> dict[str, dict[str, float]]:
    scenario = OperatorScenario((query,), 1, DispatchModel(AtMost(2)), horizon=seconds, known=known, learning=0.5)
    simulation = OperatorSimulation(scenario, policy, LeastLoaded())
    while simulation.advance():
        pass
    executor = simulation.executor
    assert isinstance(executor, DispatchRun)
    names = executor.matrix.graph.names
    return {name: dict(zip(names, column.tolist(), strict=True)) for name, column in executor.matrix.columns.items()}


def test_costs_and_selectivities_are_learned_by_running_unless_they_are_known() -> None:
    query = chain("q", [OperatorModel("a", 0.5, 0.5), OperatorModel("b", 8.0)], RecordedArrivals((0.0,) * 4))
    before = columns_after(query, 0.9, HighestRate())
    assert (before["cost"]["q/a"], before["selectivity"]["q/a"]) == (0.0, 1.0)
    after = columns_after(query, 1.1, HighestRate())
    assert (after["cost"]["q/a"], after["selectivity"]["q/a"]) == (0.5, 0.5)
    assert after["cost"]["q/b"] == 0.0
    known = columns_after(query, 0.9, HighestRate(), known=True)
    assert (known["cost"]["q/b"], known["selectivity"]["q/a"]) == (8.0, 0.5)


def test_features_of_tables_have_a_meaning_for_operators() -> None:
    query = one(1.0, (0.0, 0.0, 0.0, 0.25, 0.75))
    at = columns_after(query, 0.8, MaxBenefit(), known=True)
    assert at["freshness_delta"] == {"q/o": 0.75}
    assert at["execution_time"] == {"q/o": 3.0}
    assert columns_after(query, 0.8, ReleaseOrder())["release_time"] == {"q/o": 0.0}
    assert columns_after(query, 6.0, ReleaseOrder())["release_time"] == {"q/o": math.inf}
    lookahead = columns_after(query, 0.3, MaxBenefitLookahead())
    assert lookahead["next_release"] == {"q/o": 0.25 + 0.75 / 4}
    paced = chain("q", [OperatorModel("a", 0.001), OperatorModel("b", 0.001)], ConstantArrivals(4.0))
    assert columns_after(paced, 0.8, EarliestDeadline())["period"] == {"q/a": 0.25, "q/b": 0.25}


def test_what_waits_downstream_is_told_to_the_operator_upstream() -> None:
    query = chain("q", [OperatorModel("a", 0.1), OperatorModel("b", 10.0)], RecordedArrivals((0.0,) * 6))
    assert columns_after(query, 5.0, QueueThrottle())["output_pending"] == {"q/a": 4.0, "q/b": 0.0}


@pytest.mark.parametrize("seed", range(3))
def test_the_loop_is_told_of_every_change_that_a_policy_may_go_by(seed: int) -> None:
    """A policy that is asked about changed nodes only decides like one that is asked about all of them every time."""
    operators = (
        OperatorModel("source", 0.01, 1.5, arrivals=PoissonArrivals(40.0), capacity=30),
        OperatorModel("left", 0.004, 0.5, inputs=("source",), spread=0.5, capacity=5),
        OperatorModel("right", 0.006, inputs=("source",), spread=0.5, capacity=9, max_workers=2),
        OperatorModel("sink", 0.003, inputs=("left", "right"), capacity=4),
    )
    queries = (QueryModel("a", operators), QueryModel("b", operators, patience=0.5))
    scenario = OperatorScenario(queries, 2, DispatchModel(AtMost(4)), horizon=3.0, hand_over=2, sample_every=0.1)
    all_nodes, changed_nodes = (simulate_operators(scenario, p, Anywhere(), seed) for p in (Mixture(), LocalMixture()))
    assert repr(all_nodes) == repr(changed_nodes)
    assert all_nodes.runs > 200


def test_only_features_that_somebody_reads_are_kept() -> None:
    scenario = OperatorScenario((one(1.0, (0.0,)),))
    executor = OperatorSimulation(scenario, LongestQueue(), Anywhere()).executor
    assert isinstance(executor, DispatchRun)
    assert set(executor.matrix.columns) - set(LOOP_FEATURES) == {"pending"}


def test_a_policy_that_reads_what_operators_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(MissingFeatureError, match="policy 'weather' needs the feature 'rainfall'"):
        run(one(1.0, (0.0,)), policy=NeedsTheWeather())


@pytest.mark.parametrize("loop", [DispatchModel(), RoundsModel()], ids=["dispatch", "rounds"])
def test_loops_that_rank_need_a_policy(loop: DispatchModel | RoundsModel) -> None:
    with pytest.raises(ScenarioError, match="needs a policy and a placement; got policy=None"):
        simulate_operators(OperatorScenario((one(1.0, (0.0,)),), loop=loop))


# --- the guard ------------------------------------------------------------------------------------------------------


def test_the_guard_serves_a_query_that_the_policy_would_let_wait_for_ever() -> None:
    favoured = chain("favoured", [OperatorModel("o", 0.01)], ConstantArrivals(150.0))
    neglected = {
        patience: chain("neglected", [OperatorModel("o", 0.02)], ConstantArrivals(10.0), patience=patience)
        for patience in (math.inf, 0.5)
    }
    results = {
        patience: run(
            favoured, query, policy=HighestRate(), loop=DispatchModel(AtMost(5)), workers=1, horizon=20.0, known=True
        )
        for patience, query in neglected.items()
    }
    assert results[math.inf].queries["neglected"].results == 0
    assert results[math.inf].scheduling.guard_strikes == 0
    assert results[0.5].queries["neglected"].results >= 100
    assert results[0.5].scheduling.guard_strikes >= 20
