"""Lag: how long data has been waiting to get into a table."""

from __future__ import annotations

import pytest

from headgate.warehouse.schedule.lag import ArrivalLog, waiting_since


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
