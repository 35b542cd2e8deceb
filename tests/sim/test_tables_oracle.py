"""The table simulation and a plain re-implementation of the model agree, start by start and number by number.

All times are multiples of a power of two, so that both compute without rounding and may be compared exactly where the
order of additions does not matter.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.placements import Anywhere
from headgate.sim import Slowdown, Table, TableResult, TableScenario, TableSimulation
from tests.core.oracles import few_examples
from tests.sim.oracles import Benefit, BenefitOfAll, InOrder, NaiveRun, Noting, Oldest, naive_tables

NAMES = "abcdef"
RULES = {
    "benefit": Benefit,
    "benefit, ranked anew": BenefitOfAll,
    "oldest": Oldest,
    "always the same first": lambda: InOrder(order=NAMES),
}


def oracle_rule(rule: str) -> str:
    return {"benefit, ranked anew": "benefit", "always the same first": NAMES}.get(rule, rule)


def random_table(name: str, earlier: str, chance: random.Random) -> Table:
    costs = {
        "setup_time": chance.choice([0.25, 0.5, 1.0, 3.0]),
        "time_per_unit": chance.choice([0.0, 0.125, 0.25]),
        "priority": float(chance.randint(0, 4)),
        "patience": chance.choice([None, 1.0, 4.0]),
    }
    if earlier and chance.random() < 0.5:
        return Table(name, sources=tuple(chance.sample(earlier, chance.randint(1, min(3, len(earlier))))), **costs)
    stream = {"delay": chance.choice([0.0, 0.0, 0.5, 3.0])}
    if chance.random() < 0.25:
        times = sorted(chance.sample(range(1, 60), chance.randint(1, 6)))
        return Table(name, arrivals=tuple(t / 2 for t in times), **stream, **costs)
    return Table(name, period=chance.choice([1.0, 2.0, 4.0, 8.0]), offset=chance.randint(0, 8) / 2, **stream, **costs)


def random_scenario(seed: int) -> TableScenario:
    """A few tables, one stream that never ends among them, and a machine that may be too small for them."""
    chance = random.Random(seed)
    tables = [Table("a", period=2.0, offset=0.5, setup_time=chance.choice([0.5, 1.0]), time_per_unit=0.125)]
    for name in NAMES[1 : chance.randint(1, len(NAMES))]:
        tables.append(random_table(name, "".join(table.name for table in tables), chance))
    ends_after_events = chance.random() < 0.3
    return TableScenario(
        tuple(tables),
        tracks=chance.choice([1, 1, 2, 3]),
        spread=None,
        slowdown=chance.choice([None, Slowdown(2.0, 8.0, 4.0), Slowdown(3.0, 0.0, 1.0)]),
        chop=chance.choice([float("inf"), 1.0, 2.0]),
        guard=chance.random() < 0.7,
        events=chance.randint(1, 80) if ends_after_events else 100_000,
        horizon=float("inf") if ends_after_events else chance.randint(1, 160) / 4,
    )


def compare(scenario: TableScenario, policy: Noting, expected: NaiveRun) -> None:
    simulation = TableSimulation(scenario, policy, Anywhere())
    result = simulation.run()
    assert policy.starts == expected.starts
    assert (result.seconds, result.events) == (expected.end, expected.events)
    assert_same_numbers(result, expected)
    waiting = simulation.matrix.columns["pending"]
    for i, table in enumerate(expected.tables.values()):
        assert waiting[i] == table.arrived - table.taken


def assert_same_numbers(result: TableResult, expected: NaiveRun) -> None:
    assert result.weighted_staleness == pytest.approx(expected.weighted_staleness, abs=1e-9, rel=1e-9)
    for outcome, table in zip(result.tables, expected.tables.values(), strict=True):
        assert outcome.mean_staleness == pytest.approx(table.staleness_area(expected.end) / expected.end, abs=1e-9)
        assert outcome.max_staleness == pytest.approx(table.max_staleness(expected.end), abs=1e-9)
        assert outcome.utilisation == pytest.approx(table.utilisation(expected.end), abs=1e-9)
        assert outcome.updates == len(table.latencies)
    busy = sum(table.utilisation(expected.end) for table in expected.tables.values())
    assert sum(result.worker_utilisation) == pytest.approx(busy, abs=1e-9)
    assert result.queue_mean == pytest.approx(expected.waiting_area / expected.end, abs=1e-9)
    assert result.latency.count == len(expected.latencies)
    if expected.latencies:
        assert result.latency.mean == pytest.approx(math.fsum(expected.latencies) / len(expected.latencies), abs=1e-9)
        assert result.latency.max == max(expected.latencies)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(25))
def test_both_models_agree(seed: int, rule: str) -> None:
    scenario = random_scenario(seed)
    compare(scenario, RULES[rule](), naive_tables(scenario, oracle_rule(rule)))


@few_examples
@given(st.integers(1000, 10_000_000), st.sampled_from(sorted(RULES)))
def test_both_models_agree_on_any_scenario(seed: int, rule: str) -> None:
    scenario = random_scenario(seed)
    compare(scenario, RULES[rule](), naive_tables(scenario, oracle_rule(rule)))


def test_the_scenarios_compared_have_everything_in_them() -> None:
    """The comparison means something only if updates wait, guards strike, chops cut and edges trail."""
    scenarios = [random_scenario(seed) for seed in range(25)]
    results = [TableSimulation(scenario, InOrder(order=NAMES), Anywhere()).run() for scenario in scenarios]
    assert sum(result.guard_strikes > 0 for result in results) >= 3
    assert sum(outcome.updates for result in results for outcome in result.tables) > 200
    assert sum(len(table.sources) > 1 for scenario in scenarios for table in scenario.tables) >= 5
    assert sum(scenario.chop < 10 for scenario in scenarios) >= 5
    assert sum(scenario.slowdown is not None for scenario in scenarios) >= 5
