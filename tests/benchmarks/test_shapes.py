"""The ready-made queries have the shape of the papers, and the papers' effects show on them."""

from __future__ import annotations

import math
from random import Random

import pytest

from benchmarks._shapes import (
    HIGH,
    LOW,
    RIOT,
    SATURATION,
    fed_by,
    haren_chain,
    haren_multi_class,
    haren_queries,
    riot,
    scaled_to,
)
from headgate.core.consumption import AtMost
from headgate.core.errors import ScenarioError
from headgate.core.placements import Anywhere, RandomWorker
from headgate.core.policies import FirstCome, HighestRate, LongestQueue
from headgate.core.registry import policy_from
from headgate.sim import (
    BatchArrivals,
    BurstyArrivals,
    ConstantArrivals,
    DispatchModel,
    OperatorScenario,
    RecordedArrivals,
    RoundsModel,
    ThreadsModel,
    simulate_operators,
)

# --- Haren ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_synthetic_chain_follows_the_recipe_of_the_paper(seed: int) -> None:
    query = haren_chain("q", Random(seed), 1e-5, ConstantArrivals(100))
    ingress, *steps, egress = query.operators
    assert (ingress.name, egress.name, len(steps)) == ("ingress", "egress", 12)
    passed_on = math.prod(step.selectivity for step in steps)
    assert 0.01 * 0.9**12 <= passed_on <= 1.1**12
    assert max(step.selectivity for step in steps) <= 1.1 / 0.9 * min(step.selectivity for step in steps)
    middle = (max(step.cost for step in steps) + min(step.cost for step in steps)) / 2
    assert math.log2(middle / 1e-5) == pytest.approx(round(math.log2(middle / 1e-5)), abs=0.15)
    assert 0 <= round(math.log2(middle / 1e-5)) <= 4


def test_synthetic_queries_differ_and_come_out_the_same_again() -> None:
    queries = haren_queries(20, 1e-5, rate=100.0, seed=3)
    assert queries == haren_queries(20, 1e-5, rate=100.0, seed=3)
    assert queries != haren_queries(20, 1e-5, rate=100.0, seed=4)
    assert queries[:5] == haren_queries(5, 1e-5, rate=100.0, seed=3)
    assert len({round(math.log2(query.operators[1].cost / 1e-5)) for query in queries}) == 5


@pytest.mark.parametrize("seed", range(3))
def test_the_steady_multi_class_scenario_has_the_stated_utilisation_and_bursts_overload_it(seed: int) -> None:
    steady = haren_multi_class(bursty=False, seed=seed, utilisation=0.75)
    bursty = haren_multi_class(bursty=True, seed=seed, utilisation=0.75)
    assert [query.importance_class for query in steady] == [HIGH] * 3 + [LOW] * 10
    assert sum(query.load() for query in steady) == pytest.approx(3.0)
    in_a_burst = 10 * sum(query.load() for query in steady[:3])
    assert in_a_burst < 4.0 < in_a_burst + sum(query.load() for query in steady[3:])
    assert [op.cost for q in steady for op in q.operators] == [op.cost for q in bursty for op in q.operators]
    assert {q.operators[0].arrivals for q in bursty} == {
        BurstyArrivals(5000.0, on=5.0, off=15.0),
        ConstantArrivals(1000.0),
    }
    assert {q.operators[0].arrivals for q in steady} == {ConstantArrivals(500.0), ConstantArrivals(1000.0)}


def test_the_highest_rate_first_gives_the_lowest_mean_latency_and_first_come_the_lowest_maximum() -> None:
    """Haren, figure 4, close to saturation."""
    queries = tuple(
        fed_by(q, BatchArrivals(200.0)) for q in scaled_to(haren_queries(4, 1e-5, rate=200.0, length=4), 1.0)
    )
    scenario = OperatorScenario(queries, 1, DispatchModel(AtMost(10)), horizon=1.0, known=True)
    rate, first = (simulate_operators(scenario, policy, Anywhere()).overall for policy in (HighestRate(), FirstCome()))
    assert rate.latency.mean < first.latency.mean
    assert first.latency.max < rate.latency.max


@pytest.mark.slow
def test_the_multi_class_policy_protects_important_queries_from_a_burst_and_the_operating_system_does_not() -> None:
    """Haren, figure 9."""
    queries = haren_multi_class(bursty=True, utilisation=0.6, batch=25)
    loops = {"rounds": RoundsModel(), "threads": ThreadsModel()}
    policy = policy_from(f"multi-class:{HIGH}=fcfs,default=hr")
    high = {
        name: simulate_operators(OperatorScenario(queries, 4, loop, horizon=3.0), policy, RandomWorker()).classes[HIGH]
        for name, loop in loops.items()
    }
    assert high["rounds"].latency.max < high["threads"].latency.max / 2


# --- RIoTBench ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topology", "per_event"), [("etl", 2.0), ("pred", 2.0), ("stats", 14.8), ("train", 2.0)])
def test_each_event_brings_as_many_results_as_in_the_benchmark(topology: str, per_event: float) -> None:
    query = riot(topology, 100.0, arrivals=RecordedArrivals((0.0,) * 100))
    result = simulate_operators(OperatorScenario((query,), 4), LongestQueue(), Anywhere())
    assert result.overall.results / 100 == pytest.approx(per_event, rel=0.01)


@pytest.mark.parametrize("topology", RIOT)
def test_the_work_of_an_event_is_what_was_asked_for(topology: str) -> None:
    assert riot(topology, 50.0, work_per_event=0.02).load() == pytest.approx(1.0)
    assert riot(topology, SATURATION[topology]).load() == pytest.approx(4.0)


@pytest.mark.parametrize("topology", RIOT)
def test_no_task_alone_is_the_bottleneck_of_four_workers(topology: str) -> None:
    query = riot(topology, SATURATION[topology])
    assert all(r * op.cost <= op.max_workers for r, op in zip(query.rates(), query.operators, strict=True))


def test_an_unknown_topology_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no RIoTBench topology 'elt'; known: etl, pred, stats, train"):
        riot("elt", 1.0)


@pytest.mark.parametrize("topology", ["pred", "stats"])
def test_near_saturation_the_longest_queue_first_beats_one_thread_per_operator(topology: str) -> None:
    """EdgeWise, figures 7 and 8: higher throughput, lower latency, better balanced utilisation."""
    query = riot(topology, 0.95 * SATURATION[topology])
    edgewise, threads = (
        simulate_operators(OperatorScenario((query,), 4, loop, horizon=2.0), LongestQueue(), Anywhere())
        for loop in (DispatchModel(AtMost(50)), ThreadsModel())
    )
    assert edgewise.overall.latency.mean < threads.overall.latency.mean / 1.5
    assert edgewise.overall.throughput_out > threads.overall.throughput_out
    assert edgewise.rho_variation < threads.rho_variation
