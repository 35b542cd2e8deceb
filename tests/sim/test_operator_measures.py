"""What is measured: latency against queueing theory, Little's law, utilisation, warm-up, samples, repeatability."""

from __future__ import annotations

import math

import pytest

from headgate.core.consumption import AtMost
from headgate.core.placements import Anywhere, RandomWorker
from headgate.core.policies import FirstCome, LongestQueue
from headgate.sim import (
    BurstyArrivals,
    ConstantArrivals,
    DispatchModel,
    LoopModel,
    OperatorModel,
    OperatorResult,
    OperatorScenario,
    PoissonArrivals,
    QueryModel,
    RecordedArrivals,
    RoundsModel,
    ThreadsModel,
    chain,
    simulate_operators,
)

LOOPS: dict[str, LoopModel] = {
    "dispatch": DispatchModel(AtMost(5), decision_cost=1e-5, switch_cost=1e-5),
    "rounds": RoundsModel(period=0.05, feature_cost=1e-6, place_cost=1e-6, rank_cost=1e-6),
    "threads": ThreadsModel(),
}


def run(*queries: QueryModel, loop: LoopModel | None = None, seed: int = 0, **about: float) -> OperatorResult:
    scenario = OperatorScenario(queries, loop=loop or DispatchModel(AtMost(1)), **about)  # type: ignore[arg-type]
    return simulate_operators(scenario, LongestQueue(), Anywhere(), seed)


def lone(
    cost: float, arrivals: PoissonArrivals | ConstantArrivals | RecordedArrivals, spread: float = 0.0
) -> QueryModel:
    return QueryModel("q", (OperatorModel("o", cost, arrivals=arrivals, spread=spread),))


@pytest.mark.parametrize("load", [0.2, 0.35])
@pytest.mark.parametrize(
    ("loop", "spread"),
    [
        pytest.param(DispatchModel(AtMost(1)), 0.0, id="M/D/1 by dispatch"),
        pytest.param(ThreadsModel(switch_cost=0.0), 0.0, id="M/D/1 by threads"),
        pytest.param(DispatchModel(AtMost(1)), 1.0, id="M/G/1 by dispatch"),
    ],
)
def test_mean_latency_is_that_of_queueing_theory(load: float, loop: LoopModel, spread: float) -> None:
    """Pollaczek and Khinchine: W = c + load c (1 + var / c^2) / (2 (1 - load))."""
    cost = 0.001
    result = run(lone(cost, PoissonArrivals(load / cost), spread), loop=loop, workers=1, events=4000, hand_over=1)
    expected = cost * (1 + load * (1 + spread**2 / 3) / (2 * (1 - load)))
    assert result.overall.latency.mean == pytest.approx(expected, rel=0.03)


def test_queue_time_schedule_time_and_compute_time_add_up_to_the_latency() -> None:
    """Little's law, and EdgeWise's equation 6."""
    result = run(lone(0.001, PoissonArrivals(600.0)), workers=1, events=2000, hand_over=1)
    (node,) = result.nodes
    assert node.queue_time + node.schedule_time + node.compute_time == pytest.approx(result.overall.latency.mean)
    assert node.compute_time == pytest.approx(0.001)
    assert node.queued_mean == pytest.approx((result.overall.latency.mean - 0.001) * 2000 / result.window)


def test_schedule_time_is_what_a_node_with_input_waits_for_its_turns_shared_by_its_tuples() -> None:
    first = QueryModel("first", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((0.0,))),))
    second = QueryModel("second", (OperatorModel("o", 0.5, arrivals=RecordedArrivals((0.1,) * 2)),))
    result = run(first, second, workers=1, hand_over=1)
    node = result.nodes[1]
    assert node.schedule_time == pytest.approx((1.9 - 2 * 0.5) / 2)
    assert node.queue_time == pytest.approx((0.9 + 1.4) / 2 - node.schedule_time)


def test_rho_is_the_share_of_time_with_input_or_running() -> None:
    busy = QueryModel("busy", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((0.0,) * 100)),))
    half = QueryModel("half", (OperatorModel("o", 0.5, arrivals=ConstantArrivals(1.0, offset=0.0)),))
    never = QueryModel("never", (OperatorModel("o", 1.0, arrivals=RecordedArrivals((50.0,))),))
    result = run(busy, half, never, workers=3, horizon=10.0, hand_over=1)
    assert {node.query: node.rho for node in result.nodes} == pytest.approx({"busy": 1.0, "half": 0.5, "never": 0.0})
    mean, square = 0.5, (1.0 + 0.25) / 3
    assert result.rho_variation == pytest.approx(math.sqrt(square - mean**2) / mean)
    assert math.isnan(result.nodes[2].compute_time)


def test_worker_utilisation_counts_computing_up_to_the_very_end() -> None:
    result = run(lone(3.0, RecordedArrivals((0.0,) * 10)), workers=2, horizon=10.0, hand_over=1)
    assert result.worker_utilisation == (1.0, 0.0)
    assert (result.nodes[0].consumed, result.nodes[0].in_progress) == (3, 1)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_what_happened_before_measuring_began_does_not_count(loop: LoopModel) -> None:
    storm = RecordedArrivals((0.0,) * 200 + tuple(5.0 + n / 10 for n in range(50)))
    result = run(lone(0.01, storm), loop=loop, workers=1, horizon=10.0, measure_from=5.0)
    assert result.overall.latency.max < 0.2
    assert result.overall.ingested == result.overall.results == 50
    assert (result.window, result.overall.throughput_in) == (5.0, 10.0)
    assert result.overall.queued_max <= 2
    assert result.worker_utilisation[0] == pytest.approx(0.1)
    assert result.nodes[0].rho == pytest.approx(0.1, abs=0.15)
    assert result.nodes[0].compute_time == pytest.approx(0.01)


def test_a_run_under_way_when_measuring_begins_counts_from_then_on() -> None:
    result = run(lone(4.0, RecordedArrivals((0.0,))), workers=1, horizon=10.0, measure_from=3.0)
    assert result.worker_utilisation == (pytest.approx(1 / 7),)
    assert result.nodes[0].rho == pytest.approx(1 / 7)


def test_the_run_ends_when_all_events_have_been_worked_off() -> None:
    result = run(lone(0.001, ConstantArrivals(100.0, batch=7)), events=50)
    assert (result.arrived, result.overall.results) == (50, 50)
    assert result.seconds < 1.0


def test_classes_and_everything_are_the_sum_of_their_queries() -> None:
    queries = [
        chain(
            f"q{n}",
            [OperatorModel("a", 0.001, 0.5), OperatorModel("b", 0.002)],
            PoissonArrivals(50.0),
            importance_class=n % 2,
        )
        for n in range(4)
    ]
    result = run(*queries, horizon=5.0)
    flows = result.queries.values()
    assert result.overall.ingested == sum(flow.ingested for flow in flows)
    assert result.overall.latency.count == sum(flow.latency.count for flow in flows)
    assert result.overall.latency.max == max(flow.latency.max for flow in flows)
    assert result.overall.queued_mean == pytest.approx(sum(flow.queued_mean for flow in flows))
    assert list(result.classes) == [1, 0]
    assert result.classes[1].results == result.queries["q1"].results + result.queries["q3"].results
    assert result.classes[1].queued_max <= result.queries["q1"].queued_max + result.queries["q3"].queued_max


def test_samples_show_how_a_burst_builds_up_and_drains() -> None:
    query = chain("q", [OperatorModel("o", 0.01)], BurstyArrivals(200.0, on=1.0, off=3.0), importance_class=3)
    result = run(query, workers=1, horizon=4.0, sample_every=0.5)
    assert [sample.time for sample in result.samples] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
    queued = [sample.queued for sample in result.samples]
    assert queued[0] < queued[1] > queued[2] > queued[3] == 0
    throughput = [sample.classes[3].throughput_in for sample in result.samples]
    assert throughput[:4] == pytest.approx([100.0] * 4, rel=0.05)
    assert throughput[-1] == 0.0
    so_far = [sample.classes[3].max_latency_so_far for sample in result.samples]
    assert so_far == sorted(so_far)
    assert so_far[-1] == result.overall.latency.max
    assert math.isnan(result.samples[-1].classes[3].mean_latency)


def test_the_maximum_of_a_sample_is_that_since_the_sample_before() -> None:
    result = run(
        lone(0.01, RecordedArrivals((0.0,) * 20 + (0.6,))), workers=1, horizon=1.0, sample_every=0.5, hand_over=1
    )
    assert [sample.classes[0].max_latency for sample in result.samples] == pytest.approx([0.2, 0.01])
    assert [sample.classes[0].max_latency_so_far for sample in result.samples] == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(loop: LoopModel) -> None:
    queries = tuple(
        chain(
            f"q{n}",
            [OperatorModel("a", 0.004, 0.7, spread=0.5), OperatorModel("b", 0.002, spread=0.2)],
            PoissonArrivals(60.0),
        )
        for n in range(3)
    )
    scenario = OperatorScenario(queries, 2, loop, horizon=2.0, sample_every=0.25)
    first, again, other = (repr(simulate_operators(scenario, FirstCome(), RandomWorker(), seed)) for seed in (7, 7, 8))
    assert first == again
    assert first.replace("seed=7", "seed=8") != other


def test_a_query_draws_the_same_tuples_whichever_other_queries_there_are() -> None:
    query = chain("q", [OperatorModel("o", 0.001, spread=0.5)], PoissonArrivals(100.0))
    other = chain("other", [OperatorModel("o", 0.001)], PoissonArrivals(100.0))
    alone, accompanied = run(query, workers=2, horizon=3.0), run(other, query, workers=2, horizon=3.0)
    assert alone.queries["q"].ingested == accompanied.queries["q"].ingested
    assert alone.queries["q"].latency.mean == pytest.approx(accompanied.queries["q"].latency.mean)
