"""The event queue: order, the clock, and where it stops."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from headgate.sim import EventQueue, Rank

EVENTS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([Rank.CHANGE, Rank.WORK, Rank.ARRIVAL, Rank.SAMPLE])))


@given(EVENTS)
def test_events_happen_by_time_then_rank_then_in_the_order_they_were_scheduled(events: list[tuple[int, int]]) -> None:
    queue: EventQueue[int] = EventQueue(0)
    happened: list[tuple[int, int, int]] = []
    for number, (time, rank) in enumerate(events):
        queue.at(time, rank, lambda event, now: happened.append((now, *event)), (rank, number))
    while queue.run_next() is not None:
        assert queue.now == happened[-1][0]
    assert happened == sorted((time, rank, number) for number, (time, rank) in enumerate(events))
    assert (len(queue), queue.next_time()) == (0, math.inf)


def test_nothing_happens_after_the_end_and_the_clock_stays() -> None:
    queue: EventQueue[float] = EventQueue(1.0)
    happened: list[float] = []
    for time in (2.0, 3.0, 4.0):
        queue.at(time, Rank.WORK, lambda _, now: happened.append(now))
    assert [queue.run_next(until=3.0) for _ in range(3)] == [2.0, 3.0, None]
    assert (happened, queue.now, queue.next_time(), len(queue)) == ([2.0, 3.0], 3.0, 4.0, 1)


def test_a_moment_is_over_when_everything_that_was_added_to_it_has_happened() -> None:
    queue: EventQueue[float] = EventQueue(0.0)
    happened: list[str] = []

    def begin(what: str, now: float) -> None:
        happened.append(what)
        queue.at(now, Rank.CHANGE, lambda added, _: happened.append(added), f"added to {what}")
        queue.at(now + 1.0, Rank.WORK, lambda later, _: happened.append(later), "later")

    queue.at(5.0, Rank.ARRIVAL, lambda what, _: happened.append(what), "last")
    queue.at(5.0, Rank.WORK, begin, "first")
    assert queue.run_moment() == queue.now == 5.0
    assert happened == ["first", "added to first", "last"]
    assert queue.next_time() == 6.0
