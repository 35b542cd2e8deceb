"""What is shipped to test policies with: good ones pass, and each kind of mistake is found and told in words."""

from __future__ import annotations

import doctest
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import headgate.testing
from headgate.core import (
    Feature,
    FeatureView,
    Floats,
    Graph,
    HeadgateError,
    ParameterError,
    Policy,
    UnknownNameError,
    WrappingPolicy,
)
from headgate.core.placements import Anywhere
from headgate.core.policies import SHIPPED, FirstCome, LongestQueue, MaxBenefit, PricedBenefit, TargetLag
from headgate.testing import (
    CheckError,
    ComparedDispatch,
    Favourites,
    FewestTurns,
    Largest,
    LongestWaiting,
    Measuring,
    Noted,
    NotedStart,
    Smallest,
    TwoKeys,
    check_policy,
    make_view,
    not_local,
    ranking,
)

TOYS: list[Policy] = [
    *(Largest(), Smallest("last_turn"), TwoKeys(), LongestWaiting(), FewestTurns(), Favourites("abc"), Measuring()),
    *(not_local(TwoKeys()), Noted(Largest(), ("pending",))),
]


@pytest.mark.parametrize("policy", [*(kind() for kind in SHIPPED), *TOYS], ids=str)
def test_every_policy_that_is_shipped_passes(policy: Policy) -> None:
    check_policy(policy, cases=40)


def test_the_example_in_the_docstring() -> None:
    failed, tried = doctest.testmod(headgate.testing)
    assert (failed, tried) == (0, 4)


# --- mistakes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByPending(Policy):
    """The base of the broken ones below."""

    name = "by-pending"
    needs = ("pending",)

    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"].copy()


class TooFew(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(1)


class NoArray(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return list(view["pending"])  # type: ignore[return-value]


class Yes(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"] > 1  # type: ignore[no-any-return]


class Undefined(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return np.where(view["pending"] > 20, np.nan, 1.0)


class InPlace(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        column = view["pending"]
        column *= 2
        return column


class Unstated(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"] * view["cost"]


class Raising(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        raise ZeroDivisionError("by nought")


class Counting(ByPending):
    asked = itertools.count()

    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"] * float(next(self.asked) % 7 + 1)


class Dicing(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return np.array([random.random() for _ in range(len(view))])


@dataclass(frozen=True)
class KeepsTheLast(ByPending):
    """Remembers what it was asked before, so that the answer depends on what came in between."""

    seen: list[float] = field(default_factory=lambda: [0.0])

    def priorities(self, view: FeatureView) -> Floats:
        answer = view["pending"] * (1.0 + self.seen[0])
        self.seen[0] = float(len(view))
        return answer


class ChangesMemory(ByPending):
    def remember(self, view: FeatureView, node: int) -> object:
        memory: list[int] = view.memory or []  # type: ignore[assignment]
        memory.append(node)
        return memory


class ForgetsToReturn(ByPending):
    def remember(self, view: FeatureView, node: int) -> object:
        raise LookupError("what was it")


class ByNumber(ByPending):
    def priorities(self, view: FeatureView) -> Floats:
        return -np.arange(len(view), dtype=np.float64)


class LocalWithAClock(ByPending):
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"] * view.now


class LocalWithNeighbours(ByPending):
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return view["pending"] - view["pending"].mean()


class LocalOfTheWholeGraph(ByPending):
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return view.graph.depth.astype(np.float64)


class Weather(ByPending):
    needs = ("weather",)

    def priorities(self, view: FeatureView) -> Floats:
        return view["weather"].copy()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        pytest.param(TooFew(), r"one row for each of the \d nodes in view; got an array of shape \(1,\)", id="too few"),
        pytest.param(NoArray(), "must return an array .* got list", id="no array"),
        pytest.param(Yes(), "must be floats, as of .astype.float.; got bool", id="no floats"),
        pytest.param(Undefined(), r"the priority of n\d+, which can run, is not a number: \[nan\]", id="not a number"),
        pytest.param(InPlace(), "changes a column of features in place", id="in place"),
        pytest.param(Unstated(), "reads the feature 'cost' and does not say so: add it to 'needs'", id="unstated"),
        pytest.param(Raising(), "it raised ZeroDivisionError: by nought", id="raises"),
        pytest.param(Counting(), "asked the same thing twice it gave two answers", id="counts how often it was asked"),
        pytest.param(Dicing(), "chance comes from headgate.core.uniform", id="dices"),
        pytest.param(KeepsTheLast(), "asked the same thing twice it gave two answers", id="keeps what it saw"),
        pytest.param(ChangesMemory(), r"remember\(\) changed the memory in place", id="changes memory"),
        pytest.param(ForgetsToReturn(), r"remember\(\) raised LookupError: what was it", id="fails to remember"),
        pytest.param(ByNumber(), "ranks the nodes differently when they are declared in the order", id="by number"),
        pytest.param(LocalWithAClock(), "says that it is local, but .* Say local = False", id="local with a clock"),
        pytest.param(LocalWithNeighbours(), "says that it is local, but", id="local with neighbours"),
        pytest.param(LocalOfTheWholeGraph(), "nodes in view; got an array of shape", id="local, of the whole graph"),
        pytest.param(Weather(), "needs the feature 'weather', which no engine has; .*features=", id="unknown feature"),
    ],
)
def test_a_mistake_is_found_and_said_in_words(policy: Policy, said: str) -> None:
    with pytest.raises(CheckError, match=said) as caught:
        check_policy(policy)
    assert isinstance(caught.value, HeadgateError | AssertionError)
    assert str(caught.value).startswith("policy ")


def test_the_message_says_which_nodes_and_features_it_was() -> None:
    with pytest.raises(CheckError) as caught:
        check_policy(Undefined())
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("  edges [")
    assert any("'pending': 5000.0" in line or "'pending': 30.0" in line for line in lines[2:])


def test_the_same_seed_finds_the_same_thing() -> None:
    said = []
    for _ in range(2):
        with pytest.raises(CheckError) as caught:
            check_policy(Undefined(), seed=3)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_features_of_an_engine_of_ones_own_are_accepted_if_they_are_stated() -> None:
    check_policy(Weather(), cases=20, features=[Feature("weather", "degrees")])


def test_a_loop_that_does_not_do_what_the_oracle_does_is_reported_with_the_whole_story() -> None:
    pair = ComparedDispatch(Graph("ab"), Largest(), Anywhere(), 1)
    for name in "ab":
        pair.set_ready(name, True)
    pair.loop.matrix.columns["pending"][1] = 9.0  # nobody told the oracle
    with pytest.raises(CheckError, match=r"the loop started .*'b', 0, 'policy'.*expected .*'a', 0, 'policy'") as caught:
        pair.decide()
    assert "0 s: a is ready" in str(caught.value)


# --- features in, order out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "nodes", "expected"),
    [
        (LongestQueue(), {"a": {"pending": 1}, "b": {"pending": 2}}, ["b", "a"]),
        (FirstCome(), {"a": {}, "b": {"head_time": 7}, "c": {"head_time": 3}}, ["c", "b", "a"]),
        (Favourites("cb"), {"a": {}, "b": {}, "c": {}}, ["c", "b", "a"]),
        (Favourites(("long name",)), {"a": {}, "long name": {}}, ["long name", "a"]),
        (Weather(), {"a": {}, "b": {"weather": 3.0}}, ["b", "a"]),
    ],
    ids=["two queues", "nothing waits for a", "favourites", "by whole names", "a feature of one's own"],
)
def test_order(policy: Policy, nodes: Mapping[str, Mapping[str, float]], expected: list[str]) -> None:
    assert ranking(policy, make_view(nodes)) == expected


def test_a_view_has_a_graph_a_time_a_turn_and_a_memory() -> None:
    view = make_view({"a": {}, "b": {}}, edges=[("a", "b")], queries={"a": "q", "b": "q"}, now=3.0, turn=4, memory={})
    assert (view.graph.edges, view.graph.query_names) == ((("a", "b"),), ("q",))
    assert (view.now, view.turn, view.memory, view["priority"].tolist()) == (3.0, 4, {}, [1.0, 1.0])


def test_a_misspelt_feature_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(UnknownNameError, match=r"no feature called 'priorty'.*'priority'"):
        make_view({"a": {"priorty": 3.0}})


def test_a_feature_that_is_no_number_is_refused() -> None:
    with pytest.raises(ParameterError, match="'pending' of 'a' takes a number; got 'many'"):
        make_view({"a": {"pending": "many"}})  # type: ignore[dict-item]


def test_a_policy_that_reads_a_feature_of_another_name_is_told_the_names() -> None:
    with pytest.raises(UnknownNameError, match=r"no feature called 'pendign'.*'pending'"):
        ranking(Largest("pendign"), make_view({"a": {}}))


class PlainClass(Policy):
    """Lacks the decorator of a dataclass."""

    name = "plain"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        pytest.param(PlainClass(), r"policy 'plain': .*@dataclass\(frozen=True\) above", id="no dataclass"),
        pytest.param(ByPending, r"policy ByPending: .*check_policy\(ByPending\(\)\)", id="a class"),
        pytest.param("fifo", "policy 'fifo': .*subclass of headgate.core.Policy; got str", id="a name"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_to_write(policy: Any, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        check_policy(policy)


def test_a_policy_that_is_no_dataclass_is_called_by_its_name() -> None:
    assert str(PlainClass()) == "plain"


# --- toys -----------------------------------------------------------------------------------------------------------


def test_a_policy_said_not_to_be_local_is_equal_but_for_that() -> None:
    wider = not_local(Largest("cost"))
    assert (wider.local, wider.feature, wider.name) == (False, "cost", "largest-not-local")
    assert wider == not_local(Largest("cost")) != not_local(Largest())
    assert not_local(MaxBenefit()).requires() == MaxBenefit().requires()


def test_noted_writes_down_what_was_chosen() -> None:
    policy = Noted(Largest(), ("pending",))
    view = make_view({"a": {"pending": 1}, "b": {"pending": 2}}, now=5.0)
    assert ranking(policy, view) == ["b", "a"]
    policy.remember(view, 1)
    assert policy.starts == [NotedStart(5.0, "b", {"pending": 2.0})]
    assert (str(policy), policy.local) == ("largest", True)


def test_noted_lets_those_join_a_job_that_the_other_policy_lets_join() -> None:
    view = make_view({"a": {}, "b": {}, "promised": {"target_lag": 10.0}})
    offered, others = np.array([1]), np.array([1, 2])
    assert TargetLag().joining(view, offered, others).tolist() == []
    assert Noted(TargetLag()).joining(view, offered, others).tolist() == []


def test_noted_explains_as_the_other_policy_does() -> None:
    view = make_view({"a": {"pending": 1}})
    assert Noted(PricedBenefit()).notes(view, 0) == PricedBenefit().notes(view, 0) != ()


def test_a_policy_around_another_one_answers_everything_as_that_one_does() -> None:
    asked = {name for name in vars(Policy) if not name.startswith("_")} - {"name", "starves"}
    assert asked <= vars(WrappingPolicy).keys()
