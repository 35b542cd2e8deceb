"""Figures of operators add up: what several updates did is what a run did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.update import OperatorFigures, added_up

FILTER = OperatorFigures(
    query="visits",
    name="cheap",
    kind="stateless",
    rows_in=100,
    rows_out=40,
    rejected=3,
    processor=0.5,
    peak_rows_waiting=64,
    utilisation=0.2,
    seconds=4.0,
)


def test_two_updates_of_an_operator_add_up() -> None:
    larger = replace(FILTER, rows_in=300, rows_out=360, rejected=0, processor=1.5, peak_rows_waiting=9, seconds=12.0)
    (total,) = added_up([FILTER, replace(larger, utilisation=0.6)])
    assert (total.rows_in, total.rows_out, total.rejected, total.processor) == (400, 400, 3, 2.0)
    assert (total.cost, total.selectivity) == (0.005, 1.0)
    assert total.peak_rows_waiting == 64, "rows that waited in different tasks never stood in one queue"
    assert total.utilisation == pytest.approx((0.2 * 4 + 0.6 * 12) / 16), "a longer time counts for more"
    assert total.seconds == 16.0


def test_the_times_of_rows_are_means_over_all_rows() -> None:
    first = replace(FILTER, rows_in=100, in_queue=0.4, for_a_turn=0.2, computing=0.1, inputs=("source",))
    (total,) = added_up([first, replace(first, rows_in=300, in_queue=0.8, for_a_turn=0.6, computing=0.1)])
    assert (total.in_queue, total.for_a_turn, total.computing) == pytest.approx((0.7, 0.5, 0.1))
    assert total.inputs == ("source",)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"name": "dear"}, id="another operator"),
        pytest.param({"query": "sessions"}, id="an operator of that name in another query"),
        pytest.param({"kind": "partitioned"}, id="an operator of that name before the query was written anew"),
    ],
)
def test_what_is_not_the_same_operator_stays_apart_in_the_order_of_appearance(other: dict[str, str]) -> None:
    different = replace(FILTER, **other)  # type: ignore[arg-type]
    first, second = added_up([different, FILTER, different])
    assert (first.rows_in, second.rows_in) == (200, 100)
    assert replace(second, name="") == replace(FILTER, name="")
    assert (first.query, first.name, first.kind) == (different.query, different.name, different.kind)


def test_an_operator_that_never_got_a_row_costs_nothing_and_keeps_nothing() -> None:
    idle = replace(FILTER, rows_in=0, rows_out=0, processor=0.0, utilisation=0.0)
    (total,) = added_up([idle, idle])
    assert (total.cost, total.selectivity, total.utilisation) == (0.0, 0.0, 0.0)
    assert added_up([]) == ()


TIMES = st.floats(0.001, 1e3)
FIGURES = st.lists(
    st.builds(
        OperatorFigures,
        query=st.sampled_from(["q", "r"]),
        name=st.sampled_from(["a", "b"]),
        kind=st.just("stateless"),
        rows_in=st.integers(0, 1000),
        rows_out=st.integers(0, 1000),
        rejected=st.integers(0, 10),
        processor=TIMES,
        peak_rows_waiting=st.integers(0, 1000),
        utilisation=st.floats(0, 1),
        seconds=st.just(0.0),
    ),
    max_size=6,
)


@given(FIGURES, FIGURES, st.booleans())
def test_a_total_can_be_kept_as_updates_come(
    before: list[OperatorFigures], new: list[OperatorFigures], told: bool
) -> None:
    if told:
        before, new = ([replace(f, seconds=2 * f.processor + 1) for f in some] for some in (before, new))
    kept, at_once = added_up([*added_up(before), *new]), added_up([*before, *new])
    assert [replace(f, processor=0.0, utilisation=0.0, seconds=0.0) for f in kept] == [
        replace(f, processor=0.0, utilisation=0.0, seconds=0.0) for f in at_once
    ]
    for one, other in zip(kept, at_once, strict=True):
        assert (one.processor, one.utilisation, one.seconds) == pytest.approx(
            (other.processor, other.utilisation, other.seconds)
        )
        assert 0 <= one.utilisation <= 1 + 1e-9
