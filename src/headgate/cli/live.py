"""The live table of a running warehouse, its summary, and its log lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table

from headgate.cli.output import PlainConsole, say, say_error, styled
from headgate.core import is_past
from headgate.core.lengths import plural
from headgate.places.place import AnyPath
from headgate.warehouse.declare.durations import readable

if TYPE_CHECKING:
    from headgate.core import OperatorFigures, Update
    from headgate.warehouse.schedule.ledger import NodeStatistics

#: what the columns mean
LEGEND = (
    "stale: now minus the event time up to which the table is complete, 'past' if its newest data is more than a day "
    "old and lag says more; mean: the same, averaged over the run; lag: how long the oldest data not yet in the table "
    "has waited; met: share of time with the lag within its target; rows: in the table now; bad: rejected rows; upd: "
    "updates; took: duration of the last update; last: time since then; next: time until more data is expected, or "
    "+N: the data that is waiting needs N more updates after the next"
)
OPERATOR_LEGEND = (
    "share: processor time as a share of that of all operators of the table; cpu: processor time; a row: processor "
    "time per input row; out/in: output rows per input row; queue: most rows waiting in any one task; busy: share of "
    "the tasks' time in which rows waited or were being processed; bad: rejected rows"
)
_COLORS = {
    **{"updating": "cyan", "held": "red", "stopped": "red", "failing": "yellow", "waiting": "yellow"},
    **{"new": "dim", "paused": "dim", "repairing": "magenta", "rebuilding": "magenta"},
}
_TROUBLED = ("held", "stopped", "failing", "waiting")
#: in place of the staleness of a table whose newest data is more than a day old
PAST = "past"


class UpdateLines:
    """One log line per update, for output that is not a terminal; failures always."""

    def __init__(self) -> None:
        self._quiet = sys.stdout.isatty()

    def note(self, update: Update) -> None:
        if not update.committed:
            if update.traceback:
                say_error(update.traceback)
            say_error(f"{_clock()} {update.name}: failed: {update.error}")
        elif not self._quiet and update.layer not in ("maintenance", "publish"):
            rejected = f", {update.rejected} rejected" if update.rejected else ""
            rows = f"{update.rows} {plural('row', update.rows)} written{rejected}"
            left = f"{update.left} more {plural('update', update.left)}"
            more = f"; about {left} to catch up" if update.left else ""
            say(f"{_clock()} {update.name}: {rows} in {update.seconds:.2f} s{more}", flush=True)

    def message(self, line: str) -> None:
        say_error(f"{_clock()} {line}")


def statistics_table(title: str, rows: Sequence[NodeStatistics], now: float) -> Table:
    """A line per table, highest priority first. Fits 80 columns for names of up to 18 letters."""
    table = _plain_table(title)
    table.add_column("table", no_wrap=True)
    for heading in ("prio", "stale", "mean", "lag", "met", "rows", "bad", "upd", "took", "last", "next"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in _by_priority(rows):
        color = _COLORS.get(row.state, "")
        shown = f"{row.state} {_length(row.repairs.seconds)}" if row.state == "repairing" and row.repairs else row.state
        table.add_row(row.name, *_cells(row, now), styled(shown, color))
    return table


def operators_table(title: str, rows: Sequence[NodeStatistics], most: int | None = None) -> Table | None:
    """The operators of stream queries inside tables: of each table the ``most`` with most processor time.

    None if no table has any. Fits 80 columns for names of up to 15 letters.
    """
    table = _plain_table(title)
    for heading in ("table", "operator"):
        table.add_column(heading, no_wrap=True)
    for heading in ("share", "cpu", "a row", "in", "out/in", "queue", "busy", "bad"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in _by_priority(rows):
        one_query = len({operator.query for operator in row.operators}) == 1
        total = sum(operator.processor for operator in row.operators)
        for operator in sorted(row.operators, key=lambda operator: -operator.processor)[:most]:
            name = operator.name if one_query else f"{operator.query}/{operator.name}"
            table.add_row(row.name, name, *_operator_cells(operator, total))
    return table if table.row_count else None


def live_view(title: str, rows: Sequence[NodeStatistics], now: float) -> Group:
    """The screen while a warehouse runs: a line per table, what tables wait for, and the busiest operators inside."""
    parts: list[RenderableType] = [statistics_table(title, rows, now)]
    busiest = operators_table("the busiest operator inside each table", rows, most=1)
    if busiest is not None:
        parts += ["", busiest]
    if lines := problem_lines(rows):
        parts += ["", *(styled(line, "") for line in lines)]
    return Group(*parts)


def problem_lines(rows: Iterable[NodeStatistics]) -> list[str]:
    """A line for each table that fails, or whose source has something to say."""
    return [line for row in rows if (line := problem_line(row.name, row.state, row.error or row.note))]


def problem_line(name: str, state: str, said: str) -> str:
    """What there is to say about a table; empty if that is nothing."""
    if not said:
        return ""
    return f"{name} is {state}: {said}" if state in _TROUBLED else f"{name}: {said}"


def _plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))


def _by_priority(rows: Sequence[NodeStatistics]) -> list[NodeStatistics]:
    return sorted(rows, key=lambda row: (-row.priority, row.name))


def _cells(row: NodeStatistics, now: float) -> list[str]:
    met = "-" if row.target_met is None else f"{row.target_met:.0%}"
    past = is_past(row.staleness, row.lag)
    return [
        f"{row.priority:g}",
        PAST if past else _length(row.staleness),
        PAST if past else _length(row.mean_staleness),
        _length(row.lag),
        met,
        _count(row.rows),
        _count(row.rejected),
        _count(row.updates),
        _length(row.last_seconds),
        "-" if row.last_update is None else f"{_length(now - row.last_update)}",
        _next(row, now),
    ]


def _next(row: NodeStatistics, now: float) -> str:
    if row.updates_left:
        return f"+{_count(row.updates_left)}"
    if row.next_update is None:
        return "-"
    return "now" if row.next_update <= now else _length(row.next_update - now)


def _operator_cells(operator: OperatorFigures, all_work: float) -> list[str]:
    """``all_work`` is the processor time of all operators of the table."""
    return [
        f"{operator.processor / all_work:.0%}" if all_work else "-",
        _work(operator.processor),
        _work(operator.cost) if operator.rows_in else "-",
        _count(operator.rows_in),
        f"{operator.selectivity:.3g}" if operator.rows_in else "-",
        _count(operator.peak_rows_waiting),
        f"{operator.utilisation:.0%}",
        _count(operator.rejected),
    ]


def _length(seconds: float | None) -> str:
    """A duration in few characters, because the table has to fit a terminal."""
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    return f"{seconds:.0f}s" if seconds < 600 else readable(seconds).replace(" ", "").replace("min", "m")


def _work(seconds: float) -> str:
    """Processor time, down to microseconds."""
    for unit, size in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 0.9995e3 * size:
            return f"{seconds / size:.3g}{unit}"
    return _length(seconds)


def _count(number: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return str(number)


def print_summary(
    name: str, path: AnyPath, rows: Sequence[NodeStatistics], length: float, places: Sequence[tuple[str, AnyPath]]
) -> None:
    """Print the summary of a run: staleness of every table, and where tables, trace and report are.

    The mean staleness is that of tables with data of the present; of data of the past, the mean lag is printed.
    """
    console = PlainConsole()
    # The run has ended, so nothing comes next.
    ended = [replace(row, next_update=None) for row in rows]
    console.print(statistics_table(f"{name}, after {_length(length)}", ended, time.time()))
    console.print(LEGEND, style="dim")
    if (operators := operators_table("inside the tables", rows)) is not None:
        console.print("", operators)
        console.print(OPERATOR_LEGEND, style="dim")
    for row in rows:
        if row.repairs is not None:
            told = f"{row.name}: still to be recomputed: {row.repairs}"
            console.print(told, soft_wrap=True)
    for line in problem_lines(rows):
        console.print(line, soft_wrap=True)
    with_time = [row for row in rows if row.mean_staleness is not None]
    past = [row for row in with_time if is_past(row.staleness, row.lag)]
    present = [row for row in with_time if row not in past]
    _print_mean(console, "staleness", [(row.priority, row.mean_staleness or 0.0) for row in present])
    if past:
        _print_mean(console, "lag", [(row.priority, row.mean_lag) for row in with_time])
    for what, where in (("tables", path / "tables"), *places):
        console.print(f"{what}: {_shown(where)}", soft_wrap=True)


def _print_mean(console: PlainConsole, what: str, weighted: Sequence[tuple[float, float]]) -> None:
    total = sum(priority for priority, _ in weighted)
    if total > 0:
        mean = sum(priority * value for priority, value in weighted) / total
        console.print(f"Mean {what}, weighted by priority: {mean:.1f} s")


def _shown(path: AnyPath) -> str:
    """The path relative to the current folder if it is below it, else absolute."""
    if not isinstance(path, Path):
        return str(path)
    relative = os.path.relpath(path)
    return str(path.absolute()) if relative.startswith("..") else relative


def _clock() -> str:
    return time.strftime("%H:%M:%S")
