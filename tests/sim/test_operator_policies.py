"""Every policy and every placement runs at the operator grain, under both loops that rank."""

from __future__ import annotations

import pytest

from headgate.core.consumption import AtMost
from headgate.core.dispatch import LOOP_FEATURES
from headgate.core.placements import Anywhere
from headgate.core.policies import FirstCome
from headgate.core.registry import PLACEMENTS, POLICIES, placement_from, policy_from
from headgate.sim import (
    ConstantArrivals,
    DispatchModel,
    LoopModel,
    OperatorModel,
    OperatorScenario,
    QueryModel,
    RecordedArrivals,
    RoundsModel,
    simulate_operators,
)
from headgate.sim.operators.executor import READINGS

LOOPS: dict[str, LoopModel] = {
    "dispatch": DispatchModel(AtMost(3), place_every=0.1),
    "rounds": RoundsModel(period=0.05, batch=3),
}
ALL_LOOPS = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


def diamond(name: str, importance_class: int) -> QueryModel:
    operators = (
        OperatorModel("source", 0.002, 2.0, arrivals=ConstantArrivals(40.0)),
        OperatorModel("left", 0.001, 0.5, inputs=("source",), priority=5.0),
        OperatorModel("right", 0.003, inputs=("source",), max_workers=2),
        OperatorModel("sink", 0.001, inputs=("left", "right")),
    )
    return QueryModel(name, operators, importance_class, patience=2.0)


def scenario(loop: LoopModel) -> OperatorScenario:
    return OperatorScenario((diamond("a", 1), diamond("b", 3)), 2, loop, groups=2, events=40)


@ALL_LOOPS
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_works_off_a_diamond(name: str, loop: LoopModel) -> None:
    result = simulate_operators(scenario(loop), policy_from(name), Anywhere(), seed=3)
    assert result.overall.ingested == 40
    assert result.overall.results == 40 * (2 * 0.5 + 2)
    assert result.policy == name


@ALL_LOOPS
@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_placement_works_off_a_diamond(name: str, loop: LoopModel) -> None:
    result = simulate_operators(scenario(loop), FirstCome(), placement_from(name), seed=3)
    assert (result.overall.ingested, result.placement) == (40, name)
    assert min(result.worker_utilisation) >= 0.0


def test_every_feature_that_a_shipped_policy_or_placement_reads_is_provided() -> None:
    needed = {feature for policy in POLICIES.values() for feature in policy.needs}
    needed |= {feature for placement in PLACEMENTS.values() for feature in placement.needs}
    assert needed <= {*READINGS, *LOOP_FEATURES}


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        pytest.param("fcfs", ["b", "a"], id="first come: the older tuple"),
        pytest.param("longest-queue", ["a", "b"], id="longest queue: the one with more tuples"),
        pytest.param("min-cost", ["a", "b"], id="cheapest way out"),
        pytest.param("edf-p", ["b", "a"], id="the higher priority"),
        pytest.param("multi-class", ["b", "a"], id="the higher class"),
    ],
)
def test_policies_see_the_state_of_the_simulated_queues(policy: str, order: list[str]) -> None:
    blocker = QueryModel(
        "blocker", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((0.0,))),), importance_class=9, priority=99.0
    )
    many = QueryModel(
        "a", (OperatorModel("o", 0.1, arrivals=RecordedArrivals((0.2,) * 3)),), importance_class=1, priority=1.0
    )
    dear = QueryModel(
        "b", (OperatorModel("o", 0.5, arrivals=RecordedArrivals((0.1,) * 2)),), importance_class=2, priority=2.0
    )
    run = OperatorScenario((blocker, many, dear), 1, DispatchModel(AtMost(9)), known=True)
    result = simulate_operators(run, policy_from(policy), Anywhere())
    finished = sorted(("a", "b"), key=lambda name: result.queries[name].latency.max + (0.2 if name == "a" else 0.1))
    assert finished == order
