"""A run that is over, from its trace, in the form of one that goes on: as it was at its end, and how it came to that.

A trace says what was updated when. What it does not say, such as the ranking of each decision, is not made up.
"""

from __future__ import annotations

from pathlib import Path

from headgate.core import HeadgateError
from headgate.core.trace import FreshnessHistory, Trace, TraceTable, on_time, waiting
from headgate.monitor.feed import Feed
from headgate.monitor.metrics import RunMetrics
from headgate.monitor.record import Json, RunRecord
from headgate.monitor.series import Series
from headgate.monitor.shown import RecordedRuns, ShownRun
from headgate.warehouse.run.control_commands import as_line, error_answer
from headgate.warehouse.run.trace import read_trace
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.ledger import NodeStatistics

#: how many points the curves of a recorded run have
POINTS = 119


class RunOverError(HeadgateError):
    """A run that is over cannot be changed."""


class RecordedRun:
    """The run in a trace file; ``others`` are the runs beside it."""

    def __init__(self, path: Path, others: RecordedRuns | None = None) -> None:
        trace = read_trace(path)
        self.trace: Path | None = path
        self.feed = Feed()
        self.metrics = RunMetrics(lambda: self.feed.viewers, lambda: 0.0)
        self.metrics.begin(trace.header)
        self._name = path.name
        self._others = others or RecordedRuns(path.parent)
        self._record = record_of(trace)

    def overview(self) -> Json:
        return {**self._record.overview(), "live": False, "run": self._name}

    def table(self, name: str) -> Json:
        return self._record.table(name)

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
    histories = {table.name: FreshnessHistory.of(trace, table) for table in trace.tables}
    priorities = {table.name: _last_priority(trace, table) for table in trace.tables}
    begin, length = trace.header.started, trace.finish - trace.header.started
    for number in range(POINTS):
        moment = begin + length * number / POINTS
        _add_points(record, histories, priorities, moment)
    record.seen(_last_glance(trace, histories, priorities))
    return record


def _add_points(
    record: RunRecord, histories: dict[str, FreshnessHistory], priorities: dict[str, float], moment: float
) -> None:
    total = weights = 0.0
    for name, history in histories.items():
        reached = history.at(moment)
        stale = None if reached is None else max(0.0, moment - reached)
        curve: Series = record.tables[name].staleness
        curve.add(moment, stale)
        if stale is not None:
            total += priorities[name] * stale
            weights += priorities[name]
    record.staleness.add(moment, total / weights if weights else None)


def _last_glance(trace: Trace, histories: dict[str, FreshnessHistory], priorities: dict[str, float]) -> Glance:
    """How everything stood at the end."""
    settings = {"policy": trace.header.policy, "placement": trace.header.placement}
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
    rows = tuple(
        _statistics(trace, table, histories[table.name], priorities[table.name], table.name in halted)
        for table in trace.tables
    )
    return Glance(trace.finish, settings["policy"], settings["placement"], tracks, budget, rows, (), ())


def _statistics(
    trace: Trace, table: TraceTable, history: FreshnessHistory, priority: float, paused: bool
) -> NodeStatistics:
    reached, finish = history.at(trace.finish), trace.finish
    mean = history.staleness(trace.header.started, finish)
    pieces = () if table.kind == "dimension" else waiting(trace, table)
    lag = max(0.0, finish - pieces[-1].since) if pieces else 0.0
    done = trace.updates_of(table.name)
    mine = [update for update in trace.updates if update.table == table.name and update.layer == "live"]
    error = (mine[-1].error or "") if mine else ""
    return NodeStatistics(
        name=table.name,
        priority=priority,
        state="paused" if paused else "failing" if error else "ok",
        staleness=None if reached is None else finish - reached,
        mean_staleness=None if mean is None else mean.mean,
        max_staleness=None if mean is None else mean.max,
        lag=lag,
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
        failures=sum(update.error is not None for update in mine),
        error=error,
        note="",
    )


def _last_priority(trace: Trace, table: TraceTable) -> float:
    last = table.priority
    for change in trace.changes:
        match change.what.get("priority"):
            case [name, int() | float() as priority] if name == table.name:
                last = float(priority)
    return last


def _paused(trace: Trace) -> set[str]:
    found: set[str] = set()
    for change in trace.changes:
        match change.what:
            case {"paused": str(name)}:
                found.add(name)
            case {"resumed": str(name)}:
                found.discard(name)
    return found
