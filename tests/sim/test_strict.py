"""Dataclasses from TOML: every mistake is refused with the key it is about."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import Literal

import pytest

from headgate.core.errors import ScenarioError
from headgate.sim.strict import build, describe


@dataclass(frozen=True)
class Wheel:
    size: int
    spokes: int = 32

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise ScenarioError(f"size must be positive; got {self.size}")


@dataclass(frozen=True)
class Bike:
    name: str
    weight: float
    wheels: tuple[Wheel, ...] = ()
    tags: tuple[str, ...] = field(default_factory=tuple)
    spare: Wheel | None = None
    kind: Literal["road", "city"] = "city"
    electric: bool = False
    gears: int | str = 7
    owner_name: str = ""


def bike(text: str) -> Bike:
    return build(Bike, tomllib.loads(text), "bike", rename={"owner": "owner_name"})


def test_everything_said_comes_through_and_the_rest_is_the_default() -> None:
    built = bike(
        """
        name = "b"
        weight = 9
        kind = "road"
        electric = true
        tags = ["a", "b"]
        gears = "many"
        owner = "Ada"
        spare = {size = 26}
        [[wheels]]
        size = 28
        spokes = 24
        [[wheels]]
        size = 29
        """
    )
    assert built == Bike(
        name="b",
        weight=9.0,
        wheels=(Wheel(28, 24), Wheel(29)),
        tags=("a", "b"),
        spare=Wheel(26),
        kind="road",
        electric=True,
        gears="many",
        owner_name="Ada",
    )
    assert type(built.weight) is float


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("colour = 1", "bike: there is no key 'colour'", id="unknown key"),
        pytest.param("wieght = 1", "bike: there is no key 'wieght' here; did you mean 'weight'?", id="misspelt key"),
        pytest.param("owner_name = 'x'", "there is no key 'owner_name'", id="name of the field instead of the key"),
        pytest.param("", "bike: the key 'name' is missing; it takes a text", id="missing text"),
        pytest.param("name = 'b'", "bike: the key 'weight' is missing; it takes a number", id="missing number"),
        pytest.param("name = 1", "bike.name takes a text; got 1", id="number for a text"),
        pytest.param("weight = 'x'", "bike.weight takes a number; got 'x'", id="text for a number"),
        pytest.param("weight = true", "bike.weight takes a number; got True", id="truth for a number"),
        pytest.param(f"weight = 1{'0' * 400}", "bike.weight takes a number, at most 1.8e+308", id="too large a number"),
        pytest.param("electric = 1", "bike.electric takes true or false; got 1", id="number for a truth"),
        pytest.param("kind = 'sea'", "bike.kind takes one of 'road', 'city'; got 'sea'", id="not one of the choices"),
        pytest.param("tags = 'a'", "bike.tags takes a list, each a text; got 'a'", id="text for a list"),
        pytest.param("tags = ['a', 2]", "bike.tags[1] takes a text; got 2", id="wrong item of a list"),
        pytest.param("spare = 5", "bike.spare takes a table of keys; got 5", id="number for a table"),
        pytest.param("gears = 1.5", "bike.gears takes a whole number or a text; got 1.5", id="none of several kinds"),
        pytest.param("spare = {size = 1, x = 2}", "bike.spare: there is no key 'x'", id="unknown key inside"),
        pytest.param("spare = {}", "bike.spare: the key 'size' is missing", id="missing key inside"),
        pytest.param("spare = {size = 2.5}", "bike.spare.size takes a whole number; got 2.5", id="wrong type inside"),
        pytest.param(
            "wheels = [{size = 1}, {size = true}]",
            "bike.wheels[1].size takes a whole number; got True",
            id="wrong type inside an item",
        ),
        pytest.param(
            "wheels = [{size = 1}, {size = -1}]",
            "bike.wheels[1]: size must be positive; got -1",
            id="a value that the dataclass refuses",
        ),
    ],
)
def test_a_mistake_is_named_with_its_path(text: str, complaint: str) -> None:
    said = tomllib.loads(text)
    # the mistake is to be the only one, unless the mistake is that a key is missing
    complete = said if "missing; it" in complaint else {"name": "b", "weight": 9} | said
    with pytest.raises(ScenarioError, match=re.escape(complaint)):
        build(Bike, complete, "bike", rename={"owner": "owner_name"})


def test_an_unknown_key_is_answered_with_the_known_ones_as_they_are_written() -> None:
    with pytest.raises(ScenarioError, match=r"known keys: name, weight, wheels, .*, owner$"):
        bike("x = 1")


def test_a_mistake_inside_a_choice_of_kinds_is_still_named() -> None:
    @dataclass(frozen=True)
    class Garage:
        content: str | Wheel

    with pytest.raises(ScenarioError, match=r"garage\.content.*'spoke'.*'spokes'"):
        build(Garage, {"content": {"size": 1, "spoke": 2}}, "garage")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (float, "a number"),
        (int, "a whole number"),
        (str, "a text"),
        (bool, "true or false"),
        (float | None, "a number"),
        (tuple[int, ...], "a list, each a whole number"),
        (Literal["a", "b"], "one of 'a', 'b'"),
        (Wheel, "a table of keys"),
    ],
)
def test_a_type_is_put_into_words(kind: object, words: str) -> None:
    assert describe(kind) == words
