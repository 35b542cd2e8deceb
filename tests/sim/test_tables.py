"""Tables in virtual time: the examples of Golab et al. by the numbers, and what must hold in every run."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from headgate.core.errors import DeclarationError, GraphError, ScenarioError
from headgate.core.observe import TABLE_FEATURES
from headgate.core.placements import Anywhere
from headgate.core.registry import policy_from
from headgate.sim import (
    Slowdown,
    Table,
    TableOutcome,
    TableResult,
    TableScenario,
    TableSimulation,
    simulate_tables,
    simulate_without_waiting,
)
from headgate.testing import Noted
from tests.sim.oracles import Benefit, InOrder, LeastOf, LeastOfAll, Noting, Oldest, Started, Turns


def run(scenario: TableScenario, policy: Noting | None = None, seed: int = 0) -> TableResult:
    return simulate_tables(scenario, policy or Oldest(), Anywhere(), seed)


def outcome(result: TableResult, name: str) -> TableOutcome:
    return next(table for table in result.tables if table.name == name)


def staleness_area(result: TableResult, name: str) -> float:
    return outcome(result, name).mean_staleness * result.seconds


def one_track(*tables: Table, **options: float) -> TableScenario:
    """Exact execution times and no guard, so that what happens can be worked out by hand."""
    return TableScenario(tables, tracks=1, spread=None, guard=False, **options)  # type: ignore[arg-type]


def ticking(until: float) -> Table:
    """A stream without weight that keeps the clock running; its updates take next to no time."""
    return Table("tick", arrivals=(until,), priority=0.0, setup_time=1e-6, time_per_unit=0.0)


def occupying(name: str, start: float, end: float) -> Table:
    """A table without weight whose only update takes the track from ``start`` to ``end``."""
    return Table(name, arrivals=(start,), priority=0.0, setup_time=end - start, time_per_unit=0.0)


# --- Golab et al., section 2.3, figure 2 --------------------------------------------------------------------

FIGURE_2 = [
    pytest.param(
        Table("t", arrivals=(3.0, 7.0, 9.0), setup_time=1.0, time_per_unit=0.0),
        (occupying("x", 1.0, 4.0), occupying("y", 6.0, 10.0)),
        id="batches come at 3, 7 and 9, the system is busy until 4 and until 10",
    ),
    pytest.param(
        Table("t", arrivals=(4.0, 8.0, 10.0), delay=1.0, setup_time=0.5, time_per_unit=0.0),
        (occupying("x", 1.0, 4.5), occupying("y", 6.0, 10.5)),
        id="batches take one unit to come",
    ),
]


@pytest.mark.parametrize(
    ("moment", "area", "largest"),
    [
        pytest.param(5.0, 5 * 5 / 2, 5.0, id="grows to 5 until the first update is done"),
        pytest.param(7.0, 12.5 + (2 + 4) / 2 * 2, 5.0, id="dropped to 2 at time 5"),
        pytest.param(11.0, 12.5 + (2 + 8) / 2 * 6, 8.0, id="grows to 8 until both batches are loaded together"),
        pytest.param(13.0, 42.5 + (2 + 4) / 2 * 2, 8.0, id="dropped to 2 at time 11"),
    ],
)
@pytest.mark.parametrize(("table", "others"), FIGURE_2)
def test_staleness_of_a_base_table_runs_as_in_figure_2(
    table: Table, others: tuple[Table, ...], moment: float, area: float, largest: float
) -> None:
    result = run(one_track(table, *others, ticking(moment), horizon=moment))
    assert result.seconds == moment
    assert staleness_area(result, "t") == pytest.approx(area, abs=1e-9)
    assert outcome(result, "t").max_staleness == pytest.approx(largest, abs=1e-9)


def test_if_the_second_batch_never_came_by_itself_the_staleness_looks_exactly_the_same() -> None:
    table = Table("t", arrivals=(3.0, 7.0, 9.0), setup_time=1.0, time_per_unit=0.0)
    busy = (occupying("x", 1.0, 4.0), occupying("y", 6.0, 10.0))
    with_it = run(one_track(table, *busy))
    without = run(one_track(replace(table, arrivals=(3.0, 9.0)), *busy))
    assert with_it.seconds == without.seconds
    for name in ("mean_staleness", "max_staleness", "updates"):
        assert getattr(outcome(with_it, "t"), name) == getattr(outcome(without, "t"), name)


def test_the_freshness_delta_is_what_the_update_would_bring() -> None:
    """Section 2.4: at time 7 the table has data up to 3, so the delta is 4."""
    policy = Oldest()
    run(one_track(Table("t", arrivals=(3.0, 7.0), setup_time=1.0, time_per_unit=0.0)), policy)
    assert policy.starts == [Started(3.0, "t", 3.0), Started(7.0, "t", 4.0)]


# --- Golab et al., section 3.1, figure 3 --------------------------------------------------------------------


def weighted_area(order: str, until: float) -> float:
    """The weighted staleness from 0 to ``until`` if the jobs released at 10 run in this order.

    Table 1 has a delta of 10 at time 10; table 2 was loaded before and has one of 5. A third table without weight keeps
    the track busy until a moment after 10, so that both jobs are released when one is chosen.
    """
    a_moment = 1e-12
    scenario = one_track(
        Table("1", arrivals=(10.0,), setup_time=3.0, time_per_unit=0.0),
        Table("2", arrivals=(5.0, 10.0), setup_time=2.0, time_per_unit=0.0),
        occupying("x", 7.5, 10.0 + a_moment),
        horizon=until,
    )
    policy = InOrder(order=order + "x")
    result = run(scenario, policy)
    if until > 10:
        assert [start.table for start in policy.starts] == ["2", "x", *order]
        assert [start.amount for start in policy.starts if start.now > 10] == [{"1": 10.0, "2": 5.0}[t] for t in order]
    return result.weighted_staleness * result.seconds


@pytest.mark.parametrize(
    ("order", "total"),
    [pytest.param("12", 80.0, id="J1 first, as Max Benefit has it"), pytest.param("21", 85.0, id="J2 first")],
)
def test_the_total_weighted_staleness_of_two_jobs_is_as_in_section_3_1(order: str, total: float) -> None:
    assert weighted_area(order, 15.0) - weighted_area(order, 10.0) == pytest.approx(total, abs=1e-9)


def test_max_benefit_runs_j1_first() -> None:
    tables = (
        Table("1", arrivals=(10.0,), setup_time=3.0, time_per_unit=0.0),
        Table("2", arrivals=(5.0, 10.0), setup_time=2.0, time_per_unit=0.0),
        occupying("x", 7.5, 10.5),
    )
    policy = Benefit()
    run(one_track(*tables), policy)
    assert [start.table for start in policy.starts] == ["2", "x", "1", "2"]


# --- the model ----------------------------------------------------------------------------------------------


def test_an_update_takes_alpha_plus_beta_times_the_data() -> None:
    table = Table("t", arrivals=(8.0,), setup_time=3.0, time_per_unit=0.25)
    result = run(one_track(table))
    assert result.seconds == 8.0 + 3.0 + 0.25 * 8.0
    assert outcome(result, "t").utilisation == pytest.approx(5.0 / 13.0)


def test_a_derived_table_over_several_sources_follows_their_trailing_edge() -> None:
    quick = Table("a", arrivals=(4.0, 8.0), setup_time=1.0, time_per_unit=0.0)
    slow = Table("b", arrivals=(6.0,), setup_time=1.0, time_per_unit=0.0)
    join = Table("c", sources=("a", "b"), setup_time=0.5, time_per_unit=0.0)
    policy = Oldest()
    run(TableScenario((quick, slow, join), tracks=3, spread=None, guard=False), policy)
    # a reaches 4 at 5, b reaches 6 at 7: edge 4. a reaches 8 at 9: edge 6.
    assert [start for start in policy.starts if start.table == "c"] == [Started(7.0, "c", 4.0), Started(9.0, "c", 2.0)]


def test_a_source_that_gets_no_data_holds_back_what_is_built_on_it() -> None:
    fed = Table("a", arrivals=(4.0,), setup_time=1.0, time_per_unit=0.0)
    starved = Table("b", arrivals=(1.0,), delay=5.0, setup_time=1.0, time_per_unit=0.0)
    join = Table("c", sources=("a", "b"), setup_time=0.5, time_per_unit=0.0)
    result = run(TableScenario((fed, starved, join), tracks=3, spread=None, guard=False))
    assert outcome(result, "c").updates == 0
    assert outcome(result, "c").mean_staleness == pytest.approx(result.seconds / 2)


def test_a_chain_passes_data_on_step_by_step() -> None:
    chain = (
        Table("a", arrivals=(2.0,), setup_time=1.0, time_per_unit=0.0),
        Table("b", sources=("a",), setup_time=1.0, time_per_unit=0.0),
        Table("c", sources=("b",), setup_time=1.0, time_per_unit=0.0),
    )
    policy = Oldest()
    result = run(one_track(*chain), policy)
    assert policy.starts == [Started(2.0, "a", 2.0), Started(3.0, "b", 2.0), Started(4.0, "c", 2.0)]
    assert result.seconds == 5.0


def test_data_that_comes_during_an_update_is_left_for_the_next() -> None:
    policy = Oldest()
    run(one_track(Table("t", arrivals=(2.0, 3.0, 4.0), setup_time=3.0, time_per_unit=0.0)), policy)
    assert policy.starts == [Started(2.0, "t", 2.0), Started(5.0, "t", 2.0)]


def test_a_table_is_never_updated_twice_at_once() -> None:
    scenario = TableScenario(
        (Table("t", period=1.0, offset=1.0, setup_time=3.0, time_per_unit=0.0),), tracks=4, spread=None, horizon=40.0
    )
    result = run(scenario)
    assert sum(result.worker_utilisation) <= 1.0


def test_a_run_with_a_horizon_ends_there_even_if_nothing_more_happens() -> None:
    result = run(one_track(Table("t", arrivals=(2.0,), setup_time=1.0, time_per_unit=0.0), horizon=10.0))
    assert result.seconds == 10.0
    assert staleness_area(result, "t") == pytest.approx(3 * 3 / 2 + (1 + 8) / 2 * 7)


def test_a_run_ends_after_the_stated_number_of_events() -> None:
    result = run(one_track(Table("t", period=4.0, offset=4.0, setup_time=1.0, time_per_unit=0.0), events=5))
    assert (result.events, result.seconds) == (5, 12.0)


# --- chopping -----------------------------------------------------------------------------------------------


def late(chop: float, name: str = "t") -> TableScenario:
    """A table of period 2 whose first 10 s of data are there when it gets the track for the first time, at 10.5."""
    table = Table(name, period=2.0, offset=2.0, setup_time=1.0, time_per_unit=0.25)
    return one_track(table, occupying("x", 1.0, 10.5), chop=chop, horizon=40.0)


@pytest.mark.parametrize("chop", [1.0, 1.5, 2.0, math.inf])
def test_chopping_limits_an_update_to_so_many_periods(chop: float) -> None:
    policy = Oldest()
    run(late(chop), policy)
    amounts = [start.amount for start in policy.starts if start.table == "t"]
    assert amounts[0] == min(10.0, chop * 2.0)
    assert max(amounts) <= chop * 2.0


@pytest.mark.parametrize("chop", [1.0, 1.5, 2.0])
def test_a_chopped_table_catches_up_in_the_end(chop: float) -> None:
    policy = Oldest()
    simulation = TableSimulation(late(chop), policy, Anywhere())
    simulation.run()
    loaded = sum(start.amount for start in policy.starts if start.table == "t")
    assert loaded + simulation.matrix.columns["pending"][0] == 40.0
    assert loaded >= 36.0


def test_a_table_that_keeps_up_is_updated_once_per_arrival_chopped_or_not() -> None:
    """Rounding must leave no crumbs of data that cost a whole update."""
    scenario = one_track(Table("t", period=10.0, setup_time=1.0, time_per_unit=0.0), horizon=199.0)
    for seed in range(10):
        plain, chopped = run(scenario, seed=seed), run(replace(scenario, chop=1.0), seed=seed)
        assert outcome(chopped, "t").updates == outcome(plain, "t").updates


def test_the_latency_of_a_chopped_update_counts_from_when_its_own_data_came() -> None:
    """Data comes at 2, 4, ..., 10 and is loaded one period at a time: commits at 12, 13.5, 15, ..."""
    table = Table("t", arrivals=(2.0, 4.0, 6.0, 8.0, 10.0), setup_time=1.0, time_per_unit=0.25)
    result = run(one_track(table, occupying("x", 1.0, 10.5), chop=1.0))
    latencies = [9.5, *(10.5 + 1.5 * (k + 1) - 2.0 * (k + 1) for k in range(5))]
    assert result.latency.count == len(latencies)
    assert result.latency.mean == pytest.approx(sum(latencies) / len(latencies))
    assert result.latency.max == max(latencies)


def test_the_rest_of_a_chopped_update_is_released_when_that_has_ended() -> None:
    table = Table("t", arrivals=(2.0, 4.0, 6.0), setup_time=1.0, time_per_unit=0.0)
    noted = Noted(Oldest(), ("release_time", "head_time"))
    simulate_tables(one_track(table, occupying("x", 1.0, 6.5), chop=1.0), noted, Anywhere())
    assert [(start.now, *start.features.values()) for start in noted.starts if start.node == "t"] == [
        (6.5, 2.0, 2.0),
        (7.5, 7.5, 4.0),
        (8.5, 8.5, 6.0),
    ]


def test_the_next_release_of_a_derived_table_is_a_period_after_its_rest_was_released() -> None:
    tables = (
        Table("s", arrivals=(2.0, 4.0, 6.0), setup_time=0.5, time_per_unit=0.0),
        Table("t", sources=("s",), setup_time=1.0, time_per_unit=0.0),
        occupying("x", 1.0, 6.5),
    )
    noted = Noted(InOrder(order="sxt"), ("release_time", "next_release"))
    simulate_tables(one_track(*tables, chop=1.0), noted, Anywhere())
    assert [(start.now, *start.features.values()) for start in noted.starts if start.node == "t"] == [
        (8.0, 7.0, 9.0),
        (9.0, 9.0, 11.0),
        (10.0, 10.0, 12.0),
    ]


@pytest.mark.parametrize("policy", ["fifo", "edf"])
def test_chopped_tables_that_are_alike_take_turns(policy: str) -> None:
    """There is more to do than the track can, so that each has a backlog."""
    tables = (Table(f"t{i}", period=10.0, setup_time=2.0, time_per_unit=0.1) for i in range(4))
    result = simulate_tables(one_track(*tables, chop=1.0, horizon=1000.0), policy_from(policy), Anywhere())
    updates = [table.updates for table in result.tables]
    assert max(updates) - min(updates) <= 1


# --- a budget of time -----------------------------------------------------------------------------------------


def behind(budget: float) -> TableScenario:
    """50 s of data are there when the table gets the track for the first time; 10 s fit into two seconds."""
    table = Table("t", period=1.0, offset=1.0, setup_time=1.0, time_per_unit=0.1)
    return one_track(table, occupying("x", 0.5, 50.5), budget=budget, horizon=100.0)


def test_a_budget_limits_updates_to_what_should_take_that_long() -> None:
    policy = Oldest()
    run(behind(2.0), policy)
    amounts = [start.amount for start in policy.starts if start.table == "t"]
    assert amounts[0] == pytest.approx(10.0)
    assert max(amounts) <= 10.0 + 1e-9
    assert min(amounts[-5:]) < 10.0, "it has caught up"


def test_without_a_budget_an_update_takes_in_everything() -> None:
    policy = Oldest()
    run(behind(math.inf), policy)
    assert next(start.amount for start in policy.starts if start.table == "t") == 50.0


def test_a_table_does_not_fall_behind_because_of_its_budget() -> None:
    """Another table keeps the track for 20 s at a time; into the budget fit 10 s of data, and four budgets are 70 s."""
    tables = (
        Table("t", period=1.0, offset=1.0, setup_time=1.0, time_per_unit=0.1),
        Table("x", period=20.0, offset=1.0, setup_time=17.0, time_per_unit=0.0),
    )
    policy = Oldest()
    simulation = TableSimulation(one_track(*tables, budget=2.0, horizon=2000.0), policy, Anywhere())
    simulation.run()
    assert simulation.matrix.columns["pending"][0] <= 60.0


# --- slow machines ------------------------------------------------------------------------------------------


def test_an_update_that_starts_in_a_slow_stretch_takes_so_much_longer() -> None:
    """Normal up to 5, slow up to 8, and so on: 4 is normal, 6 is slow, 14 is slow again."""
    table = Table("t", arrivals=(4.0, 6.0, 14.0), setup_time=0.5, time_per_unit=0.0)
    scenario = replace(one_track(table), slowdown=Slowdown(factor=3.0, normal=5.0, slow=3.0))
    result = run(scenario)
    assert result.seconds == 14.0 + 1.5
    assert outcome(result, "t").utilisation * result.seconds == pytest.approx(0.5 + 1.5 + 1.5)


@pytest.mark.parametrize(
    ("slowdown", "now", "factor"),
    [
        pytest.param(Slowdown(3.0, 5.0, 3.0), 0.0, 1.0, id="normal at first"),
        pytest.param(Slowdown(3.0, 5.0, 3.0), 4.999, 1.0, id="normal to the end"),
        pytest.param(Slowdown(3.0, 5.0, 3.0), 5.0, 3.0, id="then slow"),
        pytest.param(Slowdown(3.0, 5.0, 3.0), 8.0, 1.0, id="then normal again"),
        pytest.param(Slowdown(3.0, 0.0, 1.0), 123.4, 3.0, id="always slow"),
        pytest.param(Slowdown(3.0, 1.0, 0.0), 123.4, 1.0, id="never slow"),
        pytest.param(Slowdown(3.0, math.inf, 1.0), 123.4, 1.0, id="not for ages"),
        pytest.param(Slowdown(3.0, 100.0, math.inf), 99.9, 1.0, id="not yet slow"),
        pytest.param(Slowdown(3.0, 100.0, math.inf), 1e9, 3.0, id="slow for ever"),
    ],
)
def test_the_machine_alternates(slowdown: Slowdown, now: float, factor: float) -> None:
    assert slowdown.at(now) == factor


@pytest.mark.parametrize(
    ("start", "seconds", "lasts"),
    [
        pytest.param(0.0, 5.0, 5.0, id="ends with the normal stretch"),
        pytest.param(4.0, 1.5, 2.5, id="half a second of work in the slow one"),
        pytest.param(5.0, 1.0, 3.0, id="all of it slow"),
        pytest.param(6.5, 1.0, 2.0, id="begins slow, ends normal"),
        pytest.param(6.5, 13.0, 18.0, id="two whole cycles and as before"),
        pytest.param(4.0, 3.0, 5.0, id="normal, slow, normal"),
    ],
)
def test_throughout_a_running_update_follows_the_machine(start: float, seconds: float, lasts: float) -> None:
    """Normal up to 5, slow up to 8, 6 seconds of work in each cycle."""
    assert Slowdown(3.0, 5.0, 3.0, throughout=True).lasts(seconds, start) == pytest.approx(lasts)
    assert Slowdown(3.0, 5.0, math.inf, throughout=True).lasts(3.0, 4.0) == 1.0 + 3.0 * 2.0, "it stays slow"
    table = Table("t", arrivals=(start,) if start else (8.0,), setup_time=seconds, time_per_unit=0.0)
    scenario = replace(one_track(table), slowdown=Slowdown(3.0, 5.0, 3.0, throughout=True))
    assert run(scenario).seconds == pytest.approx((start or 8.0) + lasts)


@pytest.mark.parametrize(
    ("slowdown", "mean"),
    [
        pytest.param(Slowdown(3.0, 1.0, 1.0), 2.0, id="by where updates start"),
        pytest.param(Slowdown(3.0, 1.0, 1.0, throughout=True), 1.5, id="by the work that is done"),
        pytest.param(Slowdown(3.0, 0.0, 1.0, throughout=True), 3.0, id="always slow"),
        pytest.param(Slowdown(3.0, 1.0, 0.0, throughout=True), 1.0, id="never slow"),
        pytest.param(Slowdown(3.0, math.inf, 1.0, throughout=True), 1.0, id="not for ages"),
        pytest.param(Slowdown(3.0, 0.5, math.inf, throughout=True), 3.0, id="slow for ever"),
        pytest.param(Slowdown(3.0, 1e-6, 1e-6, throughout=True), 1.5, id="in no time"),
    ],
)
def test_how_much_longer_updates_take_on_the_mean(slowdown: Slowdown, mean: float) -> None:
    assert slowdown.mean == pytest.approx(mean)
    if slowdown.throughout:
        assert slowdown.lasts(1_000.0, 0.3) == pytest.approx(mean * 1_000.0, abs=2.0)


# --- chance -------------------------------------------------------------------------------------------------

#: too much for one track, so that it is never idle once all streams have begun
BUSY_TABLES = tuple(
    Table(name, period=2.0, priority=priority, setup_time=2.0 + number, time_per_unit=0.0)
    for number, (name, priority) in enumerate({"a": 5.0, "b": 1.0, "c": 3.0}.items())
)


def factors(policy: Noting, spread: float) -> dict[str, list[float]]:
    """{table: by how much each of its updates differed from E}: on a track that is never idle, from start to start."""
    run(TableScenario(BUSY_TABLES, tracks=1, spread=spread, guard=False, horizon=400.0), policy, seed=1)
    expected = {table.name: table.setup_time for table in BUSY_TABLES}
    drawn: dict[str, list[float]] = {name: [] for name in expected}
    for start, following in pairwise(policy.starts):
        begun = start.now >= 2.0  # before that the track may have been idle after the update
        drawn[start.table].append((following.now - start.now) / expected[start.table] if begun else math.nan)
    return drawn


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_execution_times_are_spread_from_b_to_one_plus_b(spread: float) -> None:
    drawn = [f for table in factors(Oldest(), spread).values() for f in table if not math.isnan(f)]
    assert spread <= min(drawn) < spread + 0.1
    assert spread + 0.9 < max(drawn) <= spread + 1


def test_every_policy_sees_the_same_execution_times_update_by_update() -> None:
    policies = [Oldest(), Benefit(), Turns()]
    drawn = [factors(policy, 0.5) for policy in policies]
    assert len({tuple(start.table for start in policy.starts[:50]) for policy in policies}) == 3, "they choose alike"
    for table in BUSY_TABLES:
        same_update = [pair for pair in zip(*(d[table.name] for d in drawn), strict=False) if not np.isnan(pair).any()]
        assert len(same_update) > 15
        for factor, *others in same_update:
            assert others == pytest.approx([factor] * len(others), abs=1e-9)


def test_the_same_seed_gives_the_same_result_number_for_number() -> None:
    scenario = TableScenario(BUSY_TABLES, tracks=2, horizon=500.0)
    assert run(scenario, Benefit(), seed=3) == run(scenario, Benefit(), seed=3)
    assert run(scenario, Benefit(), seed=3) != run(scenario, Benefit(), seed=4)


def test_the_order_of_the_tables_does_not_change_what_chance_gives_them() -> None:
    scenario = TableScenario(BUSY_TABLES, tracks=2, horizon=500.0)
    backward = replace(scenario, tables=BUSY_TABLES[::-1])
    forward_result, backward_result = run(scenario, Benefit()), run(backward, Benefit())
    for table in BUSY_TABLES:
        assert outcome(forward_result, table.name) == outcome(backward_result, table.name)


def test_without_a_stated_offset_a_table_begins_somewhere_in_its_first_period() -> None:
    firsts = set()
    for seed in range(20):
        policy = Oldest()
        run(one_track(Table("t", period=10.0, setup_time=1.0), horizon=10.0), policy, seed)
        firsts.add(policy.starts[0].now)
    assert len(firsts) == 20
    assert all(0 <= first < 10 for first in firsts)


# --- what must hold in every run ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Benefit(), Oldest(), InOrder(order="abcd")], ids=str)
@pytest.mark.parametrize("tracks", [1, 2, 4])
def test_everything_that_arrived_by_the_end_is_loaded_or_waits(policy: Noting, tracks: int) -> None:
    tables = (
        Table("a", period=2.0, offset=1.0, setup_time=1.0, time_per_unit=0.25),
        Table("b", period=4.0, offset=0.5, delay=0.25, setup_time=2.0, time_per_unit=0.125),
        Table("c", arrivals=(3.0, 50.0), setup_time=4.0, time_per_unit=0.0),
    )
    fresh = replace(policy, starts=[])
    simulation = TableSimulation(TableScenario(tables, tracks=tracks, horizon=60.0), fresh, Anywhere())
    simulation.run()
    arrived = {"a": 59.0, "b": 56.5 - 0.25, "c": 50.0}
    for i, table in enumerate(tables):
        taken = sum(start.amount for start in fresh.starts if start.table == table.name)
        assert taken + simulation.matrix.columns["pending"][i] == pytest.approx(arrived[table.name], abs=1e-9)


def test_nothing_waits_on_a_machine_with_a_track_for_every_table() -> None:
    light = tuple(replace(table, setup_time=0.5) for table in BUSY_TABLES)
    scenario = TableScenario(light, tracks=1, horizon=500.0)
    ideal = simulate_without_waiting(scenario, Oldest())
    assert all(table.longest_wait == 0.0 for table in ideal.tables)
    assert ideal.weighted_staleness < run(scenario, Oldest()).weighted_staleness


HIERARCHY = (
    Table("a", period=2.0, offset=1.0, setup_time=0.5, time_per_unit=0.0),
    Table("b", period=3.0, offset=1.5, setup_time=0.75, time_per_unit=0.0),
    Table("c", sources=("a",), setup_time=1.0, time_per_unit=0.125),
    Table("d", sources=("a", "b"), setup_time=1.0, time_per_unit=0.125),
    Table("e", sources=("c", "b"), setup_time=0.5, time_per_unit=0.25),
)


@pytest.mark.parametrize("feature", TABLE_FEATURES)
@pytest.mark.parametrize("tracks", [1, 2])
def test_a_policy_that_ranks_only_what_changed_is_told_of_every_change(feature: str, tracks: int) -> None:
    scenario = TableScenario(HIERARCHY, tracks=tracks, spread=None, chop=2.0, guard=False, horizon=60.0)
    changed, everything = LeastOf(feature=feature), LeastOfAll(feature=feature)
    run(scenario, changed)
    run(scenario, everything)
    assert changed.starts == everything.starts


def test_no_table_waits_beyond_its_patience_and_one_run_of_each_that_was_overdue() -> None:
    tables = tuple(
        Table(name, period=1.0, offset=1.0, setup_time=2.0, time_per_unit=0.0, patience=10.0) for name in "abcd"
    )
    scenario = TableScenario(tables, tracks=1, spread=None, horizon=300.0)
    guarded, bare = run(scenario, InOrder(order="abcd")), run(replace(scenario, guard=False), InOrder(order="abcd"))
    assert guarded.guard_strikes > 0
    assert max(table.longest_wait for table in guarded.tables) <= 10.0 + 4 * 2.0 + 2.0
    assert outcome(bare, "d").updates == 0


def test_the_result_names_what_was_run() -> None:
    result = run(replace(one_track(Table("t", arrivals=(1.0,))), name="mine"), seed=7)
    assert (result.scenario, result.policy, result.placement, result.seed) == ("mine", "oldest", "anywhere", 7)


@pytest.mark.slow
def test_progress_is_reported_now_and_then() -> None:
    reported: list[int] = []
    scenario = one_track(Table("t", period=1.0, offset=1.0, setup_time=0.5, time_per_unit=0.0), events=17_000)
    simulate_tables(scenario, Turns(), Anywhere(), progress=reported.append)
    assert reported
    assert max(reported) <= 17_000


# --- mistakes in scenarios ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param({"period": 0.0}, "needs a period of 1e-06 to 1e", id="no period"),
        pytest.param({"period": -1.0}, "needs a period of 1e-06 to 1e", id="negative period"),
        pytest.param({"period": math.nan}, "needs a period of 1e-06 to 1e", id="period that is no number"),
        pytest.param({"period": math.inf}, "period", id="period without end"),
        pytest.param(
            {"period": 1e-9}, "period of 1e-06 to 1e.15 seconds; got 1e-09", id="more data than there is time"
        ),
        pytest.param(
            {"priority": 1e300}, r"priority must be a number from 0 to 1e\+15; got 1e\+300", id="huge priority"
        ),
        pytest.param({"target_lag": 1e16}, r"target_lag must be more than 0 seconds, at most 1e\+15", id="huge target"),
        pytest.param({"arrivals": (1.0, 1e16)}, r"arrivals must be .*; got 1e\+16", id="arrival at the end of time"),
        pytest.param({"importance_class": 10**400}, "class must be from -9007199254740992", id="huge class"),
        pytest.param({"offset": 1e-300}, "offset must be 0, or from 1e-06", id="hardly an offset"),
        pytest.param({"sources": ("a",)}, "gets its period from them", id="sources and a period"),
        pytest.param({"delay": -1.0}, "delay must be", id="data before it happened"),
        pytest.param({"priority": -1.0}, "priority must be", id="negative priority"),
        pytest.param({"priority": math.nan}, "priority must be", id="priority that is no number"),
        pytest.param({"setup_time": math.inf}, "setup_time must be", id="an update without end"),
        pytest.param({"setup_time": 0.0, "time_per_unit": 0.0}, "must take some time", id="updates that take no time"),
        pytest.param({"patience": 0.0}, "patience must be more than 0", id="no patience"),
        pytest.param({"arrivals": (2.0, 1.0)}, "increasing", id="arrivals out of order"),
        pytest.param({"arrivals": (1.0, 1.0)}, "increasing", id="two arrivals at once"),
        pytest.param({"arrivals": (-1.0,)}, "arrivals", id="arrival before the beginning"),
        pytest.param({"arrivals": (math.nan,)}, "arrivals", id="arrival that is no number"),
        pytest.param({"offset": -1.0}, "offset", id="offset before the beginning"),
        pytest.param({"offset": math.nan}, "offset", id="offset that is no number"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_name(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint) as refusal:
        Table("t", **({"period": 1.0} | wrong))  # type: ignore[arg-type]
    assert "'t'" in str(refusal.value)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param({"tables": ()}, "at least one table", id="no tables"),
        pytest.param({"tracks": 0}, "tracks must be at least 1", id="no tracks"),
        pytest.param(
            {"tracks": 10**9}, "tracks must be at least 1, and at most 1000; got 1000000000", id="more tracks"
        ),
        pytest.param({"horizon": 1e300}, r"horizon must be at most 1e\+15 seconds, or inf", id="too much time"),
        pytest.param({"spread": 1.5}, "spread must be between 0 and 1", id="spread too wide"),
        pytest.param({"spread": math.nan}, "spread must be between 0 and 1", id="spread that is no number"),
        pytest.param({"budget": 0.0}, "budget must be", id="no budget at all"),
        pytest.param({"chop": 0.5}, "chop must be at least 1", id="chop below a period"),
        pytest.param({"events": 0}, "events and horizon must be positive", id="no events"),
        pytest.param({"horizon": 0.0}, "events and horizon must be positive", id="no time"),
        pytest.param(
            {"inheritance_k": 1.0, "inheritance": "max-plus"}, "above 1 .* got 1.0", id="max-plus without plus"
        ),
        pytest.param({"inheritance_k": 1e308, "inheritance": "max-plus"}, "at most 1000; got 1e", id="too much of it"),
        pytest.param({"inheritance_k": math.inf}, "at most 1000; got inf", id="too much of it, not used"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        TableScenario(**({"tables": (Table("t", period=1.0),)} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param((Table("a", sources=("x",)),), id="unknown source"),
        pytest.param((Table("a", sources=("b",)), Table("b", sources=("a",))), id="tables built on each other"),
        pytest.param((Table("a", period=1.0), Table("a", period=2.0)), id="two tables of one name"),
    ],
)
def test_tables_that_form_no_graph_are_refused(tables: tuple[Table, ...]) -> None:
    with pytest.raises(GraphError):
        TableScenario(tables)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"factor": 0.5}, r"slowdown\.factor must be a number from 1 to 1e\+15; got 0.5"),
        ({"factor": math.inf}, "factor must be .* got inf"),
        ({"factor": math.nan}, "factor must be .* got nan"),
        ({"normal": -1.0}, "slowdown.normal must be 0, at least 1e-06 seconds, or inf; got -1.0"),
        ({"slow": -1.0}, "slow must be 0, at least 1e-06 seconds, or inf; got -1.0"),
        ({"slow": 1e-300}, "slow must be 0, at least 1e-06 seconds, or inf; got 1e-300"),
        ({"slow": math.nan}, "slow must be 0, .* got nan"),
        ({"normal": 0.0, "slow": 0.0}, "slowdown.normal and slowdown.slow are both 0"),
    ],
    ids=str,
)
def test_a_slowdown_that_makes_no_sense_is_refused(wrong: dict[str, float], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        Slowdown(**({"factor": 2.0, "normal": 1.0, "slow": 1.0} | wrong))


def test_there_may_be_as_many_tracks_as_tables_however_many_those_are() -> None:
    tables = tuple(Table(f"t{i}", period=1.0) for i in range(1_001))
    assert TableScenario(tables, tracks=1_001).tracks == 1_001
    with pytest.raises(ScenarioError, match="at most 1001"):
        TableScenario(tables, tracks=1_002)


def test_the_load_offered_is_the_sum_of_e_of_p_over_p() -> None:
    scenario = TableScenario(
        (Table("a", period=10.0, setup_time=1.0, time_per_unit=0.1), Table("b", sources=("a",), setup_time=3.0))
    )
    assert scenario.utilisation() == pytest.approx((1 + 1) / 10 + (3 + 1) / 10)
