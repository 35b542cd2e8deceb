"""The inbox between a receiving thread and the engine. Names end in the number of the invariant in its docstring."""

from __future__ import annotations

import threading

import pytest

from headgate.stream.sources.receiving import Inbox
from tests.stream.sources.reading import PATIENCE


def size(item: int) -> int:
    return 10


def test_what_was_put_is_taken_in_order_once_while_both_sides_work_inv1_inv2() -> None:
    came = threading.Event()
    inbox = Inbox[int](came.set, most_items=5, most_bytes=10**6)

    def receive() -> None:
        for first in range(0, 3000, 3):
            assert inbox.put(range(first, first + 3), size, float(first))
        inbox.finish()

    thread = threading.Thread(target=receive)
    thread.start()
    taken: list[int] = []
    while not inbox.ended:
        came.clear()
        assert inbox.waiting <= 4 + 3
        part = inbox.take(2)
        if part is not None:
            taken += part.items
        elif not inbox.ended:
            assert came.wait(PATIENCE)
    thread.join(PATIENCE)
    assert taken == list(range(3000))


@pytest.mark.parametrize("limit", [{"most_items": 1, "most_bytes": 10**6}, {"most_items": 10**6, "most_bytes": 10}])
def test_a_receiver_that_finds_it_full_goes_on_when_there_is_room_inv2(limit: dict[str, int]) -> None:
    inbox = Inbox[int](lambda: None, **limit)
    inbox.put([1], size, 1.0)
    thread = threading.Thread(target=inbox.put, args=([2], size, 2.0))
    thread.start()
    assert inbox.waiting == 1
    first = inbox.take(1)
    thread.join(PATIENCE)
    second = inbox.take(1)
    assert first is not None
    assert second is not None
    assert (first.items, first.first_arrival) == ([1], 1.0)
    assert (second.items, second.last_arrival) == ([2], 2.0)


def test_the_engine_is_woken_when_rows_come_to_an_empty_inbox_and_at_the_end_inv3() -> None:
    calls: list[str] = []
    inbox = Inbox[int](lambda: calls.append("woken"), 100, 10**6)
    inbox.put([1], size, 0.0)
    inbox.put([2], size, 0.0)
    assert len(calls) == 1
    inbox.take(10)
    inbox.put([3], size, 0.0)
    assert len(calls) == 2
    inbox.finish()
    inbox.finish()
    assert len(calls) == 3


def test_close_sends_a_waiting_receiver_home() -> None:
    inbox = Inbox[int](lambda: None, 1, 10**6)
    inbox.put([1], size, 0.0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(inbox.put([2], size, 0.0)))
    thread.start()
    inbox.close()
    thread.join(PATIENCE)
    assert answers == [False]
    assert inbox.ended
    assert inbox.take(1) is None


def test_trouble_comes_after_the_last_item_and_is_no_end() -> None:
    inbox = Inbox[int](lambda: None, 10, 10**6)
    inbox.put([1], size, 0.0)
    inbox.finish(OSError("unplugged"))
    assert inbox.take(10) is not None
    assert inbox.ready
    assert not inbox.ended
    with pytest.raises(OSError, match="unplugged"):
        inbox.take(10)
