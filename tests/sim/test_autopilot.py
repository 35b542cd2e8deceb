"""The autopilot in the simulator, and the process that replays a real run: the same replays, the same rule."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headgate.autopilot.__main__ import follow
from headgate.autopilot.allowance import Allowance
from headgate.core import CostModel, placement_from, policy_from
from headgate.core.autopilot import RunSettings, Verdict, window_from
from headgate.core.policies import Autopilot
from headgate.core.trace import Change, Redeclared
from headgate.core.trace.lines import change_line, header_line, update_line
from headgate.core.trace.recent import RecentTrace
from headgate.sim import Table, TableScenario, Variant, compare, lower_bound, simulate_tables
from headgate.sim.autopilot import WindowReplays
from headgate.sim.tables.autopilot import AutopilotSimulation, simulate_autopilot
from tests.sim.recording import BUSY, START, recorded

#: when data begins to come twenty times as often, and the end
FASTER, END = 4_000.0, 10_000.0


def flood(number: int) -> tuple[float, ...]:
    """Every 100 s, and later every 5 s; each table has moments of its own."""
    slow = [12.5 * number + 100.0 * step for step in range(int(FASTER // 100))]
    return (*slow, *(FASTER + number / 4 + 5.0 * step for step in range(int((END - FASTER) // 5))))


#: eight tables that one track can do at first, and not later; half of them are mostly set-up
CHANGING = TableScenario(
    tuple(
        Table(
            f"t{i}",
            period=5.0,
            arrivals=flood(i),
            priority=1.0 + 3 * (i % 3),
            setup_time=1.5 if i % 2 else 0.5,
            time_per_unit=0.005 if i % 2 else 0.1,
        )
        for i in range(8)
    ),
    tracks=1,
    spread=None,
    horizon=END,
    events=1_000_000,
    name="changing",
)


@pytest.mark.slow
def test_nothing_is_changed_before_there_is_too_much_to_do_and_then_what_is_better_is_taken() -> None:
    placement = placement_from("proportional")
    run = simulate_autopilot(CHANGING, Autopilot(window=1_000.0), placement, seed=1)
    fixed = simulate_tables(CHANGING, policy_from("max-benefit"), placement, seed=1)
    assert {verdict.answer for at, verdict in run.verdicts if at <= FASTER} == {"idle"}
    assert [verdict.settings.policy for _, verdict in run.switches[:1]] == ["priced-benefit"]
    assert run.result.weighted_staleness < 0.97 * fixed.weighted_staleness
    assert run.result.policy == "auto:now=priced-benefit,window=1000.0"


@pytest.mark.slow
def test_an_autopilot_that_changes_nothing_is_the_policy_that_it_began_with() -> None:
    calm = replace(CHANGING, horizon=FASTER)
    placement = placement_from("proportional")
    run = simulate_autopilot(calm, Autopilot(window=1_000.0), placement, seed=1)
    fixed = simulate_tables(calm, policy_from("max-benefit"), placement, seed=1)
    assert run.switches == ()
    assert run.result.tables == fixed.tables


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"events": 700, "horizon": math.inf}, id="so many events"),
        pytest.param({"events": 10**6, "horizon": 130.0}, id="so much time"),
        pytest.param({"events": 10**6, "horizon": math.inf}, id="until nothing comes any more"),
    ],
)
@pytest.mark.parametrize("window", [1e-9, 0.05, 7.0, 1e6])
def test_a_run_is_as_long_as_under_another_policy_however_often_the_autopilot_looks(
    window: float, limits: dict[str, Any]
) -> None:
    tables = (replace(each, arrivals=each.arrivals[-60:]) for each in CHANGING.tables)
    few = tuple(replace(each, arrivals=tuple(when - each.arrivals[0] for when in each.arrivals)) for each in tables)
    scenario = replace(CHANGING, tables=few, **limits)
    autopilot = Autopilot(window=window, gain=0.999)  # it changes nothing
    found = simulate_autopilot(scenario, autopilot, placement_from("anywhere"), seed=1).result
    fixed = simulate_tables(scenario, policy_from("max-benefit"), placement_from("anywhere"), seed=1)
    assert replace(found, policy=fixed.policy) == fixed


def test_the_bound_is_for_as_many_tracks_as_the_autopilot_may_use() -> None:
    busy = replace(CHANGING, horizon=100.0, tables=tuple(replace(each, arrivals=()) for each in CHANGING.tables))
    for autopilot, tracks in ((Autopilot(), 1), (Autopilot(tracks=4), 4)):
        (row,) = compare(busy, [Variant(autopilot, placement_from("anywhere"))], bound=True)
        assert row.lower_bound == lower_bound(replace(busy, tracks=tracks), portions=True).weighted_staleness
    assert lower_bound(busy).weighted_staleness > 1.5 * row.lower_bound


@pytest.mark.parametrize("goal", ["ratio", "count"])
def test_a_run_goes_on_as_if_it_had_begun_with_the_settings_that_the_autopilot_chooses(goal: str) -> None:
    tables = (replace(each, arrivals=(), target_lag=3.0 + i) for i, each in enumerate(CHANGING.tables))
    aimed = replace(CHANGING, tables=tuple(tables), horizon=200.0)
    simulation = AutopilotSimulation(aimed, Autopilot(), placement_from("proportional"))
    chosen = RunSettings(f"target-lag:goal={goal}", "by-length", 2)
    simulation._follow(Verdict("switch", chosen, "because"), 0.0)
    began_so = simulate_tables(replace(aimed, tracks=2), policy_from(chosen.policy), placement_from(chosen.placement))
    assert simulation.run().tables == began_so.tables


#: more than one track can do: tables with the same source, and one that is computed from streams of two paces
UNLIKE = TableScenario(
    tables=(
        Table("fast", period=2.0, setup_time=0.3, time_per_unit=0.02),
        Table("slow", period=11.0, setup_time=0.5, time_per_unit=0.02),
        Table("a", sources=("fast",), priority=4.0, setup_time=0.6, time_per_unit=0.05),
        Table("b", sources=("fast",), priority=9.0, setup_time=0.9, time_per_unit=0.05),
        Table("c", sources=("a",), priority=2.0, setup_time=0.6, time_per_unit=0.05),
        Table("d", sources=("a", "slow"), priority=5.0, setup_time=0.9, time_per_unit=0.05),
    ),
    tracks=1,
    spread=None,
    horizon=150.0,
)


@pytest.mark.parametrize(
    ("policy", "stated"),
    [
        pytest.param("max-benefit", {}, id="nothing"),
        pytest.param("max-benefit", {"inheritance": "max-plus", "inheritance_k": 5.0}, id="how sources inherit"),
        pytest.param("edf-p", {"chop": 8.0, "budget": 0.7}, id="a chop and a budget"),
        pytest.param("edf-p", {"period_reading": "descendants"}, id="what the period of a table is"),
        pytest.param("edf-p", {"shared_setup": 0.8, "together": "always"}, id="who shares jobs"),
        pytest.param("edf-p", {"guard": False}, id="that nobody keeps tables from starving"),
    ],
)
def test_a_simulated_run_replays_its_own_scenario(policy: str, stated: Mapping[str, Any]) -> None:
    """With costs that do not vary it comes to the same."""
    scenario = replace(UNLIKE, **stated)
    autopilot = Autopilot(now=policy_from(policy), window=2 * scenario.horizon, gain=0.99)  # no other one is tried
    simulation = AutopilotSimulation(scenario, autopilot, placement_from("anywhere"), seed=1)
    simulation.run()
    window = simulation._replays.look(scenario.horizon)
    assert window is not None and window.replayed[window.now] == pytest.approx(window.measured, rel=1e-3)


# --- the last minutes of a run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgotten", [0.0, 20.0, 40.0])
def test_what_is_forgotten_does_not_change_what_is_replayed_of_the_rest(forgotten: float) -> None:
    _, trace = recorded(BUSY, "auto")
    now = START + 60.0
    found = []
    for forget in (0.0, forgotten):
        recent = RecentTrace(trace.header)
        for update in trace.updates:
            recent.add(update)
        recent.forget(START + forget, 10_000)
        replays = WindowReplays(recent, CostModel)
        replays._looked = START + 40.0
        found.append(replays.look(now))
    assert found[0] is not None and found[0] == found[1]
    assert found[0].seconds == pytest.approx(20.0)


def test_a_window_begins_at_the_last_change() -> None:
    _, trace = recorded(BUSY, "auto")
    recent = RecentTrace(trace.header)
    for update in trace.updates:
        recent.add(update)
    recent.add(Change(START + 30.0, {"priority": ["meters", 50.0]}))
    recent.add(Change(START + 31.0, {"refresh": "air"}))  # tells nothing of what is to come
    recent.add(Change(START + 25.0, {"budget": 2.0}))
    window = WindowReplays(recent).look(START + 60.0)
    assert window is not None and window.seconds == pytest.approx(30.0)
    assert {table.name: table.priority for table in recent.header.tables}["meters"] == 50.0
    assert recent.header.budget == 2.0


@pytest.mark.parametrize("forgotten", [0.0, 30.0, 60.0])
def test_nothing_is_kept_of_tables_that_are_not_declared_any_more(forgotten: float) -> None:
    _, trace = recorded(BUSY, "auto")
    recent = RecentTrace(trace.header)
    replays = WindowReplays(recent)
    for update in trace.updates:
        replays.note(update)
    recent.forget(START + forgotten, 10_000)
    stay = tuple(table for table in trace.header.tables if table.name == "meters")
    replays.note(Redeclared(START + 60.0, stay))
    recent.forget(START + 60.0, 10_000)
    assert {update.table for update in recent.trace(START + 60.0).updates} == {"meters"}
    assert {*replays._costs.fitted()} == {"meters"}


def test_a_run_under_another_policy_is_not_looked_at() -> None:
    _, trace = recorded(BUSY, "max-benefit")
    recent = RecentTrace(trace.header)
    for update in trace.updates:
        recent.add(update)
    assert WindowReplays(recent).look(START + 60.0) is None


def test_of_a_busy_run_only_the_last_updates_are_replayed() -> None:
    _, trace = recorded(BUSY, "auto")
    recent = RecentTrace(trace.header)
    for update in trace.updates:
        recent.add(update)
    window = WindowReplays(recent, most=30).look(START + 60.0)
    assert window is not None and window.seconds < 30.0
    assert len(recent) == 30


@pytest.mark.parametrize(
    ("why", "again"),
    [pytest.param({"why": "autopilot: better"}, True, id="the autopilot"), pytest.param({}, False, id="a user")],
)
def test_settings_from_before_are_tried_again_unless_a_user_has_changed_them(why: dict[str, str], again: bool) -> None:
    _, trace = recorded(BUSY, "auto:now=edf,tracks=4", "anywhere")
    replays = WindowReplays(RecentTrace(replace(trace.header, tracks=2)))
    for update in trace.updates:
        replays.note(update)
    assert replays.look(START + 20.0) is not None
    replays.note(Change(START + 20.0, {"policy": "auto:tracks=4", "placement": "by-length", "tracks": 1, **why}))
    window = replays.look(START + 60.0)
    assert window is not None
    assert (RunSettings("edf", "anywhere", 2) in window.replayed) == again
    assert ("edf" in {each.policy for each in window.replayed}) == again


def test_settings_before_the_last_change_are_replayed_so_that_it_can_be_watched() -> None:
    _, trace = recorded(BUSY, "auto:now=fifo", "anywhere")
    replays = WindowReplays(RecentTrace(trace.header))
    for update in trace.updates:
        replays.note(update)
    assert replays.look(START + 20.0) is not None
    for policy, placement in (("auto:now=priced-benefit", "by-length"), ("auto:now=fifo", "anywhere")):
        replays.note(Change(START + 20.0, {"policy": policy, "placement": placement, "why": "autopilot: better"}))
    window = replays.look(START + 60.0)
    assert window is not None and window.now == RunSettings("fifo", "anywhere", 1)
    assert RunSettings("priced-benefit", "by-length", 1) in window.replayed


# --- the process ----------------------------------------------------------------------------------------------------


class PretendedTime:
    """A clock that goes on when somebody sleeps, and a processor that is used by each replay."""

    def __init__(self, now: float, each: float) -> None:
        self.now, self.used, self._each = now, 0.0, each

    def clock(self) -> float:
        return self.now

    def processor(self) -> float:
        return self.used

    def sleep(self, seconds: float) -> None:
        self.used += self._each
        self.now += seconds


def told_by(lines: queue.SimpleQueue[str], header: str, time: PretendedTime) -> Iterator[dict[str, object]]:
    allowance = Allowance(0.015, time.processor, time.clock, time.sleep)
    return follow(header, lines, allowance, time.clock, time.sleep)


def test_the_process_tells_of_one_window_after_the_other() -> None:
    _, trace = recorded(BUSY, "auto:window=30")
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    for update in trace.updates:
        lines.put(update_line(update))
    time = PretendedTime(START + 30.0, 0.0)
    told = told_by(lines, header_line(trace.header), time)
    first = window_from(next(told)["window"])  # type: ignore[arg-type]
    assert first.seconds == pytest.approx(30.0, abs=0.2)
    lines.put(change_line(Change(time.now, {"placement": "by-length"})))
    time.now = START + 60.0
    second = window_from(next(told)["window"])  # type: ignore[arg-type]
    assert (second.seconds, second.now.placement) == (pytest.approx(30.0, abs=0.2), "by-length")


def test_the_process_keeps_to_its_share_of_a_processor() -> None:
    time = PretendedTime(1_000.0, 0.0)
    allowance = Allowance(0.02, time.processor, time.clock, time.sleep)
    time.used = 4.0
    allowance.keep()
    assert time.now == pytest.approx(1_200.0)
    assert allowance.share == pytest.approx(0.02)
    allowance.keep()
    assert time.now == pytest.approx(1_200.0)


def test_an_update_that_began_days_before_the_process_is_taken_in() -> None:
    _, trace = recorded(BUSY, "auto:window=30")
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    lines.put(update_line(replace(trace.updates[0], released=START - 4e5, began=START - 3e5, seconds=3e5 + 1)))
    for update in trace.updates[1:]:
        lines.put(update_line(update))
    assert "window" in next(told_by(lines, header_line(trace.header), PretendedTime(START + 60.0, 0.0)))


def test_settings_that_cannot_be_tried_are_told_of() -> None:
    _, trace = recorded(BUSY, "auto:window=30")
    header = replace(trace.header, chop=0.5)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    for update in trace.updates:
        lines.put(update_line(update))
    told = next(told_by(lines, header_line(header), PretendedTime(START + 60.0, 0.0)))
    assert "chop" in str(told["trouble"])


def test_the_settings_of_a_window_are_those_of_the_run() -> None:
    _, trace = recorded(BUSY, "auto:now=edf", "anywhere")
    recent = RecentTrace(trace.header)
    for update in trace.updates:
        recent.add(update)
    window = WindowReplays(recent).look(START + 60.0)
    assert window is not None and window.now == RunSettings("edf", "anywhere", 1)
