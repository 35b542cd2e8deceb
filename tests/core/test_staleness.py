"""Staleness and lag: the meters against numerical integration, and since when data has been waiting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.staleness import ArrivalLog, LagMeter, StalenessMeter, waiting_since

#: the moments of these tests are multiples of this, which binary fractions of seconds since the epoch have exactly
GRID = 1 / 16
EPOCH = 1_794_736_800.0


def grid(least: float, most: float) -> st.SearchStrategy[float]:
    return st.integers(round(least / GRID), round(most / GRID)).map(lambda number: number * GRID)


def middles(begin: float, end: float) -> Iterator[float]:
    """The middle of every cell of the grid between two moments: sums over them are exact for lines between moments."""
    return (begin + (number + 0.5) * GRID for number in range(round((end - begin) / GRID)))


# --- staleness --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """``after`` seconds later the meter is told, of an update that leaves the table ``behind``, or only of the time."""

    after: float
    behind: float | None


STEPS = st.lists(st.builds(Step, grid(0, 20), st.none() | grid(-5, 100)), max_size=12)


@given(STEPS, st.none() | grid(-5, 500), grid(0, 30), st.sampled_from([0.0, EPOCH]))
def test_staleness_is_that_of_numerical_integration(
    steps: list[Step], behind: float | None, tail: float, start: float
) -> None:
    meter = StalenessMeter(start, -math.inf if behind is None else start - behind)
    history = [] if behind is None else [(start, start - behind)]
    moments = list(accumulate((step.after for step in steps), initial=start))[1:]
    for moment, step in zip(moments, steps, strict=True):
        if step.behind is None:
            meter.advance(moment)
        else:
            history.append((moment, moment - step.behind))
            meter.refresh(moment, moment - step.behind)
    end = (moments[-1] if moments else start) + tail
    meter.advance(end)
    if not history:
        assert meter.empty
        assert (meter.mean, meter.staleness(end), meter.seconds) == (None, None, 0.0)
        return

    def behind_the_clock(moment: float) -> float:
        return moment - [fresh for at, fresh in history if at <= moment][-1]

    begin = history[0][0]
    values = [behind_the_clock(moment) for moment in middles(begin, end)]
    assert meter.seconds == end - begin
    assert meter.staleness(end) == max(0.0, behind_the_clock(end))
    first = begin - history[0][1]
    if not values:
        assert (meter.mean, meter.maximum) == (max(0.0, behind_the_clock(end)), max(0.0, first))
        return
    mean = sum(max(0.0, value) for value in values) / len(values)  # data ahead of the clock is not stale
    assert meter.mean == pytest.approx(mean, rel=1e-12, abs=1e-12)
    # in the middle of a cell, staleness is half a cell below its highest value there
    assert meter.maximum == max(0.0, first, max(values) + GRID / 2)


def test_counting_often_comes_to_the_same_as_counting_once() -> None:
    often, once = StalenessMeter(0.0, -100.0), StalenessMeter(0.0, -100.0)
    for number in range(1, 1001):
        often.advance(number / 10)
    once.advance(100.0)
    assert (often.mean, often.maximum) == (pytest.approx(once.mean), once.maximum) == (pytest.approx(150.0), 200.0)


def test_a_clock_that_was_set_back_takes_nothing_away() -> None:
    meter, lag = StalenessMeter(100.0, 90.0), LagMeter(100.0, target=1.0)
    lag.wait(100.0, 100.0)
    for now in (110.0, 105.0, 110.0):
        meter.advance(now)
        lag.advance(now)
    assert (meter.area, meter.maximum, meter.since) == (150.0, 20.0, 110.0)
    assert (lag.late, lag.since) == (9.0, 110.0)


# --- lag --------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(grid(0, 20), st.none() | grid(-50, 10)), max_size=10), grid(0, 30), grid(0, 10), grid(0.125, 30)
)
def test_the_share_on_time_is_that_of_numerical_integration(
    waits: list[tuple[float, float | None]], first: float, target: float, tail: float
) -> None:
    """``waits`` are how long after the one before, and since when then data has been waiting or will be."""
    meter = LagMeter(EPOCH, target)
    meter.advance(EPOCH + first)
    history: list[tuple[float, float | None]] = [(EPOCH, None)]
    for after, since in waits:
        moment = max(history[-1][0], EPOCH + first) + after
        history.append((moment, None if since is None else moment + since))
        meter.wait(*history[-1])
    end = max(history[-1][0], EPOCH + first) + tail
    meter.advance(end)

    def lag(moment: float) -> float:
        since = [since for at, since in history if at <= moment][-1]
        return 0.0 if since is None else max(0.0, moment - since)

    on_time = [lag(moment) <= target for moment in middles(EPOCH, end)]
    assert meter.lag(end) == lag(end)
    assert meter.target_met == pytest.approx(sum(on_time) / len(on_time), rel=1e-12)


def test_without_a_target_or_before_time_has_passed_no_share_is_known() -> None:
    without, fresh = LagMeter(0.0), LagMeter(0.0, target=1.0)
    without.wait(0.0, -5.0)
    without.advance(10.0)
    assert (without.target_met, without.lag(10.0), fresh.target_met) == (None, 15.0, None)


# --- since when data has been waiting ---------------------------------------------------------------------------------


def log(*loads: tuple[float, int], freshness: int | None = None, pending: float | None = None) -> ArrivalLog:
    made = ArrivalLog(freshness)
    for arrived, upto in loads:
        made.loaded(arrived, upto)
    made.pending_since = pending
    return made


@pytest.mark.parametrize(
    ("logs", "freshness", "since"),
    [
        pytest.param([log((1, 10))], 10, None, id="everything is there"),
        pytest.param([log((1, 10), pending=3)], 10, 3, id="something lies at the source"),
        pytest.param([log((1, 10), (2, 20), (3, 30))], 10, 2, id="the stream has it, the table has not"),
        pytest.param([log((1, 10), (2, 20), pending=3)], None, 1, id="a table that has nothing"),
        pytest.param([log((2, 20)), log((5, 30))], 10, 5, id="of two streams, the later made it possible"),
        pytest.param([log((2, 20), pending=9), log((5, 30))], 20, 9, id="the stream that is behind has something"),
        pytest.param([log((2, 20)), log((5, 30), pending=9)], 20, None, id="the one ahead does not count"),
        pytest.param([log((2, 20)), log()], 5, None, id="a stream that is empty and has nothing coming"),
        pytest.param([log((2, 20)), log(pending=4)], None, 4, id="a stream that is empty and has something coming"),
        pytest.param([], 5, None, id="no stream"),
    ],
)
def test_data_has_been_waiting_since(logs: list[ArrivalLog], freshness: int | None, since: float | None) -> None:
    assert waiting_since(freshness, [str(i) for i in range(len(logs))], dict(zip("01", logs, strict=False))) == since


def test_a_load_that_brings_the_stream_no_further_is_nothing_to_wait_for() -> None:
    late = log((1, 10), (2, 8))
    assert (late.freshness, late.arrived_beyond(8)) == (10, 1)


def test_what_was_there_at_the_start_is_known_to_be_there() -> None:
    assert waiting_since(40, ["0"], {"0": log(freshness=40)}) is None
