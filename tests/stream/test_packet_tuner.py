"""The packet size moves towards where a row costs least, and stays where nothing is to be learnt."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from headgate.stream.packet import FEWEST, MOST, PacketTuner


def after(packets: int, start: int, cost: Callable[[int], float], full: bool = True) -> PacketTuner:
    tuner = PacketTuner(start)
    rows_in_all = seconds = 0.0
    for _ in range(packets):
        rows = tuner.rows if full else tuner.rows - 1
        rows_in_all += rows
        seconds += rows * cost(tuner.rows)
        tuner.sent(rows, rows_in_all, seconds)
        assert FEWEST <= tuner.rows <= MOST
    return tuner


@pytest.mark.parametrize("start", [300, 20_000, 120_000])
@pytest.mark.parametrize("best", [2_000, 30_000])
def test_it_finds_the_cheapest_size_from_below_and_above(start: int, best: int) -> None:
    found = after(2_000, start, lambda rows: 1.0 + abs(math.log(rows / best)))
    assert best / 2 < found.rows < best * 2


def test_packets_that_are_not_full_teach_nothing() -> None:
    assert after(500, 20_000, lambda rows: 1.0 / rows, full=False).rows == 20_000


def test_it_grows_to_the_bound_if_larger_is_always_cheaper() -> None:
    assert after(2_000, 300, lambda rows: 1.0 / rows).rows > MOST / 2
