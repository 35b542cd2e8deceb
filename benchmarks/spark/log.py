"""The log that every contender writes: JSON lines, one for each time that readers began to see more of a table.

    {"table": "air_top", "visible": 1790000000.123, "fresh": 1790000000.0}

`visible` is the wall-clock time from which a reader sees it, `fresh` the event time up to which the table is complete,
both in seconds since the epoch.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType


@dataclass(frozen=True)
class Visible:
    """From `visible` on, `table` is complete up to event time `fresh`."""

    table: str
    visible: float
    fresh: float


class LogWriter:
    """Appends updates to a file, each at once and whole. Any thread may write."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, updates: Iterable[Visible]) -> None:
        text = "".join(json.dumps(asdict(update)) + "\n" for update in updates)
        # The lock is held for one write to the page cache; after closing, late writers are ignored.
        with self._lock:
            if not self._file.closed:
                self._file.write(text)
                self._file.flush()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._file.close()


def read_log(path: Path) -> list[Visible]:
    """The updates of a log, in the order written; an unfinished last line is left out."""
    whole, _, _ = path.read_text("utf-8").rpartition("\n")
    return [Visible(**json.loads(line)) for line in whole.splitlines()]
