"""A policy that cannot say what it is, is refused by its name before it takes the place of another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

import numpy as np
import pytest

from headgate.core import Floats, Policy, Rounds, UserCodeError, Workers, operator_features, vet
from headgate.core.errors import ParameterError
from headgate.core.matrix import FeatureView
from headgate.core.placements import Anywhere
from headgate.core.policies import SHIPPED, FirstCome, Layered, MaxBenefit, MultiClass
from headgate.sim import simulate_tables
from headgate.sim.tables.scenario import Table, TableScenario
from headgate.testing import CheckError, check_policy
from headgate.warehouse.schedule.run_options import RunOptions
from tests.core.oracles import make_loop


@dataclass(frozen=True)
class Asked(Policy):
    """Says of itself what a test wants it to; an exception is raised."""

    says: Any = None

    name = "asked"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))

    def __str__(self) -> str:
        return self.name

    def _said(self) -> Any:
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says


class AskedForInheritance(Asked):
    name = "asked"

    @property
    def inheritance(self) -> Any:
        return self._said()


class AskedForFeatures(Asked):
    name = "asked"

    def requires(self) -> Any:
        return self._said()


class AskedForText(Asked):
    name = "asked"

    def __str__(self) -> Any:
        return self._said()


class AskedForCuts(Asked):
    name = "asked"

    @property
    def cuts(self) -> Any:
        return self._said()


class AskedForLocal(Asked):
    name = "asked"

    @property
    def local(self) -> Any:  # type: ignore[override]
        return self._said()


class UnspeakableError(Exception):
    """An error that fails to say what it is."""

    def __str__(self) -> str:
        raise ValueError


WRONG = [
    pytest.param(AskedForInheritance("sideways"), "inheritance must be one of none, .* got 'sideways'", id="nonsense"),
    pytest.param(AskedForInheritance(["sum"]), "inheritance must be one of none, .* got list", id="a list"),
    pytest.param(AskedForInheritance(ValueError("no")), "its inheritance failed: ValueError: no", id="inheritance"),
    pytest.param(AskedForInheritance(SystemExit(3)), "its inheritance failed: SystemExit: 3", id="inheritance exits"),
    pytest.param(
        AskedForInheritance(UnspeakableError()),
        "UnspeakableError, whose own text cannot be made",
        id="no text of an error",
    ),
    pytest.param(AskedForFeatures(KeyError("a")), "its requires failed: KeyError: 'a'", id="requires"),
    pytest.param(AskedForFeatures(SystemExit(3)), "its requires failed: SystemExit: 3", id="requires exits"),
    pytest.param(AskedForFeatures(None), "requires must return .* as a tuple", id="requires nothing"),
    pytest.param(AskedForFeatures("cost"), "requires must return .* as a tuple", id="requires a text"),
    pytest.param(AskedForFeatures((1, 2)), "requires must return .* as a tuple", id="requires numbers"),
    pytest.param(AskedForFeatures(count()), "requires must return .* as a tuple", id="requires endless numbers"),
    pytest.param(AskedForFeatures(repeat("class")), "at most 1000 texts", id="requires a feature for ever"),
    pytest.param(AskedForText(ValueError("no")), "its __str__ failed: ValueError: no", id="text"),
    pytest.param(AskedForText(SystemExit(3)), "its __str__ failed: SystemExit: 3", id="text exits"),
    pytest.param(AskedForText(7), "its __str__ failed: TypeError", id="a text that is none"),
    pytest.param(AskedForText(GeneratorExit("no")), "its __str__ failed: GeneratorExit: no", id="text ends"),
    pytest.param(AskedForText("x" * 10_001), "at most 10000 letters; got 10001, from 'xxx.*xxx' on", id="a long text"),
    pytest.param(AskedForCuts(ValueError("no")), "its cuts failed: ValueError: no", id="cuts"),
    pytest.param(AskedForLocal(ValueError("no")), "its local failed: ValueError: no", id="local"),
]

SMALL = TableScenario((Table("t", period=1.0),), tracks=1, events=10)


def begin_rounds(policy: Policy) -> None:
    Rounds(make_loop("ab", FirstCome()).matrix, policy, Anywhere(), Workers.of(1))


#: where a policy comes in that was made in Python; the command line comes by ``policy_from``, which has a test below
WAYS: dict[str, Callable[[Policy], object]] = {
    "a loop begins": lambda policy: make_loop("ab", policy),
    "a loop in rounds begins": begin_rounds,
    "a simulation begins": lambda policy: simulate_tables(SMALL, policy, Anywhere()),
    "features are chosen": lambda policy: operator_features([policy], []),
    "a run is prepared": lambda policy: RunOptions(policy=policy),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("policy", "said"), WRONG)
def test_a_policy_that_cannot_say_what_it_is_is_refused_by_its_name(
    policy: Policy, said: str, way: Callable[[Policy], object]
) -> None:
    with pytest.raises(UserCodeError, match=f"policy 'asked'.*{said}"):
        way(policy)


@pytest.mark.parametrize(("policy", "said"), WRONG)
def test_a_change_that_is_refused_leaves_the_loop_as_it_was(policy: Policy, said: str) -> None:
    loop = make_loop("ab", MaxBenefit())
    with pytest.raises(UserCodeError, match=f"policy 'asked'.*{said}"):
        loop.replace_policy(Layered(policy))
    assert loop.policy == MaxBenefit()
    loop.set_ready(0, True, 0.0)
    assert len(loop.decide(0.0)) == 1
    loop.validate()


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param({"default": AskedForFeatures(count())}, id="that of all others"),
        pytest.param({"policies": ((1, AskedForText(7)),)}, id="that of one class"),
    ],
)
def test_a_policy_of_a_class_is_refused_by_its_own_name(inside: dict[str, Any]) -> None:
    with pytest.raises(UserCodeError, match="policy 'asked'"):
        MultiClass(**inside)


def test_an_interrupt_is_not_taken_for_the_policys_mistake() -> None:
    with pytest.raises(KeyboardInterrupt):
        vet(AskedForInheritance(KeyboardInterrupt()))


def test_an_error_of_ours_that_a_policy_raises_is_told_as_it_is() -> None:
    with pytest.raises(ParameterError, match="below 3"):
        vet(AskedForInheritance(ParameterError("share must be below 3")))


def test_every_shipped_policy_can_say_what_it_is() -> None:
    for policy in SHIPPED:
        vet(policy())


def test_the_check_for_authors_finds_it() -> None:
    with pytest.raises(CheckError, match="inheritance must be one of"):
        check_policy(AskedForInheritance("sideways"))
