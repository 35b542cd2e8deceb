"""Haren's chains: drawn as described, the same for every packet size, and really working."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from headgate.core.errors import ParameterError
from tests.workloads.dag_driver import Collected, Given, run
from workloads.chains import (
    HIGH,
    LOW,
    TUPLES,
    Burner,
    ChainSettings,
    Draw,
    Filter,
    chain_plans,
    chain_query,
    passing,
    tuples,
    two_class_plans,
)

IDLE = Burner(rate=0.0)


def chain(plan, rows: pa.RecordBatch, size: int) -> list[int]:
    sink = Collected()
    run(chain_query(plan, Given(TUPLES), sink, IDLE), rows, size)
    return [row["number"] for row in sink.rows()]


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_the_same_rows_pass_in_packets_of_any_size(size) -> None:
    [plan] = chain_plans(ChainSettings(queries=1, selectivity=20))
    rows = tuples(0, 120)
    passed = chain(plan, rows, size)
    assert passed == chain(plan, rows, 120)
    assert passed == sorted(passed)


def test_a_filter_lets_its_share_pass_whatever_filters_did_before() -> None:
    rows = tuples(0, 20_000)
    first = passing(Filter(0, 0.3, salt=1), IDLE, rows)
    second = passing(Filter(0, 0.3, salt=2), IDLE, first.batch)
    assert first.batch.num_rows == pytest.approx(6000, rel=0.05)
    assert second.batch.num_rows == pytest.approx(1800, rel=0.08)
    assert first.batch.column("number").to_pylist() == first.parents.tolist()


def test_a_selectivity_from_one_on_lets_all_pass() -> None:
    rows = tuples(0, 100)
    assert passing(Filter(0, 1.05, salt=1), IDLE, rows).batch == rows


def test_tuples_are_as_described_and_the_same_in_any_cut() -> None:
    rows = tuples(10, 2000, seed=3)
    assert rows.slice(500, 20) == tuples(510, 20, seed=3)
    assert set(rows.column("value").to_pylist()) == {3.141592653589793}
    keys = rows.column("key").to_pylist()
    assert 0 <= min(keys) < 20
    assert 980 < max(keys) <= 999
    assert len(rows.column("payload")[0].as_py()) == 10


def test_plans_depend_on_seed_and_number_alone() -> None:
    few, many = chain_plans(ChainSettings(queries=3)), chain_plans(ChainSettings(queries=9))
    assert many[:3] == few
    assert chain_plans(ChainSettings(queries=3, seed=1)) != few


def test_costs_and_selectivities_are_spread_as_the_settings_say() -> None:
    settings = ChainSettings(queries=300, cost=10, variance_factor=5, selectivity=1, length=3)
    plans = chain_plans(settings)
    assert settings.least_selectivity == pytest.approx(0.2154, abs=1e-4)
    for plan in plans:
        costs = [each.cost for each in plan.filters] + [plan.sink_cost]
        assert max(costs) / min(costs) <= 1.1 / 0.9
        assert all(9 <= cost <= 320 * 1.1 for cost in costs)
        assert all(0.2154 * 0.9 < each.selectivity < 1.1 for each in plan.filters)
        assert len({each.salt for each in plan.filters}) == 3
    cheap = sum(plan.filters[0].cost < 11 for plan in plans)
    dear = sum(plan.filters[0].cost > 288 for plan in plans)
    assert 30 < cheap < 75
    assert 30 < dear < 75


def test_fixed_plans_are_all_alike() -> None:
    plans = chain_plans(ChainSettings(queries=5, cost=7, draw=Draw.FIXED))
    assert {(each.cost, each.selectivity) for plan in plans for each in plan.filters} == {(7, 0.01 ** (1 / 3))}


def test_improved_plans_are_seldom_expensive() -> None:
    """The exponent rounds an exponential number: 0 with probability 1 - exp(-1/2), 3 or more with exp(-5/2)."""
    plans = chain_plans(ChainSettings(queries=400, cost=1, draw=Draw.IMPROVED, operator_variance=0))
    costs = [plan.sink_cost for plan in plans]
    assert 0.3 < costs.count(1) / 400 < 0.49
    assert 0.03 < sum(cost >= 8 for cost in costs) / 400 < 0.14
    assert max(costs) <= 32


def test_the_first_queries_of_two_classes_matter_more() -> None:
    settings = ChainSettings(queries=5)
    plans = two_class_plans(settings, high=2)
    assert [(plan.priority, plan.importance_class) for plan in plans] == [HIGH] * 2 + [LOW] * 3
    assert [plan.name for plan in plans] == ["high0", "high1", "low2", "low3", "low4"]
    assert [plan.filters for plan in plans] == [plan.filters for plan in chain_plans(settings)]
    query = chain_query(plans[0], Given(TUPLES), Collected(), IDLE)
    assert (query.name, query.priority, query.importance_class) == ("high0", *HIGH)


def test_a_query_states_costs_and_selectivities_for_policies() -> None:
    [plan] = chain_plans(ChainSettings(queries=1, length=2))
    query = chain_query(plan, Given(TUPLES), Collected(), IDLE)
    assert [operator.name for operator in query.operators] == ["source", "filter1", "filter2", "sink"]
    assert [operator.cost for operator in query.operators[1:3]] == [each.cost / 1e6 for each in plan.filters]
    assert all(operator.selectivity <= 1 for operator in query.operators[1:3])


@pytest.mark.parametrize("releases_lock", [True, False], ids=["NumPy", "interpreter"])
def test_a_hundred_times_the_work_takes_far_more_processor_time(releases_lock) -> None:
    """The bounds are wide: a processor that others share may slow down threefold from one moment to the next."""
    burner = Burner(rate=1000.0 if releases_lock else 10.0, releases_lock=releases_lock)

    def seconds(microseconds: float) -> float:
        tries = []
        for _ in range(5):
            start = time.thread_time()
            burner.burn(microseconds)
            tries.append(time.thread_time() - start)
        return min(tries)

    assert 10 < seconds(100_000) / seconds(1_000) < 1_000


def test_a_calibrated_burner_knows_its_machine() -> None:
    burner = Burner.calibrated(seconds=0.01)
    assert burner.rate > 10
    assert burner.releases_lock


@pytest.mark.parametrize(
    "arguments", [{"queries": 0}, {"length": 0}, {"selectivity": 0}, {"operator_variance": 100}, {"seed": -1}], ids=str
)
def test_impossible_settings_are_refused(arguments) -> None:
    with pytest.raises(ParameterError):
        ChainSettings(**arguments)


def test_there_cannot_be_more_important_queries_than_queries() -> None:
    with pytest.raises(ParameterError, match="from 0 to 5; got 6"):
        two_class_plans(ChainSettings(queries=5), high=6)
