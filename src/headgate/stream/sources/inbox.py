"""Where a thread that receives puts what it receives, until the engine reads it.

``Inbox`` is for one receiving thread and one reader at a time.

- ``put`` and ``finish`` are the receiver's, ``take``, ``waiting`` and ``close`` the reader's.
- Invariants: (1) what was put is taken in the same order, once; (2) it is over its limits by no more than one ``put``;
  (3) after every change from empty to not empty, and after the end, ``wake`` is called, without the lock.
- A receiver that finds it full waits until there is room, and so stops receiving: the sender feels it.
- After ``close`` nothing waits: ``put`` returns False at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headgate.stream.sources.source import Wake

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Taken(Generic[Item]):
    """Some items, and when the first and the last of them came."""

    items: list[Item]
    first_arrival: float
    last_arrival: float


class Inbox(Generic[Item]):
    """Items with their arrival times, at most about so many, and of about so many bytes."""

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
        self._trouble: Exception | None = None

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

    def finish(self, trouble: Exception | None = None) -> None:
        """Nothing will come any more, because of some trouble or because it was all. Only the first call counts."""
        with self._changed:
            if self._finished or self._closed:
                return
            self._finished, self._trouble = True, trouble
        self._wake()

    def take(self, most: int) -> Taken[Item] | None:
        """At most so many items; None if there are none now. Raises the trouble after the last item."""
        with self._changed:
            if not self._items:
                if self._trouble is not None:
                    raise self._trouble
                return None
            entries = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._bytes -= sum(entry[1] for entry in entries)
            self._changed.notify_all()
        return Taken([entry[0] for entry in entries], entries[0][2], entries[-1][2])

    @property
    def waiting(self) -> int:
        return len(self._items)

    @property
    def ready(self) -> bool:
        """Whether ``take`` has something to give or to raise."""
        with self._changed:
            return bool(self._items) or (self._trouble is not None and not self._closed)

    @property
    def ended(self) -> bool:
        """Everything has been taken, and nothing will come. Trouble is no end: somebody has to hear of it."""
        with self._changed:
            return self._closed or (self._finished and not self._items and self._trouble is None)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Throw away what is left, and send the receiver home."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._bytes = 0
            self._changed.notify_all()

    def _full(self) -> bool:
        return len(self._items) >= self._most_items or self._bytes >= self._most_bytes
