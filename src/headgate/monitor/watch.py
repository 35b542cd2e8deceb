"""Keeps the record of a running warehouse and feeds viewers with it.

A thread of its own visits the scheduler once a second, for all viewers together. What happens in between is told by the
run itself, on its scheduler thread, which only puts it into the record and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from headgate.core import Decision, Explanation, Update
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.monitor.feed import Feed
from headgate.monitor.metrics import RunMetrics
from headgate.monitor.record import Json, RunRecord
from headgate.monitor.shown import RecordedRuns, ShownRun
from headgate.warehouse.run.control_commands import Controlled, answered
from headgate.warehouse.schedule.glance import Glance

#: seconds between two visits to the scheduler
VISIT_SECONDS = 1.0
#: the run counts as stuck when the scheduler has not answered for so many seconds, and a track when its update goes on
#: for so long after it should have been cancelled
STUCK_SECONDS = 30.0


class Watched(Controlled, Protocol):
    """A running warehouse that can be looked at and changed."""

    def glance(self) -> Glance: ...

    def decisions(self, name: str) -> tuple[Decision, ...]: ...

    @property
    def is_running(self) -> bool: ...


class RunWatch:
    """Watches a run: `begin`, `start` and `stop` are called once each, in this order."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.metrics = RunMetrics(lambda: self.feed.viewers, self.silent_for)
        #: the file that the run is recorded in, if it is known
        self.trace: Path | None = None
        self._recorded: RecordedRuns | None = None
        self._record: RunRecord
        #: guards the record, for as long as it takes to change or to copy it
        self._lock = threading.Lock()
        self._run: Watched | None = None
        self._ended = threading.Event()
        self._answered = time.monotonic()
        #: as it was at the last visit
        self._glance: Glance | None = None
        self._thread = threading.Thread(target=self._visit, name="headgate-watch", daemon=True)

    # --- told by the run, on its scheduler thread -----------------------------------------------------------

    def begin(self, header: TraceHeader) -> None:
        self._record = RunRecord(header)
        self.metrics.begin(header)

    def updated(self, update: Update) -> None:
        with self._lock:
            told = self._record.updated(update)
        self.metrics.updated(update)
        self.feed.send("update", told)

    def changed(self, at: float, what: Mapping[str, object]) -> None:
        with self._lock:
            told = self._record.changed(at, what)
        self.feed.send("change", told)

    def noticed(self, notice: RunNotice) -> None:
        with self._lock:
            told = self._record.noticed(notice)
        self.feed.send("notice", told)

    def redeclared(self, tables: Iterable[TraceTable]) -> None:
        tables = tuple(tables)
        with self._lock:
            self._record.redeclared(tables)
        self.metrics.redeclared(tables)
        self.feed.send("redeclared", {})

    # --- visits ---------------------------------------------------------------------------------------------

    def start(self, run: Watched) -> None:
        self._run = run
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(VISIT_SECONDS + 1.0)
        self.feed.send("ended", {})

    def _visit(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(VISIT_SECONDS)

    def look(self) -> None:
        """Visit the scheduler once, and tell viewers what is different."""
        glance = self.run.glance()
        self._answered = time.monotonic()
        self._glance = glance
        self.metrics.seen(glance)
        with self._lock:
            different = self._record.seen(glance)
        self.feed.send("seen", different)

    # --- for the server -------------------------------------------------------------------------------------

    @property
    def run(self) -> Watched:
        assert self._run is not None, "a watch is asked after its start"
        return self._run

    @property
    def is_live(self) -> bool:
        """Whether the run goes on."""
        return not self._ended.is_set() and self.run.is_running

    def do(self, line: bytes) -> bytes:
        """The answer to a request of the control socket."""
        return answered(self.run, line)

    def runs(self) -> list[Json]:
        """The recorded runs of this warehouse, the newest first; this one among them."""
        live = self.trace.name if self.trace is not None and self.is_live else None
        return [] if self._runs is None else self._runs.listed(live)

    def of(self, name: str | None) -> ShownRun:
        """This run, or an earlier one by its name; raises KeyError if there is none."""
        if name is None or (self.trace is not None and name == self.trace.name):
            return self
        if self._runs is None:
            raise KeyError(name)
        return self._runs.of(name)

    @property
    def _runs(self) -> RecordedRuns | None:
        if self._recorded is None and self.trace is not None:
            self._recorded = RecordedRuns(self.trace.parent)
        return self._recorded

    def silent_for(self) -> float:
        """For how many seconds the scheduler has not answered."""
        return time.monotonic() - self._answered

    def trouble(self) -> str:
        """Why the run does not go on as it should; empty if it does."""
        if not self.is_live:
            return "the run has ended"
        silent = self.silent_for()
        if silent > STUCK_SECONDS:
            return f"the scheduler has not answered for {silent:.0f} s"
        glance = self._glance
        if glance is None:
            return ""
        for each in glance.running:
            took = glance.now - each.began
            if each.began and took > each.limit + STUCK_SECONDS:
                limit = f"and should have been cancelled after {each.limit:.0f} s"
                return f"track {each.track} is stuck: its update of {each.name} has run for {took:.0f} s, {limit}"
        return ""

    def left(self) -> list[str]:
        """The tables whose update was cancelled and does not end; others go on."""
        return [] if self._glance is None else list(self._glance.left)

    def overview(self) -> Json:
        with self._lock:
            return {**self._record.overview(), "live": self.is_live}

    def table(self, name: str) -> Json:
        with self._lock:
            return self._record.table(name)

    def why(self, name: str) -> Json:
        """Why a table is being updated or not, now and at the last decisions."""
        explained: Explanation = self.run.explain(name)
        return {
            "text": str(explained),
            "place": explained.place,
            "policy": explained.policy,
            "decisions": [
                {
                    "at": each.now,
                    "chosen": each.node,
                    "track": each.worker,
                    "reason": each.reason,
                    "text": str(each),
                    "ranking": [
                        {"name": entry.name, "priority": list(entry.priority), "waiting": entry.waiting}
                        for entry in each.ranking[:20]
                    ],
                }
                for each in self.run.decisions(name)[:20]
            ],
        }
