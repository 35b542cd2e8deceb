"""Print a replayed run: the measured run first, then the simulated ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from headgate.sim.compare_replay import ReplayRow
from headgate.warehouse.declare.durations import readable


def print_replay(console: Console, about: str, rows: Sequence[ReplayRow], most_tables: int) -> None:
    """A line per run, then a line per table with its mean staleness in every run."""
    console.print(about, highlight=False)
    console.print(_runs(rows))
    console.print(
        "[dim]Weighted: sum over all tables of priority times mean staleness. Relative: that, divided by the value of a"
        " run in which no update waits for a track. Latency: from the release of an update to its end. Busy: share of"
        " time in which a track was running updates.[/dim]",
        highlight=False,
    )
    if most_tables:
        console.print("\n[bold]Mean staleness per table[/bold]", highlight=False)
        console.print(_tables(rows, most_tables))
    if len(rows[0].tables) > most_tables > 0:
        more = len(rows[0].tables) - most_tables
        console.print(f"[dim]and {more} more: --nodes {len(rows[0].tables)} lists them all[/dim]", highlight=False)


def _runs(rows: Sequence[ReplayRow]) -> Table:
    table = _plain_table()
    table.add_column("", overflow="fold")
    for heading in ("tracks", "weighted", "relative", "latency", "p95", "max", "updates", "busy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        relative = "-" if row.relative_lateness is None else f"{row.relative_lateness:.3g}"
        latency = [_seconds(value) for value in (row.latency.mean, row.latency.p95, row.latency.max)]
        busy = f"{sum(row.track_utilisation) / row.tracks:.0%}"
        table.add_row(
            _label(row, rows),
            *(str(row.tracks), f"{row.weighted_staleness:,.4g}", relative, *latency, f"{row.updates:,}", busy),
        )
    return table


def _tables(rows: Sequence[ReplayRow], most: int) -> Table:
    table = _plain_table()
    table.add_column("table", no_wrap=True)
    table.add_column("priority", justify="right")
    for row in rows:
        table.add_column(_label(row, rows), justify="right")
    staleness = [{node.name: node.staleness for node in row.tables} for row in rows]
    shown = sorted(rows[0].tables, key=lambda node: (-(node.priority or 0.0), node.name))[:most]
    for node in shown:
        table.add_row(node.name, f"{node.priority:g}", *(_seconds(mine.get(node.name)) for mine in staleness))
    return table


def _plain_table() -> Table:
    return Table(box=None, header_style="bold", pad_edge=False)


def _label(row: ReplayRow, rows: Sequence[ReplayRow]) -> str:
    """The policy, with the placement where that tells simulated runs apart."""
    if row.run == "measured":
        return "measured"
    placements = {other.placement for other in rows if other.run == "simulated"}
    return f"{row.policy} {row.placement}" if len(placements) > 1 else row.policy


def _seconds(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else readable(max(0.0, value))
