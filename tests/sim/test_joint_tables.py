"""Jobs that several tables share, in virtual time: solved by hand, chosen, bounded and replayed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core import ScenarioError, placement_from, policy_from
from headgate.core.joint import Together
from headgate.core.trace import Change
from headgate.sim import CostModel, Table, TableScenario, lower_bound, replay_of, simulate_tables
from headgate.sim.autopilot import TableCosts
from headgate.sim.scenario_file import parse_scenario
from tests.sim.recording import recorded

#: a stream that is loaded at 10 s, in a second; then two tables have 10 s of data to take in, on one track
SMALL = TableScenario(
    tables=(
        Table("air", period=10.0, offset=10.0, setup_time=1.0, time_per_unit=0.0, priority=0.0),
        Table("one", sources=("air",), setup_time=2.0, time_per_unit=0.1, priority=2.0),
        Table("two", sources=("air",), setup_time=2.0, time_per_unit=0.1, priority=1.0),
    ),
    tracks=1,
    spread=None,
    shared_setup=0.5,
    horizon=19.0,
)


@pytest.mark.parametrize(
    ("together", "ends"),
    [
        pytest.param("never", (14.0, 17.0), id="each takes 3 s"),
        pytest.param("auto", (14.0, 16.0), id="the second takes 2 s"),
        pytest.param("always", (14.0, 16.0), id="as it does if all that wait do"),
    ],
)
def test_a_shared_job_commits_one_table_after_the_other(together: str, ends: tuple[float, float]) -> None:
    scenario = replace(SMALL, together=together)
    result = simulate_tables(scenario, policy_from("max-benefit"), placement_from("anywhere"))
    for table, end in zip(result.tables[1:], ends, strict=True):
        # Stale by the time that has passed, less 10 s from its update on.
        assert table.mean_staleness == pytest.approx((19.0**2 / 2 - 10.0 * (19.0 - end)) / 19.0), table.name
        assert table.updates == 1
    assert result.worker_utilisation == (pytest.approx((ends[1] - 10.0) / 19.0),)


def test_with_a_budget_all_tables_of_a_job_take_in_what_fits_into_the_least_of_their_limits() -> None:
    # Alone, four seconds, twice the set-up, are enough for 20 s of data of one table, and for 5 s of the other.
    air, one, two = SMALL.tables
    slower = (air, one, replace(two, time_per_unit=0.4))
    scenario = replace(SMALL, tables=slower, together="always", budget=3.0, horizon=16.5)
    result = simulate_tables(scenario, policy_from("max-benefit"), placement_from("anywhere"))
    for table, end in zip(result.tables[1:], (13.5, 16.5), strict=True):
        assert table.mean_staleness == pytest.approx((16.5**2 / 2 - 5.0 * (16.5 - end)) / 16.5), table.name


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(ScenarioError, match="shared_setup must be a share between 0 and 1"):
        replace(SMALL, shared_setup=share)


def test_a_scenario_file_states_what_jobs_share() -> None:
    text = """
    grain = "tables"
    shared_setup = 0.6
    together = "never"
    [[table]]
    name = "air"
    period = 5
    """
    scenario = parse_scenario(text).scenario
    assert isinstance(scenario, TableScenario)
    assert (scenario.shared_setup, scenario.together) == (0.6, "never")


#: three times what one track can do
BUSY = TableScenario(
    tables=(
        Table("air", period=1.0, setup_time=0.2, time_per_unit=0.02),
        Table("cars", period=2.0, setup_time=0.2, time_per_unit=0.02),
        *(Table(f"air_{n}", sources=("air",), setup_time=0.3, time_per_unit=0.02, priority=1.0 + n) for n in range(4)),
        *(
            Table(f"cars_{n}", sources=("cars",), setup_time=0.3, time_per_unit=0.02, priority=9.0 - n)
            for n in range(4)
        ),
    ),
    tracks=1,
    shared_setup=0.6,
    horizon=100.0,
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["max-benefit", "priced-benefit", "fifo"])
def test_at_overload_the_scheduler_chooses_better_than_none_and_no_worse_than_the_bound(policy: str) -> None:
    found = {
        together: simulate_tables(
            replace(BUSY, together=together), policy_from(policy), placement_from("anywhere")
        ).weighted_staleness
        for together in ("never", "auto")
    }
    assert found["auto"] < found["never"]
    assert found["auto"] >= lower_bound(BUSY, portions=True).weighted_staleness


@pytest.mark.slow
def test_the_bound_counts_on_the_least_set_up_of_each_table() -> None:
    short = replace(BUSY, horizon=20.0)
    alone = lower_bound(replace(short, together="never")).weighted_staleness
    assert lower_bound(short).weighted_staleness < alone
    assert lower_bound(replace(short, shared_setup=0.0)).weighted_staleness == pytest.approx(alone)


def test_a_recorded_run_with_shared_jobs_comes_to_the_same_when_it_is_replayed() -> None:
    scenario = replace(BUSY, spread=None, events=100_000)
    result, trace = recorded(scenario, "max-benefit")
    jobs = [update for update in trace.updates if update.has_joined]
    assert len(jobs) > 20
    replay = replay_of(trace)
    assert replay.scenario.shared_setup == pytest.approx(0.6, abs=0.02)
    again = replay.run(policy_from("max-benefit"), placement_from("anywhere"))
    assert again.weighted_staleness == pytest.approx(result.weighted_staleness, rel=0.03)
    learning = replay_of(trace, new_estimate=CostModel).run(policy_from("max-benefit"), placement_from("anywhere"))
    assert learning.weighted_staleness == pytest.approx(result.weighted_staleness, rel=0.1)
    apart = replace(replay, scenario=replace(replay.scenario, together="never"))
    assert (
        apart.run(policy_from("max-benefit"), placement_from("anywhere")).weighted_staleness
        > 1.05 * again.weighted_staleness
    )


def test_a_run_is_replayed_by_how_jobs_were_shared_for_longest_and_updates_count_as_they_were_made() -> None:
    _, trace = recorded(replace(BUSY, spread=None), "max-benefit")
    began, end = trace.header.started, trace.finish
    trace = replace(trace, header=replace(trace.header, together="declared"))
    for share, together in ((0.2, "auto"), (0.8, "never")):
        changed = replace(trace, changes=(Change(began + share * (end - began), {"together": "auto"}),))
        replay = replay_of(changed, share * (end - began) / 2)
        assert replay.scenario.together == together
        seen = replay_of(changed, (1 + share) / 2 * (end - began)).recorded
        joined = [update for update in trace.updates_of("cars_1") if update.began < changed.changes[0].at]
        number = [table.name for table in replay.scenario.tables].index("cars_1")
        assert len(seen[number].seen) == len(joined) > 0, "those after the change tell nothing of an update alone"


@pytest.mark.parametrize(
    ("together", "tells"),
    [("auto", False), pytest.param("declared", True, id="a declared group is replayed as if each had been alone")],
)
def test_an_update_in_the_job_of_another_does_not_tell_what_it_takes_alone(together: Together, tells: bool) -> None:
    _, trace = recorded(replace(BUSY, spread=None), "max-benefit")
    assert {update.has_joined for update in trace.updates_of("cars_0")} == {False}
    assert {update.has_joined for update in trace.updates_of("cars_1")} == {True}
    trace = replace(trace, header=replace(trace.header, together=together))
    replay = replay_of(trace, 50.0)
    seen = {table.name: known.seen for table, known in zip(replay.scenario.tables, replay.recorded, strict=True)}
    costs = TableCosts()
    for update in trace.updates:
        costs.note(update, together)
    assert seen["cars_0"] and "cars_0" in costs.fitted()
    assert (bool(seen["cars_1"]), "cars_1" in costs.fitted()) == (tells, tells)
