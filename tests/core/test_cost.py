"""The cost model finds the line that updates follow, and never promises time back."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.cost import LEAST_UPDATE_TIME, CostModel


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


# --- fitted to all updates at once ------------------------------------------------------------------------------


def test_a_line_is_found_and_how_updates_vary_around_it() -> None:
    seen = [(n, (0.3 + 0.02 * n) * r) for n in (1.0, 10.0, 50.0) for r in (0.9, 1.1)]
    model = CostModel.fitted(seen)
    assert (model.alpha, model.beta) == (pytest.approx(0.3, rel=1e-6), pytest.approx(0.02, rel=1e-6))
    assert sorted(set(round(model.slowness(n, time), 6) for n, time in seen)) == [0.9, 1.1]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), min_size=1, max_size=30))
def test_costs_are_never_negative_and_explain_the_time_that_updates_took(seen: list[tuple[float, float]]) -> None:
    model = CostModel.fitted(seen)
    assert model.alpha >= LEAST_UPDATE_TIME
    assert model.beta >= 0
    for n, time in seen:
        assert model.slowness(n, time) * model.predict(n) == pytest.approx(max(time, LEAST_UPDATE_TIME), rel=1e-6)


@given(
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=2, max_size=30), st.sampled_from([0.5, 0.9, 1.0])
)
def test_the_line_is_that_of_weighted_least_squares(seen: list[tuple[float, float]], fading: float) -> None:
    model = CostModel(fading=fading)
    for n, time in seen:
        model.observe(n, time)
    weights = fading ** np.arange(len(seen))[::-1]
    n, time = np.array(seen).T
    mean_n, mean_time = np.average(n, weights=weights), np.average(time, weights=weights)
    spread = np.average((n - mean_n) ** 2, weights=weights)
    if spread > 1e-3 * max(1.0, mean_n**2):  # well above where the model ignores the slope
        slope = np.average((n - mean_n) * (time - mean_time), weights=weights) / spread
        expected = min(max(0.0, slope), mean_time / mean_n)
        assert model.beta == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert model.predict(float(mean_n)) == pytest.approx(mean_time, rel=1e-6, abs=1e-6)
