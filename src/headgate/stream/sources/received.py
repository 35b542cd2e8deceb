"""The reader of sources whose rows come by themselves: a thread receives them, and the engine is woken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from headgate.stream.sources.block import Block
from headgate.stream.sources.inbox import Inbox
from headgate.stream.sources.source import Chunk

Item = TypeVar("Item")

#: what a source holds at most before it stops receiving
BUFFER_ROWS = 1 << 16
BUFFER_BYTES = 1 << 26


class Received(Generic[Item]):
    """Takes what was received out of an inbox and parses it, many items at a time."""

    def __init__(self, inbox: Inbox[Item], parse: Callable[[list[Item]], Block], stop: Callable[[], None]) -> None:
        self._inbox = inbox
        self._parse = parse
        self._stop = stop

    def ready_at(self, now: float) -> float:
        return now if self._inbox.ready else math.inf

    def waiting(self, now: float) -> int:
        return self._inbox.waiting

    def read(self, most: int, now: float) -> Chunk | None:
        taken = self._inbox.take(most)
        if taken is None:
            return None
        block = self._parse(taken.items)
        # Two clocks that run side by side may differ by a hair; nothing comes after now.
        return Chunk(block.batch, min(taken.first_arrival, now), min(taken.last_arrival, now), block.rejected)

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
