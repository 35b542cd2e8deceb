"""The figures of a report on a recorded run. ``text`` and ``page`` show them.

Durations are seconds, moments are seconds since the epoch, shares are from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal, get_args

from headgate.core import Layer, OperatorFigures, Update, added_up, is_past
from headgate.core.trace import FreshnessHistory, RunBound, Trace, TraceTable, lag_of, measured

Recorded = Literal["end", "killed", "full"]

#: a run is divided into this many stretches of equal length for the charts
STRETCHES = 40


@dataclass(frozen=True, slots=True)
class Stretch:
    """How stale a table was in one stretch of the run."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class TableFigures:
    """One table. Updates, rows written, durations and operators are those of live updates.

    ``past``: its newest data was more than a day old when it arrived, so that staleness is the age of the data, and lag
    says how well the table was kept. ``staleness`` has one entry per stretch, None before the table had rows.
    ``operators`` are those of the stream queries inside it. ``repairs`` are the seconds of event time that were still
    to be recomputed at the end. A figure that a table does not have is None: a dimension has no staleness and no lag,
    and ``on_time`` needs a target.
    """

    name: str
    kind: str
    priority: float
    updates: int
    written: int
    rejected: int
    mean_staleness: float | None
    max_staleness: float | None
    past: bool
    mean_lag: float | None
    max_lag: float | None
    target_lag: float | None
    on_time: float | None
    mean_seconds: float | None
    failures: int
    staleness: tuple[Stretch | None, ...]
    operators: tuple[OperatorFigures, ...]
    repairs: float = 0.0


@dataclass(frozen=True, slots=True)
class FailureFigures:
    """The same failure of the same table, however often it happened."""

    table: str
    layer: str
    message: str
    times: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A whole run; the tables by priority, the highest first.

    ``recorded`` says how the trace ends: with the run, or because the process was killed or the trace was full.
    ``weighted_staleness`` is the sum of priority times mean staleness, ``typical_staleness`` is that divided by the sum
    of the priorities. ``bound`` is what no policy could have beaten, or why that is not known, or None if nobody asked.
    ``busy`` is the share of track time used by each layer, ``overhead`` the share of the duration of updates that was
    not reading, computing or writing data. ``joint`` is how many updates shared a job with others.
    """

    warehouse: str
    started: float
    seconds: float
    recorded: Recorded
    policy: str
    placement: str
    tracks: int
    updates: int
    written: int
    weighted_staleness: float
    typical_staleness: float | None
    busy: Mapping[str, float]
    overhead: float | None
    tables: tuple[TableFigures, ...]
    failures: tuple[FailureFigures, ...]
    changes: tuple[tuple[float, str], ...]
    notices: tuple[tuple[float, str], ...]
    bound: RunBound | str | None = None
    joint: int = 0

    def _repr_html_(self) -> str:
        from headgate.warehouse.report.notebook import report_html

        return report_html(self)


def figures_of(trace: Trace, bound: RunBound | str | None = None) -> RunFigures:
    """All figures of a report; ``bound`` is computed by those who have the simulator."""
    tables = sorted(_tables(trace), key=lambda table: (-table.priority, table.name))
    whole = measured(trace)
    counted = sum(table.priority for table in whole.tables if table.mean_staleness is not None)
    committed = [update for update in trace.updates if update.error is None]
    worked = sum(update.seconds for update in committed)
    return RunFigures(
        warehouse=trace.header.warehouse,
        started=trace.header.started,
        seconds=whole.seconds,
        recorded=_recorded(trace),
        policy=trace.header.policy,
        placement=trace.header.placement,
        tracks=trace.header.tracks,
        updates=sum(table.updates for table in tables),
        written=sum(table.written for table in tables),
        weighted_staleness=whole.weighted_staleness,
        typical_staleness=whole.weighted_staleness / counted if counted > 0 else None,
        busy=_busy(trace),
        overhead=min(1.0, sum(update.overhead for update in committed) / worked) if worked > 0 else None,
        tables=tuple(tables),
        failures=_failures(trace),
        changes=tuple(sorted([*((change.at, _in_words(change.what)) for change in trace.changes), *_reloads(trace)])),
        notices=tuple((notice.at, str(notice)) for notice in trace.notices),
        bound=bound,
        joint=sum(bool(update.together) for update in committed),
    )


def _recorded(trace: Trace) -> Recorded:
    if trace.full is not None:
        return "full"
    return "killed" if trace.end is None else "end"


def _tables(trace: Trace) -> Iterator[TableFigures]:
    failed: dict[str, int] = {}
    repairs: dict[str, float] = {}
    for update in trace.updates:
        repairs[update.table] = update.repairs
        if update.error is not None and update.layer == "live":
            failed[update.table] = failed.get(update.table, 0) + 1
    for table in trace.tables:
        figures = _table(trace, table, trace.updates_of(table.name), failed.get(table.name, 0))
        yield replace(figures, repairs=repairs.get(table.name, 0.0))


def _table(trace: Trace, table: TraceTable, updates: tuple[Update, ...], failures: int) -> TableFigures:
    history = FreshnessHistory((), ()) if table.kind == "dimension" else FreshnessHistory.of(trace, table)
    begin, length = trace.header.started, trace.finish - trace.header.started
    whole = history.staleness(begin, trace.finish)
    edges = [begin + length * number / STRETCHES for number in range(STRETCHES + 1)]
    lag = lag_of(trace, table)
    stretches = (history.staleness(first, last) for first, last in pairwise(edges))
    return TableFigures(
        name=table.name,
        kind=table.kind,
        priority=trace.priority(table),
        updates=len(updates),
        written=sum(update.rows for update in updates),
        rejected=sum(update.rejected for update in updates),
        mean_staleness=None if whole is None else whole.mean,
        max_staleness=None if whole is None else whole.max,
        past=whole is not None and lag is not None and is_past(whole.mean, lag.mean),
        mean_lag=None if lag is None else lag.mean,
        max_lag=None if lag is None else lag.maximum,
        target_lag=table.target_lag,
        on_time=None if lag is None else lag.target_met,
        mean_seconds=fmean(update.seconds for update in updates) if updates else None,
        failures=failures,
        staleness=tuple(None if s is None else Stretch(s.mean, s.max) for s in stretches),
        operators=added_up(operator for update in updates for operator in update.operators),
    )


def _busy(trace: Trace) -> dict[str, float]:
    begin, end = trace.header.started, trace.finish
    moments = [begin, *(min(max(at, begin), end) for at, _ in trace.track_changes()), end]
    counts = [trace.header.tracks, *(count for _, count in trace.track_changes())]
    track_time = sum((last - first) * n for (first, last), n in zip(pairwise(moments), counts, strict=True))
    used: dict[str, float] = dict.fromkeys(get_args(Layer), 0.0)
    for update in trace.updates:
        used[update.layer] += max(0.0, min(update.ended, end) - max(update.began, begin))
    return {layer: seconds / track_time if track_time > 0 else 0.0 for layer, seconds in used.items()}


def _failures(trace: Trace) -> tuple[FailureFigures, ...]:
    """The failures, in the order in which they first happened."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for update in trace.updates:
        if update.error is not None:
            found.setdefault((update.table, update.layer, update.error), []).append(update.ended)
    return tuple(FailureFigures(*key, len(times), min(times), max(times)) for key, times in found.items())


def _reloads(trace: Trace) -> Iterator[tuple[float, str]]:
    """The times at which the pipeline file was saved, and which tables came and went."""
    before = {table.name for table in trace.header.tables}
    for redeclared in trace.redeclared:
        after = {table.name for table in redeclared.tables}
        parts = [("new", sorted(after - before)), ("gone", sorted(before - after))]
        words = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
        yield redeclared.at, f"the pipeline file has changed{f' ({words})' if words else ''}"
        before = after


def _in_words(change: Mapping[str, object]) -> str:
    match dict(change):
        case {"priority": [table, priority]}:
            return f"priority of {table}: {priority}"
        case {"paused": table}:
            return f"{table} paused"
        case {"resumed": table}:
            return f"{table} resumed"
        case {"refresh": table}:
            return f"{table} asked for at once"
        case {"backfill": [table, *_]}:
            return f"backfill of {table}"
    return ", ".join(f"{key}: {value}" for key, value in change.items())
