"""How late data of cut updates is at the least: against every way to cut that can be tried."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import numpy as np
import pytest

from headgate.sim.tables.cut import late_and_paid, lateness, most_parts

#: shares of the data in the first, second and third update, in steps of a twentieth
SPLITS = [(a / 20, b / 20, (20 - a - b) / 20) for a, b in product(range(21), repeat=2) if a + b <= 20]


def in_all(parts: tuple[float, ...], setup: float, per_unit: float) -> float:
    """The sum over all data of when it shows, by the updates one after the other."""
    now = total = 0.0
    for part in parts:
        now += setup + per_unit * part
        total += now * part
    return total


@pytest.mark.parametrize(
    ("n", "setup", "per_unit", "parts", "late"),
    [
        pytest.param(10.0, 2.0, 0.0, 1, 20.0, id="where data takes no time, one update"),
        pytest.param(10.0, 20.0, 1.0, 1, 300.0, id="a set-up that is longer than what it brings"),
        pytest.param(10.0, 2.0, 0.5, 2, 7 * 5.5 + 3 * 9, id="7 s of data, and then 3"),
        pytest.param(10.0, 0.0, 1.0, 1e6, 50.0, id="without set-up, data shows as it is read"),
        pytest.param(0.0, 2.0, 0.5, 1, 0.0, id="no data"),
    ],
)
def test_data_is_as_late_as_the_best_way_to_cut_it_allows(
    n: float, setup: float, per_unit: float, parts: float, late: float
) -> None:
    most = most_parts(np.array(n), setup, per_unit)
    assert most == parts
    assert lateness(np.array(n), setup, per_unit, most) == pytest.approx(late)


@pytest.mark.parametrize("seed", range(20))
def test_no_way_to_cut_makes_data_show_earlier(seed: int) -> None:
    chance = Random(seed)
    n, setup, per_unit = chance.uniform(1, 50), chance.uniform(0.1, 5), chance.uniform(0.01, 1)
    least = float(lateness(np.array(n), setup, per_unit, most_parts(np.array(n), setup, per_unit)))
    for split in SPLITS:
        parts = tuple(n * share for share in split if share)
        assert in_all(parts, setup, per_unit) >= least * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_number_of_updates_is_the_best_for_the_price(seed: int) -> None:
    chance = Random(seed)
    n, setup, per_unit = chance.uniform(1, 50), chance.uniform(0.1, 5), chance.uniform(0.01, 1)
    weight, price = chance.uniform(0.1, 9), chance.choice((0.0, chance.uniform(0, 100)))
    costs = []
    for parts in range(1, int(most_parts(np.array(n), setup, per_unit)) + 1):
        late = lateness(np.array(n), setup, per_unit, np.array(float(parts)))
        costs.append(weight * float(late) + price * setup * max(1, parts - 1))
    late, paid = late_and_paid(np.array(n), np.array(setup), np.array(per_unit), price, np.array(weight))
    assert weight * late + price * setup * paid == pytest.approx(min(costs))


def test_a_price_that_is_very_high_leaves_two_updates() -> None:
    # The second one may be shared with other data, so that it costs nothing here.
    _, paid = late_and_paid(np.array(100.0), np.array(1.0), np.array(0.1), 1e9, np.array(1.0))
    assert paid == 1
    assert not math.isnan(float(paid))
