"""The guard against starvation: who it puts in front, and how long anybody waits at most."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.dispatch import Dispatch, Start
from headgate.core.guard import Guard
from headgate.core.placement import Lane
from headgate.testing import Favourites, LanesByName
from tests.core.oracles import few_examples, make_loop

# --- deadlines ----------------------------------------------------------------------------------------------


def guard_of(*lane_of: int) -> Guard:
    """A guard over nodes in these lanes."""
    return Guard(list(lane_of), max(lane_of) + 1, list(range(len(lane_of))))


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=30), st.integers(0, 10))
def test_the_most_overdue_node_of_a_lane_is_the_watched_one_with_the_earliest_deadline(
    facts: list[tuple[int, int | None]], now: int
) -> None:
    lane_of = (0, 1, 0, 1, 0, 1)
    guard = guard_of(*lane_of)
    watched: dict[int, float] = {}
    for node, deadline in facts:
        if deadline is None:
            guard.release(node)
            watched.pop(node, None)
        else:
            guard.watch(node, deadline)
            watched[node] = deadline
    for lane in (0, 1):
        overdue = [(when, node, node) for node, when in watched.items() if lane_of[node] == lane and when <= now]
        found = guard.most_overdue(lane, now)
        assert (found is None) == (not overdue)
        assert found is None or found == min(overdue)
    assert [guard.deadline(node) for node in range(6)] == [watched.get(node, math.inf) for node in range(6)]


def test_a_node_is_overdue_from_the_moment_of_its_deadline() -> None:
    guard = guard_of(0)
    guard.watch(0, 5.0)
    assert guard.most_overdue(0, 4.999) is None
    assert guard.most_overdue(0, 5.0) == (5.0, 0, 0)


def test_asking_twice_gives_the_same_answer() -> None:
    guard = guard_of(0, 0)
    guard.watch(0, 3.0)
    guard.watch(1, 2.0)
    assert [guard.most_overdue(0, 9.0) for _ in range(2)] == [(2.0, 1, 1), (2.0, 1, 1)]


def test_a_node_with_endless_patience_is_never_overdue() -> None:
    guard = guard_of(0)
    guard.watch(0, math.inf)
    assert guard.most_overdue(0, 1e300) is None


def test_a_deadline_that_moved_counts_only_where_it_is_now() -> None:
    guard = guard_of(0, 0)
    guard.watch(0, 2.0)
    guard.watch(1, 3.0)
    guard.watch(0, 8.0)
    assert guard.most_overdue(0, 9.0) == (3.0, 1, 1)
    guard.release(1)
    assert guard.most_overdue(0, 9.0) == (8.0, 0, 0)
    guard.watch(0, 2.0)
    assert guard.most_overdue(0, 9.0) == (2.0, 0, 0)


# --- in the loop --------------------------------------------------------------------------------------------


def started(loop: Dispatch, starts: list[Start]) -> list[tuple[str, int, str]]:
    return [(loop.matrix.graph.names[start.node], start.worker, start.reason) for start in starts]


def guarded_loop(
    names: str, patience: dict[str, float], workers: int = 1, lanes: dict[str, Lane] | None = None
) -> Dispatch:
    """Everything ready at 0; the policy always wants the first name."""
    loop = make_loop(names, Favourites(names[0]), LanesByName(lanes) if lanes else None, workers)
    for name, seconds in patience.items():
        loop.matrix.columns["patience"][loop.matrix.graph.index[name]] = seconds
    loop.refresh_patience()
    for node in range(len(names)):
        loop.set_ready(node, True, 0.0)
    return loop


def test_before_its_deadline_a_node_waits_for_the_policy() -> None:
    loop = guarded_loop("abc", {"b": 5.0})
    assert started(loop, loop.decide(4.9)) == [("a", 0, "policy")]
    assert loop.statistics().guard_strikes == 0


def test_an_overdue_node_goes_before_the_best_by_the_policy() -> None:
    loop = guarded_loop("abc", {"b": 5.0})
    assert started(loop, loop.decide(5.0)) == [("b", 0, "guard")]
    assert loop.statistics().guard_strikes == 1


def test_the_most_overdue_goes_first() -> None:
    loop = guarded_loop("abcd", {"b": 5.0, "c": 3.0, "d": 4.0})
    order = []
    for now in (9.0, 9.1, 9.2):
        order += started(loop, loop.decide(now))
        loop.set_ready(loop.matrix.graph.index[order[-1][0]], False, now)
        loop.finished(0, now)
    assert [name for name, _, _ in order] == ["c", "d", "b"]


@pytest.mark.parametrize("names", ["zba", "zab"])
def test_between_nodes_equally_overdue_the_name_that_sorts_first_goes_first(names: str) -> None:
    loop = guarded_loop(names, {"a": 5.0, "b": 5.0})
    assert started(loop, loop.decide(6.0)) == [("a", 0, "guard")]


def test_the_guard_strikes_at_most_once_in_a_decision() -> None:
    loop = guarded_loop("abcd", {"c": 1.0, "d": 1.0}, workers=3)
    assert started(loop, loop.decide(2.0)) == [("c", 0, "guard"), ("a", 1, "policy"), ("b", 2, "policy")]
    assert loop.statistics().guard_strikes == 1


def test_the_guard_does_not_put_a_node_where_it_may_not_run() -> None:
    lanes = {"a": Lane((0,)), "b": Lane((1,)), "c": Lane((0,))}
    loop = guarded_loop("abc", {"b": 1.0}, workers=2, lanes=lanes)
    loop.set_ready(1, False, 0.0)
    loop.decide(0.0)  # a on worker 0
    loop.set_ready(0, False, 0.0)
    loop.set_ready(1, True, 0.0)
    loop.decide(0.5)  # b on worker 1
    loop.finished(0, 2.0)
    assert started(loop, loop.decide(50.0)) == [("c", 0, "policy")], "b is overdue again but worker 0 is not for it"


def test_an_overdue_node_takes_its_home_before_a_spare_worker() -> None:
    lanes = {"a": Lane((0, 1)), "b": Lane((1,), spare=(0,))}
    loop = guarded_loop("ab", {"b": 1.0}, workers=2, lanes=lanes)
    assert started(loop, loop.decide(2.0)) == [("b", 1, "guard"), ("a", 0, "policy")]


def test_a_node_that_was_started_begins_to_wait_anew() -> None:
    loop = guarded_loop("ab", {"b": 5.0})
    assert started(loop, loop.decide(5.0)) == [("b", 0, "guard")]
    loop.finished(0, 8.0)
    assert started(loop, loop.decide(12.9)) == [("a", 0, "policy")]
    loop.finished(0, 13.0)
    assert started(loop, loop.decide(13.0)) == [("b", 0, "guard")]


def test_a_node_that_stopped_being_ready_in_between_begins_to_wait_anew() -> None:
    loop = guarded_loop("ab", {"b": 5.0})
    loop.set_ready(1, False, 4.0)
    loop.set_ready(1, True, 4.5)
    assert started(loop, loop.decide(6.0)) == [("a", 0, "policy")]


def test_being_told_again_that_a_node_is_ready_does_not_set_its_clock_back() -> None:
    loop = guarded_loop("ab", {"b": 5.0})
    loop.set_ready(1, True, 4.0)
    assert started(loop, loop.decide(5.0)) == [("b", 0, "guard")]


def test_changing_policy_placement_workers_or_nodes_does_not_set_the_clock_back() -> None:
    loop = guarded_loop("ab", {"b": 5.0})
    loop.replace_policy(Favourites("a"))
    loop.replace_placement(loop.placement)
    loop.set_workers(loop.workers)
    loop.regraph(loop.matrix.graph.adding("c"))
    assert started(loop, loop.decide(5.0)) == [("b", 0, "guard")]


@pytest.mark.parametrize(
    ("patience", "reason"),
    [pytest.param(2.0, "guard", id="shortened"), pytest.param(9.0, "policy", id="lengthened")],
)
def test_a_changed_patience_counts_from_when_the_node_became_runnable(patience: float, reason: str) -> None:
    loop = guarded_loop("ab", {"b": 4.0})
    loop.matrix.columns["patience"][1] = patience
    loop.refresh_patience()
    assert loop.decide(5.0)[0].reason == reason


def test_a_patience_without_end_is_never_struck() -> None:
    loop = guarded_loop("ab", {})
    for turn in range(200):
        assert started(loop, loop.decide(turn * 1e6)) == [("a", 0, "policy")]
        loop.finished(0, turn * 1e6)
    assert loop.statistics().guard_strikes == 0


# --- the bound ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wait:
    """From when a node became runnable until it was started, or until the end of the run."""

    name: str
    since: float
    until: float
    deadline: float


def overdue_before(wait: Wait, waits: list[Wait], rivals: str) -> int:
    """How many of ``rivals`` were overdue already, and still waiting, when this wait reached its deadline."""
    return sum(
        other.name in rivals and other.deadline <= wait.deadline <= other.until for other in waits if other is not wait
    )


def waits_under_starvation(loop: Dispatch, longest_run: int, chance: random.Random, *, together: bool) -> list[Wait]:
    """All waits in 60 s of a loop whose nodes are ready again as soon as they are done.

    ``together``: runs that end at one moment are all reported before the loop is asked, so that it is asked once for
    several free workers; otherwise it is asked after each.
    """
    names = loop.matrix.graph.names
    patience = loop.matrix.columns["patience"]
    waits: list[Wait] = []
    since = dict.fromkeys(range(len(names)), 0.0)
    ends: list[tuple[float, int, int]] = []
    now = 0.0
    for node in since:
        loop.set_ready(node, True, now)
    while now < 60.0:
        for start in loop.decide(now):
            began = since.pop(start.node)
            waits.append(Wait(names[start.node], began, now, began + patience[start.node]))
            heapq.heappush(ends, (now + chance.randint(1, longest_run), start.worker, start.node))
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, worker, node = heapq.heappop(ends)
            loop.finished(worker, now)
            since[node] = now
            if not together:
                break
    return [*waits, *(Wait(names[node], began, now, began + patience[node]) for node, began in since.items())]


PATIENCES = st.lists(st.integers(1, 12).map(float), min_size=1, max_size=5)


@few_examples
@given(PATIENCES, st.integers(1, 3), st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
def test_no_node_waits_beyond_the_bound(
    patiences: list[float], workers: int, longest_run: int, together: bool, chance: random.Random
) -> None:
    names = "abcdef"[: len(patiences) + 1]
    loop = guarded_loop(names, dict(zip(names[1:], patiences, strict=True)), workers)
    waits = waits_under_starvation(loop, longest_run, chance, together=together)
    for wait in waits:
        assert wait.until <= wait.deadline + (1 + overdue_before(wait, waits, names)) * longest_run


@few_examples
@given(PATIENCES, st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_loop_asked_after_every_run_lets_no_lane_wait_for_another(
    patiences: list[float], longest_run: int, chance: random.Random
) -> None:
    lanes = {"a": "ace", "b": "bdf"}
    names = "abcdef"[: len(patiences) + 1]
    placed = {name: Lane((0 if name in lanes["a"] else 1,)) for name in names}
    loop = guarded_loop(names, dict(zip(names[1:], patiences, strict=True)), 2, placed)
    waits = waits_under_starvation(loop, longest_run, chance, together=False)
    for wait in waits:
        rivals = lanes["a" if wait.name in lanes["a"] else "b"]
        assert wait.until <= wait.deadline + (1 + overdue_before(wait, waits, rivals)) * longest_run


def test_without_the_guard_the_same_loop_starves_all_but_one() -> None:
    loop = guarded_loop("abc", {})
    waits = waits_under_starvation(loop, 3, random.Random(0), together=False)
    assert {wait.name for wait in waits if wait.until < 60.0} == {"a"}
