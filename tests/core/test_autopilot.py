"""The rule of the autopilot: windows in, verdicts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from headgate.core.autopilot import (
    PLACEMENTS_TRIED,
    POLICIES_TRIED,
    AutopilotMemory,
    AutopilotRule,
    ReplayedWindow,
    RunSettings,
    Verdict,
    settings_to_try,
    window_from,
    window_to_json,
)
from headgate.core.errors import ParameterError
from headgate.core.policies import Autopilot, EarliestDeadline, MaxBenefit, MultiClass, PricedBenefit
from headgate.core.policy import Policy
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import TraceHeader


class Own(MaxBenefit):
    """A policy of somebody's own, which a replay in another process would not find."""


@dataclass(frozen=True)
class Around(Own):
    """One with a policy inside."""

    inner: Policy = MaxBenefit()  # noqa: RUF009 - frozen, so it can be shared


HERE = RunSettings("max-benefit", "proportional", 2)
PRICED = replace(HERE, policy="priced-benefit")
ANYWHERE = replace(HERE, placement="anywhere")
RULE = AutopilotRule(gain=0.03, windows=3, events=1_000, trusted=2.0, watched=12, barred=4)


def window(
    now: RunSettings = HERE,
    measured: float = 100.0,
    ideal: float = 50.0,
    events: int = 1_000,
    *,
    here: float = 100.0,
    **replayed: float,
) -> ReplayedWindow:
    """A window under ``now``, in which ``here`` was replayed of it, and of others what is said by a short name."""
    names = {"home": HERE, "priced": PRICED, "anywhere": ANYWHERE}
    found = {names[name]: value for name, value in replayed.items()}
    return ReplayedWindow(300.0, events, now, measured, ideal, {now: here, **found})


def judged(
    windows: Sequence[ReplayedWindow], rule: AutopilotRule = RULE, memory: AutopilotMemory | None = None
) -> tuple[AutopilotMemory, list[Verdict]]:
    """What is decided after each window. Settings that are taken over must be those of the next window."""
    memory, verdicts = memory or AutopilotMemory(), []
    for each in windows:
        memory, verdict = rule.judge(memory, each)
        verdicts.append(verdict)
    return memory, verdicts


def test_the_settings_of_a_run_under_the_autopilot_are_those_that_it_has_chosen() -> None:
    autopilot = Autopilot(now=policy_from("edf-p"), window=60.0)
    header = TraceHeader("city", 0.0, 3, str(autopilot), "by-length", "default", None, ())
    assert RunSettings.under(autopilot, header) == RunSettings("edf-p", "by-length", 3)


@pytest.mark.parametrize(
    ("windows", "answers"),
    [
        pytest.param([window(priced=90)], ["stay"], id="one window is not enough"),
        pytest.param([window(priced=90)] * 3, ["stay", "stay", "switch"], id="three that are alike are"),
        pytest.param([window(priced=97.1)] * 30, ["stay"] * 30, id="less than the gain is never enough"),
        pytest.param(
            [window(priced=80), window(priced=110)] * 6, ["stay"] * 12, id="what changes from window to window is not"
        ),
        pytest.param(
            [window(priced=50), *[window(priced=90)] * 8],
            ["stay"] * 8 + ["switch"],
            id="a window that is not as the others asks for more of them",
        ),
        pytest.param(
            [window(measured=115.0, priced=80)] * 6,
            ["stay"] * 5 + ["switch"],
            id="a replay that is a little off asks for more windows",
        ),
        pytest.param(
            [window(measured=120.0, priced=85)] * 15, ["stay"] * 14 + ["switch"], id="one that is off for many more"
        ),
        pytest.param(
            [window(measured=130.0, priced=85)] * 30, ["stay"] * 30, id="one that is too far off never ends it"
        ),
        pytest.param(
            [window(priced=300), *[window(priced=90)] * 24],
            ["stay"] * 24 + ["switch"],
            id="what was long ago does not count",
        ),
        pytest.param(
            [window(priced=90), window(ideal=98.0), window(priced=90), window(ideal=98.0), window(priced=90)],
            ["stay", "idle", "stay", "idle", "switch"],
            id="windows in which nobody waits do not count",
        ),
        pytest.param([window(ideal=100.0, priced=50)] * 4, ["idle"] * 4, id="unloaded, nothing changes"),
        pytest.param([window(here=0.0, ideal=0.0)] * 4, ["idle"] * 4, id="nothing is ever stale"),
        pytest.param([window(events=300, priced=90)] * 4, ["stay", "stay", "stay", "switch"], id="too few events"),
        pytest.param([window(measured=201.0, priced=50)] * 4, ["stay"] * 4, id="a replay that is far off"),
        pytest.param(
            [window(measured=900.0, priced=50), *[window(priced=90)] * 3],
            ["stay", "stay", "stay", "switch"],
            id="a window whose replay is far off does not count",
        ),
        pytest.param(
            [window(measured=9e5, here=9e5, priced=9e5), *[window(priced=85)] * 11],
            ["stay"] * 11 + ["switch"],
            id="a window with ten thousand times as much staleness counts as four",
        ),
        pytest.param([window(measured=49.0, priced=50)] * 4, ["stay"] * 4, id="a replay that is far off, above"),
        pytest.param([window(priced=130, anywhere=110)] * 4, ["stay"] * 4, id="others are worse"),
        pytest.param([window()] * 4, ["stay"] * 4, id="there are no others"),
    ],
)
def test_settings_are_changed_for_a_clear_and_lasting_gain_only(
    windows: list[ReplayedWindow], answers: list[str]
) -> None:
    assert [verdict.answer for verdict in judged(windows)[1]] == answers


def test_the_best_over_all_windows_that_count_is_taken() -> None:
    windows = [window(priced=90, anywhere=80), window(priced=70, anywhere=95), window(priced=85, anywhere=90)]
    _, verdicts = judged(windows * 2)
    assert PRICED in [verdict.settings for verdict in verdicts if verdict.changes]


def test_what_has_lasted_is_taken_before_what_is_better_for_a_window() -> None:
    windows = [window(priced=90), window(priced=90), window(priced=90, anywhere=40)]
    assert judged(windows)[1][-1].settings == PRICED


def test_a_switch_says_what_how_much_and_over_how_long() -> None:
    why = judged([window(priced=90), window(priced=86), window(priced=88)])[1][-1].why
    assert why == (
        "max-benefit with proportional is replaced by priced-benefit with proportional, which would have saved 12.0% "
        "of the weighted staleness in 3 windows in which somebody waited (15 min, 3,000 arrivals and updates), give or "
        "take 4.2%"
    )


def test_windows_before_a_change_by_somebody_else_do_not_count() -> None:
    other = window(now=PRICED, anywhere=80)
    _, verdicts = judged([window(anywhere=80), window(anywhere=80), other, other, other])
    assert [verdict.answer for verdict in verdicts] == ["stay", "stay", "stay", "stay", "switch"]


# --- after a change -------------------------------------------------------------------------------------------------

SWITCHED, _ = judged([window(priced=80)] * 3)


@pytest.mark.parametrize(
    ("windows", "answers"),
    [
        pytest.param([window(PRICED, measured=80, here=80, home=100)] * 5, ["stay"] * 5, id="as replayed"),
        pytest.param([window(PRICED, measured=102, here=80, home=100)] * 5, ["stay"] * 5, id="not worse beyond doubt"),
        pytest.param(
            [window(PRICED, measured=110, here=80, home=100)] * 3,
            ["stay", "stay", "switch back"],
            id="worse than without the change, three times",
        ),
        pytest.param(
            [
                window(PRICED, measured=110, here=80, home=100),
                window(PRICED, measured=110, here=80, home=100),
                window(PRICED, measured=90, here=80, home=100),
                window(PRICED, measured=110, here=80, home=100),
            ],
            ["stay"] * 4,
            id="worse now and then",
        ),
        pytest.param(
            [window(PRICED, measured=110, here=110, home=100)] * 3,
            ["stay", "stay", "switch back"],
            id="worse in the replay as well",
        ),
        pytest.param(
            [
                window(PRICED, measured=110, here=80, home=100),
                window(PRICED, measured=110, here=80, home=100),
                window(PRICED, measured=80, here=80),
                window(PRICED, measured=110, here=80, home=100),
            ],
            ["stay"] * 4,
            id="worse, but not in a row: one window says nothing of the settings before",
        ),
    ],
)
def test_a_change_that_disappoints_is_taken_back(windows: list[ReplayedWindow], answers: list[str]) -> None:
    assert SWITCHED.now == PRICED
    assert [verdict.answer for verdict in judged(windows, memory=SWITCHED)[1]] == answers


def test_settings_that_may_be_taken_now_go_before_those_that_saved_more_in_too_few_windows() -> None:
    few = [window(events=200, priced=80)] * 2
    both = [window(events=200, priced=80, anywhere=60)] * 3
    _, verdicts = judged([*few, *both])
    assert [verdict.answer for verdict in verdicts] == ["stay"] * 4 + ["switch"]
    assert verdicts[-1].settings == PRICED


def test_what_was_measured_is_compared_with_replays_as_far_off_as_they_were_before() -> None:
    memory, _ = judged([window(measured=115, priced=80)] * 6)
    # The replay of the settings before says 100, which was 115 before the change.
    fine = window(PRICED, measured=112, here=80, home=100)
    assert {verdict.answer for verdict in judged([fine] * 5, memory=memory)[1]} == {"stay"}
    worse = window(PRICED, measured=122, here=80, home=100)
    assert judged([worse] * 3, memory=memory)[1][-1].answer == "switch back"


def test_settings_that_disappointed_are_left_alone_for_a_while_and_longer_each_time() -> None:
    bad = window(PRICED, measured=110, here=80, home=100)
    good = window(priced=80)
    rests = []
    memory = SWITCHED
    for _ in range(2):
        memory, verdicts = judged([bad] * 3, memory=memory)
        assert verdicts[-1].answer == "switch back" and memory.now == HERE
        rest = 0
        while memory.now == HERE:
            memory, verdicts = judged([good], memory=memory)
            rest += 1
        rests.append(rest)
    assert rests == [RULE.barred, 2 * RULE.barred]


def test_what_settings_would_have_saved_is_not_said_of_those_that_are_left_alone() -> None:
    memory, _ = judged([window(PRICED, measured=110, here=80, home=100)] * 3, memory=SWITCHED)
    _, (verdict,) = judged([window(priced=60, anywhere=99)], memory=memory)
    assert verdict.why.endswith("other settings that may be taken would have saved at most 1.0%")


def test_a_change_is_watched_for_some_windows_only() -> None:
    fine, bad = (window(PRICED, measured=each, here=80, home=100) for each in (80, 110))
    _, verdicts = judged([*[fine] * RULE.watched, *[bad] * 5], memory=SWITCHED)
    assert {verdict.answer for verdict in verdicts} == {"stay"}


def test_a_change_is_not_watched_any_more_when_the_settings_before_are_not_replayed() -> None:
    memory, _ = judged([window(PRICED, here=80)], memory=SWITCHED)
    assert SWITCHED.probation is not None and memory.probation is None


# --- what is tried, and the policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("autopilot", "now", "home", "tried"),
    [
        pytest.param(
            Autopilot(),
            HERE,
            HERE,
            {
                PRICED,
                replace(HERE, policy="priced-benefit:portions=False"),
                ANYWHERE,
                replace(HERE, placement="by-length"),
            },
            id="one thing at a time",
        ),
        pytest.param(
            Autopilot(placements=False),
            HERE,
            HERE,
            {PRICED, replace(HERE, policy="priced-benefit:portions=False")},
            id="the placement is kept",
        ),
        pytest.param(
            Autopilot(placements=False, tracks=6),
            replace(PRICED, tracks=4),
            HERE,
            {
                HERE,
                replace(HERE, tracks=4),
                replace(PRICED, tracks=2),
                replace(PRICED, tracks=6),
                replace(PRICED, policy="priced-benefit:portions=False", tracks=4),
            },
            id="tracks within what is allowed, and those of the beginning",
        ),
        pytest.param(
            Autopilot(placements=False),
            ANYWHERE,
            RunSettings("edf", "proportional", 8),
            {replace(ANYWHERE, policy=policy) for policy in ("edf", "priced-benefit", "priced-benefit:portions=False")},
            id="neither the placement nor the tracks of the beginning, if that is not allowed",
        ),
        pytest.param(
            Autopilot(placements=False, tracks=4),
            HERE,
            replace(HERE, tracks=8),
            {PRICED, replace(HERE, policy="priced-benefit:portions=False"), replace(HERE, tracks=4)},
            id="no more tracks than are allowed, even if there were",
        ),
    ],
)
def test_settings_are_tried_that_differ_in_one_thing(
    autopilot: Autopilot, now: RunSettings, home: RunSettings, tried: set[RunSettings]
) -> None:
    assert set(settings_to_try(autopilot, now, home)) == tried


def test_what_the_run_began_with_is_tried_again() -> None:
    home = RunSettings("edf", "edf-partitioned", 2)
    tried = settings_to_try(Autopilot(), PRICED, home)
    assert {home, replace(PRICED, policy="edf"), replace(PRICED, placement="edf-partitioned")} <= set(tried)


def test_what_is_tried_is_written_as_policies_and_placements_write_themselves() -> None:
    assert [str(policy_from(text)) for text in POLICIES_TRIED] == [*POLICIES_TRIED]
    assert [str(placement_from(text)) for text in PLACEMENTS_TRIED] == [*PLACEMENTS_TRIED]


def test_no_more_tracks_are_tried_than_there_are_unless_it_is_allowed() -> None:
    assert {each.tracks for each in settings_to_try(Autopilot(), HERE, HERE)} == {2}
    assert {each.tracks for each in settings_to_try(Autopilot(tracks=8), HERE, HERE)} == {2, 4}


def test_a_window_is_the_same_after_it_was_told() -> None:
    told = window(priced=90.0, anywhere=80.0)
    assert window_from(window_to_json(told)) == told


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Autopilot(), "auto"),
        (Autopilot(PricedBenefit()), "auto:now=priced-benefit"),
        (Autopilot(PricedBenefit(portions=False)), "auto:now=(priced-benefit:portions=False)"),
        (
            Autopilot(EarliestDeadline(), 60.0, 0.05, False, 8),
            "auto:now=edf,window=60.0,gain=0.05,placements=False,tracks=8",
        ),
        (Autopilot(window=1_234_567.0, gain=0.0123456789), "auto:window=1234567.0,gain=0.0123456789"),
    ],
)
def test_an_autopilot_is_written_with_the_policy_that_it_has_chosen(policy: Autopilot, text: str) -> None:
    assert str(policy) == text
    assert policy_from(text) == policy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auto:now=auto", "'auto': now must be another policy than auto, .*; got auto. Name the policy that is meant"),
        ("auto:now=(auto:window=3)", "'auto': now must be another policy than auto, .*; got auto:window=3.0"),
        ("multi-class:0=auto", "'multi-class': 0 must be another policy than auto, .*, such as max-benefit$"),
        ("multi-class:default=(auto:now=edf)", "'multi-class': default must be another policy than auto, .* as edf$"),
        ("auto:now=(multi-class:2=auto)", "'multi-class': 2 must be another policy than auto"),
        (f"{__name__}.Around:inner=auto", "Around': inner must be another policy than auto"),
        (f"auto:now={__name__}.Own", "now must be a policy that comes with Headgate.*; got Own. Name a policy of your"),
        ("auto:window=0", "window is a number of seconds above 0"),
        ("auto:gain=1", "gain is a share between 0 and 1"),
        ("auto:tracks=-1", "tracks is a number from 0"),
    ],
)
def test_a_mistake_in_the_parameters_is_explained(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        policy_from(text)


def test_an_autopilot_made_in_python_is_not_put_inside_another_policy_either() -> None:
    for make in (Autopilot, lambda inner: MultiClass(((1, inner),)), lambda inner: MultiClass(default=inner)):
        with pytest.raises(ParameterError, match="must be another policy than auto"):
            make(Autopilot())


def test_an_autopilot_ranks_as_the_policy_does_that_it_has_chosen() -> None:
    assert Autopilot().requires() == MaxBenefit().requires()
    assert Autopilot(PricedBenefit()).inheritance == "density"
    assert Autopilot().local and not Autopilot(PricedBenefit()).local
