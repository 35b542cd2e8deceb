"""The cost model finds the line that updates follow, and never promises time back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.schedule.cost import CostModel


def test_a_line_is_found_from_updates_of_different_length() -> None:
    model = CostModel()
    chance = random.Random(1)
    for _ in range(100):
        n = chance.uniform(1, 50)
        model.observe(n, (0.2 + 0.03 * n) * chance.uniform(0.95, 1.05))
    assert model.alpha == pytest.approx(0.2, abs=0.05)
    assert model.beta == pytest.approx(0.03, rel=0.1)


def test_updates_that_were_all_alike_are_all_set_up() -> None:
    model = CostModel()
    for _ in range(10):
        model.observe(10.0, 0.5)
    assert model.predict(10.0) == pytest.approx(0.5)
    assert model.beta == 0.0


def test_the_model_follows_a_machine_that_becomes_slower() -> None:
    model = CostModel()
    for _ in range(30):
        model.observe(10.0, 0.5)
    for _ in range(30):
        model.observe(10.0, 2.0)
    assert model.predict(10.0) == pytest.approx(2.0, rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), min_size=1, max_size=40))
def test_no_update_is_ever_predicted_to_take_negative_time(seen: list[tuple[float, float]]) -> None:
    model = CostModel()
    for n, time in seen:
        model.observe(n, time)
    assert model.alpha >= 0
    assert model.beta >= 0
