"""No tuple is lost, made up, or put where there is no room: on any graph, under any loop, at every moment."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.consumption import All, AtMost, Half
from headgate.core.placements import Anywhere, RandomWorker
from headgate.core.policies import FirstCome, LongestQueue
from headgate.core.policy import Policy
from headgate.sim import (
    DispatchModel,
    LoopModel,
    OperatorModel,
    OperatorResult,
    OperatorScenario,
    OperatorSimulation,
    QueryModel,
    RecordedArrivals,
    RoundsModel,
    ThreadsModel,
    simulate_operators,
)
from headgate.sim.operators.results import NodeResult
from tests.sim.oracles import check_network

LOOPS: dict[str, LoopModel] = {
    "dispatch": DispatchModel(AtMost(3)),
    "dispatch, all, with costs": DispatchModel(All(), decision_cost=0.001, switch_cost=0.002),
    "dispatch, half": DispatchModel(Half()),
    "rounds": RoundsModel(period=0.1, batch=3),
    "rounds, with costs": RoundsModel(0.1, 4, feature_cost=1e-4, place_cost=1e-4, rank_cost=1e-4, switch_cost=1e-3),
    "threads": ThreadsModel(),
    "threads, impatient": ThreadsModel(quantum=0.003, switch_cost=0.0, wakeup_granularity=0.0),
}
POLICIES: list[Policy] = [FirstCome(), LongestQueue()]


@st.composite
def queries(draw: st.DrawFn) -> QueryModel:
    """A graph of up to five operators, joined in any way, each with its own cost, selectivity, queue and workers."""
    operators: list[OperatorModel] = []
    for number in range(draw(st.integers(1, 5))):
        inputs = draw(st.sets(st.sampled_from([o.name for o in operators]))) if operators else set()
        times = draw(st.lists(st.integers(0, 20), min_size=1, max_size=12))
        operators.append(
            OperatorModel(
                name=f"o{number}",
                cost=draw(st.sampled_from([0.001, 0.01, 0.05])),
                selectivity=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.7])),
                inputs=tuple(sorted(inputs)),
                arrivals=None if inputs else RecordedArrivals(tuple(time / 10 for time in sorted(times))),
                spread=draw(st.sampled_from([0.0, 0.5])),
                capacity=draw(st.integers(2, 8)),
                max_workers=draw(st.integers(1, 3)),
            )
        )
    return QueryModel("q", tuple(operators))


scenarios = st.builds(
    OperatorScenario,
    st.tuples(queries()),
    workers=st.integers(1, 3),
    loop=st.sampled_from(list(LOOPS.values())),
    horizon=st.sampled_from([0.75, math.inf]),
    hand_over=st.integers(1, 4),
)


def inflow(node: NodeResult, operators: dict[str, OperatorModel], result: OperatorResult) -> int:
    """What must have come to a node: its arrivals, or all that its inputs have put out."""
    operator = operators[node.name]
    if isinstance(operator.arrivals, RecordedArrivals):
        return sum(time <= result.seconds for time in operator.arrivals.times)
    return sum(other.produced for other in result.nodes if other.name.removeprefix("q/") in operator.inputs)


@given(scenarios, st.sampled_from(POLICIES))
@settings(max_examples=40)
def test_tuples_are_conserved_and_queues_stay_within_bounds_at_every_moment(
    scenario: OperatorScenario, policy: Policy
) -> None:
    simulation = OperatorSimulation(scenario, policy, Anywhere(), seed=1)
    while simulation.advance():
        check_network(simulation.network)
    result = simulation.result()
    operators = {f"q/{operator.name}": operator for operator in scenario.queries[0].operators}
    for node in result.nodes:
        assert node.consumed + node.in_progress + node.queued + node.outside == inflow(node, operators, result)
        assert node.queued_max <= operators[node.name].capacity
        if not node.in_progress:
            assert node.produced == math.floor(node.consumed * operators[node.name].selectivity + 1e-9)


@given(queries(), st.integers(1, 3))
@settings(max_examples=12)
def test_all_loops_agree_on_totals_once_everything_is_worked_off(query: QueryModel, workers: int) -> None:
    totals = []
    for loop in LOOPS.values():
        result = simulate_operators(OperatorScenario((query,), workers, loop), FirstCome(), RandomWorker())
        assert result.overall.queued_mean >= 0
        totals.append({node.name: (node.consumed, node.produced) for node in result.nodes})
    assert all(total == totals[0] for total in totals)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_full_queue_keeps_tuples_outside_and_loses_none(loop: LoopModel) -> None:
    source = OperatorModel("o", 0.01, capacity=3, arrivals=RecordedArrivals((0.0,) * 50))
    simulation = OperatorSimulation(OperatorScenario((QueryModel("q", (source,)),), 1, loop), FirstCome(), Anywhere())
    simulation.advance()
    node = simulation.network.nodes["q/o"]
    assert (node.length, node.room) == (3, 0)
    assert node.outside_length + node.consumed == 47
    while simulation.advance():
        pass
    assert simulation.result().overall.results == 50


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("selectivity", [0.1, 0.29, 1 / 3, 0.7, 1.0, 1.1, 2.5])
def test_the_number_of_outputs_is_exact_whatever_the_batches(loop: LoopModel, selectivity: float) -> None:
    source = OperatorModel("o", 0.001, selectivity, arrivals=RecordedArrivals((0.0,) * 100))
    result = simulate_operators(OperatorScenario((QueryModel("q", (source,)),), 2, loop), LongestQueue(), Anywhere())
    assert result.overall.results == math.floor(100 * selectivity + 1e-9)


def test_a_tuple_carries_the_time_it_came_into_the_system_through_the_whole_graph() -> None:
    operators = (
        OperatorModel("a", 1.0, arrivals=RecordedArrivals((0.0, 10.0))),
        OperatorModel("b", 2.0, inputs=("a",)),
        OperatorModel("c", 3.0, inputs=("b",)),
    )
    result = simulate_operators(OperatorScenario((QueryModel("q", operators),), 1), FirstCome(), Anywhere())
    assert (result.overall.latency.mean, result.overall.latency.max) == (6.0, 6.0)


def test_every_output_goes_to_all_operators_downstream() -> None:
    operators = (
        OperatorModel("source", 1.0, 3.0, arrivals=RecordedArrivals((0.0,))),
        OperatorModel("left", 1.0, 2.0, inputs=("source",)),
        OperatorModel("right", 1.0, inputs=("source",)),
        OperatorModel("meet", 1.0, inputs=("left", "right")),
    )
    result = simulate_operators(OperatorScenario((QueryModel("q", operators),), 2), FirstCome(), Anywhere())
    assert {node.name: node.consumed for node in result.nodes} == {
        "q/source": 1,
        "q/left": 3,
        "q/right": 3,
        "q/meet": 9,
    }
