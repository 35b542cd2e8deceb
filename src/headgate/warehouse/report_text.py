"""A report as text: Markdown and plain, and the words that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from headgate.warehouse.durations import readable
from headgate.warehouse.report_figures import FailureFigures, RunFigures, TableFigures

MISSING = "-"


def length(seconds: float | None) -> str:
    return MISSING if seconds is None else readable(max(0.0, seconds))


def share(part: float | None) -> str:
    """A share in per cent, with a place more where that would otherwise look like none or all."""
    if part is None:
        return MISSING
    return f"{part:.0%}" if part in (0.0, 1.0) or 0.01 <= part <= 0.99 else f"{part:.2%}"


def moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


#: {heading: what stands below it}; all but the first are numbers
COLUMNS: dict[str, Callable[[TableFigures], str]] = {
    "table": lambda table: table.name,
    "priority": lambda table: f"{table.priority:g}",
    "stale, mean": lambda table: length(table.mean_staleness),
    "stale, at most": lambda table: length(table.max_staleness),
    "lag target": lambda table: length(table.target_lag),
    "target met": lambda table: share(table.on_time),
    "updates": lambda table: f"{table.updates:,}",
    "each took": lambda table: length(table.mean_seconds),
    "rows": lambda table: f"{table.rows:,}",
    "rejected": lambda table: f"{table.rejected:,}",
    "failures": lambda table: f"{table.failures:,}",
}

NOTES = (
    "Stale: how long ago the newest moment was up to which the table was complete, from when it first had rows. It"
    " grows also while no data comes.",
    "Target met: the share of the run in which the lag of the table was within its target. The lag is how long the"
    " oldest data that had arrived, but was not in the table yet, had been waiting since it came to its stream; 0 while"
    " nothing waited. If a table is computed from several streams, data waits from when all of them had it. What came"
    " and was never loaded is not known.",
    "Each took: the mean time of an update, from its beginning on a track to its commit.",
    "Track time used: by all updates together, out of what all tracks could have worked. Headgate's own share: of the"
    " time of updates, what was not reading, computing and writing data.",
)

_ENDS = {
    "end": "",
    "killed": " The figures end with the last update recorded: the process was killed, or still runs.",
    "full": " The figures end before the run did: its trace had become too large.",
}


def title(figures: RunFigures) -> str:
    return f"{figures.warehouse}: a run of {readable(figures.seconds)}"


def how(figures: RunFigures) -> str:
    """When it ran, for how long and how it decided, in a sentence or two."""
    tracks = f"{figures.tracks} track{'' if figures.tracks == 1 else 's'}"
    return (
        f"From {moment(figures.started)}, for {readable(figures.seconds)}, under policy {figures.policy} and placement"
        f" {figures.placement} on {tracks}.{_ENDS[figures.recorded]}"
    )


def summary(figures: RunFigures) -> dict[str, str]:
    """The figures of the whole run, each with its name."""
    layers = ", ".join(f"{layer} {share(part)}" for layer, part in figures.busy.items() if part > 0)
    return {
        "tables": f"{len(figures.tables):,}",
        "updates": f"{figures.updates:,}",
        "rows": f"{figures.rows:,}",
        "failures": f"{sum(failure.times for failure in figures.failures):,}",
        "stale on the mean, weighted by priority": length(figures.typical_staleness),
        "weighted staleness, the sum of priority times staleness": f"{figures.weighted_staleness:,.4g} s",
        "track time used": share(sum(figures.busy.values())) + (f" ({layers})" if layers else ""),
        "Headgate's own share": share(figures.overhead),
    }


def failure_line(failure: FailureFigures) -> str:
    """What failed, how often and when; its message is said beside."""
    what = failure.table if failure.layer == "live" else f"{failure.table} ({failure.layer})"
    if failure.times == 1:
        return f"{what}, at {moment(failure.first)}"
    return f"{what}, {failure.times} times from {moment(failure.first)} to {moment(failure.last)}"


def markdown(figures: RunFigures) -> str:
    """The report without its pictures, for a wiki or a pull request."""
    lines = [f"# {_cell(title(figures))}", "", _cell(how(figures)), ""]
    lines += [f"- {name}: {_cell(value)}" for name, value in summary(figures).items()]
    lines += ["", f"| {' | '.join(COLUMNS)} |", f"|---|{'---:|' * (len(COLUMNS) - 1)}"]
    lines += [f"| {' | '.join(_cell(show(t)) for show in COLUMNS.values())} |" for t in figures.tables]
    if figures.failures:
        lines += ["", "## Failures", ""]
        lines += [f"- {_cell(failure_line(f))}: {_cell(f.message)}" for f in figures.failures]
    if figures.changes:
        lines += ["", "## Changes while it ran", ""]
        lines += [f"- {moment(at)}: {_cell(what)}" for at, what in figures.changes]
    lines += ["", *(line for note in NOTES for line in (note, ""))]
    return "\n".join(lines[:-1]) + "\n"


def text(figures: RunFigures) -> str:
    """The report for a terminal."""
    lines = [title(figures), how(figures), ""]
    lines += [f"{name}: {value}" for name, value in summary(figures).items()]
    lines += ["", *_aligned([list(COLUMNS), *([show(t) for show in COLUMNS.values()] for t in figures.tables)])]
    if figures.failures:
        lines += ["", "Failures"]
        lines += [f"  {failure_line(failure)}: {failure.message}" for failure in figures.failures]
    if figures.changes:
        lines += ["", "Changes while it ran"]
        lines += [f"  {moment(at)}: {what}" for at, what in figures.changes]
    return "\n".join([*lines, "", *NOTES]) + "\n"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, the first one flush left and the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _cell(words: str) -> str:
    """Text of a user's as Markdown shows it literally."""
    special = "\\`*_{}[]<>#|"
    return "".join(f"\\{letter}" if letter in special else letter for letter in " ".join(words.split()))
