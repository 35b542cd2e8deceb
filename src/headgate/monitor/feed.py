"""What happens in a run, for any number of viewers, none of whom can slow it down.

A viewer that does not read in time loses what it has not read, and is told to ask for everything again. So a viewer
that has stopped reading costs the memory of a few messages, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

#: how many messages wait for a viewer before they are dropped
MOST_WAITING = 100
#: seconds after which something is sent although nothing has happened, so that a viewer notices that it was cut off
SILENCE = 15.0
#: what a viewer gets that has missed messages: it asks for everything again
MISSED = "event: missed\ndata: {}\n\n"


class Feed:
    """Takes messages from any thread, and hands them to the viewers in the event loop of the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._viewers: set[_Viewer] = set()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def send(self, kind: str, content: Mapping[str, object]) -> None:
        """Send a message to all viewers; returns at once. Costs nothing if nobody looks."""
        with self._lock:
            viewers = list(self._viewers)
        if not viewers:
            return
        message = f"event: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"
        for viewer in viewers:
            viewer.put(message)

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[AsyncIterator[str]]:
        """The messages from now on, as server-sent events."""
        viewer = _Viewer(asyncio.get_running_loop())
        with self._lock:
            self._viewers.add(viewer)
        try:
            yield viewer.messages()
        finally:
            with self._lock:
                self._viewers.discard(viewer)


class _Viewer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._has_missed = False

    def put(self, message: str) -> None:
        with self._lock:
            if self._has_missed:
                return
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.clear()
                self._has_missed = True
            else:
                self._waiting.append(message)
            first = len(self._waiting) <= 1
        if first:
            try:
                self._loop.call_soon_threadsafe(self._wake.set)
            except RuntimeError:  # the server has ended
                return

    async def messages(self) -> AsyncIterator[str]:
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), SILENCE)
            except TimeoutError:
                yield ": nothing new\n\n"
                continue
            self._wake.clear()
            with self._lock:
                taken = [MISSED] if self._has_missed else list(self._waiting)
                self._waiting.clear()
                self._has_missed = False
            yield "".join(taken)
