"""What a page can show: a run that goes on, or a recorded one, both by the same methods."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Protocol

from headgate.monitor.feed import Feed
from headgate.monitor.metrics import RunMetrics
from headgate.monitor.record import Json
from headgate.places.place import AnyPath
from headgate.warehouse.run.trace import traces_in

#: how many recorded runs are kept in memory
MOST_KEPT = 3


class ShownRun(Protocol):
    """A run that can be looked at. ``trace`` is what it is recorded in, None if it is not."""

    feed: Feed
    metrics: RunMetrics

    @property
    def trace(self) -> AnyPath | None: ...

    def overview(self) -> Json: ...

    def table(self, name: str) -> Json:
        """Everything about one table; raises KeyError if there is none of that name."""

    def why(self, name: str) -> Json: ...

    def contents(self, name: str, previews: bool) -> Json:
        """What is in a table, with rows only if ``previews``; raises KeyError if there is none of that name."""

    def sparks(self) -> Json: ...

    def bound(self) -> Json:
        """How many times its lower bound the run is at; takes seconds if that is not known yet."""

    def operators(self) -> Json: ...

    def do(self, line: bytes) -> bytes:
        """The answer to a request of the control socket."""

    def runs(self) -> list[Json]:
        """The recorded runs of the warehouse, the newest first."""

    def of(self, name: str | None) -> ShownRun:
        """This run, or another one by its name; raises KeyError if there is none."""

    def trouble(self) -> str:
        """Why the run does not go on as it should; empty if it does."""

    def left(self) -> list[str]: ...


class RecordedRuns:
    """The recorded runs in a folder. Those that were asked for last are kept: reading a long one takes seconds.

    They are read one at a time, by a process of its own: beside them a scheduler may be at work.
    """

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder
        self._reading = threading.Lock()
        self._kept: dict[AnyPath, ShownRun] = {}

    def listed(self, live: str | None = None) -> list[Json]:
        """The name of each, and when it began; ``live`` is the name of the one that goes on."""
        return [
            {"name": path.name, "started": _started(path.name), "live": path.name == live}
            for path in traces_in(self._folder)
        ]

    def of(self, name: str) -> ShownRun:
        from headgate.monitor.reading import record_apart
        from headgate.monitor.recorded import RecordedRun

        # Only what is listed: a name is part of a path.
        path = {each.name: each for each in traces_in(self._folder)}[name]
        if (known := self._kept.get(path)) is not None:  # also while another one is read
            return known
        with self._reading:
            if (known := self._kept.get(path)) is not None:
                return known
            run = RecordedRun(path, self, record_apart(path))
            latest = list(self._kept.items())[1 - MOST_KEPT :]
            self._kept = {**dict(latest), path: run}
            return run


def _started(name: str) -> float:
    moment = datetime.strptime(name.removesuffix(".jsonl"), "%Y%m%dT%H%M%S.%fZ")
    return moment.replace(tzinfo=UTC).timestamp()
