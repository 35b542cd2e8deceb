"""Latencies: exact counts, mean and maximum; percentiles right to within one per cent."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.latency import LatencyRecorder, LatencySummary

LATENCIES = st.lists(st.tuples(st.floats(1e-8, 1e6), st.integers(1, 50)), min_size=1, max_size=40)
SHARES = {"p50": 50, "p95": 95, "p99": 99}


def summary_of(latencies: list[tuple[float, int]]) -> LatencySummary:
    recorder = LatencyRecorder()
    for latency, count in latencies:
        recorder.add(latency, count)
    return recorder.summary()


def exact_percentile(latencies: list[tuple[float, int]], percent: int) -> float:
    """The smallest latency that at least so many per cent of all tuples stay within."""
    every_tuple = sorted(latency for latency, count in latencies for _ in range(count))
    return every_tuple[-(-percent * len(every_tuple) // 100) - 1]


@given(LATENCIES)
def test_percentiles_are_within_one_per_cent_of_the_exact_ones(latencies: list[tuple[float, int]]) -> None:
    summary = summary_of(latencies)
    for name, percent in SHARES.items():
        assert getattr(summary, name) == pytest.approx(exact_percentile(latencies, percent), rel=0.01)


@given(LATENCIES)
def test_count_mean_and_maximum_are_exact(latencies: list[tuple[float, int]]) -> None:
    summary = summary_of(latencies)
    tuples = sum(count for _, count in latencies)
    assert summary.count == tuples
    assert summary.mean == pytest.approx(math.fsum(latency * n for latency, n in latencies) / tuples, rel=1e-12)
    assert summary.max == max(latency for latency, _ in latencies)


@given(LATENCIES)
def test_the_numbers_of_a_summary_are_in_order(latencies: list[tuple[float, int]]) -> None:
    summary = summary_of(latencies)
    assert summary.p50 <= summary.p95 <= summary.p99 <= summary.max


@given(LATENCIES)
def test_many_tuples_at_once_count_like_one_by_one(latencies: list[tuple[float, int]]) -> None:
    one_by_one = summary_of([(latency, 1) for latency, count in latencies for _ in range(count)])
    at_once = summary_of(latencies)
    assert at_once.mean == pytest.approx(one_by_one.mean, rel=1e-12)
    assert (at_once.p50, at_once.p95, at_once.p99) == (one_by_one.p50, one_by_one.p95, one_by_one.p99)


@pytest.mark.parametrize("tuples", [1, 2, 19, 20, 21, 99, 100, 101, 200, 1000])
def test_a_percentile_counts_the_tuples_exactly(tuples: int) -> None:
    latencies = [(float(2**k), 1) for k in range(min(tuples, 60))] + [(2.0**60, 1)] * (tuples - 60)
    summary = summary_of(latencies)
    for name, percent in SHARES.items():
        assert getattr(summary, name) == pytest.approx(exact_percentile(latencies, percent), rel=0.01)


def test_nothing_recorded_is_no_number() -> None:
    summary = LatencyRecorder().summary()
    assert summary.count == 0
    assert all(math.isnan(x) for x in (summary.mean, summary.p50, summary.p95, summary.p99, summary.max))


def test_no_latency_at_all_is_zero() -> None:
    assert summary_of([(0.0, 9)]) == LatencySummary(count=9, mean=0.0, p50=0.0, p95=0.0, p99=0.0, max=0.0)


def test_tuples_without_latency_count_towards_the_percentiles() -> None:
    summary = summary_of([(0.0, 94), (1.0, 6)])
    assert summary.p50 == 0.0
    assert summary.p95 == pytest.approx(1.0, rel=0.01)
