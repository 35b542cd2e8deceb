"""What a placement of a user's own returns is checked, and a wrong answer is told by the placement's name."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from headgate.core.errors import UserCodeError
from headgate.core.matrix import FeatureView
from headgate.core.observe import operator_features
from headgate.core.placement import Lane, Lanes, Placement, Workers
from headgate.core.placements import LayeredPlacement
from headgate.testing import Largest
from tests.core.oracles import make_loop


@dataclass(frozen=True)
class Returns(Placement):
    """Returns what it is given."""

    answer: Any

    name = "returns"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return self.answer  # type: ignore[no-any-return]


def homes(*home: object, spare: object = (), of: object = None) -> Any:
    """Three nodes on one lane."""
    lane: Any = Lane
    numbers: Any = np.zeros(3, dtype=np.intp) if of is None else of
    return Lanes((lane(home, spare),), numbers)


NOT_LANES: Any = Lanes
WRONG_ANSWERS = [
    pytest.param(None, "return Lanes; got NoneType", id="nothing"),
    pytest.param([], "return Lanes; got list", id="a list"),
    pytest.param(NOT_LANES(None, np.zeros(3, dtype=np.intp)), "a tuple of Lane; got None", id="no lanes"),
    pytest.param(NOT_LANES((5,), np.zeros(3, dtype=np.intp)), r"a tuple of Lane; got \(5,\)", id="a number"),
    pytest.param(Lanes((), np.zeros(3, dtype=np.intp)), "is among its lanes; got .*lanes: 0", id="none at all"),
    pytest.param(homes(0, of=[0, 0, 0]), "array of integers; got list", id="numbers in a list"),
    pytest.param(homes(0, of=(0, 0, 0)), "array of integers; got tuple", id="numbers in a tuple"),
    pytest.param(homes(0, of=5), "array of integers; got int", id="one number"),
    pytest.param(homes(0, of=np.zeros(3)), "got an array of float64 of shape", id="fractions"),
    pytest.param(homes(0, of=np.full(3, np.nan)), "got an array of float64", id="no numbers"),
    pytest.param(homes(0, of=np.zeros(3, dtype=bool)), "got an array of bool", id="yes and no"),
    pytest.param(homes(0, of=np.array(["0"] * 3)), "got an array of <U1", id="texts"),
    pytest.param(homes(0, of=np.zeros((3, 1), dtype=np.intp)), r"of shape \(3, 1\)", id="a table"),
    pytest.param(homes(0, of=np.zeros(2, dtype=np.intp)), r"each of 3 nodes .* of shape \(2,\)", id="too few"),
    pytest.param(homes(0, of=np.full(3, -1)), "got numbers from -1 to -1, with lanes: 1", id="below 0"),
    pytest.param(homes(0, of=np.full(3, 7)), "got numbers from 7 to 7, with lanes: 1", id="too large"),
    pytest.param(homes(), "every lane a home", id="no home"),
    pytest.param(homes(2), r"between 0 and 1; got home=\(2,\), spare", id="a worker that is not there"),
    pytest.param(homes(-1), "workers as integers between 0 and 1", id="a worker below 0"),
    pytest.param(homes(0.0), "workers as integers between 0 and 1", id="a fraction of a worker"),
    pytest.param(homes(0.5), "workers as integers between 0 and 1", id="half a worker"),
    pytest.param(homes("a"), "workers as integers between 0 and 1", id="the name of a worker"),
    pytest.param(homes(0, spare=None), "workers as integers between 0 and 1", id="no spare workers"),
    pytest.param(homes(0, spare=(9,)), "workers as integers between 0 and 1", id="a spare one that is not there"),
]


@pytest.mark.parametrize(("answer", "said"), WRONG_ANSWERS)
def test_a_placement_that_returns_something_else_is_told_what_was_expected(answer: object, said: str) -> None:
    for placement in (Returns(answer), LayeredPlacement(Returns(answer))):
        with pytest.raises(UserCodeError, match=f"^placement 'returns' must .*{said}.*: correct") as caught:
            make_loop("abc", Largest(), placement, workers=2)
        assert caught.value.__cause__ is None, "there is no error of the user's to be shown"


@dataclass(frozen=True)
class Exits(Placement):
    """Would end the process."""

    name = "exits"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        raise SystemExit(3)


def test_a_placement_that_ends_the_process_is_named() -> None:
    loop = make_loop("abc", Largest())
    with pytest.raises(UserCodeError, match="placement 'exits' failed: SystemExit: 3"):
        loop.replace_placement(Exits())


@dataclass(frozen=True)
class NeedsNothing(Returns):
    """Says that it needs None."""

    needs = None  # type: ignore[assignment]


@dataclass(frozen=True)
class NeedsForEver(Returns):
    """Comes to no end with the features that it needs."""

    needs = repeat("class")  # type: ignore[assignment]


@pytest.mark.parametrize("placement", [NeedsNothing(None), NeedsForEver(None)], ids=lambda each: each.name)
def test_a_placement_whose_needs_are_no_names_of_features_is_refused(placement: Placement) -> None:
    said = f"'{placement.name}': needs must be the names of features, as a tuple of at most 1000 texts"
    with pytest.raises(UserCodeError, match=said):
        make_loop("abc", Largest(), placement)
    with pytest.raises(UserCodeError, match=said):
        LayeredPlacement(placement)
    with pytest.raises(UserCodeError, match=said):
        operator_features([], [placement])
