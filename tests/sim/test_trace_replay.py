"""A recorded run, replayed: it comes to the same, and says what would have been under other policies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from headgate.core import FeatureView, Floats, Policy
from headgate.core.cost import CostModel
from headgate.core.errors import ParameterError, ScenarioError
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import Change, Trace, TraceHeader, TraceTable, lag_of, measured
from headgate.core.update import Update
from headgate.sim import Table, TableResult, TableScenario, TraceReplay, compare_replay, replay_of
from headgate.sim.tables.replay import ReplayChange, ReplaySimulation
from headgate.sim.trace_costs import brought
from headgate.testing import Noted
from tests.sim.recording import BUSY, START, recorded


def city(tracks: int = 2, spread: float | None = None, horizon: float = 200.0, chop: float = math.inf) -> TableScenario:
    """Streams, tables on one of them and joins of two, for about two tracks."""
    tables = []
    for i, (priority, of_join) in enumerate([(100, 1), (10, 2), (3, 5)]):
        tables += [
            Table(f"s{i}", period=5.0 + i, delay=1.0 + i / 2, setup_time=0.4, time_per_unit=0.02),
            Table(f"a{i}", sources=(f"s{i}",), priority=priority, setup_time=0.5 + i / 5, time_per_unit=0.05),
            Table(f"j{i}", sources=(f"s{i}", f"s{(i + 1) % 3}"), priority=of_join, time_per_unit=0.1),
        ]
    return TableScenario(
        tuple(tables), tracks=tracks, spread=spread, horizon=horizon, chop=chop, events=10**9, name="city"
    )


def simulated(replay: TraceReplay, policy: str, tracks: int | None = None) -> TableResult:
    return replay.run(policy_from(policy), placement_from("anywhere"), tracks)


def staleness(result: TableResult) -> dict[str, float]:
    return {table.name: table.mean_staleness for table in result.tables}


# --- the same again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["max-benefit", "fifo", "edf-p"])
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(city(tracks=4), id="tracks enough"),
        pytest.param(city(tracks=2), id="busy"),
        pytest.param(city(tracks=1), id="overloaded"),
        pytest.param(city(tracks=1, chop=2.0), id="overloaded and chopped"),
    ],
)
def test_a_run_of_exact_costs_comes_to_the_same_when_it_is_replayed(scenario: TableScenario, policy: str) -> None:
    result, trace = recorded(scenario, policy)
    again = simulated(replay_of(trace), policy)
    assert staleness(again) == pytest.approx(staleness(result), rel=0.01)
    assert [t.updates for t in again.tables] == pytest.approx([t.updates for t in result.tables], abs=1)
    assert again.weighted_staleness == pytest.approx(measured(trace).weighted_staleness, rel=0.01)


@pytest.mark.parametrize(
    ("chop", "arrived"),
    [
        pytest.param(math.inf, [(4.0, 8.0, 3)], id="everything"),
        pytest.param(1.0, [(4.0, 4.0, 1), (4.0, 4.0, 1), (6.0, 6.0, 1), (8.0, 8.0, 1)], id="the first in two parts"),
        pytest.param(3.5, [(4.0, 6.0, 2), (8.0, 8.0, 1)], id="two, and a part of the third"),
    ],
)
def test_a_recorded_update_says_when_the_data_came_that_it_took_in_to_its_end(
    chop: float, arrived: list[tuple[float, float, int]]
) -> None:
    table = Table("t", arrivals=(4.0, 6.0, 8.0), setup_time=1.0, time_per_unit=0.0)
    busy = Table("x", arrivals=(1.0,), setup_time=9.0, time_per_unit=0.0)
    _, trace = recorded(TableScenario((table, busy), tracks=1, chop=chop, spread=None, guard=False), "fifo")
    told = [update.arrived for update in trace.updates_of("t")]
    assert [(each[0] - START, each[1] - START, each[2]) for each in told if each] == arrived


@pytest.mark.parametrize(("ran", "asked"), [("max-benefit", "fifo"), ("fifo", "max-benefit"), ("fifo", "edf-p")])
def test_a_replay_predicts_what_another_policy_really_comes_to(ran: str, asked: str) -> None:
    _, trace = recorded(city(), ran)
    really, _ = recorded(city(), asked)
    assert staleness(simulated(replay_of(trace), asked)) == pytest.approx(staleness(really), rel=0.02)


def test_a_replay_predicts_what_more_tracks_come_to() -> None:
    _, trace = recorded(city(tracks=2), "fifo")
    really, _ = recorded(city(tracks=4), "fifo")
    assert staleness(simulated(replay_of(trace), "fifo", tracks=4)) == pytest.approx(staleness(really), rel=0.02)


@pytest.mark.parametrize("policy", ["max-benefit", "fifo"])
def test_updates_are_slow_when_they_were_so_that_a_run_that_varied_comes_to_the_same(policy: str) -> None:
    result, trace = recorded(city(spread=0.5), policy, seed=3)
    assert staleness(simulated(replay_of(trace), policy)) == pytest.approx(staleness(result), rel=0.03)


def test_updates_that_varied_come_to_about_the_same_under_another_policy() -> None:
    _, trace = recorded(city(spread=0.5, horizon=600.0), "max-benefit", seed=3)
    really, _ = recorded(city(spread=0.5, horizon=600.0), "fifo", seed=4)
    assert simulated(replay_of(trace), "fifo").weighted_staleness == pytest.approx(really.weighted_staleness, rel=0.1)


def test_without_its_beginning_a_run_goes_on_from_where_it_stood() -> None:
    _, trace = recorded(city(horizon=400.0), "max-benefit")
    replay = replay_of(trace, skip=100.0)
    again, was = simulated(replay, "max-benefit"), replay.measured()
    assert again.seconds == pytest.approx(300.0)
    assert again.weighted_staleness == pytest.approx(was.weighted_staleness, rel=0.02)
    assert staleness(again) == pytest.approx({t.name: t.mean_staleness for t in was.tables}, rel=0.1)


def test_without_its_beginning_a_run_has_the_lags_that_it_had() -> None:
    """One track is too little, and what joins two streams waits for longest: from before the replay begins."""
    tables = tuple(replace(table, target_lag=5.0) for table in city().tables)
    _, trace = recorded(replace(city(tracks=1), tables=tables), "max-benefit")
    found = {table.name: table for table in simulated(replay_of(trace, skip=100.0), "max-benefit").tables}
    was = lag_of(trace, next(table for table in trace.tables if table.name == "j0"))
    assert was is not None and was.maximum > 100.0
    assert (found["j0"].max_lag, found["j0"].target_met) == (pytest.approx(was.maximum, rel=0.01), 0.0)


def test_files_that_had_to_settle_are_not_loaded_before_in_a_replay_either() -> None:
    result, trace = recorded(city(), "max-benefit")
    settling = tuple(
        replace(update, arrived=(update.arrived[0] - 0.5, update.arrived[1] - 0.5, update.arrived[2]))
        if update.arrived and update.table == "s0"
        else update
        for update in trace.updates
    )
    replay = replay_of(replace(trace, updates=settling))
    plain = replay_of(trace)
    arrivals, before = ({t.name: t.arrivals for t in each.scenario.tables} for each in (replay, plain))
    assert arrivals["s0"] == pytest.approx(before["s0"])
    assert simulated(replay, "max-benefit").weighted_staleness == pytest.approx(result.weighted_staleness, rel=1e-2)


def test_the_same_seed_replays_to_the_same_numbers() -> None:
    _, trace = recorded(city(spread=0.5), "max-benefit")
    assert simulated(replay_of(trace), "fifo") == simulated(replay_of(trace), "fifo")


# --- what a replay is made of ---------------------------------------------------------------------------------


def update(name: str, began: float, seconds: float, reaches: float | None, **more: object) -> Update:
    fresh = None if reaches is None else round((START + reaches) * 1e6)
    moment = START + began
    plain = Update(name, "live", 0, moment, moment, seconds, 5.0, 1, 0, fresh, None, 0.0, None)
    return replace(plain, **more)  # type: ignore[arg-type]


def run_of(*tables: TraceTable, updates: list[Update], end: float = 100.0, **changed: object) -> Trace:
    header = TraceHeader("city", START, 1, "max-benefit", "anywhere", "max", None, tables)
    return Trace(replace(header, **changed), tuple(updates), (), START + end)  # type: ignore[arg-type]


def loads(times: list[float], seconds: float = 0.5) -> list[Update]:
    return [update("s", t, seconds, t - 1, arrived=(START + t, START + t, 1)) for t in times]


STREAM = TraceTable("s", kind="stream", freshness=round(START * 1e6))


def test_what_lay_there_at_the_beginning_is_loaded_first_and_costs_what_it_is_worth() -> None:
    backlog = update("s", 0.0, 6.0, -10.0, arrived=(START - 500, START - 10, 50), gained=490.0)
    flowing = [update("s", t, 0.6, t - 10, arrived=(START + t, START + t, 1)) for t in (10.0, 20.0, 30.0)]
    stream = replace(STREAM, freshness=round((START - 500) * 1e6))
    trace = run_of(stream, updates=[backlog, *flowing], end=40.0)
    replay = replay_of(trace)
    assert replay.recorded[0].waiting == pytest.approx(-10.0, abs=1e-6)
    result = simulated(replay, "fifo")
    assert result.tables[0].max_staleness == pytest.approx(506.0, rel=0.05)
    assert result.weighted_staleness == pytest.approx(measured(trace).weighted_staleness, rel=0.05)


def test_a_table_without_rows_counts_from_its_first_update_as_it_does_where_it_is_measured() -> None:
    table = TraceTable("t", sources=("s",))
    times = [float(t) for t in range(10, 100, 10)]
    updates = [*loads(times), *(update("t", t + 0.5, 1.0, t - 1, gained=10.0) for t in times)]
    trace = run_of(replace(STREAM, freshness=None), table, updates=updates)
    replay = replay_of(trace)
    assert [recorded.empty for recorded in replay.recorded] == [True, True]
    was = {t.name: (t.mean_staleness, t.max_staleness) for t in replay.measured().tables}
    result = simulated(replay, "max-benefit")
    assert {t.name: (t.mean_staleness, t.max_staleness) for t in result.tables} == {
        name: (pytest.approx(mean, rel=0.02), pytest.approx(largest, rel=0.02)) for name, (mean, largest) in was.items()
    }


@pytest.mark.parametrize(
    "freshness",
    [
        pytest.param(None, id="one very late row in the first load"),
        pytest.param(round((START - 100_000) * 1e6), id="a source that was silent for long"),
    ],
)
def test_time_without_data_that_the_run_took_in_at_once_is_not_cut_by_the_budget(freshness: int | None) -> None:
    table = TraceTable("t", sources=("s",), freshness=freshness)
    times = [float(t) for t in range(10, 100, 10)]
    late = update("t", 10.5, 8.0, 9.0, gained=100_009.0)
    flowing = [update("t", t + 0.5, 1.0, t - 1, gained=10.0) for t in times[1:]]
    trace = run_of(replace(STREAM, freshness=freshness), table, updates=[*loads(times), late, *flowing], budget=1.0)
    replay = replay_of(trace)
    was, result = replay.measured().of("t"), simulated(replay, "max-benefit").tables[1]
    assert (result.updates, result.mean_staleness) == (was.updates, pytest.approx(was.mean_staleness, rel=0.05))


@dataclass(frozen=True)
class Sips(Policy):
    """Whatever is ready, 20 s of data at a time."""

    name = "sips"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))

    def portion(self, view: FeatureView) -> Floats:
        return np.full(len(view), 20.0)


@pytest.mark.parametrize(
    "freshness",
    [
        pytest.param(None, id="one very late row in the first load"),
        pytest.param(round((START - 100_000) * 1e6), id="a source that was silent for long"),
    ],
)
def test_time_without_data_that_the_run_took_in_at_once_is_not_cut_by_portions(freshness: int | None) -> None:
    table = TraceTable("t", sources=("s",), freshness=freshness)
    times = [float(t) for t in range(10, 100, 10)]
    late = update("t", 10.5, 8.0, 9.0, gained=100_009.0)
    flowing = [update("t", t + 0.5, 1.0, t - 1, gained=10.0) for t in times[1:]]
    first = loads(times)[0]
    streaming = [replace(first, gained=100_009.0), *loads(times)[1:]]
    trace = run_of(replace(STREAM, freshness=freshness), table, updates=[*streaming, late, *flowing])
    replay = replay_of(trace)
    was, result = replay.measured().of("t"), replay.run(Sips(), placement_from("anywhere")).tables[1]
    assert (result.updates, result.mean_staleness) == (was.updates, pytest.approx(was.mean_staleness, rel=0.05))


def test_data_that_the_run_took_in_at_once_is_cut_by_portions() -> None:
    backlog = update("s", 0.0, 6.0, -10.0, arrived=(START - 500, START - 10, 50), gained=490.0)
    flowing = [update("s", t, 0.6, t - 10, arrived=(START + t, START + t, 1)) for t in (10.0, 20.0, 30.0)]
    stream = replace(STREAM, freshness=round((START - 500) * 1e6))
    replay = replay_of(run_of(stream, updates=[backlog, *flowing], end=40.0))
    assert replay.recorded[0].empty_times == ()
    at_once, cut = (replay.run(policy, placement_from("anywhere")) for policy in (policy_from("fifo"), Sips()))
    assert at_once.tables[0].updates == 4
    assert cut.tables[0].updates > 490 / 20


def test_the_first_updates_of_a_table_take_in_no_more_of_a_backlog_than_they_did_before_costs_were_known() -> None:
    table = TraceTable("t", sources=("s",))
    times = [float(t) for t in range(10, 100, 10)]
    first = [update("t", 10.5, 1.0, -3600.0, gained=3600.0), update("t", 11.5, 1.0, 9.0, gained=3609.0)]
    flowing = [update("t", t + 0.5, 1.0, t - 1, gained=10.0) for t in times[1:]]
    trace = run_of(replace(STREAM, freshness=None), table, updates=[*loads(times), *first, *flowing], budget=1.0)
    replay = replay_of(trace)
    was, result = replay.measured().of("t"), simulated(replay, "max-benefit").tables[1]
    assert (result.updates, result.mean_staleness) == (was.updates, pytest.approx(was.mean_staleness, rel=0.05))


@pytest.mark.parametrize("layer", ["backfill", "maintenance"])
def test_work_of_lower_layers_takes_up_the_track_behind_updates_and_is_not_measured(layer: str) -> None:
    times = [float(t) for t in range(10, 100, 10)]
    work = [update("s", t + 1.0, 4.0, None, layer=layer, released=START + t) for t in times]
    replay = replay_of(run_of(STREAM, updates=[*loads(times), *work]))
    result = simulated(replay, "fifo")
    assert [table.name for table in replay.scenario.tables] == ["s", f"s ({layer})"]
    assert [table.name for table in result.tables] == ["s"]
    assert result.worker_utilisation[0] == pytest.approx(9 * 4.5 / 100, rel=0.01)
    assert result.latency.max == pytest.approx(0.5)
    assert result.weighted_staleness == pytest.approx(result.tables[0].mean_staleness)


def test_dimensions_take_up_tracks_and_hold_nobody_back() -> None:
    dimension, table = (
        TraceTable("d", kind="dimension"),
        TraceTable("t", sources=("s", "d"), freshness=STREAM.freshness),
    )
    only_dimensions = TraceTable("u", sources=("d",))
    times = [10.0, 20.0, 30.0]
    updates = [*loads(times), *(update("t", t + 0.5, 1.0, t - 1) for t in times), update("d", 2.0, 3.0, None)]
    result = simulated(replay_of(run_of(STREAM, dimension, table, only_dimensions, updates=updates)), "fifo")
    assert {t.name: t.updates for t in result.tables} == {"s": 9, "t": 9}  # the stream is taken to flow on
    assert result.worker_utilisation[0] == pytest.approx((9 * 0.5 + 9 * 1.0 + 3.0) / 100, rel=0.01)


def test_what_is_built_on_an_empty_stream_waits_for_its_first_rows() -> None:
    late = replace(STREAM, name="q", freshness=None)
    join = TraceTable("j", sources=("s", "q"), freshness=round((START - 50) * 1e6))
    first = update("q", 60.0, 0.5, 59.0, arrived=(START + 60, START + 60, 1), gained=40.0)
    updates = [*loads([10.0, 20.0, 30.0, 60.0]), first, update("j", 61.0, 1.0, 59.0)]
    result = simulated(replay_of(run_of(STREAM, late, join, updates=updates, end=70.0)), "fifo")
    assert {t.name: t.updates for t in result.tables}["j"] == 1
    assert result.tables[2].max_staleness == pytest.approx(112.0, abs=0.1)  # at 62, from 50 before the start


@pytest.mark.parametrize(
    ("times", "arrivals"),
    [
        pytest.param([10.0, 20.0, 30.0], 7 + 3, id="one that flowed until its last load flows on"),
        pytest.param([10.0], 1, id="one that came once comes no more"),
    ],
)
def test_what_came_after_the_last_load_of_a_stream_is_made_up_for(times: list[float], arrivals: int) -> None:
    replay = replay_of(run_of(STREAM, updates=loads(times)))
    assert len(replay.scenario.tables[0].arrivals) == arrivals


def test_a_stream_that_had_dried_up_before_its_last_load_stays_dry() -> None:
    last = update("s", 90.0, 0.5, 29.0, arrived=(START + 20, START + 30, 2))
    replay = replay_of(run_of(STREAM, updates=[*loads([10.0]), last]))
    assert replay.scenario.tables[0].arrivals == pytest.approx((10.0, 20.0, 30.0), abs=1e-6)


def test_a_stream_of_which_nothing_came_and_what_is_built_on_it_stay_as_they_were() -> None:
    silent = TraceTable("q", kind="stream", freshness=STREAM.freshness)
    table = TraceTable("t", sources=("q",), freshness=STREAM.freshness)
    result = simulated(replay_of(run_of(STREAM, silent, table, updates=loads([10.0, 20.0]))), "fifo")
    assert {t.name: t.updates for t in result.tables if t.name != "s"} == {"q": 0, "t": 0}
    assert staleness(result)["t"] == pytest.approx(50.0)


def test_what_was_changed_counts_as_it_was_for_most_of_the_time() -> None:
    trace = run_of(STREAM, updates=loads([10.0, 20.0]))
    changed = replace(
        trace,
        changes=(
            Change(START + 10, {"tracks": 3}),
            Change(START + 10, {"policy": "edf"}),
            Change(START + 10, {"placement": "proportional"}),
            Change(START + 10, {"priority": ["s", 7.0]}),
        ),
    )
    replay = replay_of(changed)
    assert (replay.scenario.tracks, replay.scenario.tables[0].priority) == (3, 7.0)
    assert (replay.policies, replay.placement) == (("edf", "fifo", "max-benefit"), "proportional")


def test_a_warehouse_that_was_told_to_chop_goes_by_no_budget() -> None:
    """It has one by default, and writes down both."""
    replay = replay_of(run_of(STREAM, updates=loads([10.0, 20.0]), chop=3.0, budget=1.0))
    assert (replay.scenario.chop, replay.scenario.budget) == (3.0, math.inf)


@pytest.mark.parametrize(
    ("trace", "skip", "named"),
    [
        pytest.param(run_of(STREAM, updates=[]), 100.0, ("'city'", "100 s", "skip less"), id="all skipped"),
        pytest.param(run_of(STREAM, updates=[], end=0.0), 0.0, ("'city' has no updates", "record a run"), id="no run"),
        pytest.param(run_of(STREAM, updates=[], inheritance="most"), 0.0, ("inheritance", "'most'"), id="inheritance"),
        pytest.param(run_of(STREAM, updates=[], chop=0.5), 0.0, ("chop", "0.5"), id="an impossible chop"),
        pytest.param(run_of(updates=[]), 0.0, ("'city' began without tables", "record a run"), id="no tables"),
    ],
)
def test_a_run_that_cannot_be_replayed_is_refused(trace: Trace, skip: float, named: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError) as refused:
        replay_of(trace, skip)
    assert all(word in str(refused.value) for word in named), refused.value


# --- costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "reaches", "amount", "after"),
    [
        pytest.param(2.0, 9.0, 7.0, 9.0, id="what is known"),
        pytest.param(9.0, 2.0, 0.0, 9.0, id="nothing if the table was further"),
        pytest.param(None, 9.0, 5.0, 9.0, id="as expected if nobody knows how far the table was"),
        pytest.param(2.0, None, 5.0, 2.0, id="as expected if nobody knows how far the table came"),
        pytest.param(None, None, 5.0, None, id="as expected if nothing is known"),
    ],
)
def test_an_update_brings_what_lies_between_where_the_table_was_and_where_it_is(
    before: float | None, reaches: float | None, amount: float, after: float | None
) -> None:
    def moment(event_time: float | None) -> int | None:
        return None if event_time is None else round((START + event_time) * 1e6)

    assert brought(update("s", 0.0, 1.0, reaches), moment(before)) == (amount, moment(after))


class Attentive(CostModel):
    """An estimate that notes what it is told, and takes every update to cost ``alpha``."""

    def __init__(self, alpha: float) -> None:
        super().__init__(alpha)
        self.seen: list[tuple[float, float]] = []

    def predict(self, n: float) -> float:
        return self.alpha

    def observe(self, n: float, time: float) -> None:
        self.seen.append((n, time))


def test_an_estimate_learns_from_updates_made_before_the_replay_and_from_every_one_in_it() -> None:
    made: list[Attentive] = []

    def new_estimate() -> Attentive:
        made.append(Attentive(1.0))
        return made[-1]

    trace = run_of(STREAM, updates=loads([10.0, 20.0, 30.0, 40.0]), end=45.0)
    replay_of(trace, 25.0, new_estimate).run(policy_from("fifo"), placement_from("anywhere"))
    (estimate,) = made
    assert estimate.seen[:2] == [(5.0, 0.5), (5.0, 0.5)]  # as expected then
    assert estimate.seen[2:] == [pytest.approx((10.0, 0.5), rel=1e-3)] * 2


def test_a_policy_that_learns_goes_by_what_it_has_learned() -> None:
    """As much lies there for both streams; the one that is thought to cost more has to wait."""
    behind = round((START - 10) * 1e6)
    streams = [TraceTable(name, kind="stream", freshness=behind) for name in ("s", "o")]
    updates = [update(name, 0.0, 1.0, -1.0, arrived=(START - 5, START - 5, 1)) for name in ("s", "o")]
    trace = run_of(*streams, updates=updates, end=20.0)

    def staleness_if_thought_to_cost(*costs: float) -> dict[str, float]:
        estimates = iter([Attentive(cost) for cost in costs])
        return staleness(simulated(replay_of(trace, 0.0, lambda: next(estimates)), "max-benefit"))

    cheap_first = staleness_if_thought_to_cost(0.1, 5.0)
    assert cheap_first["s"] < cheap_first["o"]
    cheap_last = staleness_if_thought_to_cost(5.0, 0.1)
    assert cheap_last["o"] < cheap_last["s"]


class Last(Attentive):
    """An estimate that takes every update to cost what the last one did."""

    def observe(self, n: float, time: float) -> None:
        super().observe(n, time)
        self.alpha = time


def test_what_an_update_has_taught_counts_from_its_end_on_also_for_data_that_had_come_before() -> None:
    _, trace = recorded(city(tracks=1, spread=0.5), "max-benefit", seed=3)
    made: list[Last] = []

    def new_estimate() -> Last:
        made.append(Last(1.0))
        return made[-1]

    replay = replay_of(trace, 0.0, new_estimate)
    noted = Noted(policy_from("max-benefit"), ("execution_time", "setup_time"))
    replay.run(noted, placement_from("anywhere"))
    for table, estimate in zip(replay.scenario.tables, made, strict=True):
        taught = [1.0, *(time for _, time in estimate.seen)]
        starts = [start.features for start in noted.starts if start.node == table.name]
        assert len(starts) >= 3
        for feature in ("execution_time", "setup_time"):
            assert [start[feature] for start in starts] == taught[: len(starts)]


def test_a_policy_that_learns_cannot_tell_set_up_from_slope_by_updates_of_nearly_one_size() -> None:
    """As in the run: else the replay would gate and cut updates that the run does not."""
    sizes = [10.2, 9.9, 10.3, 9.8, 10.1, 9.7, 10.2, 9.9]
    times = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    updates = [
        update("s", t, 0.05 * size, t - 1, arrived=(START + t, START + t, 1))
        for t, size in zip(times, sizes, strict=True)
    ]
    replay = replay_of(run_of(STREAM, updates=updates), 0.0, CostModel)
    assert replay.scenario.tables[0].time_per_unit > 0
    noted = Noted(policy_from("fifo"), ("setup_time", "time_per_unit"))
    replay.run(noted, placement_from("anywhere"))
    assert {start.features["time_per_unit"] for start in noted.starts} == {0.0}
    assert noted.starts[-1].features["setup_time"] == pytest.approx(0.5, rel=0.05)


def test_a_replay_knows_from_the_beginning_what_is_to_come() -> None:
    _, trace = recorded(city(tracks=1), "fifo")
    replay = replay_of(trace, 50.0)
    noted = Noted(policy_from("max-benefit"), ("next_release", "release_time", "period"))
    replay.run(noted, placement_from("anywhere"), tracks=9)
    begun = {start.node: start.features for start in noted.starts if start.now == 0.0}
    assert {name[0] for name in begun} == {"s", "a", "j"}
    for table in replay.scenario.tables:
        if (features := begun.get(table.name)) is not None:
            derived = features["release_time"] + features["period"]
            assert features["next_release"] == (derived if table.sources else table.arrivals[0])


# --- side by side ---------------------------------------------------------------------------------------------


def test_an_autopilot_is_not_replayed_but_the_policy_that_it_had() -> None:
    _, trace = recorded(city(), "auto:now=edf-p,window=60")
    replay = replay_of(trace)
    assert replay.policies == ("edf-p", "fifo", "max-benefit")
    assert "under auto:now=edf-p,window=60" in replay.about
    with pytest.raises(ParameterError, match=r"'auto' cannot be replayed.* such as priced-benefit"):
        list(compare_replay(replay, [(policy_from("auto:now=priced-benefit"), placement_from("anywhere"))]))


def test_the_run_as_measured_stands_before_those_that_were_simulated() -> None:
    result, trace = recorded(city(), "max-benefit")
    replay = replay_of(trace)
    chosen = [(policy_from(name), placement_from("anywhere")) for name in ("max-benefit", "fifo")]
    was, same, fifo = compare_replay(replay, chosen)
    assert [(row.run, row.policy) for row in (was, same, fifo)] == [
        ("measured", "max-benefit"),
        ("simulated", "max-benefit"),
        ("simulated", "fifo"),
    ]
    assert was.weighted_staleness == pytest.approx(result.weighted_staleness, rel=1e-3)
    assert was.latency.mean == pytest.approx(result.latency.mean, rel=0.01)
    assert was.track_utilisation == pytest.approx(result.worker_utilisation, abs=0.01)
    assert was.updates == sum(table.updates for table in result.tables)
    assert [t.name for t in was.tables] == [t.name for t in same.tables] == [t.name for t in result.tables]
    assert was.relative_lateness == pytest.approx(same.relative_lateness, rel=0.01)
    assert same.relative_lateness is not None and fifo.relative_lateness is not None
    assert 1 <= same.relative_lateness < fifo.relative_lateness


# --- with the changes that were made --------------------------------------------------------------------------------


def as_it_was(trace: Trace, instead: ReplayChange | None = None, stated: tuple[str, ...] = ()) -> TableResult:
    return replay_of(trace).run_as_it_was(policy_from, placement_from, instead, stated)


def test_a_run_without_changes_is_replayed_as_under_its_own_settings() -> None:
    _, trace = recorded(BUSY, "fifo")
    replay = replay_of(trace)
    assert as_it_was(trace) == replay.run(policy_from("fifo"), placement_from("anywhere"))
    chosen = ReplayChange(0.0, policy_from("max-benefit"), placement_from("anywhere"), 2)
    assert as_it_was(trace, chosen) == replay.run(policy_from("max-benefit"), placement_from("anywhere"), 2)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param({"policy": "max-benefit"}, id="policy"),
        pytest.param({"tracks": 2}, id="tracks"),
        pytest.param({"priority": ["meters", 500.0]}, id="priority"),
    ],
)
def test_a_change_is_made_when_it_was_made(what: dict[str, object]) -> None:
    _, trace = recorded(BUSY, "max-benefit" if "priority" in what else "fifo")

    def updates(at: float) -> list[int]:
        found = as_it_was(replace(trace, changes=(Change(START + at, what),)))
        return [table.updates for table in found.tables]

    plain = [table.updates for table in as_it_was(trace).tables]
    at_once, at_half, at_the_end = updates(0.0), updates(30.0), updates(60.0)
    assert at_the_end == plain
    assert at_once != plain
    assert at_half not in (plain, at_once)


@pytest.mark.parametrize("goal", ["ratio", "count"])
def test_tracks_that_are_changed_at_the_beginning_are_those_that_targets_are_stretched_for(goal: str) -> None:
    tables = tuple(replace(table, target_lag=3.0 + number) for number, table in enumerate(city().tables))
    _, trace = recorded(replace(city(tracks=1), tables=tables), "max-benefit")
    replay = replay_of(trace)
    policy, placement = policy_from(f"target-lag:goal={goal}"), placement_from("anywhere")
    changes = [ReplayChange(0.0, tracks=3)]
    changed = ReplaySimulation(replay.scenario, replay.recorded, policy, placement, changes=changes).run()
    assert changed == replay.run(policy, placement, tracks=3)


def test_what_is_chosen_holds_all_the_time() -> None:
    _, trace = recorded(BUSY, "fifo")
    changes = (Change(START + 30.0, {"policy": "round-robin"}), Change(START + 20.0, {"priority": ["meters", 500.0]}))
    chosen = ReplayChange(0.0, policy=policy_from("max-benefit"))
    busy = replace(trace, changes=changes)
    assert as_it_was(busy, chosen, ("meters",)).tables != as_it_was(busy, chosen).tables
    replay = replay_of(busy)
    assert [text for _, text in replay.over_time("policy")] == ["fifo", "round-robin"]
    whole = replay_of(replace(trace, changes=changes[1:])).run_as_it_was(
        policy_from, placement_from, chosen, ("meters",)
    )
    assert as_it_was(busy, chosen, ("meters",)).tables == whole.tables
