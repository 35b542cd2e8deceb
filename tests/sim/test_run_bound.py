"""A recorded run beside its bound: never below it, whatever its updates took, and at it if none is better."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from headgate.core import CostModel, Update
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import Change, NotLoaded, RunBound, Trace, TraceHeader, TraceTable, lag_of
from headgate.sim import Table, TableScenario, TraceReplay, replay_of, run_bound
from headgate.sim.run_bound import settled
from tests.sim.recording import BUSY, START, recorded
from tests.sim.test_bound import some_scenario

DAY = 86_400.0


def bounded(trace: Trace, skip: float = 0.0) -> RunBound:
    return run_bound(replay_of(trace, skip, CostModel))


def is_below(found: RunBound) -> bool:
    return found.weighted_staleness < found.least * (1 - 1e-9) - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["max-benefit", "priced-benefit", "fifo"])
@pytest.mark.parametrize("seed", range(6))
def test_no_recorded_run_is_below_its_bound(seed: int, policy: str) -> None:
    scenario = replace(some_scenario(seed), spread=0.3)
    _, trace = recorded(scenario, policy, seed=seed)
    for skip in (0.0, scenario.horizon / 3):
        found = bounded(trace, skip)
        assert not is_below(found), f"without {skip} s: {found}"


def too_good(trace: Trace, chance: Random) -> Trace:
    """Updates took less than others of the same size, and loaded data that came later, by the clock of its source."""
    updates = []
    for update in trace.updates:
        seconds = update.seconds * (chance.uniform(0.0, 0.5) if chance.random() < 0.3 else 1.0)
        arrived = update.arrived
        if arrived is not None:
            first, last, chunks = arrived
            arrived = (first + 4.0, last + 4.0, chunks)
        updates.append(replace(update, seconds=seconds, arrived=arrived))
    return replace(trace, updates=tuple(updates))


@pytest.mark.parametrize("seed", range(8))
def test_nor_is_one_that_was_better_than_its_own_costs_and_arrivals_allow(seed: int) -> None:
    chance = Random(seed)
    scenario = replace(BUSY, tracks=chance.randint(1, 2), spread=chance.choice((None, 0.0)))
    trace = too_good(recorded(scenario, chance.choice(("max-benefit", "fifo")), seed=seed)[1], chance)
    found = bounded(trace)
    assert not is_below(found), found
    assert found.weighted_staleness < replay_of(trace).lower_bound(found.tracks).weighted_staleness


def test_nor_is_one_that_had_more_tracks_for_a_while() -> None:
    # Recorded on two tracks, said to have had one until shortly before the end and two before.
    _, trace = recorded(replace(BUSY, tracks=2), "max-benefit")
    fewer = replace(trace, changes=(Change(START + 1.0, {"tracks": 1}),))
    found = bounded(fewer)
    assert found.tracks == 2
    assert not is_below(found)


def test_clocks_that_do_not_agree_make_no_further_track() -> None:
    _, trace = recorded(BUSY, "max-benefit")
    longer = tuple(replace(update, seconds=update.seconds + 1e-3) for update in trace.updates)
    assert bounded(replace(trace, updates=longer)).tracks == 1


def test_a_run_in_which_nobody_waits_is_at_the_bound() -> None:
    tables = (Table("a", period=10.0, offset=10.0, setup_time=1.0), Table("b", period=10.0, offset=15.0, priority=3.0))
    _, trace = recorded(TableScenario(tables, tracks=1, spread=None, horizon=95.0, events=10**6), "fifo")
    found = bounded(trace)
    assert found.times == pytest.approx(1.0, abs=1e-4)
    assert (found.tables, found.left_out) == (2, 0)


def test_one_that_serves_the_wrong_table_is_far_above_it() -> None:
    tables = (
        Table("dear", period=10.0, offset=10.0, priority=100.0, setup_time=1.0, time_per_unit=0.0),
        *(Table(f"cheap{i}", period=10.0, offset=9.0, setup_time=4.0, time_per_unit=0.0) for i in range(4)),
    )
    scenario = TableScenario(tables, tracks=1, spread=None, horizon=400.0, events=10**6, guard=False)
    good, bad = (bounded(recorded(scenario, policy)[1]).times for policy in ("max-benefit", "fifo"))
    assert good is not None and bad is not None
    assert bad > 1.5 * good


def test_data_of_the_past_is_in_neither_figure() -> None:
    _, trace = recorded(BUSY, "max-benefit")
    old = [
        replace(update, freshness=None if update.freshness is None else update.freshness - round(2 * DAY * 1e6))
        if update.table == "meters"
        else update
        for update in trace.updates
    ]
    tables = tuple(
        replace(table, freshness=round((START - 2 * DAY) * 1e6)) if table.name == "meters" else table
        for table in trace.header.tables
    )
    trace = replace(trace, updates=tuple(old), header=replace(trace.header, tables=tables))
    found = bounded(trace)
    assert (found.tables, found.left_out) == (2, 1)
    assert found.weighted_staleness < 100 * DAY / 1000
    with_past = run_bound(replay_of(trace, 0.0, CostModel), everything=True)
    assert with_past.tables == 3
    assert with_past.weighted_staleness > 2 * DAY
    assert with_past.times == pytest.approx(1.0, abs=1e-3)


def late(trace: Trace, *names: str) -> Trace:
    """The same run, but these tables were empty when it began."""
    tables = tuple(replace(each, freshness=None) if each.name in names else each for each in trace.header.tables)
    return replace(trace, header=replace(trace.header, tables=tables))


@pytest.mark.parametrize(
    ("names", "after"),
    [
        pytest.param((), (0.0, 0.0), id="all had rows"),
        pytest.param(("meters",), (0.0, 0.0), id="a table of a thirtieth of the priorities had none"),
        pytest.param(("air",), (0.5, 10.0), id="one of a third had none"),
    ],
)
def test_a_run_has_begun_when_most_tables_have_rows(names: tuple[str, ...], after: tuple[float, float]) -> None:
    _, trace = recorded(BUSY, "fifo")
    assert after[0] <= settled(late(trace, *names)) <= after[1]


def test_a_table_that_is_empty_at_first_is_in_neither_figure() -> None:
    found = bounded(late(recorded(BUSY, "fifo")[1], "meters"))
    assert (found.tables, found.left_out) == (2, 1)


def test_tables_without_event_time_are_not_said_to_be_left_out() -> None:
    _, trace = recorded(BUSY, "fifo")
    more = (TraceTable("zones", kind="dimension"), TraceTable("areas", sources=("zones",)))
    found = bounded(replace(trace, header=replace(trace.header, tables=(*trace.header.tables, *more))))
    assert (found.tables, found.left_out) == (3, 0)


def test_a_run_of_a_policy_that_nobody_knows_may_have_cut_its_updates() -> None:
    _, trace = recorded(BUSY, "max-benefit")
    assert not bounded(trace).portions
    own = replace(trace, header=replace(trace.header, policy="mine.py:Mine"))
    assert bounded(own).portions
    limited = replace(trace, changes=(Change(START + 5.0, {"budget": 2.0}),))
    assert bounded(limited).portions


def test_a_run_with_a_table_that_takes_the_newest_first_may_have_cut_its_updates() -> None:
    """Also without a budget: such a table takes in ten periods at once."""
    _, trace = recorded(BUSY, "max-benefit")
    air, *others = trace.header.tables
    newest = replace(trace, header=replace(trace.header, tables=(replace(air, catch_up="newest"), *others)))
    assert not bounded(trace).portions and bounded(newest).portions


def test_a_bound_of_nothing_is_no_number_of_times() -> None:
    nothing = RunBound(0.0, 0.0, 0.0, 10.0, 1, False, 0, 0)
    assert nothing.times is None
    assert replace(nothing, weighted_staleness=1.0 - 1e-12, least=1.0).times == 1.0
    assert math.isclose(replace(nothing, weighted_staleness=1.06, least=1.0).times or 0.0, 1.06)


# --- data that was never loaded --------------------------------------------------------------------------------------


def stream(name: str) -> TraceTable:
    return TraceTable(name, kind="stream", period=10.0, freshness=round(START * 1e6))


def load(name: str, first: float, last: float, chunks: int, began: float) -> Update:
    """Chunks that came every 10 s, loaded in half a second."""
    update = Update(name, track=0, released=START + first, began=START + began, seconds=0.5, gained=last - first + 10)
    update.freshness, update.arrived = round((START + last) * 1e6), (START + first, START + last, chunks)
    return update


def starving(*more: Update, not_loaded: NotLoaded | None = None, end: float = 300.0) -> Trace:
    """Stream a is loaded every 10 s; to b, of which c is computed, data comes as often, and nobody loads it."""
    tables = (stream("a"), stream("b"), TraceTable("c", sources=("b",), freshness=round(START * 1e6)))
    header = TraceHeader("city", START, 1, "max-benefit", "anywhere", "max", None, tables)
    updates = (*(load("a", 10.0 * n, 10.0 * n, 1, 10.0 * n) for n in range(1, 31)), *more)
    return Trace(header, updates, (), START + end, not_loaded=not_loaded)


def waits(at: float, first: float, last: float, unknown: tuple[str, ...] = ()) -> NotLoaded:
    return NotLoaded(START + at, {"b": (START + first, START + last, round((last - first) / 10) + 1)}, unknown)


def of_everything(trace: Trace) -> RunBound:
    return run_bound(replay_of(trace, 0.0, CostModel), everything=True)


def test_a_stream_that_is_starved_could_have_been_loaded() -> None:
    found = of_everything(starving(not_loaded=waits(300.0, 10.0, 300.0)))
    assert (found.tables, found.left_out) == (3, 0)
    loaded = load("b", 10.0, 300.0, 30, began=300.5)
    at_last = of_everything(starving(loaded, end=301.5))
    assert found.least == pytest.approx(at_last.least, rel=0.1)
    assert found.times is not None and found.times > 10


def test_what_waits_after_a_part_was_loaded_could_have_been_loaded_too() -> None:
    part = load("b", 10.0, 50.0, 5, began=290.0)
    after = of_everything(starving(part, not_loaded=waits(300.0, 60.0, 300.0)))
    before = of_everything(starving(part, not_loaded=waits(280.0, 10.0, 280.0)))
    for found in (after, before):
        assert found.tables == 3
        assert found.least < 40
        assert not is_below(found)


def test_tables_of_which_nobody_knows_whether_data_waited_are_in_neither_figure() -> None:
    for untold in (None, replace(waits(300.0, 10.0, 300.0, ("b",)), streams={})):
        found = of_everything(starving(not_loaded=untold))
        assert (found.tables, found.left_out) == (1, 2), "b, and c which is computed from it"
        assert found.weighted_staleness < 10


def test_nothing_can_be_gained_of_a_stream_to_which_nothing_came() -> None:
    loaded = load("b", 10.0, 10.0, 1, began=10.5)
    found = of_everything(starving(loaded, not_loaded=NotLoaded(START + 300, {})))
    assert found.tables == 3
    assert found.least > 250


def test_a_source_that_has_fallen_silent_is_silent_in_a_replay() -> None:
    header = TraceHeader("city", START, 1, "fifo", "anywhere", "max", None, (stream("a"),))
    updates = tuple(load("a", 10.0 * n, 10.0 * n, 1, 10.0 * n) for n in range(1, 11))
    told = replay_of(Trace(header, updates, (), START + 200, not_loaded=NotLoaded(START + 200, {})))
    untold = replay_of(Trace(header, updates, (), START + 200))
    same = replayed(told)
    assert same == pytest.approx(told.measured().weighted_staleness, rel=0.01)
    assert replayed(untold) < same / 2, "it is taken to go on"
    assert told.notes == ()
    assert untold.notes == (
        "Nothing is recorded to have come to a in the last 100 s or more, nor that nothing came. Replays assume that"
        " data went on coming at the usual pace.",
    )


def replayed(replay: TraceReplay) -> float:
    return replay.run(policy_from("fifo"), placement_from("anywhere")).weighted_staleness


def test_what_waited_counts_for_the_lag() -> None:
    trace = starving(not_loaded=waits(300.0, 10.0, 300.0))
    lag = lag_of(trace, trace.tables[1])
    assert lag is not None and lag.maximum == pytest.approx(290.0)
