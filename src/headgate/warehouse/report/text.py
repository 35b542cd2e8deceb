"""A report as Markdown and plain text, and the texts that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from headgate.core import OperatorFigures
from headgate.core.lengths import plural
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.report.figures import FailureFigures, RunFigures, TableFigures

MISSING = "-"
#: in place of the staleness of a table whose newest data was more than a day old when it arrived
PAST = "past"

Row = TypeVar("Row")
#: {heading: the function that formats a cell}
Columns = Mapping[str, Callable[[Row], str]]
#: an operator of a stream query, and the table that it is inside of
InsideTable = tuple[str, OperatorFigures]


def length(seconds: float | None) -> str:
    return MISSING if seconds is None else readable(max(0.0, seconds))


def share(part: float | None) -> str:
    """A share in per cent, with two decimals if it would otherwise be shown as 0% or 100%."""
    if part is None:
        return MISSING
    return f"{part:.0%}" if part in (0.0, 1.0) or 0.01 <= part <= 0.99 else f"{part:.2%}"


def moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def micros_per_row(operator: OperatorFigures) -> str:
    """The cost of a row, always in microseconds, so that operators are easy to compare."""
    if not operator.rows_in:
        return MISSING
    micros = operator.cost * 1e6
    return f"{micros:,.0f} µs" if micros >= 100 else f"{micros:.3g} µs"


#: of tables; all but the first are numbers
COLUMNS: Columns[TableFigures] = {
    "table": lambda table: table.name,
    "priority": lambda table: f"{table.priority:g}",
    "mean staleness": lambda table: PAST if table.past else length(table.mean_staleness),
    "max staleness": lambda table: PAST if table.past else length(table.max_staleness),
    "mean lag": lambda table: length(table.mean_lag),
    "max lag": lambda table: length(table.max_lag),
    "lag target": lambda table: length(table.target_lag),
    "target met": lambda table: share(table.on_time),
    "updates": lambda table: f"{table.updates:,}",
    "mean duration": lambda table: length(table.mean_seconds),
    "written": lambda table: f"{table.written:,}",
    "rejected": lambda table: f"{table.rejected:,}",
    "failures": lambda table: f"{table.failures:,}",
}

#: of operators; all but the first ``OPERATOR_WORDS`` are numbers
OPERATOR_COLUMNS: Columns[InsideTable] = {
    "table": lambda row: row[0],
    "operator": lambda row: f"{row[1].query}/{row[1].name}",
    "kind": lambda row: row[1].kind,
    "rows in": lambda row: f"{row[1].rows_in:,}",
    "selectivity": lambda row: f"{row[1].selectivity:.3g}" if row[1].rows_in else MISSING,
    "cost per row": lambda row: micros_per_row(row[1]),
    "processor": lambda row: length(row[1].processor),
    "waiting, at most": lambda row: f"{row[1].peak_rows_waiting:,}",
    "utilisation": lambda row: share(row[1].utilisation),
    "rejected": lambda row: f"{row[1].rejected:,}",
}
OPERATOR_WORDS = 3

BOUND_NOTE = (
    "Times the lower bound: no policy could have been below the bound, with the same data and update times on as many"
    " tracks. At 1.06 times, at most 6% are left to gain; far above it nothing is proved, as the bound may be low."
    " It counts from when most tables had rows. Tables that had none by then, or data of the past, are not in it."
)

NOTES = (
    "Staleness: now minus the event time up to which the table was complete, from when it first had rows. It also"
    " grows while no data arrives. Past: the newest data was more than a day old when it arrived, so staleness is just"
    " the age of the data; look at the lag.",
    "Lag: how long the oldest data that had arrived, but was not yet in the table, had waited since it arrived in its"
    " stream; 0 while nothing waited. If a table is computed from several streams, data waits from when all of them had"
    " it. Data that was never loaded counts if it waited at the end. Target met: share of the run in which the lag of"
    " the table was within its target.",
    "Written: rows written by live updates; a row that is computed again is written again.",
    "Mean duration: of an update, from its start on a track to its commit.",
    "Track time used: duration of all updates, as a share of the time of all tracks. Headgate's own share: the part of"
    " the updates' duration that was not reading, computing or writing data.",
)

OPERATOR_NOTES = (
    "Inside the tables: the operators of stream queries, in all live updates of the run and over all Spark tasks. An"
    " operator is named by its query and its own name.",
    "Selectivity: output rows per input row. Cost per row: processor time per input row. Waiting, at most: most rows in"
    " the operator's queue in any one task. Utilisation: share of the tasks' time in which rows waited for the operator"
    " or were being processed by it. Rejected: rows that were malformed or too late. A source has no queue and a sink"
    " has no output: these figures are 0 there.",
)

_ENDS = {
    "end": "",
    "killed": " The figures end with the last update recorded: the process was killed, or still runs.",
    "full": " The figures end before the run did: its trace had become too large.",
}


def title(figures: RunFigures) -> str:
    return f"{figures.warehouse}: a run of {readable(figures.seconds)}"


def how(figures: RunFigures) -> str:
    """When the run was, how long it took, its policy and placement, in a sentence or two."""
    tracks = f"{figures.tracks} {plural('track', figures.tracks)}"
    return (
        f"From {moment(figures.started)}, for {readable(figures.seconds)}, under policy {figures.policy} and placement"
        f" {figures.placement} on {tracks}.{_ENDS[figures.recorded]}"
    )


def summary(figures: RunFigures) -> dict[str, str]:
    """The figures of the whole run, each with its name."""
    layers = ", ".join(f"{layer} {share(part)}" for layer, part in figures.busy.items() if part > 0)
    repairs = ", ".join(f"{table.name} {length(table.repairs)}" for table in figures.tables if table.repairs)
    left = {"still to be recomputed at the end, in event time": repairs} if repairs else {}
    past = [table for table in figures.tables if table.past]
    staleness = [(table.priority, table.mean_staleness) for table in figures.tables if not table.past]
    lag = [(table.priority, table.mean_lag) for table in past]
    empty = sum(t.mean_staleness is None and not t.written and t.kind != "dimension" for t in figures.tables)
    mean = _weighted(staleness)
    if empty and mean != MISSING:
        mean += f" (without {empty:,} {plural('table', empty)} that never had rows)"
    return {
        "tables": f"{len(figures.tables):,}",
        "updates": f"{figures.updates:,}",
        **({"updates in shared jobs": f"{figures.joint:,}"} if figures.joint else {}),
        "rows written": f"{figures.written:,}",
        "failures": f"{sum(failure.times for failure in figures.failures):,}",
        "mean staleness, weighted by priority": mean,
        **({"mean lag of data of the past, weighted by priority": _weighted(lag)} if past else {}),
        "weighted staleness, the sum of priority times staleness": f"{figures.weighted_staleness:,.4g} s",
        **_bounded(figures),
        "track time used": share(sum(figures.busy.values())) + (f" ({layers})" if layers else ""),
        "Headgate's own share": share(figures.overhead),
        **left,
    }


def _bounded(figures: RunFigures) -> dict[str, str]:
    """How far the run was from the best possible, if somebody has asked."""
    bound = figures.bound
    if bound is None:
        return {}
    if isinstance(bound, str) or bound.times is None:
        return {"times the lower bound": f"not computed: {bound}" if isinstance(bound, str) else MISSING}
    part = f", over the last {readable(bound.seconds)}" if bound.seconds < figures.seconds - 1 else ""
    left_out = f", without {bound.left_out:,} tables" if bound.left_out else ""
    return {"times the lower bound": f"{bound.times:.2f}{part}{left_out}"}


def _weighted(values: Iterable[tuple[float, float | None]]) -> str:
    """The mean of (priority, seconds), weighted by priority."""
    known = [(priority, seconds) for priority, seconds in values if seconds is not None]
    total = sum(priority for priority, _ in known)
    return length(sum(priority * seconds for priority, seconds in known) / total if total > 0 else None)


def failure_line(failure: FailureFigures) -> str:
    """What failed, how often and when, without the message."""
    what = failure.table if failure.layer == "live" else f"{failure.table} ({failure.layer})"
    if failure.times == 1:
        return f"{what}, at {moment(failure.first)}"
    return f"{what}, {failure.times} times from {moment(failure.first)} to {moment(failure.last)}"


def inside_tables(figures: RunFigures) -> list[InsideTable]:
    """The operators of all tables, in the order of the tables."""
    return [(table.name, operator) for table in figures.tables for operator in table.operators]


def notes(figures: RunFigures) -> tuple[str, ...]:
    """Explanations of the terms in the report."""
    bound = () if figures.bound is None else (BOUND_NOTE,)
    return (*NOTES, *bound, *(OPERATOR_NOTES if inside_tables(figures) else ()))


def markdown(figures: RunFigures) -> str:
    """The report without charts, for a wiki or a pull request."""
    lines = [f"# {_cell(title(figures))}", "", _cell(how(figures)), ""]
    lines += [f"- {name}: {_cell(value)}" for name, value in summary(figures).items()]
    lines += ["", *_piped(COLUMNS, figures.tables)]
    if operators := inside_tables(figures):
        lines += ["", "## Inside the tables", "", *_piped(OPERATOR_COLUMNS, operators, OPERATOR_WORDS)]
    if figures.failures:
        lines += ["", "## Failures", ""]
        lines += [f"- {_cell(failure_line(f))}: {_cell(f.message)}" for f in figures.failures]
    if figures.notices:
        lines += ["", "## Notices", ""]
        lines += [f"- {moment(at)}: {_cell(what)}" for at, what in figures.notices]
    if figures.changes:
        lines += ["", "## Changes while it ran", ""]
        lines += [f"- {moment(at)}: {_cell(what)}" for at, what in figures.changes]
    lines += ["", *(line for note in notes(figures) for line in (note, ""))]
    return "\n".join(lines[:-1]) + "\n"


def text(figures: RunFigures) -> str:
    """The report for a terminal."""
    lines = [title(figures), how(figures), ""]
    lines += [f"{name}: {value}" for name, value in summary(figures).items()]
    lines += ["", *_aligned(COLUMNS, figures.tables)]
    if operators := inside_tables(figures):
        lines += ["", "Inside the tables", *_aligned(OPERATOR_COLUMNS, operators, OPERATOR_WORDS)]
    if figures.failures:
        lines += ["", "Failures"]
        lines += [f"  {failure_line(failure)}: {failure.message}" for failure in figures.failures]
    if figures.notices:
        lines += ["", "Notices"]
        lines += [f"  {moment(at)}: {what}" for at, what in figures.notices]
    if figures.changes:
        lines += ["", "Changes while it ran"]
        lines += [f"  {moment(at)}: {what}" for at, what in figures.changes]
    return "\n".join([*lines, "", *notes(figures)]) + "\n"


def _piped(columns: Columns[Row], rows: Sequence[Row], words: int = 1) -> list[str]:
    """A Markdown table; the first ``words`` columns are left-aligned, the others, which are numbers, right-aligned."""
    return [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * words}{'---:|' * (len(columns) - words)}",
        *(f"| {' | '.join(_cell(show(row)) for show in columns.values())} |" for row in rows),
    ]


def _aligned(columns: Columns[Row], rows: Sequence[Row], words: int = 1) -> list[str]:
    """Aligned columns; the first ``words`` are left-aligned, the others, which are numbers, right-aligned."""
    cells = [list(columns), *([show(row) for show in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = "<" * words + ">" * (len(columns) - words)
    return ["  ".join(f"{c:{side}{w}}" for c, side, w in zip(line, sides, widths, strict=True)) for line in cells]


def _cell(words: str) -> str:
    """Text with Markdown's special characters escaped."""
    special = "\\`*_{}[]<>#|"
    return "".join(f"\\{letter}" if letter in special else letter for letter in " ".join(words.split()))
