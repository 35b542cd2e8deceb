"""Choosing policies and placements by what a user writes."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest

from headgate.core.errors import DeclarationError, ParameterError, UnknownNameError, UserCodeError
from headgate.core.graph import Floats
from headgate.core.inheritance import Inheritance
from headgate.core.matrix import FeatureView
from headgate.core.placements import SHIPPED as SHIPPED_PLACEMENTS
from headgate.core.placements import Anywhere, Proportional
from headgate.core.policies import SHIPPED as SHIPPED_POLICIES
from headgate.core.policies import (
    FirstCome,
    HighestRate,
    LastInPipeline,
    LowestThroughput,
    MultiClass,
    QueueThrottle,
    WeightedClasses,
)
from headgate.core.policy import Policy
from headgate.core.registry import PLACEMENTS, POLICIES, placement_from, policy_from

# --- a user's own policies ----------------------------------------------------------------------------------------


class Silent(Policy):
    """A policy that is no dataclass: it just takes no parameters."""

    name = "silent"
    summary = paper = "test"

    def priorities(self, view: FeatureView) -> Floats:
        return np.zeros(len(view))


@dataclass(frozen=True)
class Fairest(Silent):
    share: float
    rounds: int = 3
    strict: bool = False
    label: str = "plain"
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = 5
    inner: Policy = FirstCome()  # noqa: RUF009 - frozen, so it can be shared
    notes: list[str] = field(default_factory=list)
    derived: float = field(default=0.0, init=False)


@dataclass(frozen=True)
class Broken(Silent):
    share: float = 1.0

    def __post_init__(self) -> None:
        raise ZeroDivisionError("share is too small")


class Leaving(Silent):
    def __init__(self) -> None:
        raise SystemExit(3)


class Sideways(Silent):
    name = "sideways"

    @property
    def inheritance(self) -> Inheritance | None:
        return "sideways"  # type: ignore[return-value]


@dataclass(frozen=True)
class Nameless(Anywhere):
    name = "nameless"

    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.fixture(autouse=True)
def own_module() -> Iterator[None]:
    """The classes above, importable as ``own.policies``."""
    module = types.ModuleType("own.policies")
    vars(module).update(Silent=Silent, Fairest=Fairest, Broken=Broken, Leaving=Leaving, Sideways=Sideways)
    vars(module).update(Nameless=Nameless, NUMBER=3)
    sys.modules |= {"own": types.ModuleType("own"), "own.policies": module}
    yield
    del sys.modules["own"], sys.modules["own.policies"]


# --- by name ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", SHIPPED_POLICIES, ids=lambda policy: policy.name)
def test_every_shipped_policy_can_be_chosen_by_its_name(policy: type[Policy]) -> None:
    assert POLICIES[policy.name] is policy
    assert policy_from(policy.name) == policy()
    assert policy_from(str(policy())) == policy()


def test_every_shipped_placement_can_be_chosen_by_its_name() -> None:
    assert list(PLACEMENTS) == [placement.name for placement in SHIPPED_PLACEMENTS]
    assert [placement_from(name) for name in PLACEMENTS] == [placement() for placement in SHIPPED_PLACEMENTS]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("qst:capacity=500", QueueThrottle(capacity=500.0), id="a number"),
        pytest.param(" ct : slice_seconds = 1e-2 ", LowestThroughput(0.01), id="blanks"),
        pytest.param("cqc:3=10,1=2.5", WeightedClasses(((3, 10.0), (1, 2.5))), id="numbers by class"),
        pytest.param("cqc:-1=2", WeightedClasses(((-1, 2.0),)), id="a class below zero"),
        pytest.param(
            "multi-class:3=fcfs,1=hr,default=hr",
            MultiClass(((3, FirstCome()), (1, HighestRate())), HighestRate()),
            id="policies by class",
        ),
        pytest.param(
            "multi-class:3=qst:capacity=7,default=lp",
            MultiClass(((3, QueueThrottle(7.0)),), LastInPipeline()),
            id="a policy with one parameter inside another",
        ),
        pytest.param(
            "multi-class:3=(cqc:3=10,1=2),default=(multi-class:1=(qst:capacity=7),default=lp)",
            MultiClass(
                ((3, WeightedClasses(((3, 10.0), (1, 2.0)))),),
                MultiClass(((1, QueueThrottle(7.0)),), LastInPipeline()),
            ),
            id="parentheses keep parameters apart",
        ),
        pytest.param("own.policies.Fairest:share=1", Fairest(share=1.0), id="a class of one's own"),
        pytest.param(
            "own.policies.Fairest:share=0.5,rounds=7,strict=true,label=two words,mode=slow,limit=none,inner=hr",
            Fairest(0.5, 7, True, "two words", "slow", None, HighestRate()),
            id="every type",
        ),
        pytest.param("own.policies.Fairest:share=inf,limit=9,strict=False", Fairest(float("inf"), limit=9), id="inf"),
    ],
)
def test_a_policy_as_written(text: str, expected: Policy) -> None:
    assert policy_from(text) == expected


def test_a_policy_that_is_no_dataclass_can_be_named_by_its_path() -> None:
    assert isinstance(policy_from("own.policies.Silent"), Silent)


def test_a_policy_without_a_name_is_called_like_its_class() -> None:
    class Nameless(Policy):
        def priorities(self, view: FeatureView) -> Floats:
            return np.zeros(len(view))

    assert (Nameless.name, str(Nameless()), Fairest(1.0).name) == ("Nameless", "Nameless", "Fairest")


@pytest.mark.parametrize(
    "policy",
    [
        QueueThrottle(capacity=12.5),
        WeightedClasses(((3, 10.0), (1, 2.5))),
        MultiClass(((3, QueueThrottle(7.0)), (2, WeightedClasses(((1, 2.0), (2, 3.0))))), LastInPipeline()),
    ],
    ids=str,
)
def test_a_policy_written_out_and_read_again_is_the_same(policy: Policy) -> None:
    assert policy_from(str(policy)) == policy


def test_placements_take_parameters_the_same_way() -> None:
    placement = placement_from("proportional:k=2,allocate=basic,aggressive=false")
    assert placement == Proportional(k=2, allocate="basic", aggressive=False)
    assert placement_from(str(placement)) == placement
    assert placement_from("headgate.core.placements.Anywhere") == Anywhere()


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        pytest.param("hrr", UnknownNameError, "no policy called 'hrr'. Did you mean 'hr'?", id="a misspelt name"),
        pytest.param("zzz", UnknownNameError, "Known: auto, chain, cqc, ct,", id="a name like no other"),
        pytest.param("", UnknownNameError, "named by its path: package.module.Class", id="no name"),
        pytest.param("multi-class:3=frst", UnknownNameError, "no policy called 'frst'", id="an inner misspelt name"),
        pytest.param(
            "hr:depth=3",
            ParameterError,
            "policy 'hr' has no parameter 'depth'; it takes no parameters",
            id="no parameters",
        ),
        pytest.param(
            "qst:size=3",
            ParameterError,
            "policy 'qst' has no parameter 'size'; it takes capacity (a number)",
            id="another parameter",
        ),
        pytest.param(
            "multi-class:policies=3",
            ParameterError,
            "no parameter 'policies'; it takes CLASS=VALUE (a policy), default (a policy)",
            id="numbered parameters have no name",
        ),
        pytest.param("cqc:three=3", ParameterError, "it takes CLASS=VALUE (a number)", id="a class is a number"),
        pytest.param(
            "qst:capacity=much", ParameterError, "'capacity' takes a number; got 'much'", id="a word for a number"
        ),
        pytest.param("qst:capacity=nan", ParameterError, "'capacity' takes a number; got 'nan'", id="not a number"),
        pytest.param("qst:capacity=0", ParameterError, "must be greater than 0; got 0", id="out of range"),
        pytest.param("qst:capacity", ParameterError, "written parameter=value,...; got 'capacity'", id="no value"),
        pytest.param("qst:capacity=1,", ParameterError, "written parameter=value,...; got ''", id="a comma too many"),
        pytest.param("qst:capacity=1,capacity=2", ParameterError, "'capacity' is given twice", id="given twice"),
        pytest.param("cqc:3=1,3=2", ParameterError, "class 3 is given twice", id="a class given twice"),
        pytest.param("own.policies.Fairest", ParameterError, "needs the parameter 'share'", id="a parameter missing"),
        pytest.param(
            "own.policies.Fairest:share=1,rounds=1.5", ParameterError, "'rounds' takes a whole number", id="not whole"
        ),
        pytest.param(
            "own.policies.Fairest:share=1,strict=maybe", ParameterError, "'strict' takes true or false", id="no truth"
        ),
        pytest.param(
            "own.policies.Fairest:share=1,mode=medium", ParameterError, "'mode' takes one of fast, slow", id="no choice"
        ),
        pytest.param(
            "own.policies.Fairest:share=1,limit=x",
            ParameterError,
            "'limit' takes a whole number, or none",
            id="optional",
        ),
        pytest.param(
            "own.policies.Fairest:share=1,notes=x", ParameterError, "cannot be written as text", id="no text for it"
        ),
        pytest.param(
            "own.policies.Fairest:derived=1", ParameterError, "has no parameter 'derived'", id="not for the caller"
        ),
        pytest.param("own.policies.Broken", UserCodeError, "share is too small", id="the user's class fails"),
        pytest.param(
            "own.policies.Fairrest",
            UnknownNameError,
            "no policy in the module 'own.policies' called 'Fairrest'. Did you mean 'Fairest'?",
            id="misspelt in a module",
        ),
        pytest.param(
            "own.policies.NUMBER",
            UnknownNameError,
            "must be a class derived from headgate.core.policy.Policy",
            id="no class",
        ),
        pytest.param(
            "headgate.core.Policy",
            DeclarationError,
            "policy 'headgate.core.Policy': it is abstract; name a class that has `priorities`",
            id="an abstract class",
        ),
        pytest.param(
            "auto:now=headgate.core.policy.WrappingPolicy",
            DeclarationError,
            "it is abstract; name a class that has `wrapped`",
            id="an abstract class inside",
        ),
        pytest.param(
            "multi-class:0=(fifo",
            UnknownNameError,
            "in the policy '(fifo', a parenthesis is not closed",
            id="not closed",
        ),
        pytest.param("multi-class:0=fifo)", UnknownNameError, "'fifo)', a parenthesis is not opened", id="not opened"),
        pytest.param("fifo)", UnknownNameError, "'fifo)', a parenthesis is not opened", id="not opened at all"),
        pytest.param(
            "multi-class:1=(qst:capacity=3,default=fifo",
            UnknownNameError,
            "is not closed",
            id="not closed in the middle",
        ),
        pytest.param(
            "auto:now=(multi-class:0=(fifo)", UnknownNameError, "'(fifo', a parenthesis is not closed", id="one of two"
        ),
        pytest.param("(fifo)", UnknownNameError, "'(fifo)'. Did you mean 'fifo'?", id="parentheses around all"),
        pytest.param(
            "os.path",
            UnknownNameError,
            "there is no policy in the module 'os' called 'path', nor any other. It must be a class derived from",
            id="a module without policies",
        ),
        pytest.param("nowhere.Mine", DeclarationError, "there is no module 'nowhere'", id="no such module"),
        pytest.param("..", UnknownNameError, "there is no policy called '..'", id="dots"),
        pytest.param(".Mine", UnknownNameError, "there is no policy called '.Mine'", id="no module"),
        pytest.param("own.policies.", UnknownNameError, "no policy called 'own.policies.'", id="no class in a module"),
    ],
)
def test_a_mistake_is_explained(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        policy_from(text)
    assert message in str(raised.value)


def test_a_policy_is_no_placement() -> None:
    with pytest.raises(UnknownNameError, match=r"must be a class derived from headgate\.core\.placement\.Placement"):
        placement_from("own.policies.Silent")


def test_the_users_own_exception_is_kept() -> None:
    with pytest.raises(UserCodeError) as raised:
        policy_from("own.policies.Broken")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("own.policies.Leaving", "Leaving' failed while it was made", id="it exits while it is made"),
        pytest.param("own.policies.Sideways", "policy 'sideways': inheritance must be", id="it answers nonsense"),
        pytest.param("auto:now=own.policies.Sideways", "policy 'sideways': inheritance must be", id="inside another"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_by_its_name(text: str, message: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        policy_from(text)
    assert message in str(raised.value)


def test_a_placement_that_cannot_be_used_is_refused_by_its_name() -> None:
    with pytest.raises(UserCodeError, match="placement 'nameless' cannot be used, because its __str__ failed: System"):
        placement_from("own.policies.Nameless")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("import no_such_package", "No module named 'no_such_package'", id="it imports what is not there"),
        pytest.param("1 / 0", "division by zero", id="it fails"),
        pytest.param("raise SystemExit('no licence')", "no licence", id="it exits"),
    ],
)
def test_a_module_that_fails_is_the_users(
    source: str, message: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_failing.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(UserCodeError, match="Mine' failed while it was imported") as raised:
        policy_from("own_failing.Mine")
    assert message in str(raised.value)
