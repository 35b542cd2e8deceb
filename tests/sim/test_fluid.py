"""The bound that takes data as a fluid: by hand, and where the other bound is low."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headgate.core.registry import placement_from, policy_from
from headgate.sim import Slowdown, Table, TableScenario, lower_bound, simulate_tables
from headgate.sim.tables.fluid import FluidBound, FluidTable

END = 100.0


def one(*came: float, weight: float = 1.0, setup: float = 0.0, work: float = 0.0) -> FluidTable:
    moments = np.array(came)
    return FluidTable(weight, setup, work, np.diff(moments, prepend=0.0), moments)


@pytest.mark.parametrize(
    ("table", "cost"),
    [
        pytest.param(one(10.0, 30.0), 10 * (10 - END) + 20 * (30 - END), id="shows when it comes"),
        pytest.param(one(10.0, weight=3.0), 3 * 10 * (10 - END), id="by weight"),
        pytest.param(
            one(10.0, setup=2.0, work=0.5),
            7 * (10 + 5.5 - END) + 3 * (10 + 5.5 + 3.5 - END),
            id="in two parts: 7 s of data, and then 3",
        ),
        pytest.param(
            one(10.0, setup=0.0, work=0.5), 10 * (10 + 2.5 - END), id="without set-up, half shows by the middle"
        ),
        pytest.param(
            one(90.0, setup=0.0, work=0.5), -10 * 10 / (2 * 0.5), id="of more than can be read, what shows by the end"
        ),
        pytest.param(one(99.0, setup=50.0), 0.0, id="too late to show"),
    ],
)
def test_without_a_price_data_shows_as_soon_as_it_can(table: FluidTable, cost: float) -> None:
    bound = FluidBound([table], None, END, tracks=1, chance=(1.0, 1.0))
    assert bound.value(np.zeros(len(bound._lines.paid))) == pytest.approx(cost)


def test_tables_of_a_chain_have_data_one_after_the_other() -> None:
    first = FluidTable(1.0, 2.0, 0.0, np.array([10.0]), np.array([10.0]), readers=(1,))
    second = FluidTable(5.0, 3.0, 0.0, np.empty(0), np.empty(0))
    bound = FluidBound([first, second], None, END, tracks=1, chance=(1.0, 1.0))
    cost = 10 * (12 - END) + 5 * 10 * (15 - END)
    assert bound.value(np.zeros(len(bound._lines.paid))) == pytest.approx(cost)


def test_a_backlog_that_lasts_is_bounded_by_what_the_tracks_can_do() -> None:
    # A second of data takes two of a track, and comes all the time: half of it waits at the end.
    came = np.arange(1.0, END, 1.0)
    table = FluidTable(1.0, 0.0, 2.0, np.ones(len(came)), came)
    found, price = FluidBound([table], None, END, tracks=1, chance=(1.0, 1.0)).best()
    staleness = (END * END / 2 + found) / END
    assert 0.9 * END / 4 < staleness <= END / 4 + 2, "half of the seconds since the beginning"
    assert 0.5 * END / 4 < price < 2 * END / 4, "a second of a track more: half a second of data, from then to the end"


@pytest.mark.parametrize("portions", [False, True])
def test_slow_periods_count_also_if_updates_are_cut(portions: bool) -> None:
    slow = Slowdown(factor=10.0, normal=2000.0, slow=1000.0)
    tables = tuple(Table(f"t{i}", period=10.0, offset=float(i), setup_time=0.1, time_per_unit=0.1) for i in range(6))
    scenario = TableScenario(tables, slowdown=slow, spread=None, guard=False, horizon=6000.0, events=10**9)
    least = lower_bound(scenario, portions=portions).weighted_staleness
    policy = policy_from("priced-benefit" if portions else "max-benefit")
    found = simulate_tables(scenario, policy, placement_from("anywhere"), 0).weighted_staleness
    assert 1 <= found / least < 2.2


@pytest.mark.parametrize("slowdown", [None, Slowdown(factor=10.0, normal=2000.0, slow=1000.0)])
def test_that_updates_may_be_quick_by_chance_does_not_make_overload_go_away(slowdown: Slowdown | None) -> None:
    # If every table could wait for updates that happen to be quick, there would be little to wait for.
    time = 0.1 if slowdown else 0.3
    tables = tuple(Table(f"t{i}", period=10.0, offset=float(i), setup_time=0.1, time_per_unit=time) for i in range(6))
    options = {"slowdown": slowdown, "guard": False, "horizon": 9000.0, "events": 10**9}
    sure, chance = (
        lower_bound(TableScenario(tables, spread=spread, **options), portions=True).weighted_staleness  # type: ignore[arg-type]
        for spread in (None, 0.5)
    )
    assert 0.9 * sure < chance < 1.02 * sure
    scenario = TableScenario(tables, spread=0.5, **options)  # type: ignore[arg-type]
    found = simulate_tables(scenario, policy_from("priced-benefit"), placement_from("anywhere"), 1).weighted_staleness
    assert 1 <= found / chance < 1.6


def test_the_price_is_that_of_the_bound_that_counts() -> None:
    # With portions only this bound knows slow periods, in which nearly nothing gets done; the other sees no scarcity.
    table = Table("t", period=1.0, offset=0.0, setup_time=0.01, time_per_unit=0.7)
    idle = replace(table, name="idle", priority=0.0)
    slow = Slowdown(factor=1e6, normal=50.0, slow=50.0)
    options = {"spread": None, "guard": False, "horizon": 300.0, "events": 10**9}
    one, two, never_slow = (
        lower_bound(TableScenario((table, idle), tracks, slowdown=slowdown, **options), portions=True)  # type: ignore[arg-type]
        for tracks, slowdown in ((1, slow), (2, slow), (1, None))
    )
    assert never_slow.price == 0
    assert one.weighted_staleness > 10 * never_slow.weighted_staleness
    assert two.weighted_staleness < one.weighted_staleness - 1, "a second track is worth something"
    assert two.weighted_staleness >= one.weighted_staleness - one.price, "but no more than the price of the first"


def test_a_run_of_very_many_slow_periods_has_a_bound() -> None:
    table = Table("t", period=5.0, setup_time=0.1, time_per_unit=0.5)
    slow = Slowdown(factor=3.0, normal=1.0, slow=1.0)
    scenario = TableScenario((table,), slowdown=slow, horizon=4000.0, events=10**9)
    assert 0 < lower_bound(scenario, portions=True).weighted_staleness < math.inf


def test_what_has_to_be_left_out_may_be_of_far_less_weight_than_the_rest() -> None:
    # 1.2 seconds of work for each second: a third of the data of the unimportant table is never loaded.
    much = Table("much", period=1.0, priority=1000.0, setup_time=1e-6, time_per_unit=0.6)
    little = Table("little", period=1.0, priority=1.0, setup_time=1e-6, time_per_unit=0.6)
    end = 3_000.0
    least = lower_bound(TableScenario((much, little), tracks=1, spread=None, horizon=end), portions=True)
    always_fresh, left_out = 1000 * (0.5 + 0.6 / 2), end / 3 / 2
    assert 0.9 * (always_fresh + left_out) <= least.weighted_staleness <= always_fresh + left_out


@pytest.mark.parametrize("portions", [False, True])
def test_updates_that_may_take_no_time_have_a_bound(portions: bool) -> None:
    # What such an update pays for set-ups is nothing, also where the run ends before it could begin.
    source = Table("a", period=1.0, setup_time=1.0, time_per_unit=0.3)
    reader = Table("b", sources=("a",), priority=10.0, setup_time=1.0, time_per_unit=0.3)
    slow = Slowdown(factor=50.0, normal=5.0, slow=20.0)
    scenario = TableScenario((source, reader), spread=0.0, slowdown=slow, horizon=60.0, events=10**9)
    policy = policy_from("priced-benefit" if portions else "max-benefit")
    found = simulate_tables(scenario, policy, placement_from("anywhere"), 0).weighted_staleness
    assert 0 < lower_bound(scenario, portions=portions).weighted_staleness <= found
