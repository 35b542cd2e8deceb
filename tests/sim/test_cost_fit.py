"""What updates cost, told apart from how slow the machine was: fits against costs that are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from headgate.core import CostModel
from headgate.sim import Slowdown, Table, TableScenario, replay_of
from headgate.sim.cost_fit import Seen, fitted_together
from tests.sim.recording import START, recorded

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
    """How far predictions are off from the truth at most, as a factor."""
    return max(
        max(expected / found[name].predict(n), found[name].predict(n) / expected)
        for name, (alpha, beta) in costs.items()
        for n in sizes
        for expected in [alpha + beta * n]
    )


def steady(began: float) -> float:
    return 1.0


def slow_now_and_then(began: float) -> float:
    """In a third of the time."""
    return 3.0 if began // 600 % 3 == 2 else 1.0


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
        pytest.param(slow_now_and_then, more_when_slow, 0.5, 1.4, id="also if more data gathers in slow periods"),
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


@pytest.mark.parametrize("count", [8, 40])
def test_chance_does_not_pass_for_slowness_where_there_are_few_tables(count: int) -> None:
    seen = updates(steady, of_any_size, 0.5, count)
    one = {"t2": seen["t2"]}
    fitted, alone = fitted_together(one)["t2"], CostModel.fitted((n, seconds) for _, n, seconds in seen["t2"])
    alpha, beta = COSTS["t2"]
    for n in (10.0, 50.0):
        assert fitted.predict(n) == pytest.approx(alone.predict(n), rel=0.15)
        assert fitted.predict(n) == pytest.approx(alpha + beta * n, rel=0.3)


@pytest.mark.parametrize("varies", [0.0, 1e-4, 0.3])
@pytest.mark.parametrize(
    ("setup", "least", "most"),
    [
        pytest.param(lambda whole: 0.15 * whole, 0.13, 0.3, id="the same share everywhere"),
        pytest.param(lambda whole: 0.3, 0.2, 0.4, id="as long everywhere"),
    ],
)
def test_the_set_up_of_a_table_with_updates_of_one_size_is_like_that_of_others(
    setup: Callable[[float], float], least: float, most: float, varies: float
) -> None:
    chance = random.Random(1)
    seen: dict[str, list[Seen]] = {}
    for number, whole in enumerate((1.0, 1.5, 2.0, 2.5, 3.0)):
        for step in range(200):
            size = 20.0 if number == 0 else chance.choice((10.0, 20.0, 30.0))
            luck = 1 + varies * (2 * chance.random() - 1)
            seconds = luck * (setup(whole) + (whole - setup(whole)) * size / 20.0)
            seen.setdefault(f"t{number}", []).append((10.0 * step + number, size, seconds))
    found = fitted_together(seen)["t0"]
    assert least < found.alpha / found.predict(20.0) < most
    assert found.predict(20.0) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("factor", [0.01, 0.5, 2.0, 100.0])
@pytest.mark.parametrize("count", [1, 50])
def test_costs_are_in_proportion_to_the_seconds(factor: float, count: int) -> None:
    seen = updates(steady, of_any_size, 0.5, count)
    longer = {name: [(began, n, factor * seconds) for began, n, seconds in own] for name, own in seen.items()}
    plain, scaled = fitted_together(seen), fitted_together(longer)
    for name, model in plain.items():
        assert scaled[name].alpha == pytest.approx(factor * model.alpha, rel=1e-3)
        assert scaled[name].beta == pytest.approx(factor * model.beta, rel=1e-3)


def test_updates_without_data_take_their_mean() -> None:
    found = fitted_together({"t": [(float(i), 0.0, 1.0 + i % 2) for i in range(100)]})["t"]
    assert (found.alpha, found.beta) == (pytest.approx(1.5, rel=0.05), 0.0)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param([(0.0, 0.0, 0.0)], id="one update of nothing that took no time"),
        pytest.param([(0.0, 5.0, 1.0)], id="one update"),
        pytest.param([(0.0, 5.0, 1.0), (1.0, 5.0, 3.0)], id="two of one size"),
        pytest.param([(0.0, 1e9, 1e-3), (1.0, 1.0, 1e6), (1.0, 1e-9, 10.0)], id="the more data, the quicker"),
        pytest.param([(0.0, 1e-12, 5e3), (1.0, 1e-12, 2e4), (2.0, 1e-12, 4e4)], id="long updates of next to nothing"),
        pytest.param([(0.0, 1.8, 24.0), (5.0, 1.8, 24.0)], id="two that are the same"),
        pytest.param([(0.0, 0.0, 14.0), (0.0, 0.0, 14.0), (0.0, 0.0, 5.2e7)], id="one that took very long"),
        pytest.param([(float(i), 10.0**i, 10.0 ** (8 - i)) for i in range(9)], id="sizes over eight decades"),
        pytest.param([(float(i), float(i), 0.01 * i) for i in range(100)], id="no set-up"),
    ],
)
def test_a_line_is_never_negative_and_always_a_number(own: list[Seen]) -> None:
    for seen in ({"own": own}, {"own": own, "none": [], "other": [(2.0, 3.0, 4.0)]}):
        found = fitted_together(seen)
        assert found.keys() == {name for name, updates in seen.items() if updates}
        for name, model in found.items():
            assert 1e-3 <= model.alpha <= max(1e-3, *(seconds for _, _, seconds in seen[name]))
            assert 0 <= model.beta <= 1e15


def test_a_replay_is_slow_when_the_machine_was_also_for_tables_that_were_not_updated_then() -> None:
    """One table is updated at full speed only, because it is updated seldom; others all the time."""
    often = tuple(Table(f"often{i}", period=5.0, setup_time=0.3, time_per_unit=0.02) for i in range(4))
    seldom = Table("seldom", period=400.0, offset=10.0, setup_time=2.0, time_per_unit=0.01)
    slowdown = Slowdown(factor=4.0, normal=200.0, slow=200.0)
    scenario = TableScenario((*often, seldom), tracks=5, spread=None, slowdown=slowdown, horizon=4_000.0, events=10**6)
    _, trace = recorded(scenario, "max-benefit")
    replay = replay_of(trace)
    number = [table.name for table in replay.scenario.tables].index("seldom")
    slowness = replay.recorded[number].slowness
    own = {update.began - START for update in trace.updates_of("seldom")}
    assert all(at % 400.0 < 200.0 for at in own)
    factors = [min(slowness, key=lambda entry: abs(entry[0] - at))[1] for at in range(300, 4_000, 400)]
    assert factors == pytest.approx([4.0] * len(factors), rel=0.1)


def test_nothing_is_known_of_nothing() -> None:
    assert fitted_together({}) == fitted_together({"t": []}) == {}
