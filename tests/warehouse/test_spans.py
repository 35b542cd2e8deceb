"""Arithmetic on spans of event time, against sets of moments."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.updates.spans import Span, clip, common, first_part, join, last_part, length, minus

SPANS = st.lists(st.tuples(st.integers(-9, 40), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


def moments(spans: list[Span] | tuple[Span, ...]) -> set[int]:
    return {moment for first, last in spans for moment in range(first, last + 1)}


def are_joined(spans: tuple[Span, ...]) -> bool:
    return all(later[0] > earlier[1] + 1 for earlier, later in pairwise(spans))


@given(SPANS)
def test_joined_spans_cover_the_same_moments_and_do_not_touch(spans: list[Span]) -> None:
    joined = join(spans)
    assert moments(joined) == moments(spans)
    assert are_joined(joined)
    assert length(joined) == len(moments(spans))


@given(SPANS, SPANS)
def test_differences_and_intersections_are_those_of_the_moments(spans: list[Span], others: list[Span]) -> None:
    left, shared = minus(spans, others), common(spans, others)
    assert moments(left) == moments(spans) - moments(others)
    assert moments(shared) == moments(spans) & moments(others)
    assert are_joined(left)
    assert are_joined(shared)


@given(SPANS, st.none() | st.integers(-12, 50), st.none() | st.integers(-12, 50))
def test_clipped_spans_are_the_moments_between_two(spans: list[Span], first: int | None, last: int | None) -> None:
    kept = {m for m in moments(spans) if (first is None or m >= first) and (last is None or m <= last)}
    assert moments(clip(spans, first, last)) == kept


@given(SPANS, st.integers(0, 60))
def test_the_first_and_the_last_part_are_the_earliest_and_latest_moments(spans: list[Span], most: int) -> None:
    joined, ordered = join(spans), sorted(moments(spans))
    assert sorted(moments(first_part(joined, most))) == ordered[:most]
    assert sorted(moments(last_part(joined, most))) == ordered[max(0, len(ordered) - most) :]
