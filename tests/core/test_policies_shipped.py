"""What holds for every policy that is shipped, on random graphs with random features."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.features import FEATURES, features_named
from headgate.core.graph import Floats, Graph
from headgate.core.matrix import FeatureView
from headgate.core.policies import SHIPPED, HighestRate, MinCost, MultiClass, WeightedClasses
from headgate.core.policy import Policy, as_table, rank
from headgate.testing import ranking

ALL = [policy() for policy in SHIPPED]
#: also with parameters where these bring in more behaviour
VARIANTS = [*ALL, MultiClass(((1, MinCost()), (2, WeightedClasses())), default=HighestRate())]
LOCAL = [policy for policy in ALL if policy.local]

each_policy = pytest.mark.parametrize("policy", VARIANTS, ids=str)
each_local_policy = pytest.mark.parametrize("policy", LOCAL, ids=str)


# --- random cases -----------------------------------------------------------------------------------------------

TIMES = st.sampled_from([0.0, 1.0, 2.5, 7.0, float("inf")])
AMOUNTS = st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 2.0, 3.0])
COUNTS = st.sampled_from([0.0, 1.0, 2.0, 3.0])
#: values for each feature, with those that make trouble: nothing waiting, no cost, nothing passing
VALUES: Mapping[str, st.SearchStrategy[float]] = {
    name: TIMES if name in ("head_time", "release_time", "next_release") else AMOUNTS for name in FEATURES
} | dict.fromkeys(("class", "workers", "max_workers", "last_turn", "output_pending"), COUNTS)


@dataclass(frozen=True)
class Case:
    """A graph and features by node name, so that the nodes can be put in any order."""

    edges: tuple[tuple[str, str], ...]
    queries: Mapping[str, str]
    features: Mapping[str, Mapping[str, float]]
    order: tuple[str, ...]
    shuffled: tuple[str, ...]

    def view(self, names: tuple[str, ...], now: float = 3.0, turn: int = 5, memory: object = None) -> FeatureView:
        columns = {name: np.array([values[node] for node in names]) for name, values in self.features.items()}
        return FeatureView(columns, Graph(names, self.edges, self.queries), now, turn, seed=11, memory=memory)


@st.composite
def cases(draw: st.DrawFn, policy: Policy) -> Case:
    size = draw(st.integers(1, 7))
    names = tuple(f"n{i}" for i in range(size))
    pairs = [(a, b) for place, b in enumerate(names) for a in names[:place]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=8)) if pairs else []
    queries = draw(st.sampled_from([{}, {name: f"q{i % 2}" for i, name in enumerate(names)}]))
    features = {
        feature: dict(zip(names, draw(st.lists(VALUES[feature], min_size=size, max_size=size)), strict=True))
        for feature in policy.requires()
    }
    shuffled = tuple(draw(st.permutations(names)))
    return Case(tuple(edges), queries, features, names, shuffled)


def decisions(policy: Policy, case: Case, order: tuple[str, ...], count: int = 3) -> Iterator[list[str]]:
    """The rankings of some decisions, the best node being chosen each time and remembered."""
    memory: object = None
    for turn in range(count):
        view = case.view(order, turn=turn, memory=memory)
        names = ranking(policy, view)
        memory = policy.remember(view, view.graph.index[names[0]])
        yield names


# --- properties -------------------------------------------------------------------------------------------------


@each_policy
@given(data=st.data())
@settings(max_examples=12)
def test_the_order_in_which_nodes_are_given_makes_no_difference(policy: Policy, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    assert list(decisions(policy, case, case.order)) == list(decisions(policy, case, case.shuffled))


@each_policy
@given(data=st.data())
@settings(max_examples=12)
def test_priorities_are_numbers_one_row_for_each_node(policy: Policy, data: st.DataObject) -> None:
    case = data.draw(cases(policy))
    priorities = as_table(policy.priorities(case.view(case.order)))
    assert priorities.shape[0] == len(case.order)
    assert priorities.dtype == np.float64
    assert not np.isnan(priorities).any()


@each_local_policy
@given(data=st.data())
@settings(max_examples=12)
def test_a_local_policy_says_the_same_of_a_node_whatever_else_is_in_view(policy: Policy, data: st.DataObject) -> None:
    """Neither the other nodes in view, nor their features, nor the time, the turn or a memory make a difference."""
    case, elsewhere = data.draw(cases(policy)), data.draw(st.floats(0, 9))
    whole = case.view(case.order)
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(case.order))), unique=True)), dtype=np.intp)
    shown = np.isin(np.arange(len(case.order)), rows)
    columns = {feature: np.where(shown, whole[feature], elsewhere) for feature in case.features}
    part = FeatureView(columns, whole.graph, now=8.0, turn=6, seed=12, memory=(1, 2), rows=rows)
    assert as_table(policy.priorities(part)).tolist() == as_table(policy.priorities(whole))[rows].tolist()


@pytest.mark.parametrize("policy", [policy for policy in VARIANTS if policy.name != "random"], ids=str)
def test_equals_are_ranked_by_name(policy: Policy) -> None:
    graph = Graph(["c", "a", "d", "b"])
    columns = {feature: np.ones(4) for feature in policy.requires()}
    assert ranking(policy, FeatureView(columns, graph)) == ["a", "b", "c", "d"]


@each_policy
def test_an_empty_graph_is_ranked(policy: Policy) -> None:
    columns = {feature: np.empty(0) for feature in policy.requires()}
    assert ranking(policy, FeatureView(columns, Graph([]))) == []


@pytest.mark.parametrize("policy", [policy for policy in ALL if not policy.starves], ids=str)
def test_a_policy_that_does_not_starve_serves_everybody(policy: Policy) -> None:
    """All nodes have work at all times, of very different sizes; whoever is served has new work at once."""
    graph = Graph("abcd", [("a", "b")])
    columns = {feature: np.arange(4.0) for feature in policy.requires()}
    served: set[str] = set()
    memory: object = None
    for turn in range(100):
        view = FeatureView(columns, graph, now=float(turn), turn=turn, memory=memory)
        best = int(rank(policy, view)[0])
        memory = policy.remember(view, best)
        served.add(graph.names[best])
        for feature in {"head_time", "release_time", "last_turn"} & columns.keys():
            columns[feature][best] = turn
    assert served == set("abcd")


# --- what they say of themselves --------------------------------------------------------------------------------


def test_every_policy_of_the_design_is_shipped_once() -> None:
    names = [policy.name for policy in SHIPPED]
    assert len(set(names)) == len(names)
    assert set(names) == {
        *("fcfs", "hr", "rb", "chain", "multi-class", "lsf", "cqc", "min-cost", "min-latency", "min-memory"),
        *("longest-queue", "qst", "lp", "et", "ct", "edf", "edf-p", "max-benefit", "max-benefit-lookahead"),
        *("priced-benefit", "target-lag", "auto", "round-robin", "random", "fifo"),
    }


class Recording(dict[str, Floats]):
    """Columns that note which of them were read."""

    def __init__(self, columns: Mapping[str, Floats]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Floats:
        self.read.add(name)
        return super().__getitem__(name)


@each_policy
def test_a_policy_reads_just_the_features_that_it_says_it_needs(policy: Policy) -> None:
    features_named(policy.requires())
    busy = {"workers": np.zeros(2), "pending": np.array([3.0, 4.0])}
    columns = Recording({feature: np.array([1.0, 2.0]) for feature in FEATURES} | busy)
    graph = Graph("ab", [("a", "b")])
    for _ in range(2):  # the second time with a memory
        view = FeatureView(columns, graph, now=9.0, memory=policy.remember(FeatureView(columns, graph, now=3.0), 0))
        policy.priorities(view)
        policy.portion(view)
    assert columns.read == set(policy.requires())


@pytest.mark.parametrize("policy", SHIPPED, ids=lambda policy: policy.name)
def test_a_policy_introduces_itself(policy: type[Policy]) -> None:
    text = inspect.getdoc(policy) or ""
    lines = [line.partition(":")[0] for line in text.splitlines()]
    assert lines[2] == ""  # the idea in two lines
    assert [word for word in lines if word in ("Rule", "Features", "Fails", "Paper")] == [
        *("Rule", "Features", "Fails", "Paper")
    ]
    assert policy.summary and policy.paper
    assert ("for ever" in text) == policy.starves  # whoever can starve a node says so under Fails
    assert len(inspect.getsource(policy).splitlines()) < 60
    assert all(field.name in text for field in fields(policy))  # type: ignore[arg-type]
