"""A run that is over, from its trace, in the form of one that goes on: as it was at its end, and how it came to that.

A trace says what was updated when. What it does not say, such as the ranking of each decision, is not made up.
"""

from __future__ import annotations

import math

from headgate.core import HeadgateError, Update
from headgate.core.trace import Trace, TraceTable, on_time
from headgate.monitor.bounding import RunBounds
from headgate.monitor.contents import contents_of, opened_at
from headgate.monitor.feed import Feed
from headgate.monitor.histories import TableHistory
from headgate.monitor.metrics import RunMetrics
from headgate.monitor.prospects import needs
from headgate.monitor.record import Json, RunRecord, weighted_staleness
from headgate.monitor.shown import RecordedRuns, ShownRun
from headgate.places.place import AnyPath
from headgate.warehouse.run.control_commands import as_line, error_answer
from headgate.warehouse.run.trace import read_trace
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.schedule.retries import MOST_FAILURES

#: how many points the curves of a recorded run have
POINTS = 119


class RunOverError(HeadgateError):
    """A run that is over cannot be changed."""


class RecordedRun:
    """The run in a trace; ``others`` are the runs beside it, ``record`` is what was read of it already."""

    def __init__(self, path: AnyPath, others: RecordedRuns | None = None, record: RunRecord | None = None) -> None:
        self.trace: AnyPath = path
        self.feed = Feed()
        self.metrics = RunMetrics(lambda: self.feed.viewers, lambda: 0.0)
        self._bounds = RunBounds()
        self._name = path.name
        self._others = others or RecordedRuns(path.parent)
        self._record = record_of(read_trace(path)) if record is None else record
        self.metrics.begin(self._record.header)

    def overview(self) -> Json:
        return {**self._record.overview(), "live": False, "run": self._name, "bound": self._bounds.latest}

    def bound(self) -> Json:
        return self._bounds.of(self.trace)

    def table(self, name: str) -> Json:
        return self._record.table(name)

    def contents(self, name: str, previews: bool) -> Json:
        """What is in a table now, which may be more than at the end of the run; KeyError if it was not in the run."""
        self._record.tables[name]
        opened = opened_at(self.trace.parent.parent / "tables", name)
        return {"exists": False, "previews": previews} if opened is None else contents_of(opened, previews)

    def sparks(self) -> Json:
        return self._record.sparks()

    def operators(self) -> Json:
        return self._record.operators()

    def why(self, name: str) -> Json:
        """What can be said afterwards: how the table stood, and its last update."""
        table = self._record.table(name)
        updates = table["updates"]
        lines = [f"The run is over. At its end, {name} was {table['state']}."]
        if updates:
            last = updates[-1]
            took = f"{last['seconds']:.3g} s on track {last['track']}"
            waited = max(0.0, last["began"] - last["released"])
            lines.append(f"Its last update waited {waited:.3g} s for a track and took {took}.")
        if table["error"]:
            lines.append(f"It failed: {table['error']}")
        lines.append("Decisions are not recorded; what-if shows how it would have been under other settings.")
        return {
            "text": "\n".join(lines),
            "place": None,
            "policy": self._record.settings["policy"],
            "begins": None,
            "expected": None,
            "needs": needs(self._record, name, ()),
            "decisions": [],
        }

    def do(self, line: bytes) -> bytes:
        why = f"the run {self._name} is over, so nothing can be changed; start the warehouse with `headgate run FILE`"
        return as_line(error_answer(RunOverError(why), why))

    def runs(self) -> list[Json]:
        return self._others.listed()

    def of(self, name: str | None) -> ShownRun:
        return self if name in (None, self._name) else self._others.of(str(name))

    def trouble(self) -> str:
        return "the run has ended"

    def left(self) -> list[str]:
        return []


def record_of(trace: Trace) -> RunRecord:
    """The record that a run had at its end."""
    record = RunRecord(trace.header)
    record.redeclared(trace.tables)
    for update in trace.updates:
        record.updated(update)
    for change in trace.changes:
        record.changed(change.at, change.what)
    for notice in trace.notices:
        record.noticed(notice)
    histories = {table.name: TableHistory.of(trace, table) for table in trace.tables}
    begin, length = trace.header.started, trace.finish - trace.header.started
    for number in range(POINTS):
        moment = begin + length * number / POINTS
        _add_points(record, histories, moment)
    record.seen(_last_glance(trace, histories))
    return record


def _add_points(record: RunRecord, histories: dict[str, TableHistory], moment: float) -> None:
    stood = {name: history.staleness(moment) for name, history in histories.items()}
    for name, stale in stood.items():
        record.tables[name].staleness.add(moment, stale)
        record.tables[name].recent.append(None if stale is None else round(stale, 2))
    mean = weighted_staleness(
        (histories[name].priority(moment), stale, histories[name].is_past(moment)) for name, stale in stood.items()
    )
    record.staleness.add(moment, mean)


def _last_glance(trace: Trace, histories: dict[str, TableHistory]) -> Glance:
    """How everything stood at the end."""
    header = trace.header
    settings = {"policy": header.policy, "placement": header.placement, "inheritance": header.inheritance}
    tracks = trace.header.tracks
    budget = trace.header.budget
    for change in trace.changes:
        settings |= {key: str(change.what[key]) for key in settings if key in change.what}
        match change.what.get("budget", budget):
            case int() | float() | None as value:
                budget = value
    for _, count in trace.track_changes():
        tracks = count
    halted = _paused(trace)
    last = {update.table: update for update in trace.updates if update.layer == "live"}
    rows = tuple(
        _statistics(trace, table, histories[table.name], last.get(table.name), table.name in halted)
        for table in trace.tables
    )
    return Glance(
        now=trace.finish,
        policy=settings["policy"],
        placement=settings["placement"],
        tracks=tracks,
        budget=budget,
        tables=rows,
        queue=(),
        running=(),
        inheritance=settings["inheritance"],
        together=trace.together_at(trace.finish),
    )


def _statistics(
    trace: Trace, table: TraceTable, history: TableHistory, last: Update | None, paused: bool
) -> NodeStatistics:
    """``last`` is the last live update, however it ended."""
    finish = trace.finish
    mean = history.freshness.staleness(trace.header.started, finish)
    done = trace.updates_of(table.name)
    error = "" if last is None else last.error or ""
    state = "paused" if paused else _ended_as(trace, table, history, error)
    return NodeStatistics(
        name=table.name,
        priority=history.priority(finish),
        state=state,
        staleness=history.staleness(finish),
        mean_staleness=None if mean is None else mean.mean,
        max_staleness=None if mean is None else mean.max,
        lag=history.lag(finish),
        mean_lag=0.0,
        target_lag=table.target_lag,
        target_met=on_time(trace, table),
        rows=sum(update.rows for update in done),
        written=sum(update.rows for update in done),
        rejected=sum(update.rejected for update in done),
        updates=len(done),
        last_update=done[-1].ended if done else None,
        last_seconds=done[-1].seconds if done else None,
        next_update=None,
        updates_left=0,
        longest_wait=max((max(0.0, update.began - update.released) for update in done), default=0.0),
        failures=sum(update.layer == "live" for update in trace.failed_of(table.name)),
        error=error,
        note="",
    )


def _ended_as(trace: Trace, table: TraceTable, history: TableHistory, error: str) -> str:
    """The state of a table whose last live update said ``error``: one that failed often enough in a row was held."""
    done = trace.updates_of(table.name)
    if not error:
        return "ok" if done or history.freshness.moments else "new"
    since = done[-1].ended if done else -math.inf
    failed = [update for update in trace.failed_of(table.name) if update.layer == "live" and update.began >= since]
    return "held" if len(failed) >= MOST_FAILURES else "failing"


def _paused(trace: Trace) -> set[str]:
    found: set[str] = set()
    for change in trace.changes:
        match change.what:
            case {"paused": str(name)}:
                found.add(name)
            case {"resumed": str(name)}:
                found.discard(name)
    return found
