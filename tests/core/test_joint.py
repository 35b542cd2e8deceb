"""Who shares a job: the choice in numbers that can be checked by hand, and what must hold for all of them."""

from __future__ import annotations

import math
from itertools import count, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Dispatch, FeatureMatrix, Graph, JointJobs, SharedSetup, Workers, features_named
from headgate.core.errors import UserCodeError
from headgate.core.graph import Ints
from headgate.core.joint import MOST_COMPANIONS, PRIOR_SHARE, WaitingUpdate, choose_together, seconds_in_job
from headgate.core.matrix import FeatureView
from headgate.core.observe import TABLE_FEATURES, TableColumns
from headgate.core.policies import MaxBenefit
from headgate.core.registry import placement_from, policy_from


def update(node: int, gain: float, seconds: float, setup: float) -> WaitingUpdate:
    return WaitingUpdate(node, gain, seconds, setup)


FIRST = update(0, gain=10.0, seconds=1.0, setup=0.8)


@pytest.mark.parametrize(
    ("others", "rivals", "share", "members"),
    [
        pytest.param([], [], 0.5, (0,), id="nobody else could"),
        pytest.param([update(1, 1.0, 1.0, 0.8)], [], 0.5, (0, 1), id="nobody else waits: what is saved is won"),
        pytest.param([update(1, 9.0, 1.0, 0.8)], [], 0.0, (0,), id="nothing is shared: nothing is won"),
        pytest.param([update(1, 9.0, 1.0, 0.0)], [], 0.5, (0,), id="without a set-up there is nothing to share"),
        # In the job 1 takes 0.6 s and takes away 5 / 0.6 = 8.3 a second: the best of all that wait.
        pytest.param(
            [update(1, 5.0, 1.0, 0.8)], [update(2, 8.0, 1.0, 0.8)], 0.5, (0, 1), id="then the best that waits"
        ),
        # 2 waits 0.6 s longer (8 * 0.6 = 4.8), 1 has its turn 1 s earlier (4 * 1): nobody is behind it.
        pytest.param([update(1, 4.0, 1.0, 0.8)], [update(2, 8.0, 1.0, 0.8)], 0.5, (0,), id="a better one waits"),
        # The same, but 3 is behind both, and waits 0.4 s less (3 * 0.4 = 1.2): 4 + 1.2 > 4.8.
        pytest.param(
            [update(1, 4.0, 1.0, 0.8)],
            [update(2, 8.0, 1.0, 0.8), update(3, 3.0, 1.0, 0.8)],
            0.5,
            (0, 1),
            id="what it saves is worth more to those behind it",
        ),
        pytest.param(
            [update(1, 2.0, 1.0, 0.8), update(2, 6.0, 1.0, 0.8), update(3, 0.1, 1.0, 0.8)],
            [update(4, 7.0, 1.0, 0.8)],
            0.5,
            (0, 2),
            id="some of those who could, the greatest benefit first",
        ),
        pytest.param(
            [update(2, 5.0, 1.0, 0.8), update(1, 5.0, 1.0, 0.8)], [], 0.5, (0, 1, 2), id="between equals by number"
        ),
    ],
)
def test_who_shares_a_job(
    others: list[WaitingUpdate], rivals: list[WaitingUpdate], share: float, members: tuple[int, ...]
) -> None:
    assert choose_together(FIRST, others, rivals, share).members == members


def test_a_choice_says_what_the_job_takes_and_takes_away() -> None:
    choice = choose_together(FIRST, [update(1, 6.0, 2.0, 0.4)], [], 0.5)
    assert (choice.gain, choice.alone, choice.first) == (16.0, 3.0, 10.0)
    assert choice.seconds == pytest.approx(2.8), "the smaller of the two set-ups is shared by half"
    assert choice.told() == (
        "together with 1 of 1 that could share its job: 2.8 s instead of 3 s one by one (a set-up shares 50%), which"
        " removes 5.714 weighted staleness per second of work; the first update alone, 10"
    )
    alone = choose_together(FIRST, [update(1, 0.1, 2.0, 0.4)], [update(2, 50.0, 1.0, 0.4)], 0.5)
    assert alone.told() == (
        "alone: none of 1 that could share its job is worth its time now; it removes 10 weighted staleness per second"
        " of work"
    )


def test_a_job_has_an_end() -> None:
    others = [update(number, 1.0, 1.0, 0.8) for number in range(1, 100)]
    choice = choose_together(FIRST, others, [], 0.5)
    assert len(choice.members) == 1 + MOST_COMPANIONS
    assert choice.offered == 99


def test_who_does_not_join_takes_nobodys_place() -> None:
    without_setup = [update(number, 1.2, 1.0, 0.0) for number in range(1, 1 + MOST_COMPANIONS)]
    saving = [update(number, 0.5, 1.0, 1.0) for number in range(100, 108)]
    rivals = [update(200, 100.0, 1000.0, 1.0)]
    choice = choose_together(update(0, 10.0, 2.0, 1.0), [*without_setup, *saving], rivals, 0.5)
    assert {*choice.members[1:]} == {each.node for each in saving}


def weighted_waiting(jobs: list[tuple[float, float]]) -> float:
    """The sum of what each update takes away, times when it ends, if one worker runs (gain, seconds) in this order."""
    ends, total = 0.0, 0.0
    for gain, seconds in jobs:
        ends += seconds
        total += gain * ends
    return total


updates = st.builds(
    lambda gain, setup, slope: (gain, setup + slope, setup),
    st.floats(0.0, 100.0),
    st.floats(0.01, 5.0),
    st.floats(0.0, 5.0),
)


@given(updates, st.lists(updates, max_size=6), st.lists(updates, max_size=6), st.floats(0.0, 1.0))
def test_a_shared_job_never_leaves_more_weighted_staleness_than_one_by_one(
    leading: tuple[float, float, float],
    sharing: list[tuple[float, float, float]],
    waiting: list[tuple[float, float, float]],
    share: float,
) -> None:
    first = update(0, *leading)
    others = [update(number, *each) for number, each in enumerate(sharing, 1)]
    rivals = [update(number, *each) for number, each in enumerate(waiting, 100)]
    choice = choose_together(first, others, rivals, share)

    def in_turn(those: list[WaitingUpdate]) -> list[tuple[float, float]]:
        return [(each.gain, each.seconds) for each in sorted(those, key=lambda each: -each.benefit)]

    by_number = {each.node: each for each in others}
    members = [by_number[node] for node in choice.members[1:]]
    job = [(first.gain, first.seconds), *((each.gain, seconds_in_job(each, first, share)) for each in members)]
    rest = [each for each in (*others, *rivals) if each.node not in choice.members]
    together = weighted_waiting([*job, *in_turn(rest)])
    alone = weighted_waiting([(first.gain, first.seconds), *in_turn([*others, *rivals])])
    assert together <= alone * (1 + 1e-9) + 1e-9
    assert choice.seconds <= choice.alone


@pytest.mark.parametrize(
    ("jobs", "share"),
    [
        pytest.param([], PRIOR_SHARE, id="nothing is known"),
        pytest.param([(3.0, 2.0, 0.0)] * 9, PRIOR_SHARE, id="jobs without a set-up tell nothing"),
        pytest.param([(3.0, 2.2, 1.0)] * 300, 0.8 * 20 / 22 + PRIOR_SHARE * 2 / 22, id="0.8 s of 1 s were shared"),
        pytest.param([(3.0, 9.0, 1.0)] * 300, 0.0, id="jobs take longer than one by one"),
        pytest.param([(3.0, 2.2, 1.0)] * 300 + [(3.0, 90.0, 1.0)], 0.69, id="one that was slow for another reason"),
    ],
)
def test_the_share_is_learned_from_jobs(jobs: list[tuple[float, float, float]], share: float) -> None:
    learned = SharedSetup()
    for expected, took, shareable in jobs:
        learned.observe(expected, took, shareable)
    assert learned.share == pytest.approx(share, abs=0.005)


def test_what_seems_to_save_nothing_is_tried_again_some_day() -> None:
    graph = Graph(("first", "other"), ())
    matrix = FeatureMatrix(graph, features_named(TABLE_FEATURES))
    jobs, columns = JointJobs(matrix, [(0, 1)]), TableColumns(matrix)
    for node in range(2):
        columns.set_cost(node, 0.8, 0.2)
        columns.set_pending(node, 1.0, 1.0, 1.0)
    for _ in range(50):
        jobs.learned(0).observe(1.0, 2.0, 0.8)
    choice, alone = jobs.choose(0, [1]), 0
    while len(choice.members) == 1:
        assert jobs.choose(0, [1]) == choice, "to ask changes nothing"
        jobs.learned(0).forget()
        choice, alone = jobs.choose(0, [1]), alone + 1
    assert 100 < alone < 500


def test_rivals_are_those_that_wait_in_no_lower_layer() -> None:
    graph = Graph(("first", "other", "better", "upkeep", "running"), ())
    matrix = FeatureMatrix(graph, features_named(TABLE_FEATURES))
    jobs, columns = JointJobs(matrix, [(0, 1)]), TableColumns(matrix)
    for node, gain in enumerate((10.0, 4.0, 8.0, 80.0, 80.0)):
        columns.set_cost(node, 0.8, 0.2)
        columns.set_pending(node, gain, gain, 1.0)
    matrix.fill("ready", [1.0, 1.0, 0.0, 1.0, 1.0])
    matrix.fill("workers", [1.0, 0.0, 0.0, 0.0, 1.0])
    matrix.fill("layer", [0.0, 0.0, 0.0, -1.0, 0.0])
    assert jobs.companions(0) == (1,)
    assert jobs.companions(2) == ()
    assert jobs.choose(0, [1]).members == (0, 1), "the better one has nothing to do"
    matrix.columns["ready"][2] = 1.0
    assert jobs.choose(0, [1]).members == (0,)
    assert jobs.choose(0, [1], share=1.0).members == (0, 1), "it would take 0.2 s"


@pytest.mark.parametrize(
    ("policy", "rival", "members"),
    [
        pytest.param("max-benefit", {}, [1], id="a saving is a saving"),
        pytest.param("target-lag", {}, [1], id="nobody has a target"),
        pytest.param("target-lag", {"target_lag": 30.0}, [], id="a target is not delayed for a saving"),
        pytest.param("target-lag:goal=count", {"kept_target_lag": 30.0}, [], id="nor is one that can be kept"),
        pytest.param("multi-class", {"class": 1.0}, [], id="a higher class waits"),
        pytest.param("multi-class", {"class": -1.0}, [1], id="a lower class waits"),
        pytest.param("edf-p", {"priority": 2.0}, [], id="a higher priority waits"),
        pytest.param("edf-p", {"priority": 1.0}, [1], id="an equal priority waits"),
        pytest.param("auto:now=edf-p", {"priority": 2.0}, [], id="the autopilot asks the policy that it has chosen"),
        pytest.param("multi-class:0=edf-p", {"priority": 2.0}, [], id="classes ask the policy of the class"),
    ],
)
def test_nobody_joins_a_job_before_whoever_the_policy_puts_first_at_any_price(
    policy: str, rival: dict[str, float], members: list[int]
) -> None:
    graph = Graph(("first", "other", "rival"), ())
    matrix = FeatureMatrix(graph, features_named(TABLE_FEATURES))
    matrix.fill("priority", [1.0, 1.0, 1.0])
    for name in ("target_lag", "kept_target_lag"):
        matrix.fill(name, [math.inf] * 3)
    for name, value in rival.items():
        matrix.columns[name][2] = value
    loop = Dispatch(matrix, policy_from(policy), placement_from("anywhere"), Workers.of(1))
    for node in range(3):
        loop.set_ready(node, True, 0.0)
    assert loop.joining(0, [1], 1.0) == members
    loop.set_ready(2, False, 1.0)
    assert loop.joining(0, [1], 1.0) == [1], "nobody else waits"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([True, True], id="a mask instead of nodes"),
        pytest.param([0], id="the node that was chosen"),
        pytest.param([7], id="a node that there is not"),
        pytest.param([-1], id="counted from the end"),
        pytest.param([1, 1], id="one twice"),
        pytest.param([1.5], id="no whole number"),
        pytest.param(None, id="nothing"),
        pytest.param(count(), id="without an end"),
        pytest.param(repeat(1), id="one for ever"),
    ],
)
def test_a_policy_that_lets_others_join_than_it_is_offered_is_told_so(answer: object) -> None:
    class Careless(MaxBenefit):
        def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
            return np.array(answer) if isinstance(answer, list) else answer  # type: ignore[return-value]

    matrix = FeatureMatrix(Graph(("first", "other", "third"), ()), features_named(TABLE_FEATURES))
    loop = Dispatch(matrix, Careless(), placement_from("anywhere"), Workers.of(1))
    with pytest.raises(
        UserCodeError, match=r"'Careless': joining must return some of .* offered \[1, 2\] and returned"
    ):
        loop.joining(0, [1, 2], 1.0)
