"""What updates cost, told apart from how slow the machine was: fits against costs that are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from headgate.core import CostModel
from headgate.sim.cost_fit import Seen, fitted_together

#: tables by name: set-up and seconds of work for each second of data
COSTS = {f"t{i}": (0.2 + 0.1 * i, 0.01 + 0.004 * i) for i in range(6)}


def updates(
    slowness: Callable[[float], float],
    amount: Callable[[float, random.Random], float],
    varies: float = 0.0,
    count: int = 300,
) -> dict[str, list[Seen]]:
    """Updates of all tables, one every 10 s; each takes up to ``varies`` of it more or less."""
    found: dict[str, list[Seen]] = {}
    for number, (name, (alpha, beta)) in enumerate(COSTS.items()):
        chance = random.Random(name)
        for step in range(count):
            began = 10.0 * step + number
            n = amount(began, chance)
            luck = 1 + varies * (2 * chance.random() - 1)
            found.setdefault(name, []).append((began, n, slowness(began) * luck * (alpha + beta * n)))
    return found


def off(found: dict[str, CostModel], sizes: Sequence[float], costs: dict[str, tuple[float, float]] = COSTS) -> float:
    """How far predictions are off from the truth at most, as a factor; one factor for all tables does not count."""
    logs = [np.log(found[name].predict(n) / (a + b * n)) for name, (a, b) in costs.items() for n in sizes]
    return float(np.exp(np.abs(logs - np.median(logs)).max()))


def steady(began: float) -> float:
    return 1.0


def slow_now_and_then(began: float) -> float:
    return 3.0 if began // 600 % 2 else 1.0


def more_when_slow(began: float, chance: random.Random) -> float:
    """Data gathers while the machine is slow, by chance more or less of it."""
    return 10.0 * chance.choice((1, 2) if slow_now_and_then(began) == 1 else (3, 4, 6))


def of_any_size(began: float, chance: random.Random) -> float:
    return chance.choice((10.0, 20.0, 50.0))


@pytest.mark.parametrize(
    ("slowness", "amount", "varies", "most"),
    [
        pytest.param(steady, of_any_size, 0.0, 1.001, id="a line is found exactly"),
        pytest.param(slow_now_and_then, of_any_size, 0.0, 1.02, id="beside slow periods, too"),
        pytest.param(steady, of_any_size, 0.5, 1.12, id="nearly, if updates vary"),
        pytest.param(slow_now_and_then, more_when_slow, 0.5, 1.25, id="also if more data gathers in slow periods"),
    ],
)
def test_costs_are_told_apart_from_slowness(
    slowness: Callable[[float], float],
    amount: Callable[[float, random.Random], float],
    varies: float,
    most: float,
) -> None:
    assert off(fitted_together(updates(slowness, amount, varies)), (10.0, 30.0, 60.0)) < most


def test_each_table_by_itself_would_take_slowness_for_the_cost_of_data() -> None:
    """Why tables are fitted together: the last case above, otherwise."""
    seen = updates(slow_now_and_then, more_when_slow, 0.5)
    alone = {name: CostModel.fitted((n, seconds) for _, n, seconds in own) for name, own in seen.items()}
    assert off(alone, (10.0, 30.0, 60.0)) > 1.5


def test_set_up_of_a_table_with_updates_of_one_size_is_like_that_of_others() -> None:
    seen = updates(steady, of_any_size, 0.2)
    seen["t0"] = [(began, 20.0, 1.0) for began, _, _ in seen["t0"]]
    found = fitted_together(seen)
    usual = {name: sum(n for _, n, _ in own) / len(own) for name, own in seen.items()}
    share = {name: model.alpha / model.predict(usual[name]) for name, model in found.items()}
    others = [value for name, value in share.items() if name != "t0"]
    assert min(others) < share["t0"] < max(others)
    assert found["t0"].predict(20.0) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param([(0.0, 0.0, 0.0)], id="one update of nothing that took no time"),
        pytest.param([(0.0, 5.0, 1.0)], id="one update"),
        pytest.param([(0.0, 5.0, 1.0), (1.0, 5.0, 3.0)], id="two of one size"),
        pytest.param([(0.0, 1e9, 1e-3), (1.0, 1.0, 1e6), (1.0, 1e-9, 10.0)], id="the more data, the quicker"),
        pytest.param([(float(i), float(i), 0.01 * i) for i in range(100)], id="no set-up"),
    ],
)
def test_a_line_is_never_negative_and_always_a_number(own: list[Seen]) -> None:
    for seen in ({"own": own}, {"own": own, "none": [], "other": [(2.0, 3.0, 4.0)]}):
        found = fitted_together(seen)
        assert found.keys() == {name for name, updates in seen.items() if updates}
        for model in found.values():
            assert 1e-3 <= model.alpha < np.inf and 0 <= model.beta < np.inf


def test_nothing_is_known_of_nothing() -> None:
    assert fitted_together({}) == fitted_together({"t": []}) == {}
