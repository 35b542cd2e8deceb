"""What a page can show: a run that goes on, or a recorded one, both by the same methods."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from headgate.monitor.feed import Feed
from headgate.monitor.metrics import RunMetrics
from headgate.monitor.record import Json
from headgate.warehouse.run.trace import traces_in


class ShownRun(Protocol):
    """A run that can be looked at. ``trace`` is the file that it is recorded in, None if it is not."""

    feed: Feed
    metrics: RunMetrics
    trace: Path | None

    def overview(self) -> Json: ...

    def table(self, name: str) -> Json:
        """Everything about one table; raises KeyError if there is none of that name."""

    def why(self, name: str) -> Json: ...

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
    """The recorded runs in a folder. The one that was asked for last is kept: reading a long one takes seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._last: ShownRun | None = None

    def listed(self, live: str | None = None) -> list[Json]:
        """The name of each, and when it began; ``live`` is the name of the one that goes on."""
        return [
            {"name": path.name, "started": _started(path.name), "live": path.name == live}
            for path in traces_in(self._folder)
        ]

    def of(self, name: str) -> ShownRun:
        from headgate.monitor.recorded import RecordedRun

        # Only what is listed: a name is part of a path.
        path = {each.name: each for each in traces_in(self._folder)}[name]
        with self._lock:
            if self._last is None or self._last.trace != path:
                self._last = RecordedRun(path, self)
            return self._last


def _started(name: str) -> float:
    moment = datetime.strptime(name.removesuffix(".jsonl"), "%Y%m%dT%H%M%S.%fZ")
    return moment.replace(tzinfo=UTC).timestamp()
