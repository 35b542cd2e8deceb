"""What the loop says about its choices is true: read as data and as text, it agrees with what happened."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from headgate.core import FeatureView, Floats, Policy, UnknownNameError, UserCodeError
from headgate.core.dispatch import Dispatch
from headgate.core.explain import Decision, Ranked
from headgate.core.placement import Lane
from headgate.core.policies import Layered, ReleaseOrder
from headgate.testing import Favourites, FewestTurns, LanesByName, Largest, NaiveDispatch, RandomLanes, TwoKeys
from tests.core.oracles import make_loop


def loop_of(
    names: str, *, workers: int = 1, lanes: dict[str, Lane] | None = None, patience: dict[str, float] | None = None
) -> Dispatch:
    """Favours names in their order and keeps a history; all ready at 10 s."""
    loop = make_loop(names, Favourites(names), LanesByName(lanes) if lanes else None, workers, history=100)
    for name, seconds in (patience or {}).items():
        loop.matrix.columns["patience"][names.index(name)] = seconds
    loop.refresh_patience()
    for node in range(len(names)):
        loop.set_ready(node, True, 10.0)
    return loop


# --- history ------------------------------------------------------------------------------------------------


def test_without_being_told_to_the_loop_keeps_no_history() -> None:
    loop = make_loop("a", Favourites("a"))
    loop.set_ready(0, True, 0.0)
    loop.decide(0.0)
    assert list(loop.history) == []


def test_the_history_keeps_the_last_decisions() -> None:
    loop = make_loop("a", Favourites("a"), history=2)
    loop.set_ready(0, True, 0.0)
    for now in range(4):
        loop.decide(float(now))
        loop.finished(0, float(now))
    assert [decision.turn for decision in loop.history] == [2, 3]


def test_a_decision_records_what_was_runnable_before_it() -> None:
    loop = loop_of("abc", workers=2)
    loop.decide(12.0)
    assert loop.history[0] == Decision(
        turn=0,
        now=12.0,
        node="a",
        worker=0,
        reason="policy",
        policy="favourites:order=abc",
        ranking=(Ranked("a", (0.0,), 2.0), Ranked("b", (-1.0,), 2.0), Ranked("c", (-2.0,), 2.0)),
    )
    assert [entry.name for entry in loop.history[1].ranking] == ["b", "c"]


def test_the_best_of_all_is_said_to_be_that() -> None:
    loop = loop_of("abc")
    loop.decide(12.0)
    (decision,) = loop.history
    assert decision.place == 1
    assert str(decision) == "turn 0 at 12 s: a on worker 0: best of 3 runnable by favourites:order=abc"


def test_a_decision_of_a_run_says_its_moment_in_time() -> None:
    ranking = (Ranked("a", (1.0,), 0.5),)
    decision = Decision(24, 1_794_736_800.25, "a", 0, "policy", "fifo", ranking)
    assert str(decision) == "turn 24 at 2026-11-15T10:00:00.250Z: a on worker 0: best of 1 runnable by fifo"


def test_a_choice_that_placement_made_names_those_ahead() -> None:
    loop = loop_of("abcd", workers=2, lanes={"a": Lane((0,)), "b": Lane((0,)), "c": Lane((0,)), "d": Lane((1,))})
    loop.decide(12.0)
    decision = loop.history[1]
    assert decision.place == 3
    assert str(decision) == (
        "turn 1 at 12 s: d on worker 1: best that placement allows on a free worker; "
        "ahead by favourites:order=abcd: b, c"
    )


def test_more_nodes_ahead_than_are_shown_are_counted() -> None:
    names = "abcdefgh"
    lanes = dict.fromkeys(names, Lane((0,))) | {"h": Lane((1,))}
    loop = loop_of(names, workers=2, lanes=lanes)
    loop.decide(12.0)
    decision = loop.history[1]
    assert decision.place == 7
    assert "b, c, d, e, f and 1 more" in str(decision)


def test_a_choice_of_the_guard_says_so_and_where_the_policy_had_it() -> None:
    loop = loop_of("abc", patience={"c": 5.0})
    loop.decide(16.0)
    (decision,) = loop.history
    assert (decision.node, decision.reason, decision.place) == ("c", "guard", 3)
    assert str(decision) == (
        "turn 0 at 16 s: c on worker 0: it had waited longer than its patience (favourites:order=abc put it at place 3)"
    )


def test_a_choice_by_policy_after_one_by_the_guard_is_ranked_among_those_left() -> None:
    loop = loop_of("abc", workers=2, patience={"b": 5.0})
    loop.decide(16.0)
    assert [(decision.node, decision.reason, decision.place) for decision in loop.history] == [
        ("b", "guard", 2),
        ("a", "policy", 1),
    ]
    assert "best of 2 runnable" in str(loop.history[1])


@pytest.mark.parametrize("policy", [Largest(), TwoKeys(), FewestTurns()], ids=str)
def test_every_recorded_ranking_is_the_order_of_the_policy(policy: Largest | TwoKeys | FewestTurns) -> None:
    chance = random.Random(str(policy))
    loop = make_loop("dcab", policy, RandomLanes(3), 2, history=1000)
    oracle = NaiveDispatch(loop.matrix.graph, policy, RandomLanes(3), 2)
    checked = 0
    for now in range(40):
        name, feature, value = (
            chance.choice("abcd"),
            chance.choice(["pending", "priority"]),
            float(chance.randint(0, 3)),
        )
        node = loop.matrix.graph.index[name]
        loop.matrix.columns[feature][node] = oracle.nodes[name].features[feature] = value
        loop.note_change(node)
        loop.set_ready(node, True, float(now))
        oracle.tell(name, True, float(now))
        oracle.now = float(now)
        before = len(loop.history)
        expected = oracle.released()
        loop.decide(float(now))
        oracle.decide(float(now))
        if len(loop.history) > before:
            decision = loop.history[before]
            assert [entry.name for entry in decision.ranking] == expected
            assert decision.ranking[decision.place - 1].name == decision.node
            checked += 1
        for worker in chance.sample(sorted(oracle.running), min(1, len(oracle.running))):
            loop.finished(worker, now + 0.5)
            oracle.finished(worker, now + 0.5)
    assert checked > 10


# --- one node -----------------------------------------------------------------------------------------------


def test_a_node_with_nothing_to_do_is_idle() -> None:
    loop = loop_of("ab")
    loop.set_ready(1, False, 11.0)
    explanation = loop.explain(1, 12.0)
    assert (explanation.state, explanation.place, explanation.ahead) == ("idle", None, ())
    assert str(explanation) == "b: idle, nothing is pending for it"


def test_a_running_node_says_where() -> None:
    loop = loop_of("ab")
    loop.decide(12.0)
    explanation = loop.explain(0, 13.0)
    assert (explanation.state, explanation.running_on) == ("running", (0,))
    assert str(explanation) == "a: running on worker 0"


def test_a_node_that_runs_and_could_run_more_says_both() -> None:
    loop = make_loop("ab", Favourites("ab"), workers=1)
    loop.matrix.columns["max_workers"][0] = 2
    loop.refresh_patience()
    for node in (0, 1):
        loop.set_ready(node, True, 10.0)
    loop.decide(12.0)
    explanation = loop.explain(0, 13.0)
    assert (explanation.state, explanation.running_on, explanation.place) == ("running", (0,), 1)
    assert str(explanation).splitlines() == [
        "a: running on worker 0",
        "a: number 1 of the runnable by favourites:order=ab, priority (0)",
        "  may run on workers 0 (a)",
    ]


def test_a_waiting_node_says_who_is_ahead_and_who_has_its_workers() -> None:
    loop = loop_of("abc")
    loop.decide(12.0)
    explanation = loop.explain(2, 13.0)
    assert (explanation.state, explanation.place, explanation.priority) == ("waiting", 2, (-2.0,))
    assert explanation.ahead == (Ranked("b", (-1.0,), 3.0),)
    assert str(explanation).splitlines() == [
        "c: number 2 of the runnable by favourites:order=abc, priority (-2)",
        "  ahead of it: b (-1; waiting 3 s)",
        "  may run on workers 0 (a)",
    ]


EPOCH = 1.79489e9


@pytest.mark.parametrize(
    ("priority", "now", "text"),
    [
        pytest.param((-EPOCH,), EPOCH + 5, "5 s ago", id="a release"),
        pytest.param((1.0, -(EPOCH + 90)), EPOCH, "1, in 90 s", id="a deadline behind a class"),
        pytest.param((-(EPOCH + 5660),), EPOCH, "in 1.57 h", id="a deadline that is far away"),
        pytest.param((-EPOCH,), EPOCH + 4 * 86400, "4 d ago", id="a release long ago"),
        pytest.param((2.5e9,), EPOCH, "2.5e+09", id="a large benefit"),
        pytest.param((-3.0,), 10.0, "-3", id="a moment of a clock that begins at 0"),
        pytest.param((-math.inf,), EPOCH, "-inf", id="never"),
        pytest.param((0.0, math.nan), EPOCH, "0, nan", id="no number"),
    ],
)
def test_priorities_that_are_moments_are_told_from_now(priority: tuple[float, ...], now: float, text: str) -> None:
    assert Ranked("a", priority, 2.0).told(now) == f"a ({text}; waiting 2 s)"


def test_under_fifo_an_explanation_has_ages_instead_of_seconds_since_the_epoch() -> None:
    loop = make_loop("ab", ReleaseOrder())
    for node, seconds in enumerate((3.0, 1.0)):
        loop.matrix.columns["release_time"][node] = EPOCH - seconds
        loop.set_ready(node, True, EPOCH - seconds)
    assert str(loop.explain(1, EPOCH)).splitlines()[:2] == [
        "b: number 2 of the runnable by fifo, priority (1 s ago)",
        "  ahead of it: a (3 s ago; waiting 3 s)",
    ]


def test_the_best_waiting_node_has_nobody_ahead() -> None:
    loop = loop_of("abc")
    loop.decide(12.0)
    explanation = loop.explain(1, 13.0)
    assert (explanation.place, explanation.ahead) == (1, ())
    assert "ahead" not in str(explanation)


def test_more_nodes_ahead_than_are_shown_are_counted_here_too() -> None:
    loop = loop_of("abcdefgh")
    text = str(loop.explain(7, 13.0))
    assert re.search(r"ahead of it: a .*, e \S+ waiting 3 s\) and 2 more", text)


@pytest.mark.parametrize(
    ("lane", "text"),
    [
        pytest.param(Lane((1, 0)), "may run on workers 1 (free), 0 (a)", id="at home only"),
        pytest.param(
            Lane((0,), spare=(1, 2)),
            "at home on workers 0 (a); may borrow 1, 2 when nobody at home there can run",
            id="spare",
        ),
        pytest.param(
            Lane((0,), spare=(1,), aggressive=True),
            "at home on workers 0 (a); may borrow 1 at any time",
            id="aggressive",
        ),
    ],
)
def test_a_waiting_node_says_where_it_may_run(lane: Lane, text: str) -> None:
    loop = loop_of("ab", workers=3, lanes={"a": Lane((0,)), "b": lane})
    loop.set_ready(1, False, 10.0)
    loop.decide(12.0)
    loop.set_ready(1, True, 12.0)
    explanation = loop.explain(1, 13.0)
    assert explanation.lane == lane
    assert dict(explanation.busy) == {0: "a"}
    assert str(explanation).splitlines()[-1].strip() == text


@pytest.mark.parametrize(
    ("now", "text"),
    [
        pytest.param(12.0, "the guard puts it in front in 3 s", id="before the deadline"),
        pytest.param(15.0, "overdue for 0 s: the guard puts it in front of its lane", id="at the deadline"),
        pytest.param(17.5, "overdue for 2.5 s: the guard puts it in front of its lane", id="after the deadline"),
    ],
)
def test_a_waiting_node_says_when_the_guard_strikes(now: float, text: str) -> None:
    loop = loop_of("ab", patience={"b": 5.0})
    explanation = loop.explain(1, now)
    assert explanation.guard_deadline == 15.0
    assert str(explanation).splitlines()[-1].strip() == text


def test_a_node_with_endless_patience_says_nothing_of_the_guard() -> None:
    explanation = loop_of("ab").explain(1, 50.0)
    assert explanation.guard_deadline == math.inf
    assert "guard" not in str(explanation)


def test_explaining_changes_nothing() -> None:
    asked, silent = loop_of("abc", patience={"c": 5.0}), loop_of("abc", patience={"c": 5.0})
    for node in range(3):
        asked.explain(node, 20.0)
    assert asked.decide(20.0) == silent.decide(20.0)
    assert asked.statistics() == silent.statistics()


def test_what_is_explained_to_be_first_is_what_is_then_started() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        loop = make_loop("dbca", FewestTurns() if seed % 2 else Largest())
        for node in range(4):
            loop.matrix.columns["pending"][node] = chance.randint(0, 2)
            loop.set_ready(node, True, 0.0)
        for now in range(5):
            first = [node for node in range(4) if loop.explain(node, float(now)).place == 1]
            assert [start.node for start in loop.decide(float(now))] == first
            loop.finished(0, float(now))


# --- a policy with a mistake ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Misspelt(Policy):
    """Reads a feature that there is not."""

    name = "misspelt"

    def priorities(self, view: FeatureView) -> Floats:
        return view["pendign"]


@dataclass(frozen=True)
class Divides(Misspelt):
    """Fails by itself."""

    name = "divides"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(1 // 0)


@pytest.mark.parametrize(
    ("policy", "error", "said"),
    [
        pytest.param(
            Misspelt(), UnknownNameError, r"no feature called 'pendign'. Did you mean 'pending'", id="feature"
        ),
        pytest.param(Divides(), UserCodeError, "policy 'divides' failed while ranking: ZeroDivisionError", id="raises"),
    ],
)
def test_the_mistake_of_a_policy_is_told_by_whoever_explains(policy: Policy, error: type[Exception], said: str) -> None:
    loop = make_loop("a", Layered(policy))
    loop.set_ready(0, True, 0.0)
    with pytest.raises(error, match=said):
        loop.explain(0, 0.0)


@dataclass(frozen=True)
class Chatty(Misspelt):
    """Has its own idea of notes."""

    says: Any = None

    name = "chatty"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))

    def notes(self, view: FeatureView, node: int) -> Any:
        return self.says


@pytest.mark.parametrize(
    "says",
    [
        pytest.param(repeat("still waiting"), id="lines for ever"),
        pytest.param("a line", id="a text"),
        pytest.param(None, id="nothing"),
    ],
)
def test_notes_that_are_no_lines_are_the_mistake_of_the_policy(says: object) -> None:
    loop = make_loop("a", Chatty(says=says))
    loop.set_ready(0, True, 0.0)
    with pytest.raises(UserCodeError, match=r"policy .chatty.*notes must return lines .* at most 1000 texts"):
        loop.explain(0, 0.0)


def test_what_else_a_user_should_know_is_below_the_explanation() -> None:
    explanation = make_loop("a", Favourites("a")).explain(0, 0.0)
    assert str(replace(explanation, notes=("waiting for rain",))).splitlines()[-1] == "  waiting for rain"
