"""The cost model finds the line that updates follow, and never promises time back."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.cost import LEAST_UPDATE_TIME, CostModel, keeping_up


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


@pytest.mark.parametrize(
    ("sizes", "apart"),
    [
        pytest.param((9.9, 10.0, 10.1), False, id="sizes that differ by 1 % tell nothing"),
        pytest.param((5.0, 10.0, 20.0), True, id="sizes that differ by half do"),
    ],
)
def test_a_slope_of_noise_is_not_taken_for_one(sizes: tuple[float, ...], apart: bool) -> None:
    noise = (0.15, -0.1, 0.2, -0.15, 0.05, 0.1, -0.2)
    model = CostModel()
    for i in range(30):
        size = sizes[i % len(sizes)]
        model.observe(size, 1.0 + 0.02 * size + noise[i % len(noise)])
    assert (model.setup_and_slope[1] > 0) == apart
    mean = sum(sizes) / len(sizes)
    assert model.setup_and_slope[0] + model.setup_and_slope[1] * mean == pytest.approx(model.predict(mean), rel=0.02)


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


# --- how much fits into a budget --------------------------------------------------------------------------------


def catching_up(
    alpha: float, beta: float, budget: float, start: float, count: int, noise: float = 0.0, same: float | None = None
) -> list[float]:
    """The durations of so many updates, each as large as the model allows; ``same`` is the size of updates before."""
    model, chance, durations = CostModel(), random.Random(7), []
    for _ in range(20 if same is not None else 0):
        model.observe(same or 0.0, alpha + beta * (same or 0.0))
    for _ in range(count):
        n = model.most(budget, start)
        durations.append((alpha + beta * n) * (1 + noise * chance.uniform(-1, 1)))
        model.observe(n, durations[-1])
    return durations


def test_nothing_is_known_at_first_so_a_stated_amount_is_tried() -> None:
    assert CostModel().most(1.0, start=30.0) == 30.0


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [
        pytest.param(0.0, 0.01, id="no set-up"),
        pytest.param(0.3, 1e-3, id="some set-up"),
        pytest.param(0.3, 1e-6, id="data costs almost nothing"),
        pytest.param(0.1, 0.05, id="the first amount takes half of the budget"),
    ],
)
def test_updates_grow_to_the_budget_within_a_few_steps_and_stay_within_it(alpha: float, beta: float) -> None:
    durations = catching_up(alpha, beta, budget=1.0, start=10.0, count=60)
    assert max(durations) <= 1.0 + 1e-6
    assert min(durations[12:]) >= 0.9


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_a_long_backlog_of_equal_updates_does_not_make_the_model_overreach(noise: float) -> None:
    durations = catching_up(0.3, 1e-3, budget=1.0, start=10.0, count=500, noise=noise)
    assert sorted(durations)[-25] <= 1.0 + 2 * noise, "of 500, all but a few"
    assert max(durations) <= 2.0


def test_an_amount_grows_no_faster_than_by_steps_even_if_data_seems_to_cost_nothing() -> None:
    model = CostModel()
    for n in (1.0, 2.0, 3.0):
        model.observe(n, 0.2)
    assert (model.beta, model.most(1.0, 0.1)) == (0.0, 12.0)


def test_after_updates_that_were_all_alike_their_time_counts_as_caused_by_their_data() -> None:
    assert catching_up(0.0, 0.05, budget=1.0, start=1.0, count=1, same=10.0) == [pytest.approx(1.0)]


def test_if_the_set_up_takes_longer_than_the_budget_the_data_gets_as_much_time_again() -> None:
    durations = catching_up(2.0, 0.01, budget=1.0, start=10.0, count=60, same=10.0)
    assert durations[-1] == pytest.approx(4.0, rel=1e-3)


def test_updates_that_cannot_be_smaller_and_take_too_long_grow_if_it_is_the_set_up_that_takes_long() -> None:
    block, backlog, updates, model = 3600.0, 100, 0, CostModel()
    while backlog > 0:
        blocks = min(backlog, max(1, int(model.most(1.0, 60.0) // block)))
        model.observe(blocks * block, 3.0 + 0.01 * blocks)
        backlog, updates = backlog - blocks, updates + 1
    assert updates <= 12


def test_updates_that_cannot_be_smaller_and_take_too_long_stay_small_if_it_is_their_data_that_takes_long() -> None:
    model, taken = CostModel(), []
    for _ in range(100):
        taken.append(max(1, int(model.most(1.0, 60.0) // 3600)))
        model.observe(taken[-1] * 3600.0, 3.0 * taken[-1])
    assert max(taken) == 2 and sum(taken) <= 110


def test_updates_without_data_tell_nothing_about_how_much_data_fits() -> None:
    model = CostModel()
    for _ in range(10):
        model.observe(1e-3, 0.3)
    assert model.most(1.0, start=10.0) == 10.0


@pytest.mark.parametrize(
    ("waiting", "left", "expected"),
    [
        pytest.param(1000.0, 0.0, 10.0, id="a burst after an update that took in everything"),
        pytest.param(1001.0, 1000.0, 10.0, id="a backlog, and little new data"),
        pytest.param(1016.0, 1000.0, 20.0, id="more arrives than fits into the budget"),
        pytest.param(2000.0, 1000.0, 40.0, id="far more"),
    ],
)
def test_an_update_is_longer_than_its_budget_only_if_its_table_would_fall_behind(
    waiting: float, left: float, expected: float
) -> None:
    assert keeping_up(10.0, 40.0, waiting, left) == expected


def test_an_update_is_usual_if_it_is_about_as_large_as_others_and_not_too_long() -> None:
    model = CostModel()
    for n in (8.0, 12.0, 10.0):
        model.observe(n, 1.0 + 0.1 * n)
    assert model.is_usual(11.0, seconds=2.2)
    assert not model.is_usual(11.0, seconds=2.0)
    assert not model.is_usual(20.0, seconds=60.0)
    assert not CostModel().is_usual(1.0, seconds=60.0), "nothing is known"


# --- kept from one run to the next ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), min_size=1, max_size=20))
def test_a_model_made_from_the_numbers_of_another_goes_on_like_it(seen: list[tuple[float, float]]) -> None:
    model = CostModel()
    for n, time in seen:
        model.observe(n, time)
    numbers = model.numbers()
    assert numbers is not None
    again = CostModel.from_numbers(numbers)
    for one in (model, again):
        one.observe(5.0, 1.0)
    assert (again.alpha, again.beta, again.most(1.0, 1.0)) == (model.alpha, model.beta, model.most(1.0, 1.0))


def test_a_model_that_has_learned_nothing_has_no_numbers() -> None:
    assert CostModel().numbers() is None


@pytest.mark.parametrize(
    "numbers",
    [(1.0,), (0.0, 1.0, 1.0, 1.0, 1.0, 1.0), (1.0, float("nan"), 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, -1.0, 1.0, 0.0, 1.0)],
    ids=["too few", "no weight", "not a number", "negative time"],
)
def test_numbers_that_cannot_be_are_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ValueError):
        CostModel.from_numbers(numbers)
