"""What happens in a run, for any number of viewers, none of whom can slow it down.

A viewer that does not read in time loses what it has not read, and is told to ask for everything again. So a viewer
that has stopped reading costs the memory of a few messages, and nothing else; and there is a most that may look.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from headgate.monitor.plain_json import json_text
from headgate.monitor.withheld import withheld

#: how many messages, and letters of them, wait for a viewer before they are dropped; one message may be longer
MOST_WAITING, MOST_LETTERS = 100, 1_000_000
#: how many may look at the same time: each costs a connection
MOST_VIEWERS = 64
#: seconds after which something is sent although nothing has happened, so that a viewer notices that it was cut off, or
#: that the run is stuck: one that goes on is heard of every second
SILENCE = 5.0
#: what a viewer gets that has missed messages: it asks for everything again
MISSED = "event: missed\ndata: {}\n\n"


class Feed:
    """Takes messages from any thread, and hands them to the viewers in the event loop of the server.

    ``troubles`` is asked what to tell, as "trouble", viewers that have not heard of anything for some seconds.
    """

    def __init__(self, troubles: Callable[[], Mapping[str, object]] | None = None) -> None:
        self._troubles = troubles
        #: whether texts of errors are withheld from viewers
        self.withholds = False
        self._lock = threading.Lock()
        self._viewers: set[_Viewer] = set()
        self._is_closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def waiting(self) -> int:
        """How many letters wait for viewers that have not read them yet."""
        with self._lock:
            return sum(viewer.letters for viewer in self._viewers)

    @property
    def is_full(self) -> bool:
        """Whether so many look that nobody else may."""
        return len(self._viewers) >= MOST_VIEWERS

    def close(self) -> None:
        """Nobody is told anything any more: those who look have read what waits, and are done."""
        with self._lock:
            self._is_closed = True
            viewers = list(self._viewers)
        for viewer in viewers:
            viewer.end()

    def send(self, kind: str, content: Mapping[str, object]) -> None:
        """Send a message to all viewers; returns at once. Costs nothing if nobody looks."""
        with self._lock:
            viewers = list(self._viewers)
        if not viewers:
            return
        message = _event(kind, withheld(dict(content)) if self.withholds else content)
        for viewer in viewers:
            viewer.put(message)

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[AsyncIterator[str]]:
        """The messages from now on, as server-sent events."""
        viewer = _Viewer(asyncio.get_running_loop(), self._troubles)
        with self._lock:
            self._viewers.add(viewer)
            is_closed = self._is_closed
        if is_closed:
            viewer.end()
        try:
            yield viewer.messages()
        finally:
            with self._lock:
                self._viewers.discard(viewer)


def _event(kind: str, content: Mapping[str, object]) -> str:
    return f"event: {kind}\ndata: {json_text(content)}\n\n"


class _Viewer:
    def __init__(self, loop: asyncio.AbstractEventLoop, troubles: Callable[[], Mapping[str, object]] | None) -> None:
        self._loop = loop
        self._troubles = troubles
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        #: of all messages that wait
        self.letters = 0
        self._has_missed = False
        self._is_ended = False

    def end(self) -> None:
        self._is_ended = True
        self._wake_up()

    def put(self, message: str) -> None:
        with self._lock:
            if self._has_missed:
                return
            self.letters += len(message)
            is_first = not self._waiting
            if not is_first and (len(self._waiting) >= MOST_WAITING or self.letters > MOST_LETTERS):
                self._waiting.clear()
                self.letters = 0
                self._has_missed = True
            else:
                self._waiting.append(message)
        if is_first:  # it was told of the others, and has not taken them yet
            self._wake_up()

    def _wake_up(self) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._wake.set)

    async def messages(self) -> AsyncIterator[str]:
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), SILENCE)
            except TimeoutError:
                yield ": nothing new\n\n" if self._troubles is None else _event("trouble", self._troubles())
                continue
            self._wake.clear()
            with self._lock:
                taken = [MISSED] if self._has_missed else list(self._waiting)
                self._waiting.clear()
                self.letters = 0
                self._has_missed = False
            if taken:
                yield "".join(taken)
            if self._is_ended:
                return
