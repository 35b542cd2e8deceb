"""The live table of a running warehouse, its summary, and its log lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headgate.warehouse.durations import readable

if TYPE_CHECKING:
    from headgate.warehouse.book import NodeStatistics
    from headgate.warehouse.runtime import UpdateMade

#: what the columns mean, for those who see the table for the first time
LEGEND = (
    "stale: how long ago the newest moment was that the table tells of (mean over the run); lag: how long data has "
    "been waiting to get in; met: share of the time in which that was within the table's target; bad: rows rejected"
)
_COLORS = {"updating": "cyan", "held": "red", "failing": "yellow", "paused": "dim"}


class Lines:
    """One log line per update, for output that is not a terminal; failures always."""

    def __init__(self) -> None:
        self._quiet = sys.stdout.isatty()

    def note(self, made: UpdateMade) -> None:
        if made.failure is not None:
            print(made.failure.traceback, file=sys.stderr)
            print(f"{_clock()} {made.name}: failed: {made.failure.summary}", file=sys.stderr, flush=True)
        elif made.outcome is not None and not self._quiet and made.layer != "maintenance":
            rejected = f", {made.outcome.rejected} rejected" if made.outcome.rejected else ""
            print(f"{_clock()} {made.name}: {made.outcome.rows} rows{rejected} in {made.seconds:.2f} s", flush=True)

    def tell(self, line: str) -> None:
        print(f"{_clock()} {line}", file=sys.stderr, flush=True)


def statistics_table(title: str, rows: Sequence[NodeStatistics], now: float) -> Table:
    """How every table fares, the most important first. Fits 80 columns for names of up to 18 letters."""
    table = Table(
        title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("table", no_wrap=True)
    for heading in ("prio", "stale", "mean", "lag", "met", "rows", "bad", "upd", "took", "last", "next"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in sorted(rows, key=lambda row: (-row.priority, row.name)):
        color = _COLORS.get(row.state, "")
        state = f"[{color}]{row.state}[/{color}]" if color else row.state
        table.add_row(escape(row.name), *_cells(row, now), state)
    return table


def _cells(row: NodeStatistics, now: float) -> list[str]:
    met = "-" if row.target_met is None else f"{row.target_met:.0%}"
    return [
        f"{row.priority:g}",
        _length(row.staleness),
        _length(row.mean_staleness),
        _length(row.lag),
        met,
        _count(row.rows),
        _count(row.rejected),
        _count(row.updates),
        _length(row.last_seconds),
        "-" if row.last_update is None else f"{_length(now - row.last_update)}",
        "-" if row.next_update is None else ("now" if row.next_update <= now else _length(row.next_update - now)),
    ]


def _length(seconds: float | None) -> str:
    """As short as can be, since a table of them has to fit a terminal."""
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    return f"{seconds:.0f}s" if seconds < 600 else readable(seconds).replace(" ", "").replace("min", "m")


def _count(number: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return str(number)


def print_summary(
    name: str, path: Path, rows: Sequence[NodeStatistics], length: float, places: Sequence[tuple[str, Path]]
) -> None:
    """What a newcomer wants to know at the end: how stale each table was, and where everything lies."""
    console = Console()
    console.print(statistics_table(f"{name}, after {_length(length)}", rows, time.time()))
    console.print(f"[dim]{LEGEND}[/dim]")
    for row in rows:
        if row.error:
            console.print(f"{row.name} is {row.state}: {row.error}", highlight=False, soft_wrap=True, markup=False)
    weighted = [(row.priority, row.mean_staleness) for row in rows if row.mean_staleness is not None]
    total = sum(priority for priority, _ in weighted)
    if total > 0:
        mean = sum(priority * stale for priority, stale in weighted) / total
        console.print(f"Weighted by priority, tables were {mean:.1f} s stale on the mean.", highlight=False)
    for what, where in (("tables", path / "tables"), *places):
        console.print(f"{what}: {_shown(where)}", highlight=False, soft_wrap=True, markup=False)


def _shown(path: Path) -> str:
    """A path as short as can be from here."""
    relative = os.path.relpath(path)
    return str(path.absolute()) if relative.startswith("..") else relative


def _clock() -> str:
    return time.strftime("%H:%M:%S")
