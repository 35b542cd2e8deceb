"""The rate-controlled generator on a clock that the tests move: when rows are due, and which of them wait."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError, ParameterError, UserCodeError
from headgate.stream import Batched, Bursts, Constant, Files, Paced, Replay, Socket, from_rows
from headgate.stream.sources.paced import PacedReader
from headgate.stream.sources.patterns import Pattern, count_due
from tests.stream.sources.reading import LATE, nobody, read_all

START = 1000.0
SCHEMA = pa.schema([("n", pa.int64())])
TABLE = pa.table({"n": [0, 1, 2]})


def opened(pattern: Pattern | float, made_from: Any = TABLE, **limits: Any) -> PacedReader:
    return Paced(made_from, pattern, **limits).open(nobody, START)


def dues(pattern: Pattern, rows: int) -> list[float]:
    """When rows are due after the start, read one by one as soon as they are said to be ready."""
    reader = opened(pattern, rows=rows)
    found = []
    while not reader.ended:
        now = reader.ready_at(START)
        chunk = reader.read(1, now)
        assert chunk is not None
        assert chunk.batch.num_rows == 1
        assert chunk.first_arrival == chunk.last_arrival == now
        found.append(round(now - START, 6))
    return found


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param(Constant(4), [0, 0.25, 0.5, 0.75, 1.0], id="constant"),
        pytest.param(Constant(0.5), [0, 2, 4], id="less than one a second"),
        pytest.param(Batched(30), [0, 0, 0, 0.1, 0.1, 0.1, 0.2], id="a tenth of the rate every 100 ms"),
        pytest.param(Batched(25), [0, 0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.3], id="a fraction of a row per batch"),
        pytest.param(Batched(1, every=0.5), [0.5, 1.5, 2.5], id="less than one row per batch"),
        pytest.param(Bursts(1, 2, 2), [0, 0.5, 3.0, 3.5, 6.0, 6.5], id="bursts with nothing in between"),
        pytest.param(Bursts(1, 2, 2, base=1), [0, 0.5, 1.0, 2.0, 3.0, 3.5, 4.0], id="bursts over a base"),
        pytest.param(Bursts(0.1, 0.2, 30), [0, 0.033333, 0.066667, 0.3], id="bursts of tenths of a second"),
    ],
)
def test_rows_are_due_as_the_pattern_says(pattern: Pattern, expected: list[float]) -> None:
    assert dues(pattern, len(expected)) == expected


PATTERNS = st.one_of(
    st.builds(Constant, st.floats(0.1, 1e6)),
    st.builds(Batched, st.floats(1, 1e6), st.sampled_from([0.1, 0.25, 1.0])),
    st.builds(Bursts, st.floats(0.1, 3), st.floats(0.1, 3), st.floats(1, 1e5), st.sampled_from([0.0, 1.0, 77.7])),
)


@pytest.mark.slow
@given(PATTERNS, st.lists(st.floats(0, 20), min_size=1, max_size=5), st.integers(1, 10_000))
def test_exactly_the_rows_that_are_due_can_be_read(pattern: Pattern, moments: list[float], most: int) -> None:
    reader = opened(pattern, lambda block: pa.RecordBatch.from_pydict({"n": range(block * 1000, block * 1000 + 1000)}))
    for now in sorted(START + moment for moment in moments):
        waiting = reader.waiting(now)
        chunk = reader.read(most, now)
        assert (0 if chunk is None else chunk.batch.num_rows) == min(most, waiting)
        assert reader.waiting(now) == waiting - min(most, waiting)
        assert (reader.ready_at(now) > now) == (waiting <= most)
        if chunk is not None:
            assert START <= chunk.first_arrival <= chunk.last_arrival <= now


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40).map(sorted), st.integers(-5, 100), st.integers(-1, 31))
def test_the_number_of_rows_due_is_found_from_any_guess(times: list[int], guess: int, now: int) -> None:
    def at(row: int) -> float:
        return times[row] if row < len(times) else math.inf

    assert count_due(guess, at, now) == sum(time <= now for time in times)


def test_what_is_due_but_not_read_waits_and_keeps_its_arrival() -> None:
    reader = opened(Constant(10))
    assert reader.waiting(START + 10) == 101
    chunk = reader.read(4, START + 10)
    assert chunk is not None
    assert chunk.batch.to_pydict() == {"n": [0, 1, 2, 0]}
    assert (chunk.first_arrival, chunk.last_arrival) == (START, START + 0.3)
    assert reader.waiting(START + 10) == 97
    assert reader.ready_at(START + 10) == START + 0.4


def test_nothing_can_be_read_before_it_is_due() -> None:
    reader = opened(Constant(1))
    assert reader.read(10, START) is not None
    assert reader.read(10, START + 0.999) is None
    assert reader.waiting(START + 0.999) == 0
    assert reader.ready_at(START + 0.5) == START + 1
    assert not reader.ended


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        pytest.param({"rows": 7}, 7, id="rows"),
        pytest.param({"seconds": 2}, 20, id="seconds: the row due at their end does not belong to them"),
        pytest.param({"rows": 7, "seconds": 0.5}, 5, id="seconds first"),
        pytest.param({"rows": 3, "seconds": 2}, 3, id="rows first"),
        pytest.param({"rows": 0}, 0, id="no rows"),
        pytest.param({"seconds": 0}, 0, id="no time"),
    ],
)
def test_limits_end_it(limits: dict[str, float], rows: int) -> None:
    reader = opened(Constant(10), **limits)
    assert reader.waiting(LATE) == rows
    chunk = reader.read(1000, LATE)
    assert (0 if chunk is None else chunk.batch.num_rows) == rows
    assert reader.ended
    assert reader.ready_at(LATE) == math.inf


MORNING = datetime(2026, 3, 1, 6)


@pytest.mark.parametrize(
    ("times", "speed", "expected"),
    [
        pytest.param([5.0, 6.5, 9.0], 1, [0, 1.5, 4], id="seconds"),
        pytest.param([5, 6, 9], 2, [0, 0.5, 2], id="twice as fast"),
        pytest.param([MORNING + timedelta(seconds=s) for s in (0, 60, 61)], 60, [0, 1, 1 + 1 / 60], id="timestamps"),
        pytest.param([5, 4, 9, 8, 10], 1, [0, 0, 4, 4, 5], id="late rows come with those before them"),
        pytest.param([None, 5, None, 6], 1, [0, 0, 0, 1], id="rows without a time too"),
    ],
)
def test_replay_keeps_the_times_between_rows(times: list[Any], speed: float, expected: list[float]) -> None:
    table = pa.table({"t": times})
    for made_from in (table, table.to_batches(max_chunksize=1)):
        reader = opened(Replay("t", speed), made_from)
        found = []
        while not reader.ended:
            chunk = reader.read(1, LATE)
            assert chunk is not None
            found.append(chunk.first_arrival - START)
        assert found == pytest.approx(expected)


def test_replayed_rows_wait_until_their_time() -> None:
    reader = opened(Replay("n"), pa.table({"n": [10, 11, 11, 13]}))
    assert reader.waiting(START + 1.5) == 3
    chunk = reader.read(10, START + 1.5)
    assert chunk is not None
    assert chunk.batch.num_rows == 3
    assert reader.ready_at(START + 1.5) == START + 3


def test_malformed_rows_of_the_source_behind_it_come_along(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('?\n{"n": 1}\n?\n{"n": 2}\n?\n')
    everything = read_all(Paced(Files(tmp_path / "x.json", schema=SCHEMA), 1), most=1)
    assert [row["n"] for row in everything.rows] == [1, 2]
    assert [position for position, _, _ in everything.rejected] == [0, 1, 2]


def test_malformed_rows_alone_come_too() -> None:
    everything = read_all(Paced(from_rows(["?"] * 5000, SCHEMA), 1))
    assert len(everything.rejected) == 5000


def test_a_function_that_fails_is_named_with_the_block_after_all_rows_before_it() -> None:
    def blocks(number: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": [1 // (1 - number)]})

    reader = opened(1, blocks)
    assert reader.ready_at(START) == START
    chunk = reader.read(10, LATE)
    assert chunk is not None
    assert chunk.batch.num_rows == 1
    assert not reader.ended
    assert reader.ready_at(LATE) == LATE
    with pytest.raises(UserCodeError, match="blocks failed to make block 1: ZeroDivisionError"):
        reader.read(10, LATE)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        pytest.param(lambda: Constant(0), ParameterError, "rows_per_second must be a number above 0", id="no rate"),
        pytest.param(lambda: Batched(1, math.inf), ParameterError, "every must be", id="never"),
        pytest.param(lambda: Bursts(1, 1, 1, -1), ParameterError, "base is a number of rows", id="negative base"),
        pytest.param(lambda: Paced(TABLE, 1, rows=-1), ParameterError, "rows is a limit", id="negative limit"),
        pytest.param(lambda: Paced(TABLE, Replay("t")), DeclarationError, "Got: n int64", id="no such column"),
        pytest.param(lambda: Paced(TABLE.slice(3), 1), DeclarationError, "without rows", id="nothing to repeat"),
        pytest.param(lambda: Paced(lambda block: None, 1), DeclarationError, "None for block 0", id="no blocks"),
        pytest.param(lambda: Paced(lambda block: TABLE, 1), DeclarationError, "gave Table", id="no batch"),
        pytest.param(lambda: Paced(7, 1), DeclarationError, "got int", id="no way to make rows"),
    ],
)
def test_what_cannot_be_paced_is_said_at_once(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_source_that_waits_for_its_rows_cannot_be_paced() -> None:
    reader = opened(1, Socket("127.0.0.1", 0, SCHEMA, listen=True))
    with pytest.raises(DeclarationError, match="needs a source that has its rows at hand"):
        reader.read(1, START)
    reader.close()
