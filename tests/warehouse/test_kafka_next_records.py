"""Which records of a topic are loaded next: of all partitions, in the order in which they arrived."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.sources import Limit
from headgate.warehouse.sources.kafka.arrivals import Arrivals
from headgate.warehouse.sources.kafka.next_records import next_records, partitions_left
from headgate.warehouse.sources.kafka.offsets import KafkaOffset, KafkaRange, Run

RECORD = 100


def steady(*partitions: tuple[float, float, int]) -> tuple[list[Run], dict[int, Arrivals]]:
    """Partitions as (first moment, last moment, number of records), the records at even distances."""
    runs = [Run(number, 0, count) for number, (_, _, count) in enumerate(partitions)]
    known = {
        number: Arrivals().noted(0, first).noted(0, first).noted(count, last)
        for number, (first, last, count) in enumerate(partitions)
    }
    return runs, known


def taken(
    runs: list[Run], known: dict[int, Arrivals], records: int, first: str = "oldest", untouched: tuple[int, ...] = ()
) -> dict[int, int]:
    """How many records of each partition are taken if there is room for ``records``."""
    limit = Limit(bytes=records * RECORD, first=first)  # type: ignore[arg-type]
    found = Counter[int]()
    for run in next_records(runs, known, limit, 1_000, RECORD, untouched).runs:
        found[run.partition] += run.end - run.first
    return dict(found)


def test_a_small_range_takes_the_same_time_of_all_partitions() -> None:
    runs, known = steady((0, 100, 1_000), (0, 100, 1_000), (0, 100, 2_000))
    found = taken(runs, known, 1_000)
    assert 900 <= sum(found.values()) <= 1_000
    seconds = [found[0] / 10, found[1] / 10, found[2] / 20]
    assert max(seconds) - min(seconds) <= 10, "they are at most about a block apart"


def test_the_newest_records_are_taken_of_all_partitions_too() -> None:
    runs, known = steady((0, 100, 1_000), (0, 100, 1_000))
    found = next_records(runs, known, Limit(bytes=400 * RECORD, first="newest"), 1_000, RECORD)
    assert {run.partition: run.end for run in found.runs} == {0: 1_000, 1: 1_000}
    assert all(run.first >= 750 for run in found.runs)


def test_a_partition_that_begins_later_gives_its_first_record_and_then_no_more_before_its_time() -> None:
    runs, known = steady((0, 100, 10_000), (90, 100, 10_000))
    assert taken(runs, known, 1_000, untouched=(0, 1))[1] == 1
    runs = [runs[0]._replace(first=1_000), runs[1]._replace(first=1)]
    later = taken(runs, known, 1_000)
    assert later.keys() == {0}, "what it has given came later than all that is taken"
    assert later[0] > 800


def test_the_record_of_a_quiet_partition_does_not_say_up_to_when_all_is_taken() -> None:
    runs, known = steady((0, 100, 10_000), (90, 100, 10_000))
    found = next_records(runs, known, Limit(bytes=1_000 * RECORD), 1_000, RECORD, untouched=(0, 1))
    assert len(found.runs) == 2
    assert (found.oldest, found.newest) == (0.01, found.runs[0].end / 100)


def test_all_is_taken_if_there_is_room() -> None:
    runs, known = steady((0, 100, 30), (90, 100, 12))
    assert taken(runs, known, 42) == {0: 30, 1: 12}
    assert sum(taken(runs, known, 41).values()) <= 41


def test_what_is_cut_by_chunks_has_no_more_than_these() -> None:
    runs, known = steady((0, 100, 5_000), (0, 100, 5_000), (50, 100, 5_000))
    found = next_records(runs, known, Limit(chunks=1, bytes=1_000_000_000), 1_000, RECORD, untouched=(0, 1, 2))
    assert found.runs == (Run(0, 0, 1_000),)


def test_partitions_of_which_more_is_waiting_are_left() -> None:
    waiting = [Run(0, 0, 10), Run(0, 20, 30), Run(1, 5, 9), Run(2, 0, 4)]
    assert partitions_left(waiting, [Run(0, 0, 10), Run(1, 5, 9)]) == (0, 2)
    assert partitions_left(waiting, waiting) == ()


PARTITIONS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(1, 60)), min_size=1, max_size=5)


@given(PARTITIONS, st.integers(1, 100))
def test_range_after_range_every_record_is_taken_once_and_the_first_has_all_partitions(
    partitions: list[tuple[float, float, int]], room: int
) -> None:
    _, known = steady(*((first, first + length, count) for first, length, count in partitions))
    offset, untouched = KafkaOffset(), tuple(known)
    every = {number: count for number, (_, _, count) in enumerate(partitions)}
    seen = Counter[int]()
    while waiting := [run for number, count in every.items() for run in offset.waiting(number, 0, count)]:
        runs = next_records(waiting, known, Limit(bytes=room * RECORD), 1_000, RECORD, untouched).runs
        assert sum(run.end - run.first for run in runs) <= room
        for run in runs:
            seen[run.partition] += run.end - run.first
        offset, untouched = offset.after(KafkaRange("topic", runs, oldest=0.0, newest=0.0)), ()
        if room >= 2 * len(partitions):
            assert set(offset.position).issuperset(partitions_left(waiting, runs)), "each has given something"
    assert seen == every
