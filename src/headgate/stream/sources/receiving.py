"""Rows that come by themselves: a thread receives them and puts them into an inbox, from which the engine reads."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headgate.stream.sources.blocks import Block
from headgate.stream.sources.source import Chunk, Wake

Item = TypeVar("Item")

#: what an inbox holds at most before its source stops receiving
BUFFER_ROWS = 1 << 16
BUFFER_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class ReceivedItems(Generic[Item]):
    """Some items, and when the first and the last of them came."""

    items: list[Item]
    first_arrival: float
    last_arrival: float


class Inbox(Generic[Item]):
    """Items with their arrival times, limited in number and bytes. For one receiving thread and one reader at a time.

    ``put`` and ``finish`` are the receiver's methods, ``take``, ``waiting`` and ``close`` the reader's. A receiver that
    finds the inbox full waits until there is room; it stops receiving, and the sender has to wait. After ``close``
    nobody waits: ``put`` returns False at once.

    Invariants:
    1. What was put is taken in the same order, once.
    2. It exceeds its limits by no more than one ``put``.
    3. After every change from empty to not empty, and after the end, ``wake`` is called, without the lock.
    """

    def __init__(self, wake: Wake, most_items: int, most_bytes: int) -> None:
        self._wake = wake
        self._most_items = most_items
        self._most_bytes = most_bytes
        #: guards all fields below; held for as long as it takes to move some items
        self._changed = threading.Condition()
        self._items: deque[tuple[Item, int, float]] = deque()
        self._bytes = 0
        self._finished = False
        self._closed = False
        self._error: Exception | None = None

    def put(self, items: Iterable[Item], size: Callable[[Item], int], arrival: float) -> bool:
        """Wait for room and put the items in; False if nobody wants them any more."""
        sized = [(item, size(item), arrival) for item in items]
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._full())
            if self._closed:
                return False
            was_empty = not self._items
            self._items.extend(sized)
            self._bytes += sum(entry[1] for entry in sized)
        if was_empty and sized:
            self._wake()
        return True

    def finish(self, error: Exception | None = None) -> None:
        """Nothing will come any more, because of an error or because it was all. Only the first call counts."""
        with self._changed:
            if self._finished or self._closed:
                return
            self._finished, self._error = True, error
        self._wake()

    def take(self, most: int) -> ReceivedItems[Item] | None:
        """At most so many items; None if there are none now. Raises the error, if there is one, after the last item."""
        with self._changed:
            if not self._items:
                if self._error is not None:
                    raise self._error
                return None
            entries = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._bytes -= sum(entry[1] for entry in entries)
            self._changed.notify_all()
        return ReceivedItems([entry[0] for entry in entries], entries[0][2], entries[-1][2])

    @property
    def waiting(self) -> int:
        return len(self._items)

    @property
    def ready(self) -> bool:
        """Whether ``take`` has something to give or to raise."""
        with self._changed:
            return bool(self._items) or (self._error is not None and not self._closed)

    @property
    def ended(self) -> bool:
        """Everything has been taken, and nothing will come. Not true after an error: it has to be raised first."""
        with self._changed:
            return self._closed or (self._finished and not self._items and self._error is None)

    def close(self) -> None:
        """Drop what is left, and make the receiver stop."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._bytes = 0
            self._changed.notify_all()

    def _full(self) -> bool:
        return len(self._items) >= self._most_items or self._bytes >= self._most_bytes


class InboxReader(Generic[Item]):
    """Takes items out of an inbox and parses them, many at a time."""

    def __init__(self, inbox: Inbox[Item], parse: Callable[[list[Item]], Block], stop: Callable[[], None]) -> None:
        self._inbox = inbox
        self._parse = parse
        self._stop = stop

    def ready_at(self, now: float) -> float:
        return now if self._inbox.ready else math.inf

    def waiting(self, now: float) -> int:
        return self._inbox.waiting

    def read(self, most: int, now: float) -> Chunk | None:
        received = self._inbox.take(most)
        if received is None:
            return None
        block = self._parse(received.items)
        # Two clocks may differ by very little; nothing arrives after now.
        return Chunk(block.batch, min(received.first_arrival, now), min(received.last_arrival, now), block.rejected)

    @property
    def ended(self) -> bool:
        return self._inbox.ended

    def close(self) -> None:
        # The inbox first: a receiver that waits for room in it would never stop.
        self._inbox.close()
        self._stop()


def clock_from(now: float) -> Callable[[], float]:
    """A clock that shows ``now`` at this moment, and can be asked by a thread that the engine does not call."""
    offset = now - time.monotonic()
    return lambda: time.monotonic() + offset
