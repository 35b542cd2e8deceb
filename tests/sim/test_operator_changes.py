"""Queries, policies and placements change while the simulated machine runs."""

from __future__ import annotations

import pytest

from headgate.core.consumption import AtMost
from headgate.core.placements import Anywhere, LeastLoaded, RoundRobinQueries
from headgate.core.policies import FirstCome, HighestRate, LongestQueue
from headgate.sim import (
    AddQuery,
    ConstantArrivals,
    DispatchModel,
    LoopModel,
    OperatorModel,
    OperatorResult,
    OperatorScenario,
    OperatorSimulation,
    QueryModel,
    RecordedArrivals,
    RemoveQuery,
    ReplacePlacement,
    ReplacePolicy,
    RoundsModel,
    ThreadsModel,
    chain,
    simulate_operators,
)
from headgate.sim.operators.scenario import ScenarioChange
from tests.sim.oracles import check_network

LOOPS: dict[str, LoopModel] = {
    "dispatch": DispatchModel(AtMost(5)),
    "rounds": RoundsModel(period=0.05, batch=2),
    "threads": ThreadsModel(),
}
ALL_LOOPS = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


def steady(name: str, rate: float = 50.0, cost: float = 0.001, **about: float) -> QueryModel:
    return chain(
        name, [OperatorModel("a", cost), OperatorModel("b", cost)], ConstantArrivals(rate, offset=0.0), **about
    )  # type: ignore[arg-type]


def run(
    loop: LoopModel, *changes: ScenarioChange, queries: tuple[QueryModel, ...] = (steady("old"),), workers: int = 2
) -> OperatorResult:
    scenario = OperatorScenario(queries, workers, loop, horizon=4.0, changes=changes)
    simulation = OperatorSimulation(scenario, LongestQueue(), Anywhere())
    while simulation.advance():
        check_network(simulation.network)
    return simulation.result()


@ALL_LOOPS
def test_a_query_that_comes_is_served_from_then_on(loop: LoopModel) -> None:
    result = run(loop, AddQuery(2.0, steady("new", patience=3.0)))
    assert result.queries["old"].results == pytest.approx(200, abs=5)
    assert result.queries["new"].results == pytest.approx(100, abs=5)
    assert [node.query for node in result.nodes] == ["old", "old", "new", "new"]


@ALL_LOOPS
def test_a_query_that_goes_takes_what_waits_with_it_and_the_others_go_on(loop: LoopModel) -> None:
    backlog = QueryModel("gone", (OperatorModel("o", 0.02, arrivals=RecordedArrivals((0.0,) * 500)),))
    result = run(loop, RemoveQuery(2.0, "gone"), queries=(backlog, steady("stays")))
    assert result.queries["stays"].results == pytest.approx(200, abs=5)
    assert [node.query for node in result.nodes] == ["stays", "stays"]
    assert result.discarded == 500 - result.queries["gone"].ingested
    assert 390 < result.discarded < 450


@ALL_LOOPS
def test_a_query_may_go_and_come_back(loop: LoopModel) -> None:
    result = run(loop, RemoveQuery(1.0, "old"), AddQuery(3.0, steady("old")), queries=(steady("old"), steady("x")))
    assert result.queries["old"].results == pytest.approx(100, abs=6)
    assert result.queries["x"].results == pytest.approx(200, abs=5)


def test_a_query_may_go_and_come_back_between_two_meetings() -> None:
    result = run(RoundsModel(period=1.0), RemoveQuery(1.9, "old"), AddQuery(1.95, steady("old")))
    assert result.queries["old"].results > 100
    assert len(result.nodes) == 2


@pytest.mark.parametrize("loop", [LOOPS["dispatch"], LOOPS["rounds"]], ids=["dispatch", "rounds"])
def test_another_policy_ranks_from_then_on(loop: LoopModel) -> None:
    dear = QueryModel("dear", (OperatorModel("o", 0.01, arrivals=RecordedArrivals((0.0,) * 1000)),))
    cheap = QueryModel("cheap", (OperatorModel("o", 0.001, arrivals=RecordedArrivals((0.5,) * 1000)),))
    scenario = OperatorScenario(
        (dear, cheap), 1, loop, horizon=2.0, known=True, changes=(ReplacePolicy(1.0, HighestRate()),), sample_every=1.0
    )
    result = simulate_operators(scenario, FirstCome(), Anywhere())
    before, after = (sample.classes[0].throughput_in for sample in result.samples)
    assert before == pytest.approx(100, rel=0.1)
    assert after > 800


def test_another_placement_places_from_then_on() -> None:
    queries = tuple(
        QueryModel(name, (OperatorModel("o", 0.1, arrivals=RecordedArrivals((0.0,) * 100)),)) for name in ("a", "b")
    )
    change = ReplacePlacement(0.0, RoundRobinQueries())
    scenario = OperatorScenario(queries, 3, DispatchModel(AtMost(1)), horizon=5.0, changes=(change,))
    result = simulate_operators(scenario, LongestQueue(), Anywhere())
    assert result.worker_utilisation == pytest.approx((1.0, 1.0, 0.0))


def test_nodes_are_placed_again_when_asked_for() -> None:
    """Least-loaded goes by what waits, and at the start nothing does."""
    heavy = [QueryModel(f"a{n}", (OperatorModel("o", 0.1, arrivals=RecordedArrivals((0.1,) * 99)),)) for n in range(2)]
    light = [QueryModel(f"b{n}", (OperatorModel("o", 0.1, arrivals=RecordedArrivals((60.0,))),)) for n in range(2)]
    queries = (heavy[0], light[0], heavy[1], light[1])
    spread = {}
    for every in (None, 1.0):
        scenario = OperatorScenario(queries, 2, DispatchModel(AtMost(1), place_every=every), horizon=8.0, known=True)
        spread[every] = simulate_operators(scenario, LongestQueue(), LeastLoaded()).worker_utilisation
    assert max(spread[1.0]) - min(spread[1.0]) < 0.3
    assert sum(spread[1.0]) >= sum(spread[None])
