"""Print comparisons: of simulated variants, and of a measured run with its replays."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from rich.table import Table

from headgate.cli.output import PlainConsole
from headgate.sim import Compared, NodeRow, ReplayRow
from headgate.warehouse.declare.durations import readable

_BAR = 28
_SIDE_BY_SIDE = 5


def print_about(console: PlainConsole, about: str) -> None:
    """The description in the scenario file, wrapped to the width of the terminal."""
    if about:
        console.print(" ".join(about.split()))


def print_comparison(console: PlainConsole, title: str, rows: Sequence[Compared], asked: Collection[str] = ()) -> None:
    """A column per variant, a line per measure; columns that do not fit side by side follow below.

    A measure that no variant has is left out, unless it was ``asked`` for.
    """
    console.print(f"\n{title}", style="bold")
    for first in range(0, len(rows), _SIDE_BY_SIDE):
        console.print(_comparison(rows[first : first + _SIDE_BY_SIDE], rows, asked))
    unit = "seconds of data" if rows[0].grain == "tables" else "tuples"
    console.print(
        f"Queue: {unit} waiting. Guard strikes: how often the guard ran a node first because it had waited longer"
        " than its patience. Events/s: simulated events per second of wall-clock time.",
        style="dim",
    )


def _comparison(shown: Sequence[Compared], rows: Sequence[Compared], asked: Collection[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for row in shown:
        table.add_column(_label(row, rows), justify="right", overflow="fold")
    for name, value in _MEASURES.items():
        cells = [value(row) for row in shown]
        if name in asked or any(cell != "-" for cell in cells):
            table.add_row(name, *cells)
    return table


def print_nodes(console: PlainConsole, rows: Sequence[Compared], most: int) -> None:
    """One line per table or operator, a column per variant: utilisation, and staleness of tables."""
    if not most:
        return
    tables = rows[0].grain == "tables"
    what = "mean staleness / utilisation" if tables else "utilisation"
    console.print(f"\nPer {'table' if tables else 'operator'}: {what}", style="bold")
    # Nodes may come and go with live changes; the first variant's are those listed.
    nodes = sorted(rows[0].nodes, key=lambda node: (-(node.priority or 0.0), node.name))
    for first in range(0, len(rows), _SIDE_BY_SIDE - 1):
        console.print(_node_table(nodes[:most], rows[first : first + _SIDE_BY_SIDE - 1], rows))
    if len(nodes) > most:
        console.print(f"and {len(nodes) - most} more: --nodes {len(nodes)} lists them all", style="dim")


def _node_table(nodes: Sequence[NodeRow], shown: Sequence[Compared], rows: Sequence[Compared]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("priority", justify="right")
    for row in shown:
        table.add_column(_label(row, rows), justify="right")
    for node in nodes:
        cells = [node.name, _number(node.priority)]
        for row in shown:
            mine = next((other for other in row.nodes if other.name == node.name), None)
            cells.append("-" if mine is None else _cell(mine.staleness, mine.utilisation))
        table.add_row(*cells)
    return table


def print_story(console: PlainConsole, rows: Sequence[Compared]) -> None:
    """A bar chart of staleness by priority, and a summary in two sentences."""
    if not any(row.simulated_seconds > 0 for row in rows):
        console.print("\nThe run ends at 0 s, so no table became stale.")
        return
    best = min(rows, key=lambda row: row.weighted_staleness or math.inf)
    worst = max(rows, key=lambda row: row.weighted_staleness or 0.0)
    classes = sorted({node.priority for node in best.nodes if node.priority is not None}, reverse=True)
    console.print("\nMean staleness by priority (seconds)", style="bold")
    for priority in classes:
        console.print(f"  priority {priority:g}")
        longest = max(_staleness_of(row, priority) for row in rows)
        for row in rows:
            stale = _staleness_of(row, priority)
            bar = "█" * max(1, round(_BAR * stale / longest))
            console.print(f"    {_label(row, rows):<{_width(rows)}} {bar} {stale:.1f}")
    top = classes[0]
    times = (worst.weighted_staleness or 0.0) / (best.weighted_staleness or 1.0)
    console.print(
        f"\nMean staleness of the tables of priority {top:g}: {_staleness_of(best, top):.1f} s under"
        f" {best.policy}, {_staleness_of(worst, top):.1f} s under {worst.policy}, with the same data on"
        f" the same number of tracks. Priority-weighted staleness was {times:.1f} times lower."
        f"\nThe guard ran a table first {best.guard_strikes} times because it had waited longer than its patience"
        " (20 periods unless stated).",
    )


def _staleness_of(row: Compared, priority: float) -> float:
    mine = [node.staleness or 0.0 for node in row.nodes if node.priority == priority]
    return sum(mine) / len(mine)


def _width(rows: Sequence[Compared]) -> int:
    return max(len(_label(row, rows)) for row in rows)


def _label(row: Compared, rows: Sequence[Compared]) -> str:
    """The shortest name that tells the variants apart."""
    parts = [row.policy] if row.policy != "-" else []
    if len({other.placement for other in rows if other.placement != "-"}) > 1 and row.placement != "-":
        parts.append(row.placement)
    if len({other.loop for other in rows}) > 1:
        parts.append(row.loop)
    return " ".join(parts) or row.loop


def _cell(staleness: float | None, utilisation: float) -> str:
    return f"{utilisation:.0%}" if staleness is None else f"{_seconds(staleness)} / {utilisation:.0%}"


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def times_bound(weighted: float | None, bound: float | None) -> str:
    """How many times the lower bound a weighted staleness is."""
    return "-" if weighted is None or not bound else f"{weighted / bound:.2f}"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    if value >= 1:
        return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def _workers(utilisation: Sequence[float]) -> str:
    low, high = min(utilisation), max(utilisation)
    return f"{low:.0%}" if len(utilisation) == 1 or high - low < 0.005 else f"{low:.0%}-{high:.0%}"


#: every measure of a comparison, in the order printed; "-" where a grain does not have it
_MEASURES: dict[str, Callable[[Compared], str]] = {
    "relative lateness": lambda row: _number(row.relative_lateness),
    "weighted staleness": lambda row: _number(row.weighted_staleness),
    "all targets met": lambda row: "-" if row.targets_met is None else f"{row.targets_met:.1%}",
    "largest lag to target": lambda row: _number(row.worst_ratio),
    "lower bound": lambda row: _number(row.lower_bound),
    "times the bound": lambda row: times_bound(row.weighted_staleness, row.lower_bound),
    "throughput per second": lambda row: _number(row.throughput),
    "latency mean": lambda row: _seconds(row.latency.mean),
    "latency p50": lambda row: _seconds(row.latency.p50),
    "latency p95": lambda row: _seconds(row.latency.p95),
    "latency p99": lambda row: _seconds(row.latency.p99),
    "latency max": lambda row: _seconds(row.latency.max),
    "queue mean": lambda row: _number(row.queue_mean),
    "queue max": lambda row: _number(row.queue_max),
    "utilisation per worker": lambda row: _workers(row.worker_utilisation),
    "time spent scheduling": lambda row: "-" if row.scheduling_share is None else f"{row.scheduling_share:.2%}",
    "guard strikes": lambda row: str(row.guard_strikes),
    "events": lambda row: f"{row.events:,}",
    "events/s": lambda row: f"{row.events_per_second:,.0f}",
}


# --- replays of traces ---------------------------------------------------------------------------------------


def print_replay(
    console: PlainConsole, about: str, rows: Sequence[ReplayRow], most_tables: int, notes: Sequence[str] = ()
) -> None:
    """A line per run, then a line per table with its mean staleness in every run."""
    console.print(about)
    console.print(_replayed_runs(rows))
    if rows[0].lower_bound is not None:
        console.print(
            "Bound: what no policy can beat in the simulator; beside the measured run, what no policy could have beaten"
            " in the run itself. Times: weighted, divided by that.",
            style="dim",
        )
    console.print(
        "Weighted: sum over all tables of priority times mean staleness. Relative: that, divided by the value of a"
        " run in which no update waits for a track. Latency: from the release of an update to its end. Busy: share of"
        " time in which a track was running updates.",
        style="dim",
    )
    for note in notes:
        console.print(note)
    if most_tables:
        console.print("\nMean staleness per table", style="bold")
        console.print(_replayed_tables(rows, most_tables))
    if len(rows[0].tables) > most_tables > 0:
        more = len(rows[0].tables) - most_tables
        console.print(f"and {more} more: --nodes {len(rows[0].tables)} lists them all", style="dim")


def _replayed_runs(rows: Sequence[ReplayRow]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    bounded = any(row.lower_bound is not None for row in rows)
    more = ("bound", "times") if bounded else ()
    for heading in ("tracks", "weighted", "relative", *more, "latency", "p95", "max", "updates", "busy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        relative = "-" if row.relative_lateness is None else f"{row.relative_lateness:.3g}"
        latency = [_duration(value) for value in (row.latency.mean, row.latency.p95, row.latency.max)]
        least = (f"{row.lower_bound or 0.0:,.4g}", times_bound(row.weighted_staleness, row.lower_bound))
        busy = f"{sum(row.track_utilisation) / row.tracks:.0%}"
        table.add_row(
            _replay_label(row, rows),
            *(str(row.tracks), f"{row.weighted_staleness:,.4g}", relative, *(least if bounded else ())),
            *(*latency, f"{row.updates:,}", busy),
        )
    return table


def _replayed_tables(rows: Sequence[ReplayRow], most: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("table", no_wrap=True)
    table.add_column("priority", justify="right")
    for row in rows:
        table.add_column(_replay_label(row, rows), justify="right")
    staleness = [{node.name: node.staleness for node in row.tables} for row in rows]
    shown = sorted(rows[0].tables, key=lambda node: (-(node.priority or 0.0), node.name))[:most]
    for node in shown:
        table.add_row(node.name, f"{node.priority:g}", *(_duration(mine.get(node.name)) for mine in staleness))
    return table


def _replay_label(row: ReplayRow, rows: Sequence[ReplayRow]) -> str:
    """The policy, with the placement where that tells simulated runs apart."""
    if row.run == "measured":
        return "measured"
    placements = {other.placement for other in rows if other.run == "simulated"}
    return f"{row.policy} {row.placement}" if len(placements) > 1 else row.policy


def _duration(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else readable(max(0.0, value))
