"""Portions and ties in the loops: how much a start may take, and who goes first between equals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from headgate.core import (
    FEATURES,
    Dispatch,
    FeatureMatrix,
    FeatureView,
    Floats,
    Graph,
    Policy,
    Rounds,
    RoundsConfig,
    Start,
    UserCodeError,
    Workers,
)
from headgate.core.placements import Anywhere
from headgate.core.policies import Autopilot, Layered, MultiClass, PricedBenefit
from headgate.testing import CheckError, Largest, Noted, check_policy, make_view, not_local, ranking


@dataclass(frozen=True)
class Bites(Policy):
    """Most pending first, each in bites of its own size."""

    sizes: tuple[float, ...] = (2.0,)

    name = "bites"
    needs = ("pending", "cost")
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"].copy()

    def portion(self, view: FeatureView) -> Floats:
        return np.asarray(1.0 + view["cost"])


def dispatch(policy: Policy, pending: Sequence[float], patience: float = math.inf, workers: int = 1) -> Dispatch:
    graph = Graph("abcdef"[: len(pending)])
    matrix = FeatureMatrix(graph, FEATURES.values())
    matrix.fill("pending", list(pending))
    matrix.fill("cost", [10.0 * i for i in range(len(pending))])
    matrix.fill("patience", [patience] * len(pending))
    loop = Dispatch(matrix, policy, Anywhere(), Workers.of(workers))
    for node in range(len(pending)):
        loop.set_ready(node, True, 0.0)
    return loop


# --- dispatch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", [Bites(), not_local(Bites()), Layered(Bites())], ids=["local", "not local", "inside"]
)
def test_a_start_carries_the_portion_of_its_node(policy: Policy) -> None:
    starts = dispatch(policy, [5, 9, 7], workers=3).decide(1.0)
    assert [(start.node, start.portion) for start in starts] == [(1, 11.0), (2, 21.0), (0, 1.0)]


def test_without_a_word_from_the_policy_a_start_may_take_everything() -> None:
    assert [start.portion for start in dispatch(Largest(), [5, 9], workers=2).decide(1.0)] == [math.inf] * 2


@pytest.mark.parametrize(
    ("policy", "cuts"),
    [
        (Largest(), False),
        (Bites(), True),
        (not_local(Bites()), True),
        (Layered(Largest()), False),
        (Layered(Bites()), True),
        (Noted(Largest()), False),
        (Noted(Bites()), True),
        (MultiClass(), False),
        (MultiClass(((1, Bites()),)), True),
        (MultiClass(default=Bites()), True),
        (PricedBenefit(), True),
        (PricedBenefit(portions=False), False),
        (Layered(PricedBenefit(portions=False)), False),
        (Autopilot(), True),
    ],
    ids=repr,
)
def test_a_policy_cuts_if_it_or_one_inside_it_has_portions_or_may_come_to_have_them(policy: Policy, cuts: bool) -> None:
    assert policy.cuts is cuts


def test_a_policy_that_does_not_cut_is_never_asked_for_portions() -> None:
    asked = []

    class Asked(Largest):
        name = "asked"

        @property
        def cuts(self) -> bool:
            return False

        def portion(self, view: FeatureView) -> Floats:
            asked.append(len(view))
            return super().portion(view)

    for policy in (Asked(), Layered(Asked()), not_local(Asked())):
        assert len(dispatch(policy, [5, 9], workers=2).decide(1.0)) == 2
        assert {portion for _, portion in in_rounds(policy).values()} == {math.inf}
    assert not asked


def test_check_policy_finds_a_portion_that_is_never_asked_for() -> None:
    class Forgotten(Bites):
        name = "forgotten"

        @property
        def cuts(self) -> bool:
            return False

    with pytest.raises(CheckError, match="never be asked for: cuts is False"):
        check_policy(Forgotten(), cases=20)


def test_a_strike_of_the_guard_honours_the_portion() -> None:
    loop = dispatch(Bites(), [5, 9], patience=20.0)
    (first,) = loop.decide(1.0)
    assert (first.node, first.reason) == (1, "policy")
    loop.finished(first.worker, 30.0)
    loop.set_ready(1, True, 30.0)
    (struck,) = loop.decide(30.0)
    assert (struck.node, struck.reason, struck.portion) == (0, "guard", 1.0)


def test_the_classes_of_a_policy_of_policies_have_the_portions_of_their_own() -> None:
    policy = MultiClass(((1, Bites()),), default=Largest())
    view = make_view({"a": {"class": 1, "cost": 4}, "b": {"class": 0, "cost": 4}})
    assert policy.portion(view).tolist() == [5.0, math.inf]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param(np.zeros, "the portion of 'b' must be a number above 0.*got 0.0", id="nothing"),
        pytest.param(lambda n: np.full(n, np.nan), "the portion of 'b' must be .*got nan", id="not a number"),
        pytest.param(lambda n: np.ones((n, 2)), "one number for each of 1 nodes; got an array of", id="two columns"),
        pytest.param(lambda n: 3.0, "one number for each of 1 nodes; got float", id="one for all"),
    ],
)
def test_a_portion_that_says_nothing_is_the_mistake_of_the_policy(
    answer: Callable[[int], Floats], complaint: str
) -> None:
    class Wrong(Largest):
        name = "wrong"
        local = False

        def portion(self, view: FeatureView) -> Floats:
            return answer(len(view))

    with pytest.raises(UserCodeError, match=complaint):
        dispatch(Wrong(), [5, 9]).decide(1.0)
    with pytest.raises(CheckError, match="portion"):
        check_policy(Wrong(), cases=20)


def test_check_policy_finds_a_portion_that_depends_on_other_nodes() -> None:
    @dataclass(frozen=True)
    class Shared(Largest):
        name = "shared"
        local = False

        def portion(self, view: FeatureView) -> Floats:
            return np.full(len(view), 1.0 + view["pending"].sum())

    with pytest.raises(CheckError, match="depends on the other nodes in view"):
        check_policy(Shared(), cases=20)


def test_check_policy_finds_a_portion_that_is_not_local() -> None:
    @dataclass(frozen=True)
    class Late(Largest):
        name = "late"

        def portion(self, view: FeatureView) -> Floats:
            return np.full(len(view), 1.0 + view.now)

    with pytest.raises(CheckError, match="the portion of a node depends on more than its own features"):
        check_policy(Late(), cases=20)
    check_policy(not_local(Late()), cases=20)
    check_policy(Bites(), cases=20)


@pytest.mark.parametrize(
    ("tuples", "portion", "taken"),
    [(10, math.inf, 10), (10, 3.0, 3), (10, 3.9, 3), (10, 0.2, 1), (2, 3.0, 2)],
)
def test_an_operator_takes_whole_tuples_and_at_least_one(tuples: int, portion: float, taken: int) -> None:
    assert Start(0, 0, "policy", portion=portion).at_most(tuples) == taken


# --- rounds -----------------------------------------------------------------------------------------------------


def in_rounds(policy: Policy) -> dict[int, tuple[int, float]]:
    """Batch and portion of three nodes in the rounds loop."""
    graph = Graph("abc")
    matrix = FeatureMatrix(graph, FEATURES.values())
    known = {"pending": [5.0, 9.0, 7.0], "cost": [0.0, 10.0, 2.5]}

    def read(name: str, rows: np.ndarray) -> list[float]:
        return [known[name][row] if name in known else FEATURES[name].default for row in rows.tolist()]

    rounds = Rounds(matrix, policy, Anywhere(), Workers.of(1), RoundsConfig(period=1.0, batch=6))
    step = rounds.next_step(0, 0.0, lambda node: False)
    step = rounds.next_step(0, 2.0, lambda node: False)
    rounds.arrive(0)
    rounds.coordinate(2.0, read)
    rounds.sort_own(0)
    waiting = {0, 1, 2}
    batches = {}
    while waiting:
        step = rounds.next_step(0, 2.1, waiting.__contains__)
        assert isinstance(step, Start)
        batches[step.node] = (step.batch, step.portion)
        waiting.discard(step.node)
        rounds.finished(0, 2.1)
    return batches


@pytest.mark.parametrize("policy", [Bites(), not_local(Bites())], ids=["local", "not local"])
def test_batches_of_the_rounds_loop_are_no_larger_than_portions(policy: Policy) -> None:
    assert in_rounds(policy) == {1: (6, 11.0), 2: (3, 3.5), 0: (1, 1.0)}


# --- ties -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alike(Policy):
    """All nodes are equal."""

    name = "alike"
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))


TIES = [
    pytest.param("ab", {}, "ba", id="downstream first"),
    pytest.param("ba", {}, "ab", id="downstream first, whatever the name"),
    pytest.param("ab bc", {}, "cba", id="the deepest first"),
    pytest.param("ab", {"a": 9}, "ba", id="downstream before the most pending"),
    pytest.param("", {"b": 9, "c": 4}, "bca", id="the most pending"),
    pytest.param("", {}, "abc", id="the name"),
    pytest.param("ab", {"c": 9}, "bca", id="all three"),
]


@pytest.mark.parametrize("policy", [Alike(), not_local(Alike())], ids=["local", "not local"])
@pytest.mark.parametrize(("edges", "pending", "order"), TIES)
def test_between_equals(policy: Policy, edges: str, pending: dict[str, float], order: str) -> None:
    names = sorted({*order})
    graph = Graph(names, [tuple(edge) for edge in edges.split()])
    view = make_view({name: {"pending": pending.get(name, 1.0)} for name in names}, edges=graph.edges)
    assert ranking(policy, view) == list(order)
    matrix = FeatureMatrix(graph, FEATURES.values())
    matrix.fill("pending", [pending.get(name, 1.0) for name in names])
    loop = Dispatch(matrix, policy, Anywhere(), Workers.of(1))
    for node in range(len(names)):
        loop.set_ready(node, True, 0.0)
    assert [entry.name for entry in loop.queue(0.0)] == list(order)
    started = []
    while starts := loop.decide(1.0):
        started.append(names[starts[0].node])
        loop.set_ready(starts[0].node, False, 1.0)
        loop.finished(starts[0].worker, 1.0)
    assert started == list(order)


def test_between_nodes_that_are_equally_overdue_the_downstream_one_goes_first() -> None:
    graph = Graph("ab", [("a", "b")])
    matrix = FeatureMatrix(graph, FEATURES.values())
    matrix.fill("patience", [5.0, 5.0])
    loop = Dispatch(matrix, Largest(), Anywhere(), Workers.of(1))
    for node in range(2):
        loop.set_ready(node, True, 0.0)
    (start,) = loop.decide(6.0)
    assert (graph.names[start.node], start.reason) == ("b", "guard")


def test_an_engine_that_keeps_no_account_of_what_waits_breaks_ties_by_depth_and_name() -> None:
    features = [feature for feature in FEATURES.values() if feature.name != "pending"]
    matrix = FeatureMatrix(Graph("abc", [("a", "b")]), features)
    loop = Dispatch(matrix, Alike(), Anywhere(), Workers.of(3))
    for node in range(3):
        loop.set_ready(node, True, 0.0)
    assert [start.node for start in loop.decide(0.0)] == [1, 0, 2]
