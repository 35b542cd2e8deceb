"""priced-benefit: the price of a worker's second, what it keeps waiting, how it cuts, and when it is Max Benefit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import (
    LEAST_UPDATE_TIME,
    Dispatch,
    FeatureMatrix,
    FeatureView,
    Graph,
    Workers,
    features_named,
    policy_from,
)
from headgate.core.observe import TABLE_FEATURES
from headgate.core.placements import Anywhere
from headgate.core.policies import Layered, MaxBenefit, PricedBenefit
from headgate.core.policies.priced import (
    KNOWN_SHARE,
    Overload,
    _is_known,
    _is_waiting,
    _waiting,
    costs_are_known,
    price_of,
    worth_of,
)
from headgate.testing import check_policy, make_view, ranking

WHOLE = math.inf


def table(pending: float = 100.0, **features: float) -> dict[str, float]:
    """A table that waits with table 2's costs, and what follows from them unless said otherwise."""
    known = {"priority": 1.0, "period": 100.0, "setup_time": 1.0, "time_per_unit": 0.1, "ready": 1.0} | features
    seconds = known["setup_time"] + known["time_per_unit"] * pending
    return {"pending": pending, "freshness_delta": pending, "execution_time": seconds, "release_time": 0.0} | known


def view_at(price: float, tables: Mapping[str, Mapping[str, float]]) -> FeatureView:
    """A view in which a worker's second has this price."""
    view = make_view(tables, now=10.0)
    view.memory = Overload(0.0, np.full(len(tables), price / 10.0))
    assert price_of(view) == pytest.approx(price)
    return view


# --- price ----------------------------------------------------------------------------------------------------------


def test_the_price_is_the_time_that_somebody_has_waited_times_the_least_density_served() -> None:
    view = make_view({"a": table(), "b": table()}, now=30.0)
    view.memory = Overload(10.0, np.array([4.0, 3.0]))
    assert price_of(view) == 60.0


@pytest.mark.parametrize(
    "memory", [None, Overload(0.0, np.array([math.inf])), (1, 2)], ids=["nothing", "nobody started", "another's"]
)
def test_without_a_memory_the_price_is_0(memory: object) -> None:
    view = make_view({"a": table()}, now=30.0, memory=memory)
    assert price_of(view) == 0.0


def test_a_start_that_leaves_nobody_waiting_ends_the_overload() -> None:
    view = make_view({"a": table(), "b": table(ready=0.0, pending=0.0)}, now=30.0)
    view.memory = Overload(10.0, np.array([4.0, 3.0]))
    memory = PricedBenefit().remember(view, 0)
    assert (memory.since, memory.density.tolist()) == (30.0, [math.inf, math.inf])


def test_a_start_that_leaves_somebody_waiting_is_remembered_with_its_density() -> None:
    view = make_view({"a": table(pending=100.0), "b": table()}, now=30.0)
    view.memory = Overload(10.0, np.array([4.0, 3.0]))
    memory = PricedBenefit().remember(view, 0)
    assert (memory.since, memory.density.tolist()) == (10.0, [pytest.approx(100 / 11), 3.0])
    assert view.memory.density.tolist() == [4.0, 3.0]


def test_the_overload_begins_when_the_first_that_has_to_wait_was_released() -> None:
    view = make_view({"a": table(release_time=25.0), "b": table(release_time=28.0)}, now=30.0)
    view.memory = Overload(10.0, np.array([math.inf, math.inf]))
    assert PricedBenefit().remember(view, 0).since == 25.0


@pytest.mark.parametrize(
    ("left", "since"),
    [pytest.param(100.0, 30.0, id="one period: nobody waits"), pytest.param(101.0, 10.0, id="more: it waits")],
)
def test_what_waits_beside_a_running_update_counts_if_it_is_more_than_a_period(left: float, since: float) -> None:
    view = make_view({"a": table(), "b": table(pending=left, workers=1.0)}, now=30.0)
    view.memory = Overload(10.0, np.array([4.0, 3.0]))
    assert PricedBenefit().remember(view, 0).since == since


def test_what_the_started_update_leaves_behind_counts_too() -> None:
    view = make_view({"a": table(pending=3000.0)}, now=30.0)
    view.memory = Overload(10.0, np.array([4.0]))
    assert PricedBenefit().portion(view).tolist() == [400.0]
    assert PricedBenefit().remember(view, 0).since == 10.0
    assert PricedBenefit(portions=False).remember(view, 0).since == 30.0


def test_upkeep_of_no_priority_neither_waits_nor_sets_the_price() -> None:
    view = make_view({"a": table(), "b": table(), "upkeep": table(priority=0.0)}, now=30.0)
    view.memory = Overload(10.0, np.array([4.0, 3.0, math.inf]))
    assert PricedBenefit().remember(view, 2).density.tolist() == [4.0, 3.0, math.inf]
    alone = make_view({"a": table(), "upkeep": table(priority=0.0)}, now=30.0)
    assert PricedBenefit().remember(alone, 0).since == 30.0


# --- when nobody waits any more -------------------------------------------------------------------------------------

#: b was left waiting when a node was started at 20
LEFT = Overload(10.0, np.array([4.0, 3.0]), last=20.0, who=1)
#: an update of a was to leave some of its data
REST = Overload(10.0, np.array([4.0, 3.0]), last=20.0, who=0, rest=True)


@pytest.mark.parametrize(
    ("memory", "a", "b", "since"),
    [
        pytest.param(LEFT, {}, {"release_time": 15.0}, 10.0, id="who was left waiting still does"),
        pytest.param(LEFT, {"release_time": 15.0}, {"ready": 0.0}, 10.0, id="another one who waited then does"),
        pytest.param(LEFT, {"release_time": 25.0}, {"ready": 0.0}, 25.0, id="it was paused: another came later"),
        pytest.param(LEFT, {"release_time": 28.0}, {"release_time": 25.0}, 25.0, id="it was paused and resumed"),
        pytest.param(LEFT, {"release_time": 25.0}, {"priority": 0.0}, 25.0, id="it matters no more"),
        pytest.param(REST, {"release_time": 15.0, "pending": 150.0}, {"ready": 0.0}, 10.0, id="the rest is there"),
        pytest.param(REST, {"release_time": 25.0, "pending": 150.0}, {"ready": 0.0}, 10.0, id="released at the end"),
        pytest.param(REST, {"release_time": 25.0, "pending": 105.0}, {"ready": 0.0}, 25.0, id="all was taken in"),
    ],
)
def test_an_overload_is_over_if_nobody_who_waited_at_the_last_start_still_does(
    memory: Overload, a: dict[str, float], b: dict[str, float], since: float
) -> None:
    """An engine may take in more than the portion, and who waits may be paused, or share the job of another one."""
    others = {"b": table(**b), "waits": table(release_time=29.0)}
    view = make_view({"a": table(**a), **others}, now=30.0)
    view.memory = Overload(memory.since, np.array([4.0, 3.0, math.inf]), memory.last, memory.who, memory.rest)
    assert price_of(view) == ((30.0 - 10.0) * 3.0 if since == 10.0 else 0.0)
    for each in range(3):
        assert price_of(view.only(np.array([each]))) == price_of(view)
    assert PricedBenefit().remember(view, 0).since == since


def loop_of(*names: str, period: float = 100.0, time_per_unit: float = 0.1, workers: int = 1) -> Dispatch:
    """Tables with a set-up of 1 s."""
    graph = Graph(names)
    matrix = FeatureMatrix(graph, features_named(TABLE_FEATURES))
    costs = {"period": period, "setup_time": 1.0, "time_per_unit": time_per_unit, "priority": 1.0}
    for name, value in costs.items():
        matrix.fill(name, [value] * len(graph))
    return Dispatch(matrix, PricedBenefit(), Anywhere(), Workers.of(workers))


def wait(loop: Dispatch, node: int, pending: float, now: float) -> None:
    columns = loop.matrix.columns
    columns["pending"][node] = columns["freshness_delta"][node] = pending
    columns["execution_time"][node] = 1.0 + columns["time_per_unit"][node] * pending
    columns["release_time"][node] = now
    loop.set_ready(node, True, now)


def test_there_is_no_price_after_idle_time_if_an_update_took_in_more_than_its_portion() -> None:
    """As of tables that are never cut: all 1000 s are taken in within 51 s, and then nobody waits for long."""
    loop = loop_of("a", period=10.0, time_per_unit=0.05)
    wait(loop, 0, 1_000.0, 0.0)
    (start,) = loop.decide(0.0)
    assert start.portion == 640.0
    loop.set_ready(0, False, 0.0)
    loop.finished(start.worker, 51.0)
    wait(loop, 0, 949.0, 1_000.0)
    assert loop.explain(0, 1_000.0).portion == 640.0, "more at a price above 0"
    (start,) = loop.decide(1_000.0)
    wait(loop, 0, 309.0, 1_000.0)
    loop.finished(start.worker, 1_034.0)
    assert loop.explain(0, 1_100.0).portion == 640.0, "the overload began at 1000 s"


def test_two_updates_that_start_at_once_and_take_in_everything_leave_nobody_waiting() -> None:
    """When the second is started, the data of the first still waits beside it."""
    loop = loop_of("a", "b", workers=2)
    for node in range(2):
        wait(loop, node, 250.0, 0.0)
    starts = loop.decide(0.0)
    assert [start.portion for start in starts] == [400.0, 400.0]
    for start in starts:
        loop.set_ready(start.node, False, 0.0)
        loop.finished(start.worker, 26.0)
    wait(loop, 0, 5_000.0, 100_000.0)
    assert loop.explain(0, 100_000.0).portion == 400.0, "more at a price above 0"


@given(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0])] * 5))
def test_one_table_waits_exactly_if_it_is_among_those_of_all_that_do(values: tuple[float, ...]) -> None:
    """One rule in two forms: for one table, numbers are faster than arrays."""
    names = ("workers", "pending", "period", "ready", "priority")
    view = make_view({"a": table(**dict(zip(names, values, strict=True)))})
    assert _waiting(view).tolist() == [_is_waiting(view, 0)]


# --- gate -----------------------------------------------------------------------------------------------------------

#: d is 9.1, 45.5 and 8; the worth is 13,500, 5,020 and 4,860
EAGER = {"long": table(100.0), "dense": table(50.0, time_per_unit=0.002), "early": table(40.0)}


def test_the_worth_grows_with_the_square_of_what_waits_and_falls_with_set_up() -> None:
    assert worth_of(make_view(EAGER)).tolist() == pytest.approx([13_500, 5_020, 4_860])
    assert worth_of(make_view({"a": table(100.0, setup_time=2.0)})).tolist() == pytest.approx([6_750])


@pytest.mark.parametrize(
    ("price", "order"),
    [
        pytest.param(0.0, ["dense", "long", "early"], id="no price: Max Benefit"),
        pytest.param(4_000.0, ["dense", "long", "early"], id="all are worth it"),
        pytest.param(7_000.0, ["dense", "long", "early"], id="0.7 of the price is enough"),
        pytest.param(7_200.0, ["long", "dense", "early"], id="less is not"),
        pytest.param(10_000.0, ["long", "dense", "early"], id="an update that does not earn its set-up yet waits"),
        pytest.param(50_000.0, ["long", "dense", "early"], id="nobody is worth it: the most worth first"),
    ],
)
def test_the_gate_lets_data_gather_while_others_earn_their_set_up(price: float, order: list[str]) -> None:
    assert ranking(PricedBenefit(), view_at(price, EAGER)) == order
    assert ranking(PricedBenefit(gate=False), view_at(price, EAGER)) == ["dense", "long", "early"]


def test_between_equals_the_downstream_table_goes_first_then_the_most_pending() -> None:
    tables = {"a": table(), "z": table(), "k": table()}
    assert ranking(PricedBenefit(), make_view(tables, edges=[("a", "z")])) == ["z", "a", "k"]


# --- portions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "price", "portion"),
    [
        pytest.param({}, 0.0, 400.0, id="32 set-ups, in whole periods"),
        pytest.param({"period": 1000.0}, 0.0, 3000.0, id="at least three periods"),
        pytest.param({}, 1e6, 3900.0, id="grows with the root of the price"),
        pytest.param({"priority": 100.0}, 1e6, 400.0, id="less for an important table"),
        pytest.param({"time_per_unit": 0.9}, 0.0, 400.0, id="nearly as long as its data: 32 set-ups of what is left"),
        pytest.param({"time_per_unit": 1.0}, 0.0, WHOLE, id="longer than its data: never catches up, so everything"),
        pytest.param({"time_per_unit": 0.0}, 1e6, WHOLE, id="all set-up: slope unknown"),
        pytest.param({"setup_time": 0.0}, 1e6, WHOLE, id="no set-up: slope unknown"),
        pytest.param({"period": 0.0}, 0.0, 320.0, id="no period: not rounded"),
        pytest.param({"priority": 0.0}, 1e6, WHOLE, id="of no priority"),
        pytest.param({"priority": 1e-306}, 1e6, WHOLE, id="of hardly any priority: larger than all numbers"),
        pytest.param({"priority": 5e-324}, 1e6, WHOLE, id="of the least priority: smaller than all numbers"),
    ],
)
def test_portions_follow_set_up_and_price(features: dict[str, float], price: float, portion: float) -> None:
    tables = {"a": table(**features), "other": table()}
    view = view_at(price, tables) if price else make_view(tables)
    assert PricedBenefit().portion(view)[0] == pytest.approx(portion)
    assert PricedBenefit(portions=False).portion(view).tolist() == [WHOLE, WHOLE]


@pytest.mark.parametrize(
    "features",
    [
        {"setup_time": 0.0},
        {"setup_time": 1e-3},
        {"time_per_unit": 0.0},
        {"period": math.inf, "priority": 0.0},
        {"period": math.inf, "time_per_unit": 0.0},
    ],
    ids=["no set-up", "the least set-up of a fit", "all set-up", "no period", "no period, all set-up"],
)
def test_a_table_of_unknown_slope_passes_the_gate_at_any_price(features: dict[str, float]) -> None:
    tables = {"a": table(1.0, **features), "b": table(1.0), "c": table(100.0)}
    assert worth_of(make_view(tables))[0] == math.inf
    assert PricedBenefit().priorities(view_at(1e12, tables))[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert "not known apart" in PricedBenefit().notes(make_view(tables), 0)[0]


@given(
    st.lists(
        st.tuples(
            st.one_of(st.floats(0.0, 1e6), st.sampled_from([LEAST_UPDATE_TIME, KNOWN_SHARE, 1e-300])),
            st.one_of(st.floats(0.0, 10.0), st.sampled_from([LEAST_UPDATE_TIME, KNOWN_SHARE, 1e-300])),
            st.one_of(st.floats(0.0, 1e6), st.just(math.inf)),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=200)
def test_costs_of_one_table_are_known_exactly_if_they_are_among_those_of_all(costs: list[tuple[float, ...]]) -> None:
    """One rule in two forms: for one table, numbers are faster than arrays."""
    names = ("setup_time", "time_per_unit", "period")
    tables = {f"t{i}": table(**dict(zip(names, each, strict=True))) for i, each in enumerate(costs)}
    known = costs_are_known(make_view(tables)).tolist()
    assert known == [_is_known(*each) for each in costs]


def test_a_policy_for_classes_tells_what_the_policy_of_the_class_tells() -> None:
    tables = {"a": {**table(1.0), "class": 0.0}, "b": {**table(1.0), "class": 1.0}}
    classes = policy_from("multi-class:0=priced-benefit")
    assert "no table has waited for long" in classes.notes(make_view(tables), 0)[0]
    assert classes.notes(make_view(tables), 1) == ()


@pytest.mark.parametrize(
    ("text", "price", "said"),
    [
        ("priced-benefit", 0.0, "no table has waited for long, so this update is ranked as by max-benefit; one"),
        ("priced-benefit", 1e3, "worth 6000 per second of a track, at least 0.7 of that (700), so it is ranked as"),
        ("priced-benefit", 1e4, "worth 6000 per second of a track, less than 0.7 of that (7000), so updates that"),
        ("priced-benefit:gate=off", 1e4, "worth 1e+04 weighted staleness to the tables that wait; without the gate"),
    ],
)
def test_it_tells_what_an_update_is_worth_beside_a_second_of_a_track(text: str, price: float, said: str) -> None:
    (told,) = policy_from(text).notes(view_at(price, {"a": table(50.0)}), 0)
    assert said in told


def test_jobs_that_differ_a_hundredfold_are_all_known() -> None:
    """Figure 9: the set-up of a long update is a thousandth of it; without it in the price, short updates starve."""
    long = table(10_000.0, period=10_000.0)
    assert math.isfinite(worth_of(make_view({"long": long}))[0])
    memory = PricedBenefit().remember(make_view({"long": long, "short": table()}, now=30.0), 0)
    assert memory.least == pytest.approx(10_000 / 1_001)


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "inheritance"),
    [
        ("priced-benefit", "density"),
        ("priced-benefit:density=off", None),
        ("priced-benefit:gate=off", None),
        ("priced-benefit:gate=false,portions=false,density=false", None),
        ("priced-benefit:portions=off", "density"),
    ],
)
def test_density_is_asked_for_only_together_with_the_gate(text: str, inheritance: str | None) -> None:
    policy = policy_from(text)
    assert policy.inheritance == inheritance
    assert Layered(policy).inheritance == inheritance
    assert policy_from(str(policy)) == policy


def test_without_its_parts_it_is_max_benefit() -> None:
    bare = PricedBenefit(gate=False, portions=False, density=False)
    view = view_at(1e9, EAGER)
    assert bare.priorities(view).tolist() == MaxBenefit().priorities(view).tolist()
    assert bare.portion(view).tolist() == MaxBenefit().portion(view).tolist()


@pytest.mark.parametrize("text", ["priced-benefit", "priced-benefit:gate=off", "priced-benefit:portions=off"])
def test_it_is_what_a_loop_can_rely_on(text: str) -> None:
    check_policy(policy_from(text), cases=40)


@given(st.permutations(["a", "b", "c", "d"]), st.floats(0.0, 1e6))
@settings(max_examples=40)
def test_the_order_of_declaration_changes_nothing(names: list[str], price: float) -> None:
    tables = {
        "a": table(50.0),
        "b": table(120.0, priority=3.0),
        "c": table(900.0, time_per_unit=0.01),
        "d": table(40.0, setup_time=9.0),
    }
    straight, other = view_at(price, tables), view_at(price, {name: tables[name] for name in names})
    assert ranking(PricedBenefit(), straight) == ranking(PricedBenefit(), other)
    portions = dict(zip(names, PricedBenefit().portion(other).tolist(), strict=True))
    assert [portions[name] for name in tables] == PricedBenefit().portion(straight).tolist()


def test_a_loop_of_it_reaches_a_price_and_cuts_updates_under_overload() -> None:
    loop = loop_of("a", "b", "c")
    for node in range(3):
        wait(loop, node, 5_000.0, 0.0)
    portions = []
    for now in (0.0, 1_000.0, 1_000_000.0):
        (start,) = loop.decide(now)
        portions.append(start.portion)
        loop.finished(start.worker, now + 500.0)
    assert portions[0] == portions[1] == 400.0 < portions[2]
