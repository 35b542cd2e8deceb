"""Which offsets of a topic are loaded, against a set of all of them; and when records arrived, as far as is known."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.sources import Offset, Range
from headgate.warehouse.sources.kafka.arrivals import MOST_MARKS, Arrivals
from headgate.warehouse.sources.kafka.offsets import KafkaOffset, KafkaRange, Run, chunks_in, cut, merged
from headgate.warehouse.sources.kafka.on_executors import PIECE_BYTES, PIECE_OFFSETS, pieces_of

END = 30
RUNS = st.builds(
    lambda partition, first, length: Run(partition, first, min(END, first + length)),
    st.integers(0, 2),
    st.integers(0, END - 1),
    st.integers(1, 10),
)


def range_of(*runs: Run, topic: str = "one", begin: dict[int, int] | None = None) -> KafkaRange:
    return KafkaRange(topic, merged(runs), begin=begin or {}, oldest=1.0, newest=2.0)


def offsets_in(runs: tuple[Run, ...] | list[Run]) -> set[tuple[int, int]]:
    return {(run.partition, offset) for run in runs for offset in range(run.first, run.end)}


@given(st.lists(st.lists(RUNS, min_size=1, max_size=4), max_size=8))
def test_what_is_waiting_is_what_no_range_had(loaded: list[list[Run]]) -> None:
    offset, expected = KafkaOffset(), set[tuple[int, int]]()
    for runs in loaded:
        found = range_of(*runs)
        offset = offset.after(found)
        assert offset.after(found) == offset
        expected |= offsets_in(runs)
    again = Offset.from_json(json.loads(json.dumps(offset.to_json())))
    assert again == offset
    waiting = [run for partition in range(3) for run in offset.waiting(partition, 0, END)]
    every = {(partition, n) for partition in range(3) for n in range(END)}
    assert offsets_in(waiting) == every - expected
    assert merged(waiting) == tuple(waiting)


@given(st.lists(RUNS, max_size=8))
def test_merged_runs_have_the_same_offsets_and_gaps_between_them(runs: list[Run]) -> None:
    found = merged(runs)
    assert offsets_in(found) == offsets_in(runs)
    assert all(a.partition != b.partition or a.end < b.first for a, b in itertools.pairwise(found))


@given(RUNS, st.integers(1, 7), st.booleans())
def test_the_chunks_of_a_run_are_all_of_it(run: Run, per_chunk: int, newest_first: bool) -> None:
    parts = list(cut(run, per_chunk, newest_first=newest_first))
    assert len(parts) == chunks_in(run, per_chunk)
    assert merged(parts) == (run,)
    assert sorted(parts, reverse=newest_first) == parts


def test_a_range_of_a_topic_that_was_created_again_begins_anew() -> None:
    before = KafkaOffset().after(range_of(Run(0, 0, 9)))
    after = before.after(range_of(Run(0, 2, 4), topic="two", begin={0: 2, 1: 0}))
    assert after == KafkaOffset("two", {0: 4, 1: 0})


def test_a_partition_is_loaded_from_where_it_began() -> None:
    offset = KafkaOffset().after(range_of(Run(0, 7, 9), begin={0: 7, 1: 5}))
    assert offset == KafkaOffset("one", {0: 9, 1: 5})
    assert list(offset.waiting(1, 0, 8)) == [Run(1, 5, 8)]


def test_ranges_are_the_same_after_they_were_stored() -> None:
    found = KafkaRange(
        "id", (Run(0, 1, 5), Run(3, 0, 1)), {0: 1}, (Run(0, 0, 1),), 2, 100, (0, 3), oldest=1.5, newest=2.5
    )
    assert Range.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert (found.offsets, found.chunks, found.bytes) == (5, 4, 500)


@pytest.mark.parametrize(
    ("run", "text"),
    [(Run(2, 5, 6), "partition 2, offset 5"), (Run(0, 1_000, 3_000), "partition 0, offset 1,000 to 2,999")],
)
def test_runs_are_named_with_their_first_and_last_offset(run: Run, text: str) -> None:
    assert str(run) == text


# --- arrivals -----------------------------------------------------------------------------------------------------


def test_records_between_two_looks_arrived_evenly() -> None:
    arrivals = Arrivals().noted(0, 100.0).noted(10, 110.0)
    assert [arrivals.at(offset) for offset in (0, 4, 9)] == [101.0, 105.0, 110.0]


def test_records_after_a_quiet_time_arrived_after_it() -> None:
    arrivals = Arrivals().noted(5, 100.0).noted(5, 200.0).noted(6, 201.0)
    assert arrivals.at(5) == 201.0


def test_a_record_was_not_there_when_the_look_before_did_not_find_it() -> None:
    arrivals = Arrivals().noted(5, 100.0).noted(5, 200.0).noted(8, 201.0)
    assert [arrivals.since(offset) for offset in (5, 7)] == [200.0, 200.0]


def test_what_the_first_look_finds_may_have_been_there_for_ever_whatever_its_timestamps_say() -> None:
    seen = Arrivals().noted(5, 100.0).noted(8, 101.0)
    stamped = Arrivals.of([(90.0, 0), (95.0, 3), (100.0, 5)], 100.0).noted(8, 101.0)
    for arrivals in (seen, stamped):
        assert [arrivals.since(offset) for offset in (0, 4, 5)] == [-math.inf, -math.inf, 100.0]
    assert [stamped.at(offset) for offset in (0, 2, 4)] == [
        pytest.approx(moment, abs=0.01) for moment in (91.67, 95.0, 100.0)
    ]


def test_more_is_asked_about_the_times_in_which_most_records_and_the_last_one_came() -> None:
    arrivals = Arrivals.of([(0.0, 0), (100.0, 10), (190.0, 1_000), (1_000.0, 1_000)], 1_000.0)
    assert arrivals.finer(2) == [130.0, 160.0]
    more = Arrivals.of([(0.0, 0), (100.0, 900), (190.0, 1_000), (1_000.0, 1_000)], 1_000.0)
    assert more.finer(1) == [50.0, 145.0]
    assert Arrivals.of([(0.0, 0), (0.005, 1_000), (9.0, 1_000)], 9.0).finer(2) == [], "these are known well enough"
    assert Arrivals().finer(2) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 10)), min_size=1, max_size=300))
def test_later_records_never_arrived_earlier(steps: list[tuple[int, float]]) -> None:
    arrivals, end, now = Arrivals(), 0, 0.0
    for more, seconds in steps:
        end, now = end + more, now + seconds
        arrivals = arrivals.noted(end, now)
    times = [arrivals.at(offset) for offset in range(end)]
    assert times == sorted(times)
    assert all(arrivals.since(offset) <= moment for offset, moment in enumerate(times))
    assert all(0 <= moment <= now for moment in times)
    assert len(arrivals.ends) <= MOST_MARKS + 2


@given(st.lists(RUNS, max_size=8).map(merged), st.integers(PIECE_BYTES // 10, 2 * PIECE_BYTES))
def test_the_pieces_of_runs_are_all_of_them_once_and_none_is_too_large(
    runs: tuple[Run, ...], record_bytes: int
) -> None:
    pieces = pieces_of(runs, record_bytes)
    assert merged(pieces) == runs
    assert sum(piece.end - piece.first for piece in pieces) == sum(run.end - run.first for run in runs)
    assert all(piece.end - piece.first in range(1, max(2, PIECE_BYTES // record_bytes + 1)) for piece in pieces)


def test_a_piece_has_no_more_records_than_a_task_should_read_however_small_they_are() -> None:
    pieces = pieces_of([Run(0, 0, 10 * PIECE_OFFSETS + 1), Run(1, 5, 6)], 1)
    assert max(piece.end - piece.first for piece in pieces) <= PIECE_OFFSETS
    assert [piece.partition for piece in pieces] == [0, 1, *[0] * 10]
