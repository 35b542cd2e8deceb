"""The operating system as a scheduler: fair shares, quanta, sleeping, waking, blocking."""

from __future__ import annotations

import math

import pytest

from headgate.sim import (
    ConstantArrivals,
    OperatorModel,
    OperatorResult,
    OperatorScenario,
    OperatorSimulation,
    QueryModel,
    RecordedArrivals,
    ThreadsModel,
    chain,
    simulate_operators,
)
from tests.sim.oracles import check_network


def busy(name: str, cost: float, start: float = 0.0, max_workers: int = 1, tuples: int = 5000) -> QueryModel:
    return QueryModel(
        name, (OperatorModel("o", cost, arrivals=RecordedArrivals((start,) * tuples), max_workers=max_workers),)
    )


def run(
    *queries: QueryModel, workers: int = 1, seconds: float = 2.0, loop: ThreadsModel | None = None
) -> OperatorResult:
    return simulate_operators(
        OperatorScenario(queries, workers, loop or ThreadsModel(switch_cost=0.0), horizon=seconds)
    )


def processor_seconds(result: OperatorResult) -> dict[str, float]:
    """Seconds of work done on finished tuples, by query."""
    return {node.query: node.compute_time * node.consumed for node in result.nodes}


@pytest.mark.parametrize(
    "costs",
    [
        pytest.param((0.001, 0.001, 0.001), id="alike"),
        pytest.param((0.0001, 0.001, 0.003), id="shorter than a quantum"),
        pytest.param((0.0001, 0.001, 0.05), id="one tuple is many quanta"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_busy_threads_get_equal_shares_whatever_their_tuples_cost(costs: tuple[float, ...], workers: int) -> None:
    result = run(*(busy(f"q{cost}-{n}", cost, tuples=20_000) for n, cost in enumerate(costs)), workers=workers)
    shares = processor_seconds(result)
    assert list(shares.values()) == pytest.approx([2.0 * workers / 3] * 3, abs=0.01)
    assert result.worker_utilisation == pytest.approx((1.0,) * workers)


def test_a_thread_for_each_worker_that_a_node_may_have() -> None:
    result = run(busy("wide", 0.001, max_workers=3), busy("narrow", 0.001), workers=1)
    shares = processor_seconds(result)
    assert shares["wide"] == pytest.approx(3 * shares["narrow"], rel=0.02)


def test_a_sleeper_is_credited_with_no_more_than_it_may_be() -> None:
    loop = ThreadsModel(switch_cost=0.0, sleeper_credit=0.02)
    result = run(busy("early", 0.001), busy("late", 0.001, start=1.0), loop=loop)
    shares = processor_seconds(result)
    assert 0.5 <= shares["late"] <= 0.5 + 0.02 + loop.quantum


@pytest.mark.parametrize(
    ("granularity", "slowest"),
    [pytest.param(0.003, 0.0012, id="wakes into a processor"), pytest.param(math.inf, 0.005, id="waits for a quantum")],
)
def test_a_light_thread_that_wakes_up_far_behind_does_not_wait_for_heavy_ones(
    granularity: float, slowest: float
) -> None:
    light = chain("light", [OperatorModel("o", 0.001)], ConstantArrivals(9.7))
    loop = ThreadsModel(switch_cost=0.0, wakeup_granularity=granularity)
    result = run(light, busy("heavy", 0.1), loop=loop)
    assert result.queries["light"].latency.max <= slowest
    if granularity == math.inf:
        assert result.queries["light"].latency.max > 0.0012


def test_a_change_of_threads_costs_and_going_on_does_not() -> None:
    loop = ThreadsModel(quantum=0.01, switch_cost=0.001)
    alone = run(busy("a", 0.001, tuples=100), loop=loop, seconds=math.inf)
    assert alone.seconds == pytest.approx(0.101)
    result = run(busy("a", 0.001, tuples=100), busy("b", 0.001, tuples=100), loop=loop, seconds=math.inf)
    assert result.seconds == pytest.approx(0.2 + 20 * 0.001)
    assert result.scheduling.parts["switch"] == pytest.approx(20 * 0.001)


def test_a_full_queue_downstream_puts_the_thread_to_sleep_until_there_is_room() -> None:
    query = chain(
        "q", [OperatorModel("fast", 0.001), OperatorModel("slow", 0.01, capacity=20)], RecordedArrivals((0.0,) * 100)
    )
    simulation = OperatorSimulation(OperatorScenario((query,), 2, ThreadsModel(switch_cost=0.0)), None, None)
    while simulation.advance():
        check_network(simulation.network)
    result = simulation.result()
    assert result.overall.results == 100
    assert result.seconds == pytest.approx(1.0, abs=0.02)
    assert result.nodes[1].queued_max <= 20


def test_equal_shares_leave_a_heavy_operator_behind() -> None:
    """EdgeWise, section 5.1: a fair scheduler is blind to who needs more."""
    steps = [
        OperatorModel("light1", 0.001),
        OperatorModel("heavy", 0.004),
        OperatorModel("light2", 0.001),
        OperatorModel("light3", 0.001),
    ]
    scenario = OperatorScenario((chain("q", steps, ConstantArrivals(200.0)),), 1, ThreadsModel(), horizon=3.0)
    result = simulate_operators(scenario)
    queues = {node.name: node.queued_mean for node in result.nodes}
    assert queues["q/heavy"] > 20 * max(queues["q/light1"], queues["q/light2"], queues["q/light3"])
