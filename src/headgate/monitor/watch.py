"""Keeps the record of a running warehouse and feeds viewers with it.

A thread of its own visits the scheduler once a second, for all viewers together. What happens in between is told by the
run itself, on its scheduler thread, which only puts it into the record and goes on.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headgate.core import Decision, Explanation, Update
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.monitor.bounding import WINDOW, RunBounds, not_recorded
from headgate.monitor.contents import contents_of
from headgate.monitor.feed import Feed
from headgate.monitor.metrics import RunMetrics
from headgate.monitor.prospects import more_data, prospects
from headgate.monitor.record import Json, RunRecord
from headgate.monitor.shown import RecordedRuns, ShownRun
from headgate.monitor.stuck import STUCK_SECONDS, stuck_track
from headgate.places.place import AnyPath
from headgate.warehouse.run.control_commands import Controlled, answered
from headgate.warehouse.run.opened_table import OpenedTable
from headgate.warehouse.schedule.glance import Glance

#: seconds between two visits to the scheduler
VISIT_SECONDS = 1.0

#: why: how many of the last decisions are told, and how many of each ranking, beside the table itself
DECISIONS, RANKED = 20, 20


class Watched(Controlled, Protocol):
    """A running warehouse that can be looked at and changed."""

    def glance(self) -> Glance: ...

    def decisions(self, name: str) -> tuple[Decision, ...]: ...

    def opened(self, name: str) -> OpenedTable: ...

    @property
    def is_running(self) -> bool: ...


class RunWatch:
    """Watches a run: `begin`, `start` and `stop` are called once each, in this order.

    It visits the scheduler ``every`` so many seconds; if that is None, only when somebody calls `look`. ``clock`` tells
    for how long the scheduler has been silent.
    """

    def __init__(self, every: float | None = VISIT_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._clock = clock
        self.feed = Feed(self._troubles)
        self.metrics = RunMetrics(lambda: self.feed.viewers, self.silent_for)
        #: the file that the run is recorded in, if it is known
        self.trace: Path | None = None
        #: the folder of all recorded runs, if it is not the one of that file
        self.runs_folder: AnyPath | None = None
        self.bounds = RunBounds(WINDOW)
        self._recorded: RecordedRuns | None = None
        self._record: RunRecord
        #: guards the record, for as long as it takes to change or to copy it
        self._lock = threading.Lock()
        self._run: Watched | None = None
        self._ended = threading.Event()
        self._answered = clock()
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
        if self._every is not None:
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(VISIT_SECONDS + 1.0)
            if not self._thread.is_alive():
                with suppress(Exception):  # a run that has failed says why
                    self.look()
        self.feed.send("ended", {})

    def _visit(self) -> None:
        trouble = ""
        while not self._ended.is_set():
            # A visit that fails is made again: nobody else would come. Until then the scheduler counts as silent.
            try:
                self.look()
                trouble = ""
            except Exception as error:
                if not self._ended.is_set() and (text := f"{type(error).__name__}: {error}") != trouble:
                    trouble = text
                    self.noticed(RunNotice(time.time(), None, f"the page is not up to date, as a look failed: {text}"))
            self._ended.wait(self._every)

    def look(self) -> None:
        """Visit the scheduler once, and tell viewers what is different."""
        glance = self.run.glance()
        self.metrics.seen(glance)
        with self._lock:
            different = self._record.seen(glance)
        self._glance = glance
        self._answered = self._clock()  # not before: who looks at the page must have got something of it
        different |= {"disk": self.disk(), **self._troubles()}
        self.feed.send("seen", different)
        if self.trace is not None and self.feed.viewers and self.bounds.is_due:
            threading.Thread(target=self._tell_bound, name="headgate-bound", daemon=True).start()

    def _tell_bound(self) -> None:
        self.feed.send("bound", self.bound())

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
            self._recorded = RecordedRuns(self.runs_folder or self.trace.parent)
        return self._recorded

    def silent_for(self) -> float:
        """For how many seconds the scheduler has not answered."""
        return self._clock() - self._answered

    def trouble(self) -> str:
        """Why the run does not go on as it should; empty if it does."""
        if not self.is_live:
            return "the run has ended"
        silent = self.silent_for()
        if silent > STUCK_SECONDS:
            return f"the scheduler has not answered for {silent:.0f} s"
        return "" if self._glance is None else stuck_track(self._glance)

    def left(self) -> list[str]:
        """The tables whose update was cancelled and does not end; others go on."""
        return [] if self._glance is None else list(self._glance.left)

    def overview(self) -> Json:
        with self._lock:
            told = {**self._record.overview(), "live": self.is_live}
        return {**told, "disk": self.disk(), "bound": self.bounds.latest, **self._troubles()}

    def bound(self) -> Json:
        return not_recorded() if self.trace is None else self.bounds.of(self.trace)

    def _troubles(self) -> Json:
        """What is wrong with the run itself, for those who look at it; also while the scheduler is silent."""
        return {"trouble": self.trouble(), "left": self.left(), "silent": round(self.silent_for(), 1)}

    def disk(self) -> Json | None:
        """The bytes that are free on the disk that the run is recorded on, beside its tables; None if unknown."""
        if self.trace is None:
            return None
        try:
            usage = shutil.disk_usage(self.trace.parent)
        except OSError:
            return None
        # To 10 MB: it is sent every second.
        return {"free": usage.free // 10**7 * 10**7, "total": usage.total}

    def contents(self, name: str, previews: bool) -> Json:
        """What is in a table; raises KeyError if there is none of that name."""
        with self._lock:
            self._record.tables[name]
        return contents_of(self.run.opened(name), previews)

    def sparks(self) -> Json:
        with self._lock:
            return self._record.sparks()

    def operators(self) -> Json:
        with self._lock:
            return self._record.operators()

    def table(self, name: str) -> Json:
        with self._lock:
            return self._record.table(name)

    def why(self, name: str) -> Json:
        """Why a table is being updated or not, now and at the last decisions."""
        explained: Explanation = self.run.explain(name)
        decisions = self.run.decisions(name)[:DECISIONS]
        with self._lock:
            expected = prospects(self._record, name, decisions)
        return {
            "text": str(explained),
            "place": explained.place,
            "policy": explained.policy,
            **expected,
            "expected": more_data(self._glance, name),
            "decisions": [
                {
                    "at": each.now,
                    "chosen": each.node,
                    "track": each.worker,
                    "reason": each.reason,
                    "text": str(each),
                    "ranking": [
                        {
                            "name": entry.name,
                            "place": place,
                            "priority": list(entry.priority),
                            "waiting": entry.waiting,
                        }
                        for place, entry in enumerate(each.ranking, start=1)
                        if place <= RANKED or entry.name == name
                    ],
                }
                for each in decisions
            ],
        }
