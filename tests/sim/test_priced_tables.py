"""Portions, ties and priced-benefit in simulated warehouses."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from headgate.core import FeatureView, Floats, policy_from
from headgate.core.placements import Anywhere
from headgate.core.policies import MaxBenefit, PricedBenefit
from headgate.core.policies.priced import Overload
from headgate.sim import Slowdown, Table, TableScenario, simulate_tables
from headgate.testing import Noted


@dataclass(frozen=True)
class Periods(MaxBenefit):
    """Max Benefit in portions of so many periods."""

    most: float = 3.0

    name = "periods"
    needs = (*MaxBenefit.needs, "period")

    def portion(self, view: FeatureView) -> Floats:
        return self.most * view["period"]


def tables(count: int, **more: float) -> tuple[Table, ...]:
    made = (Table(f"t{i}", period=100.0, priority=10.0 if i % 2 else 1.0, **more) for i in range(count))
    return tuple(made)


def chains(base: str, above: str) -> tuple[Table, ...]:
    """Chains of a base table and one that matters more, with the names given."""
    made: list[Table] = []
    for i in range(6):
        made.append(Table(f"{base}{i}", period=100.0, offset=13.0 * i, setup_time=2.0))
        made.append(Table(f"{above}{i}", sources=(f"{base}{i}",), priority=10.0, setup_time=2.0))
    return tuple(made)


OVERLOAD = TableScenario(tables(8, setup_time=4.0, time_per_unit=0.2), tracks=1, events=2_000, guard=False)


def test_portions_do_what_chopping_does() -> None:
    chopped = simulate_tables(replace(OVERLOAD, chop=3.0), MaxBenefit(), Anywhere(), seed=3)
    portioned = simulate_tables(OVERLOAD, Periods(), Anywhere(), seed=3)
    assert [table.updates for table in portioned.tables] == [table.updates for table in chopped.tables]


def test_no_update_takes_in_more_than_its_portion() -> None:
    noted = Noted(Periods(2.0), ("pending",))
    simulate_tables(OVERLOAD, noted, Anywhere(), seed=3)
    assert max(start.features["pending"] for start in noted.starts) > 400.0, "a long backlog is to be cut"
    for name in ("t0", "t1"):
        waits = [start.features["pending"] for start in noted.starts if start.node == name]
        assert min(after - before for before, after in pairwise(waits)) >= -200.0 - 1e-6


def test_a_strike_of_the_guard_takes_in_a_portion_and_not_the_backlog() -> None:
    scenario = replace(OVERLOAD, guard=True)
    whole = simulate_tables(scenario, MaxBenefit(), Anywhere(), seed=3)
    portions = simulate_tables(scenario, Periods(), Anywhere(), seed=3)
    assert min(whole.guard_strikes, portions.guard_strikes) > 10
    important = [i for i, table in enumerate(scenario.tables) if table.priority > 1]
    assert sum(portions.tables[i].mean_staleness for i in important) < sum(
        whole.tables[i].mean_staleness for i in important
    )


@pytest.mark.parametrize("policy", ["max-benefit", "priced-benefit", "priced-benefit:density=off"])
@pytest.mark.parametrize("chop", [3.0, math.inf], ids=["chopped", "whole"])
def test_what_tables_are_called_makes_no_difference(policy: str, chop: float) -> None:
    slow = Slowdown(factor=3.0, normal=3_000.0, slow=3_000.0)

    def run(base: str, above: str) -> float:
        scenario = TableScenario(
            chains(base, above), tracks=1, spread=None, slowdown=slow, chop=chop, inheritance="max", guard=False
        )
        result = simulate_tables(replace(scenario, horizon=24_000.0), policy_from(policy), Anywhere(), seed=1)
        return result.weighted_staleness

    assert run("base", "derived") == run("z", "a") == run("a", "z")


@pytest.mark.parametrize("policy", ["priced-benefit", "priced-benefit:gate=off", "priced-benefit:density=off"])
@pytest.mark.parametrize("seed", range(3))
def test_with_the_guard_no_table_starves(policy: str, seed: int) -> None:
    chance = random.Random(seed)
    drawn = tuple(
        Table(
            f"t{i}",
            period=chance.choice([20.0, 100.0]),
            priority=chance.choice([1.0, 100.0]),
            setup_time=chance.choice([0.5, 1.0]),
            time_per_unit=chance.choice([0.1, 0.2]),
        )
        for i in range(10)
    )
    noted = Noted(policy_from(policy))
    simulate_tables(TableScenario(drawn, tracks=1, horizon=20_000.0, events=10**9), noted, Anywhere(), seed)
    longest = 1.5 * (1.0 + 0.2 * 1_500.0)  # portions grow with the root of the price, here to no more than this
    for table in drawn:
        starts = [0.0, *(start.now for start in noted.starts if start.node == table.name), 20_000.0]
        gap = max(after - before for before, after in pairwise(starts))
        assert gap <= (20 + 1) * table.period + (len(drawn) + 1) * longest


def test_at_low_load_priced_benefit_does_what_max_benefit_does() -> None:
    quiet = replace(OVERLOAD, tracks=8)
    ours, theirs = (
        simulate_tables(quiet, policy_from(name), Anywhere(), 5) for name in ("priced-benefit", "max-benefit")
    )
    assert ours.tables == theirs.tables


@pytest.mark.parametrize("seed", range(3))
def test_under_overload_by_set_up_priced_benefit_is_less_stale(seed: int) -> None:
    scenario = TableScenario(
        tuple(Table(f"t{i}", period=100.0, setup_time=11.0, time_per_unit=0.1 if i % 2 else 0.01) for i in range(20)),
        tracks=2,
        guard=False,
        horizon=12_000.0,
        events=10**9,
    )
    ours, theirs = (
        simulate_tables(scenario, policy_from(name), Anywhere(), seed).weighted_staleness
        for name in ("priced-benefit", "max-benefit")
    )
    assert ours < 0.95 * theirs


@dataclass(frozen=True)
class Remembering(PricedBenefit):
    """priced-benefit that notes what it remembers after each start: (now, node, since, least density)."""

    notebook: list[tuple[float, str, float, float]] = field(default_factory=list)

    name = "remembering"

    def remember(self, view: FeatureView, node: int) -> Overload:
        memory = super().remember(view, node)
        self.notebook.append((view.now, view.graph.names[node], memory.since, memory.least))
        return memory


def test_the_price_of_two_tables_on_a_track_as_computed_by_hand() -> None:
    """An update of n seconds of data takes 4 + n / 5 seconds."""
    costs = {"setup_time": 4.0, "time_per_unit": 0.2}
    both = (
        Table("a", arrivals=(10.0, 20.0, 30.0, 40.0), **costs),
        Table("b", arrivals=(11.0, 21.0, 31.0), **costs),
    )
    policy = Remembering()
    simulate_tables(TableScenario(both, tracks=1, spread=None, guard=False), policy, Anywhere())
    once = 10 / 6  # d with 10 seconds pending
    assert policy.notebook == [
        (10.0, "a", 10.0, math.inf),  # b's data comes while it runs
        (16.0, "b", 16.0, math.inf),  # takes 6.2 s
        (pytest.approx(22.2), "a", 20.0, pytest.approx(once)),  # the first that waits was released at 20
        (pytest.approx(28.2), "b", pytest.approx(28.2), math.inf),  # nobody waits any more
        (pytest.approx(34.2), "a", 30.0, pytest.approx(once)),
        (pytest.approx(40.2), "a", 30.0, pytest.approx(once)),  # as dense as b, and first by name; b still waits
        (pytest.approx(46.2), "b", pytest.approx(46.2), math.inf),
    ]


def test_policies_go_by_the_costs_that_they_believe() -> None:
    noted = Noted(MaxBenefit(), ("execution_time", "setup_time"))
    believed = replace(OVERLOAD, tables=tuple(replace(table, setup_time=9.0) for table in OVERLOAD.tables))
    true = simulate_tables(OVERLOAD, noted, Anywhere(), seed=3, believed=believed)
    assert {start.features["setup_time"] for start in noted.starts} == {9.0}
    assert min(start.features["execution_time"] for start in noted.starts) > 9.0
    assert true.seconds == pytest.approx(simulate_tables(OVERLOAD, MaxBenefit(), Anywhere(), seed=3).seconds, rel=0.1)
