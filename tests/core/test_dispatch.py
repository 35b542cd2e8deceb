"""The dispatch loop, rule by rule; ``test_dispatch_oracle.py`` compares whole stories with an oracle."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from headgate.core.dispatch import LOOP_FEATURES, Dispatch, DispatchStatistics
from headgate.core.errors import HeadgateError, MissingFeatureError, UserCodeError
from headgate.core.features import features_named
from headgate.core.graph import Floats, Graph, Ints
from headgate.core.loop import Reason
from headgate.core.matrix import FeatureMatrix, FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers
from headgate.core.placements import Anywhere, LeastLoaded, RoundRobinQueries
from headgate.core.policies import MultiClass
from headgate.core.policy import Policy
from headgate.testing import Favourites, FewestTurns, LanesByName, Largest, RandomLanes, Smallest, not_local
from headgate.warehouse.run.tracks import UpdateStopped
from tests.core.oracles import LOCAL_AND_FULL, make_loop

BOTH_RANKINGS = pytest.mark.parametrize(
    "policy", [pytest.param(Largest(), id="local"), pytest.param(not_local(Largest()), id="full")]
)


def ready(loop: Dispatch, names: str, now: float = 0.0) -> None:
    for name in names:
        loop.set_ready(loop.matrix.graph.index[name], True, now)


def not_ready(loop: Dispatch, names: str, now: float = 0.0) -> None:
    for name in names:
        loop.set_ready(loop.matrix.graph.index[name], False, now)


def write(loop: Dispatch, feature: str, **values: float) -> None:
    for name, value in values.items():
        node = loop.matrix.graph.index[name]
        loop.matrix.columns[feature][node] = value
        loop.note_change(node)


def started(loop: Dispatch, now: float = 0.0) -> list[tuple[str, int]]:
    """What the loop starts now; it must be in order with itself afterwards."""
    starts = [(loop.matrix.graph.names[start.node], start.worker) for start in loop.decide(now)]
    loop.validate()
    return starts


# --- who ----------------------------------------------------------------------------------------------------


@BOTH_RANKINGS
def test_the_best_ready_nodes_get_the_free_workers(policy: Policy) -> None:
    loop = make_loop("abcd", policy, workers=2)
    write(loop, "pending", a=1, b=4, c=3, d=2)
    ready(loop, "acd")
    assert started(loop) == [("c", 0), ("d", 1)]


@BOTH_RANKINGS
def test_between_equals_the_name_that_sorts_first_is_taken_whatever_order_nodes_came_in(policy: Policy) -> None:
    loop = make_loop("cab", policy, workers=2)
    ready(loop, "bca")
    assert started(loop) == [("a", 0), ("b", 1)]


@BOTH_RANKINGS
def test_a_change_that_was_noted_counts_at_the_next_decision(policy: Policy) -> None:
    loop = make_loop("abc", policy)
    write(loop, "pending", a=3, b=2, c=1)
    ready(loop, "abc")
    assert started(loop) == [("a", 0)]
    write(loop, "pending", b=0)
    loop.finished(0, 1.0)
    not_ready(loop, "a", 1.0)
    assert started(loop, 1.0) == [("c", 0)]


@BOTH_RANKINGS
def test_a_node_that_changed_while_it_ran_is_ranked_anew_when_it_is_done(policy: Policy) -> None:
    loop = make_loop("ab", policy)
    write(loop, "pending", a=2, b=1)
    ready(loop, "ab")
    assert started(loop) == [("a", 0)]
    write(loop, "pending", a=0)
    loop.finished(0, 1.0)
    assert started(loop, 1.0) == [("b", 0)]


@BOTH_RANKINGS
def test_nothing_is_started_without_a_ready_node_or_without_a_free_worker(policy: Policy) -> None:
    loop = make_loop("ab", policy)
    assert started(loop) == []
    ready(loop, "ab")
    assert len(started(loop)) == 1
    assert started(loop) == []


def test_a_node_runs_on_no_more_workers_than_it_may() -> None:
    loop = make_loop("ab", Favourites("a"), workers=4)
    write(loop, "max_workers", a=2)
    loop.refresh_patience()
    ready(loop, "ab")
    assert started(loop) == [("a", 0), ("a", 1), ("b", 2)]
    loop.finished(0, 1.0)
    assert started(loop, 1.0) == [("a", 0)]


@pytest.mark.parametrize(
    "policy", [pytest.param(Smallest("workers"), id="local"), pytest.param(not_local(Smallest("workers")), id="full")]
)
def test_a_start_counts_before_the_next_pick_of_the_same_decision(policy: Policy) -> None:
    loop = make_loop("ab", policy, workers=3)
    write(loop, "max_workers", a=3, b=3)
    loop.refresh_patience()
    ready(loop, "ab")
    assert started(loop) == [("a", 0), ("b", 1), ("a", 2)]


def test_memory_is_handed_to_the_policy_and_back() -> None:
    loop = make_loop("ab", FewestTurns())
    ready(loop, "ab")
    order = []
    for now in range(4):
        order += started(loop, float(now))
        loop.finished(0, float(now))
    assert [name for name, _ in order] == ["a", "b", "a", "b"]


def test_a_decision_shows_the_policy_the_time_the_turn_and_the_seed() -> None:
    seen: list[tuple[float, int, int]] = []

    @dataclass(frozen=True)
    class Curious(Policy):
        name = "curious"

        def priorities(self, view: FeatureView) -> Floats:
            seen.append((view.now, view.turn, view.seed))
            return np.zeros(len(view))

    matrix = FeatureMatrix(Graph("abc"), features_named(LOOP_FEATURES))
    loop = Dispatch(matrix, Curious(), Anywhere(), Workers.of(2), seed=9)
    ready(loop, "abc")
    started(loop, 2.5)
    assert seen == [(2.5, 0, 9), (2.5, 1, 9)]


# --- where --------------------------------------------------------------------------------------------------


def test_homes_are_taken_in_the_order_of_the_lane() -> None:
    lane = Lane((2, 0))
    loop = make_loop("abc", Favourites("abc"), LanesByName({"a": lane, "b": lane, "c": Lane((1,))}), 3)
    ready(loop, "abc")
    assert started(loop) == [("a", 2), ("b", 0), ("c", 1)]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_single_lane_that_has_not_all_workers_uses_only_its_own(workers: int) -> None:
    loop = make_loop("abc", Favourites("abc"), LanesByName(dict.fromkeys("abc", Lane((0,)))), workers)
    ready(loop, "abc")
    assert started(loop) == [("a", 0)]


@pytest.mark.parametrize("workers", [2, 3])
def test_the_only_query_there_is_stays_on_its_one_worker(workers: int) -> None:
    graph = Graph("abc", [("a", "b"), ("b", "c")])
    loop = make_loop(graph, Favourites("abc"), RoundRobinQueries(), workers)
    ready(loop, "abc")
    assert started(loop) == [("a", 0)]


def test_a_single_node_under_least_loaded_stays_on_its_worker() -> None:
    loop = make_loop("a", Favourites("a"), LeastLoaded(), 3)
    write(loop, "max_workers", a=2)
    loop.refresh_patience()
    ready(loop, "a")
    assert started(loop) == [("a", 0)]


def test_a_spare_worker_waits_for_those_at_home_unless_the_lane_is_aggressive() -> None:
    for aggressive, expected in ((False, [("c", 1)]), (True, [("b", 1)])):
        lanes = {"a": Lane((0,)), "b": Lane((0,), spare=(1,), aggressive=aggressive), "c": Lane((1,))}
        loop = make_loop("abc", Favourites("abc"), LanesByName(lanes), 2)
        ready(loop, "a")
        assert started(loop) == [("a", 0)]
        ready(loop, "bc")
        assert started(loop) == expected


def test_a_spare_worker_is_lent_when_nobody_at_home_there_is_ready() -> None:
    lanes = {"a": Lane((0,)), "b": Lane((0,), spare=(1,)), "c": Lane((1,))}
    loop = make_loop("abc", Favourites("abc"), LanesByName(lanes), 2)
    ready(loop, "ab")
    assert started(loop) == [("a", 0), ("b", 1)]


def test_several_free_spare_workers_are_taken_in_the_order_of_the_lane() -> None:
    lane = Lane((0,), spare=(2, 1))
    loop = make_loop("abc", Favourites("abc"), LanesByName(dict.fromkeys("abc", lane)), 3)
    ready(loop, "abc")
    assert started(loop) == [("a", 0), ("b", 2), ("c", 1)]


def test_nobody_takes_a_worker_outside_its_lane() -> None:
    chance = random.Random(7)
    for seed in range(60):
        placement = RandomLanes(seed, lanes_drawn=chance.randint(1, 4))
        workers = chance.randint(1, 4)
        loop = make_loop("abcdef", Largest(), placement, workers)
        ready(loop, "abcdef")
        for name, worker in started(loop):
            lane = placement.lane(name, workers)
            assert worker in (*lane.home, *lane.spare), (seed, name, worker)


@pytest.mark.parametrize(
    "lanes",
    [
        pytest.param(Lanes((Lane((0,)),), np.array([0])), id="too few nodes"),
        pytest.param(Lanes((Lane((0,)),), np.array([0, 0, 0])), id="too many nodes"),
        pytest.param(Lanes((Lane((2,)),), np.array([0, 0])), id="a home that does not exist"),
        pytest.param(Lanes((Lane((0,), (2,)),), np.array([0, 0])), id="a spare worker that does not exist"),
        pytest.param(Lanes((Lane(()),), np.array([0, 0])), id="no home"),
        pytest.param(Lanes((Lane((0,)),), np.array([0, 1])), id="a lane that does not exist"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(lanes: Lanes) -> None:
    @dataclass(frozen=True)
    class Wrong(Placement):
        name = "wrong"

        def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
            return lanes

    with pytest.raises(HeadgateError, match=r"lane|worker"):
        make_loop("ab", Largest(), Wrong(), 2)


# --- two rankings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("local", "full"), LOCAL_AND_FULL, ids=str)
def test_ranking_what_changed_and_ranking_everything_choose_the_same(local: Policy, full: Policy, seed: int) -> None:
    """With many more nodes than change at once, so that the local ranking looks at some rows only."""
    chance = random.Random(seed)
    names = [f"n{i:02}" for i in range(40)]
    loops = [make_loop(names, policy, RandomLanes(seed, lanes_drawn=5), 3) for policy in (local, full)]
    for now in range(60):
        for _ in range(chance.randint(0, 5)):
            node, value, is_ready = chance.randrange(40), float(chance.randint(0, 5)), chance.random() < 0.8
            feature = chance.choice(["pending", "priority"])
            for loop in loops:
                loop.matrix.columns[feature][node] = value
                loop.note_change(node)
                loop.set_ready(node, is_ready, float(now))
        starts = [loop.decide(float(now)) for loop in loops]
        assert starts[0] == starts[1]
        busy = sorted({start.worker for start in starts[0]})
        for worker in busy[: chance.randint(0, 3)]:
            for loop in loops:
                loop.finished(worker, now + 0.5)


def test_thousands_of_changes_do_not_let_the_ranking_forget_or_repeat_anybody() -> None:
    """More changes than the local ranking keeps stale entries for."""
    loop = make_loop("abc", Largest())
    ready(loop, "abc")
    for turn in range(1000):
        pending = {"a": turn % 7, "b": turn % 5, "c": turn % 3}
        write(loop, "pending", **pending)
        assert started(loop, float(turn)) == [(min("abc", key=lambda name: (-pending[name], name)), 0)]
        loop.finished(0, float(turn))


@BOTH_RANKINGS
def test_a_priority_that_is_no_number_comes_last_and_disturbs_nobody(policy: Policy) -> None:
    loop = make_loop("abcd", policy)
    write(loop, "pending", a=1, b=math.nan, c=3, d=2)
    ready(loop, "abcd")
    order = ""
    for now in range(4):
        ((name, _),) = started(loop, float(now))
        order += name
        not_ready(loop, name, float(now))
        loop.finished(0, float(now))
    assert order == "cdab"


def test_the_clock_reaches_a_policy_that_looks_at_it_even_if_nothing_was_noted() -> None:
    @dataclass(frozen=True)
    class Alternating(Policy):
        name = "alternating"

        def priorities(self, view: FeatureView) -> Floats:
            return np.array([1.0, 0.0]) if view.now % 2 == 0 else np.array([0.0, 1.0])

    loop = make_loop("ab", Alternating())
    ready(loop, "ab")
    names = []
    for now in (0.0, 1.0, 2.0):
        names += started(loop, now)
        loop.finished(0, now)
    assert [name for name, _ in names] == ["a", "b", "a"]


# --- windows ------------------------------------------------------------------------------------------------


def test_window_time_adds_up_what_workers_spent_on_a_node_and_starts_again_with_the_window() -> None:
    loop = make_loop("ab", Favourites("a"), window=10.0)
    ready(loop, "a")
    started(loop, 0.0)
    loop.finished(0, 4.0)
    started(loop, 4.0)
    loop.finished(0, 7.0)
    assert loop.matrix.columns["window_time"].tolist() == [7.0, 0.0]
    started(loop, 12.0)
    assert loop.matrix.columns["window_time"].tolist() == [0.0, 0.0]


def test_a_run_counts_only_as_far_as_it_lies_in_the_current_window() -> None:
    loop = make_loop("ab", Favourites("a"), workers=2, window=10.0)
    ready(loop, "a")
    started(loop, 0.0)
    ready(loop, "b", 10.0)
    started(loop, 10.0)  # a new window begins
    loop.finished(0, 11.0)
    assert loop.matrix.columns["window_time"][0] == 1.0


def test_a_new_window_is_a_change_of_every_node() -> None:
    """The local ranking must not go on with what the last window said."""
    chosen = []
    for policy in (Smallest("window_time"), not_local(Smallest("window_time"))):
        loop = make_loop("abc", policy, window=10.0)
        ready(loop, "a")
        started(loop, 0.0)
        loop.finished(0, 5.0)
        ready(loop, "bc", 5.0)
        first = started(loop, 5.0)  # b: a has had 5 s already
        loop.finished(0, 6.0)
        not_ready(loop, "b", 6.0)
        chosen.append([*first, *started(loop, 12.0)])  # in the new window nobody has had anything
    assert chosen[0] == chosen[1] == [("b", 0), ("a", 0)]


# --- change while running -----------------------------------------------------------------------------------


def test_another_policy_ranks_from_the_next_decision_on_without_the_memory_of_the_last() -> None:
    loop = make_loop("ab", FewestTurns())
    ready(loop, "ab")
    started(loop)
    loop.finished(0, 1.0)
    loop.replace_policy(FewestTurns())
    assert started(loop, 1.0) == [("a", 0)]
    loop.finished(0, 2.0)
    loop.replace_policy(Favourites("b"))
    assert started(loop, 2.0) == [("b", 0)]


def test_a_policy_or_placement_that_reads_what_nobody_measures_is_refused_and_changes_nothing() -> None:
    loop = make_loop("ab", Favourites("b"))
    ready(loop, "ab")
    with pytest.raises(MissingFeatureError, match="'mood'"):
        loop.replace_policy(Largest("mood"))

    @dataclass(frozen=True)
    class ByMood(Anywhere):
        needs = ("mood",)

    with pytest.raises(MissingFeatureError, match="'mood'"):
        loop.replace_placement(ByMood())
    assert started(loop) == [("b", 0)]


def test_an_engine_without_the_features_of_the_loop_is_refused() -> None:
    matrix = FeatureMatrix(Graph("a"), features_named(["priority"]))
    with pytest.raises(MissingFeatureError, match="the dispatch loop needs the feature 'ready'"):
        Dispatch(matrix, Favourites(), Anywhere(), Workers.of(1))


@dataclass(frozen=True)
class AtMostWorkers(Placement):
    """Refuses to place on more workers than it was made for."""

    most: int = 1
    name = "at-most-workers"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        if len(workers) > self.most:
            raise ValueError("too many workers")
        return Lanes.single(len(view), Lane(tuple(range(len(workers)))))


def test_a_placement_that_refuses_leaves_the_loop_as_it_was() -> None:
    loop = make_loop("abc", Favourites("abc"), AtMostWorkers(1), 1)
    ready(loop, "abc")
    with pytest.raises(UserCodeError, match="too many"):
        loop.set_workers(Workers.of(2))
    assert len(loop.workers) == 1
    assert started(loop) == [("a", 0)]


@dataclass(frozen=True)
class Raises(Policy):
    """Raises what it is given when it ranks."""

    error: BaseException

    name = "raises"

    def priorities(self, view: FeatureView) -> Floats:
        raise self.error


class Stopped(BaseException):
    """As a user would make one that no ``except Exception`` catches."""


@pytest.mark.parametrize(
    "error",
    [Stopped("enough"), BaseException("enough"), GeneratorExit("enough"), asyncio.CancelledError("enough")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_policy_raises_is_its_failure(error: BaseException) -> None:
    loop = make_loop("ab", Raises(error))
    ready(loop, "ab")
    with pytest.raises(UserCodeError, match=f"policy .* failed while ranking: {type(error).__name__}: enough"):
        loop.decide(0.0)
    with pytest.raises(UserCodeError, match="failed while ranking"):
        loop.queue(0.0)
    loop.replace_policy(Favourites("ab"))
    assert started(loop) == [("a", 0)]


@dataclass(frozen=True)
class FailsIn(Policy):
    """Raises in one of its methods."""

    method: str

    name = "fails"

    def _fail_in(self, method: str) -> None:
        if method == self.method:
            raise ValueError("no")

    def priorities(self, view: FeatureView) -> Floats:
        self._fail_in("priorities")
        return np.zeros(len(view))

    def portion(self, view: FeatureView) -> Floats:
        self._fail_in("portion")
        return np.ones(len(view))

    def remember(self, view: FeatureView, node: int) -> object:
        self._fail_in("remember")
        return None

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        self._fail_in("joining")
        return offered

    def notes(self, view: FeatureView, node: int) -> tuple[str, ...]:
        self._fail_in("notes")
        return ()


@pytest.mark.parametrize(
    ("method", "said", "asked"),
    [
        pytest.param("priorities", "while ranking", lambda loop: loop.decide(0.0), id="it ranks"),
        pytest.param("priorities", "while ranking", lambda loop: loop.explain(0, 0.0), id="it ranks to explain"),
        pytest.param("portion", "in portion", lambda loop: loop.decide(0.0), id="a portion"),
        pytest.param("portion", "in portion", lambda loop: loop.explain(0, 0.0), id="a portion to explain"),
        pytest.param("remember", "in remember", lambda loop: loop.decide(0.0), id="its memory"),
        pytest.param("joining", "in joining", lambda loop: loop.joining(0, [1], 0.0), id="who joins"),
        pytest.param("notes", "in notes", lambda loop: loop.explain(0, 0.0), id="its notes"),
    ],
)
def test_the_method_in_which_a_policy_fails_is_named(
    method: str, said: str, asked: Callable[[Dispatch], object]
) -> None:
    loop = make_loop("ab", FailsIn(method))
    ready(loop, "ab")
    with pytest.raises(UserCodeError, match=f"policy 'fails:method={method}' failed {said}: ValueError: no"):
        asked(loop)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UpdateStopped()], ids=lambda error: type(error).__name__)
def test_what_is_meant_to_end_a_thread_passes_a_policy_by(error: BaseException) -> None:
    loop = make_loop("ab", Raises(error))
    ready(loop, "ab")
    with pytest.raises(type(error)):
        loop.decide(0.0)


@dataclass(frozen=True)
class Answers(Policy):
    """Answers what it is given."""

    priority: Any = None
    share: Any = None

    name = "answers"

    def priorities(self, view: FeatureView) -> Any:
        return np.zeros(len(view)) if self.priority is None else self.priority

    def portion(self, view: FeatureView) -> Any:
        return np.ones(len(view)) if self.share is None else self.share

    def __str__(self) -> str:
        return self.name


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        pytest.param(Answers([1, 1]), "one row for each of 2 nodes; got list", id="a list"),
        pytest.param(Answers(np.zeros(1)), r"one row for each of 2 nodes; got an array of shape \(1,\)", id="too few"),
        pytest.param(Answers(np.array([None, 1])), "one row for each of 2 nodes; got an array of object", id="objects"),
        pytest.param(Answers(np.array([1j, 2])), "2 nodes; got an array of complex128", id="complex numbers"),
        pytest.param(Answers(np.array(["a", "b"])), "2 nodes; got an array of <U1", id="texts"),
        pytest.param(Answers(share=np.array([1j])), "portion must .* got an array of complex128", id="complex portion"),
        pytest.param(Answers(share=np.array(["1"])), "portion must .* got an array of <U1", id="a text as a portion"),
        pytest.param(Answers(share=[1]), "portion must return an array with one number .* got list", id="a portion"),
        pytest.param(Answers(share=np.zeros(1)), "the portion of 'a' must be a number above 0", id="no portion"),
    ],
)
def test_a_wrong_answer_of_a_policy_is_one_message_without_a_traceback(policy: Policy, said: str) -> None:
    loop = make_loop("ab", policy)
    ready(loop, "ab")
    with pytest.raises(UserCodeError, match=f"policy 'answers.*{said}") as caught:
        loop.decide(0.0)
    assert caught.value.__cause__ is None, "no code of the user's has raised"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(Answers([1, 1]), "one row for each of 2 nodes; got list", id="a list"),
        pytest.param(Answers(np.array([1j, 2])), "2 nodes; got an array of complex128", id="complex numbers"),
        pytest.param(Answers(share=np.array([1j, 2])), "portion must .* got an array of complex128", id="portions"),
    ],
)
def test_a_wrong_answer_of_the_policy_of_a_class_is_told_by_its_own_name(answer: Policy, said: str) -> None:
    loop = make_loop("ab", MultiClass(((0, answer),)))
    ready(loop, "ab")
    with pytest.raises(UserCodeError, match=f"^policy .answers.*{said}"):
        loop.decide(0.0)


@dataclass(frozen=True)
class Moody(Policy):
    """Answers questions about itself once."""

    asked: list[str] = field(default_factory=list)

    name = "moody"

    def priorities(self, view: FeatureView) -> Floats:
        raise ValueError("no")

    def _once(self, what: str) -> None:
        if what in self.asked:
            raise LookupError(f"asked for my {what} again")
        self.asked.append(what)

    def __str__(self) -> str:
        self._once("text")
        return "moody today"

    @property
    def cuts(self) -> bool:
        self._once("cuts")
        return False

    @property
    def local(self) -> bool:  # type: ignore[override]
        self._once("local")
        return False


def test_a_policy_is_asked_what_it_is_once() -> None:
    loop = make_loop("ab", Moody(), Anywhere(), 2)
    ready(loop, "ab")
    loop.place_again()
    loop.set_workers(Workers.of(1))
    with pytest.raises(UserCodeError, match="policy 'moody today' failed while ranking: ValueError: no"):
        loop.decide(0.0)


@dataclass(frozen=True)
class Scribbler(Policy, Placement):
    """Computes in place, in what it is shown."""

    needs = ("max_workers",)

    def priorities(self, view: FeatureView) -> Floats:
        free = view["max_workers"]
        free -= 1.0
        return free

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        view["max_workers"][:] = 0.0
        return Lanes.single(len(view), Lane((0,)))


def test_a_policy_that_writes_into_what_it_is_shown_fails_and_changes_nothing() -> None:
    loop = make_loop("abc", Scribbler())
    ready(loop, "abc")
    with pytest.raises(UserCodeError, match=r"'Scribbler' failed while ranking: ValueError: .* read-only"):
        loop.decide(0.0)
    loop.replace_policy(Favourites("abc"))
    loop.refresh_patience()
    assert started(loop) == [("a", 0)]


def test_a_placement_that_writes_into_what_it_is_shown_is_refused() -> None:
    with pytest.raises(UserCodeError, match=r"'Scribbler' failed: ValueError: .* read-only"):
        make_loop("abc", Favourites("abc"), Scribbler())


def test_a_placement_that_cannot_replace_the_old_one_does_not() -> None:
    loop = make_loop("abc", Favourites("abc"), Anywhere(), 2)
    ready(loop, "abc")
    with pytest.raises(UserCodeError, match="too many"):
        loop.replace_placement(AtMostWorkers(1))
    assert loop.placement == Anywhere()
    assert started(loop) == [("a", 0), ("b", 1)]


def test_more_workers_get_work_at_once() -> None:
    loop = make_loop("abc", Favourites("abc"))
    ready(loop, "abc")
    assert started(loop) == [("a", 0)]
    loop.set_workers(Workers.of(3))
    assert started(loop) == [("b", 1), ("c", 2)]


def test_a_worker_that_is_gone_finishes_what_it_has_and_gets_nothing_more() -> None:
    loop = make_loop("abc", Favourites("abc"), workers=2)
    ready(loop, "abc")
    assert started(loop) == [("a", 0), ("b", 1)]
    loop.set_workers(Workers.of(1))
    loop.finished(1, 1.0)
    assert started(loop, 1.0) == []
    loop.finished(0, 2.0)
    assert started(loop, 2.0) == [("a", 0)]
    assert loop.statistics().free_workers == 0


def test_a_worker_that_is_gone_and_comes_back_while_busy_is_not_given_a_second_node() -> None:
    loop = make_loop("abc", Favourites("abc"), workers=2)
    ready(loop, "abc")
    assert started(loop) == [("a", 0), ("b", 1)]
    loop.set_workers(Workers.of(1))
    loop.set_workers(Workers.of(2))
    assert started(loop, 1.0) == []
    loop.finished(1, 1.0)
    assert started(loop, 1.0) == [("b", 1)]


def test_ready_running_and_waiting_nodes_survive_a_new_graph_under_their_names() -> None:
    loop = make_loop("abc", Favourites("abc"))
    ready(loop, "abc")
    assert started(loop) == [("a", 0)]
    old = loop.regraph(Graph("cxba"))
    assert old.tolist() == [2, -1, 1, 0]
    loop.validate()
    assert loop.matrix.columns["workers"].tolist() == [0.0, 0.0, 0.0, 1.0]
    loop.finished(0, 1.0)
    assert started(loop, 1.0) == [("a", 0)]
    not_ready(loop, "a", 2.0)
    loop.finished(0, 2.0)
    assert started(loop, 2.0) == [("b", 0)]


def test_a_new_node_is_not_ready() -> None:
    loop = make_loop("a", Favourites("xa"), workers=2)
    ready(loop, "a")
    loop.regraph(Graph("xa"))
    assert started(loop) == [("a", 0)]
    ready(loop, "x")
    assert started(loop) == [("x", 1)]


def test_a_node_that_is_removed_while_it_runs_frees_its_worker_at_the_end() -> None:
    loop = make_loop("ab", Favourites("ab"))
    ready(loop, "ab")
    assert started(loop) == [("a", 0)]
    loop.regraph(Graph("b"))
    assert started(loop, 1.0) == []
    loop.finished(0, 2.0)
    assert started(loop, 2.0) == [("b", 0)]


def test_a_node_that_comes_back_while_its_old_run_goes_on_counts_as_running() -> None:
    loop = make_loop("ab", Favourites("ab"), workers=2)
    ready(loop, "a")
    assert started(loop) == [("a", 0)]
    loop.regraph(Graph("b"))
    loop.regraph(Graph("ab"))
    loop.validate()
    ready(loop, "a", 1.0)
    assert started(loop, 1.0) == []
    loop.finished(0, 2.0)
    assert started(loop, 2.0) == [("a", 0)]


def test_all_nodes_can_go_and_others_come() -> None:
    loop = make_loop("a", Favourites("a"))
    loop.regraph(Graph(""))
    assert started(loop) == []
    loop.regraph(Graph("b"))
    ready(loop, "b")
    assert started(loop) == [("b", 0)]


@dataclass(frozen=True)
class Recalling(Placement):
    """Vowels apart from the others. Notes in which lanes it is shown to have placed nodes before."""

    shown: list[list[int]] = field(default_factory=list, compare=False)
    name = "recalling"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        assert isinstance(view.memory, Lanes)
        self.shown.append(view.memory.of.tolist())
        of = np.array([int(name not in "aeiou") for name in view.graph.names], dtype=np.intp)
        return Lanes((Lane((0,)), Lane((0,), (), True)), of)


def test_a_placement_is_shown_what_it_has_placed_before_under_the_names_of_the_nodes() -> None:
    placement = Recalling()
    loop = make_loop("abcd", Favourites("a"), placement)
    loop.place_again()
    loop.regraph(Graph("dcaex"))
    loop.place_again()
    assert placement.shown == [[], [0, 1, 1, 1], [1, 1, 0, -1, -1], [1, 1, 0, 0, 1]]


@BOTH_RANKINGS
def test_a_raised_limit_lets_a_running_node_run_again(policy: Policy) -> None:
    loop = make_loop("ab", policy, workers=3)
    ready(loop, "a")
    assert started(loop) == [("a", 0)]
    write(loop, "max_workers", a=2)
    loop.refresh_patience()
    assert started(loop, 1.0) == [("a", 1)]


@BOTH_RANKINGS
def test_a_lowered_limit_stops_further_starts(policy: Policy) -> None:
    loop = make_loop("ab", policy, workers=3)
    write(loop, "max_workers", a=3)
    loop.refresh_patience()
    ready(loop, "a")
    loop.set_workers(Workers.of(1))
    assert started(loop) == [("a", 0)]
    write(loop, "max_workers", a=1)
    loop.refresh_patience()
    loop.set_workers(Workers.of(3))
    assert started(loop, 1.0) == []


def test_placing_again_follows_costs_that_have_moved() -> None:
    @dataclass(frozen=True)
    class BusiestAlone(Placement):
        name = "busiest-alone"
        needs = ("pending",)

        def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
            return Lanes.of_workers((view["pending"] == view["pending"].max()).astype(np.intp))

    loop = make_loop("ab", Favourites("ab"), BusiestAlone(), 2)
    write(loop, "pending", a=1, b=2)
    loop.place_again()
    ready(loop, "ab")
    assert started(loop) == [("a", 0), ("b", 1)]


# --- when a policy fails ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailsWhenTold(Policy):
    """Fails while some node has a negative amount pending, as users' policies do."""

    name = "fails-when-told"
    local = True
    needs = ("pending",)

    def priorities(self, view: FeatureView) -> Floats:
        if (view["pending"] < 0).any():
            raise ZeroDivisionError("a policy of a user")
        return view["pending"].copy()


@dataclass(frozen=True)
class FailsWhenToldOfAll(FailsWhenTold):
    local = False


FAILING = pytest.mark.parametrize(
    "policy", [pytest.param(FailsWhenTold(), id="local"), pytest.param(FailsWhenToldOfAll(), id="full")]
)


@FAILING
def test_no_node_is_forgotten_after_a_policy_failed_once(policy: Policy) -> None:
    loop = make_loop("ab", policy)
    write(loop, "pending", a=1, b=-1)
    ready(loop, "ab")
    with pytest.raises((ZeroDivisionError, HeadgateError)):
        loop.decide(0.0)
    loop.matrix.columns["pending"][1] = 2
    assert started(loop, 1.0) == [("b", 0)]
    not_ready(loop, "b", 1.0)
    loop.finished(0, 2.0)
    assert started(loop, 2.0) == [("a", 0)]


@FAILING
def test_a_worker_is_not_taken_by_a_decision_that_failed_half_way(policy: Policy) -> None:
    """What the engine is not told to start must not count as started."""

    @dataclass(frozen=True)
    class FailsAtSecondTurn(type(policy)):  # type: ignore[misc]
        def priorities(self, view: FeatureView) -> Floats:
            if view["last_turn"].max() >= 0:
                raise ZeroDivisionError("a policy of a user")
            return view["pending"].copy()

        def requires(self) -> tuple[str, ...]:
            return ("pending", "last_turn")

    loop = make_loop("abc", FailsAtSecondTurn(), workers=2)
    write(loop, "max_workers", a=2)
    loop.refresh_patience()
    ready(loop, "abc")
    told: list[int] = []
    with suppress(ZeroDivisionError, HeadgateError):
        told = [start.worker for start in loop.decide(0.0)]
    assert loop.statistics().free_workers == 2 - len(told)


# --- what is checked before it is changed -------------------------------------------------------------------


@dataclass(frozen=True)
class FewWorkers(Placement):
    """Places on two workers at most."""

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        if len(workers) > 2:
            raise SystemExit("too many workers")
        return Anywhere().lanes(view, workers)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param({"policy": Largest("weather")}, "needs the feature 'weather'", id="a feature"),
        pytest.param({"workers": Workers.of(3)}, "'FewWorkers' failed: SystemExit: too many", id="more workers"),
        pytest.param({"placement": Anywhere(), "workers": Workers.of(3)}, "", id="with another placement"),
        pytest.param({"policy": Smallest("cost"), "workers": Workers.of(1)}, "", id="fewer workers"),
    ],
)
def test_changes_are_refused_as_a_whole_before_any_is_made(asked: dict[str, Any], said: str) -> None:
    loop = make_loop("ab", Largest(), FewWorkers(), workers=2)
    before = (loop.policy, loop.placement, loop.workers, loop.statistics())
    with pytest.raises(HeadgateError, match=said) if said else nullcontext():
        loop.check(**asked)
    assert (loop.policy, loop.placement, loop.workers, loop.statistics()) == before
    loop.validate()


# --- reports ------------------------------------------------------------------------------------------------


def test_statistics_count_what_happened() -> None:
    loop = make_loop("abc", Favourites("abc"), workers=2)
    ready(loop, "abc")
    started(loop)
    loop.finished(0, 1.0)
    starts: dict[Reason, int] = {"policy": 2, "tie": 0, "forced": 0, "guard": 0}
    assert loop.statistics() == DispatchStatistics(
        decisions=2, starts=starts, nodes=3, workers=2, runnable=2, free_workers=1
    )
    assert loop.statistics().guard_strikes == 0


def test_the_loop_keeps_its_own_features() -> None:
    loop = make_loop("abc", Favourites("ab"), workers=2)
    ready(loop, "abc")
    started(loop)
    not_ready(loop, "c")
    loop.finished(1, 3.0)
    columns = loop.matrix.columns
    assert columns["ready"].tolist() == [1.0, 1.0, 0.0]
    assert columns["workers"].tolist() == [1.0, 0.0, 0.0]
    assert columns["last_turn"].tolist() == [0.0, 1.0, -1.0]
    assert columns["window_time"].tolist() == [0.0, 3.0, 0.0]
