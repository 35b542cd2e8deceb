"""How much a worker takes at one turn."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.consumption import All, AtMost, Consumption, Half, TimeSlice, consumption_from
from headgate.core.errors import ParameterError

RULES = st.one_of(
    st.just(All()),
    st.just(Half()),
    st.integers(1, 10**6).map(AtMost),
    st.floats(1e-9, 1e9).map(TimeSlice),
)
COSTS = st.floats(0, allow_infinity=False, allow_nan=False)


@pytest.mark.parametrize(
    ("rule", "pending", "cost", "taken"),
    [
        pytest.param(All(), 7, 1.0, 7, id="all takes everything"),
        pytest.param(All(), 0, 1.0, 0, id="all of nothing"),
        pytest.param(Half(), 7, 1.0, 4, id="half rounds up"),
        pytest.param(Half(), 1, 1.0, 1, id="half of one is one"),
        pytest.param(Half(), 0, 1.0, 0, id="half of nothing"),
        pytest.param(AtMost(5), 7, 1.0, 5, id="at most the limit"),
        pytest.param(AtMost(5), 3, 1.0, 3, id="less if less waits"),
        pytest.param(TimeSlice(1.0), 100, 0.25, 4, id="as many as fit into the slice"),
        pytest.param(TimeSlice(1.0), 100, 0.3, 3, id="no part of a tuple"),
        pytest.param(TimeSlice(1.0), 2, 0.25, 2, id="a slice with room left"),
        pytest.param(TimeSlice(1.0), 100, 5.0, 1, id="at least one, however dear"),
        pytest.param(TimeSlice(1.0), 0, 5.0, 0, id="a slice of nothing"),
        pytest.param(TimeSlice(1.0), 100, 0.0, 100, id="cost not measured yet"),
        pytest.param(TimeSlice(1.0), 100, 5e-324, 100, id="cost too small to divide by"),
        pytest.param(TimeSlice(math.inf), 100, 1.0, 100, id="a slice without end"),
    ],
)
def test_a_rule_takes(rule: Consumption, pending: int, cost: float, taken: int) -> None:
    assert rule.take(pending, cost) == taken


@given(RULES, st.integers(0, 10**9), COSTS)
def test_every_rule_takes_at_least_one_if_any_wait_and_never_more_than_wait(
    rule: Consumption, pending: int, cost: float
) -> None:
    assert min(1, pending) <= rule.take(pending, cost) <= pending


@given(st.integers(1, 10**6), st.floats(1e-6, 1e3), st.floats(1e-6, 1e3))
def test_a_slice_is_kept_and_used_up(pending: int, seconds: float, cost: float) -> None:
    taken = TimeSlice(seconds).take(pending, cost)
    assert taken == 1 or taken * cost <= seconds * (1 + 1e-12)
    assert taken == pending or (taken + 1) * cost > seconds * (1 - 1e-12)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("all", All()),
        ("half", Half()),
        ("at-most-50", AtMost(50)),
        ("slice-0.5s", TimeSlice(0.5)),
        ("slice-2s", TimeSlice(2.0)),
    ],
)
def test_a_rule_is_written_as(text: str, rule: Consumption) -> None:
    assert consumption_from(text) == rule
    assert str(rule) == text


@given(RULES)
def test_a_rule_can_be_read_back_from_how_it_is_shown(rule: Consumption) -> None:
    shown = str(rule)
    assert str(consumption_from(shown)) == shown


@pytest.mark.parametrize(
    "text", ["", "none", "All", "at-most", "at-most-", "at-most-x", "at-most-2.5", "slice", "slice-s", "slice-xs", "-5"]
)
def test_another_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ParameterError, match="at-most-50") as refusal:
        consumption_from(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("at-most-0", "at least 1 tuple; got 0", id="a limit of none"),
        pytest.param("slice-0s", r"positive number of seconds; got 0\.0", id="a slice of no time"),
        pytest.param("slice-nans", "positive number of seconds; got nan", id="a slice that is no number"),
    ],
)
def test_a_value_out_of_range_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        consumption_from(text)
