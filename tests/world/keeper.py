"""The warehouse's own runtime on one thread: tracks run when the world says so, and waiting lets the world go on.

``Runtime`` runs as it is, step by step. Only its inbox and its tracks, which are threads and queues in reality, are
replaced: an update that was submitted begins when its time has come, runs to its end, and is reported in the inbox.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.core import Update
from headgate.warehouse.run.runtime import Runtime
from headgate.warehouse.run.steady_clock import SteadyClock
from headgate.warehouse.run.tracks import run_updates
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.transient import is_transient
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse
from tests.world.clock import WorldClock
from tests.world.spark import FakeSession

#: waiting takes at least so long, in seconds, as on a real machine: else a clock that goes slower never gets there
SHORTEST_WAIT = 1e-4


@dataclass(slots=True)
class _Work:
    """What a track has to do: when it does the next of its updates, the updates, and what runs them."""

    due: float
    left: list[Update]
    updates: Any


class WorldTracks:
    """Takes the place of ``Tracks``. ``seconds`` gives how long an update waits before it runs."""

    def __init__(
        self, session: FakeSession, node_of: Callable[[Update], Node], clock: WorldClock, seconds: Callable[[], float]
    ) -> None:
        self._session = session
        self._node_of = node_of
        self._clock = clock
        self._seconds = seconds
        self._work: dict[int, _Work] = {}

    def resize(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass

    def cancel(self, names: Iterable[str]) -> None:
        pass

    def submit(self, track: int, updates: Sequence[Update]) -> None:
        running = run_updates(updates, self._node_of, self._session.newSession(), self._clock.time)  # type: ignore[arg-type]
        self._work[track] = _Work(self._clock.steady + self._seconds(), list(updates), running)

    @property
    def due(self) -> float | None:
        """When the next update runs."""
        return min((work.due for work in self._work.values()), default=None)

    def run_next(self) -> Update:
        """Run the update that is due next, to its end."""
        track = min(self._work, key=lambda each: self._work[each].due)
        work = self._work[track]
        update = work.left.pop(0)
        try:
            next(work.updates)
        except Exception as error:  # not in one update, as in ``Tracks``
            update.began = self._clock.time()
            update.fails(error, transient=is_transient(error))
        if work.left:
            work.due = self._clock.steady + self._seconds()
        else:
            next(work.updates, None)
            del self._work[track]
        return update


class WorldInbox:
    """Takes the place of the runtime's queue: waiting for something is what lets time pass."""

    def __init__(self, clock: WorldClock, tracks: WorldTracks, wait: Callable[[float], bool]) -> None:
        self._clock = clock
        self._tracks = tracks
        self._wait = wait
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, timeout: float | None = None) -> Any:
        """The next item; until there is one, updates run and the world goes on."""
        end = float("inf") if timeout is None else self._clock.steady + max(timeout, SHORTEST_WAIT)
        while not self._items:
            due = self._tracks.due
            if due is not None and due <= self._clock.steady:
                return self._tracks.run_next()
            until = end if due is None else min(end, due)
            if self._wait(until) and self._clock.steady >= end:
                raise queue.Empty
        return self._items.popleft()


class Keeper:
    """A runtime that goes on as long as ``step`` is called."""

    def __init__(
        self,
        opened: OpenWarehouse,
        session: FakeSession,
        options: RunOptions,
        clock: WorldClock,
        seconds: Callable[[], float],
        wait: Callable[[float], bool],
        observer: Callable[[Update], None],
        adopted: Callable[[float, OpenWarehouse], None],
        reopen: Callable[[], OpenWarehouse],
    ) -> None:
        self.runtime = Runtime(
            opened,
            session,  # type: ignore[arg-type]
            options,
            observer,
            clock=SteadyClock(clock.time, clock.monotonic),
            on_redeclared=adopted,
            reopen=lambda spark: reopen(),
        )
        tracks = WorldTracks(session, self.runtime._node_of, clock, seconds)
        self.runtime._tracks = tracks  # type: ignore[assignment]
        self.runtime._inbox = WorldInbox(clock, tracks, wait)  # type: ignore[assignment]

    def step(self) -> None:
        self.runtime._step()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is planned."""
        scheduler = self.runtime._scheduler
        return scheduler.is_idle and not scheduler._planned
