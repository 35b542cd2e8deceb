"""multi-class and cqc: importance of whole queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from headgate.core.errors import ParameterError
from headgate.core.graph import Graph
from headgate.core.inheritance import Inheritance
from headgate.core.matrix import FeatureView
from headgate.core.policies import (
    FirstCome,
    HighestRate,
    LastInPipeline,
    LongestQueue,
    MinCost,
    MultiClass,
    PricedBenefit,
    WeightedClasses,
)
from headgate.core.policy import Policy, rank
from headgate.testing import ranking

HIGH, LOW = 3.0, 1.0
#: two unconnected operators of class HIGH and two of class LOW
FOUR = Graph(["high1", "high2", "low1", "low2"])
FEATURES: dict[str, Sequence[float]] = {
    "class": [HIGH, HIGH, LOW, LOW],
    "cost": [1, 2, 4, 3],  # rates: 1, 1/2, 1/4, 1/3
    "selectivity": [1, 1, 1, 1],
    "head_time": [9, 8, 1, 2],
    "pending": [5, 6, 7, 6],
}


def view_of(graph: Graph, features: dict[str, Sequence[float]], memory: object = None) -> FeatureView:
    return FeatureView({name: np.array(values, dtype=float) for name, values in features.items()}, graph, memory=memory)


def served(policy: Policy, graph: Graph, features: dict[str, Sequence[float]], ready: Iterable[str]) -> list[str]:
    """Who is chosen, one decision after the other, if ``ready`` says each time which nodes can run."""
    memory, chosen = None, []
    for names in ready:
        view = view_of(graph, features, memory)
        best = next(i for i in rank(policy, view) if graph.names[i] in names.split())
        memory = policy.remember(view, int(best))
        chosen.append(graph.names[best])
    return chosen


# --- multi-class ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        # Haren 7.4: HIGH by the oldest tuple, LOW by the highest rate; the older tuples of LOW do not help it
        pytest.param(MultiClass(), ["high2", "high1", "low2", "low1"], id="as in the paper"),
        pytest.param(
            MultiClass(((1, FirstCome()), (3, HighestRate()))), ["high1", "high2", "low1", "low2"], id="the other way"
        ),
        pytest.param(
            MultiClass(((1, FirstCome()),), default=LongestQueue()), ["high2", "high1", "low1", "low2"], id="default"
        ),
        pytest.param(
            MultiClass(((3, LastInPipeline()),), default=LongestQueue()),
            ["high2", "high1", "low1", "low2"],
            id="vectors of different lengths",
        ),
    ],
)
def test_class_first_then_the_policy_of_the_class(policy: MultiClass, order: list[str]) -> None:
    assert ranking(policy, view_of(FOUR, FEATURES)) == order


def test_multi_class_needs_what_its_policies_need() -> None:
    assert set(MultiClass().requires()) == {"class", "head_time", "cost", "selectivity"}
    assert set(MultiClass(((1, LongestQueue()),), default=FirstCome()).requires()) == {"class", "pending", "head_time"}


def test_each_inner_policy_keeps_its_own_memory() -> None:
    """Both classes sweep through their nodes (min-cost); a turn of one class does not move the other's sweep on."""
    policy = MultiClass(((3, MinCost()),), default=MinCost())
    ready = ["high1 high2 low1 low2", "low1 low2", "high1 high2", "low1 low2", "high1 high2"]
    assert served(policy, FOUR, FEATURES, ready) == ["high1", "low1", "high2", "low2", "high1"]


def test_a_multi_class_inside_another_keeps_its_memory_too() -> None:
    policy = MultiClass(default=MultiClass(default=MinCost()))
    ready = ["low1 low2"] * 3
    # only the highest class has fcfs; the rest is left to the inner one, whose highest class is again HIGH
    assert served(policy, FOUR, FEATURES, ready) == ["low1", "low2", "low1"]


def test_a_class_cannot_be_given_twice() -> None:
    with pytest.raises(ParameterError, match="'multi-class': class 3 is given twice"):
        MultiClass(((3, FirstCome()), (3, HighestRate())))


def test_a_class_is_given_a_policy_and_not_its_name() -> None:
    with pytest.raises(ParameterError, match="default must be a policy; got 'hr'"):
        MultiClass(default="hr")  # type: ignore[arg-type]


@dataclass(frozen=True)
class BySum(FirstCome):
    """Asks that sources inherit sums."""

    name = "by-sum"

    @property
    def inheritance(self) -> Inheritance | None:
        return "sum"


@pytest.mark.parametrize(
    ("policy", "inheritance"),
    [
        pytest.param(MultiClass(), None, id="nobody asks for anything"),
        pytest.param(MultiClass(default=PricedBenefit()), "density", id="the default asks"),
        pytest.param(MultiClass(((3, PricedBenefit()), (1, FirstCome()))), "density", id="one class asks"),
        pytest.param(MultiClass(((3, PricedBenefit()), (1, BySum()))), None, id="two ask for different things"),
        pytest.param(MultiClass(((3, BySum()),), default=BySum()), "sum", id="two ask for the same"),
    ],
)
def test_sources_inherit_as_the_policies_inside_ask_if_they_agree(
    policy: MultiClass, inheritance: Inheritance | None
) -> None:
    assert policy.inheritance == inheritance


# --- cqc --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "turns"),
    [
        # Leads after each turn, (HIGH, LOW): (1/3, 0) (1/3, 1) (1/3, 2/3) (1/3, 1/3) (1/3, 0) ...
        pytest.param(WeightedClasses(), "HLHHHLHH", id="weights are the classes: three turns to one"),
        pytest.param(WeightedClasses(((3, 1.0), (1, 1.0))), "HLHLHLHL", id="equal weights: in turn"),
        pytest.param(WeightedClasses(((3, 0.5),)), "HLLHLLHL", id="one weight stated: one turn to two"),
    ],
)
def test_classes_take_turns_by_weight(policy: WeightedClasses, turns: str) -> None:
    chosen = served(policy, FOUR, FEATURES, ["high1 high2 low1 low2"] * len(turns))
    assert "".join(name[0].upper() for name in chosen) == turns


def test_between_classes_that_are_level_the_higher_goes_first() -> None:
    cheap_low: dict[str, Sequence[float]] = {**FEATURES, "cost": [1, 2, 0.1, 0.2]}
    assert ranking(WeightedClasses(), view_of(FOUR, cheap_low)) == ["high1", "high2", "low1", "low2"]


def test_inside_a_class_the_highest_rate_wins() -> None:
    chosen = served(WeightedClasses(), FOUR, FEATURES, ["high1 high2 low1 low2"] * 2)
    assert chosen == ["high1", "low2"]


def test_a_class_that_was_idle_does_not_hoard_turns() -> None:
    """HIGH has nothing to do for ten turns. When it comes back it gets its three turns to one, and not thirty."""
    ready = ["low1 low2"] * 10 + ["high1 high2 low1 low2"] * 8
    chosen = served(WeightedClasses(), FOUR, FEATURES, ready)
    assert "".join(name[0].upper() for name in chosen[10:]) == "HHHHLHHH"


def test_the_memory_does_not_grow() -> None:
    policy, memory = WeightedClasses(), None
    for turn in range(50):
        memory = policy.remember(view_of(FOUR, FEATURES, memory), turn % 4)
        assert isinstance(memory, tuple) and len(memory) <= 2
        assert all(0 < lead <= 1 for _, lead in memory)


def test_a_class_of_zero_weighs_one() -> None:
    assert WeightedClasses().weight(0.0) == 1.0
    assert WeightedClasses(((0, 4.0),)).weight(0.0) == 4.0


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_weights_must_be_positive(weight: float) -> None:
    with pytest.raises(ParameterError, match="'cqc': the weight of class 2 must be greater than 0"):
        WeightedClasses(((2, weight),))
