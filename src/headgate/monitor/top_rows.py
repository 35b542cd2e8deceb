"""What a terminal shows of a run: a row of short texts per table, in an order, and what needs a person.

Pure functions of an overview (see ``RunRecord.overview``) and the present moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.core import is_past
from headgate.monitor.record import Json
from headgate.warehouse.report.printable import printable

_BARS = "▁▂▃▄▅▆▇█"
#: how many values a sparkline shows
SPARK = 12
#: seconds between two of them: two minutes in all, as on the page
SPARK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TopColumn:
    """A column: its title, how wide it is, and by what its rows are sorted, the first on top."""

    title: str
    width: int
    key: Callable[[Json, float], tuple[object, ...]]
    is_left: bool = False


def staleness(table: Json, now: float) -> float | None:
    complete = table.get("complete")
    return None if complete is None else max(0.0, now - complete)


def is_empty(table: Json) -> bool:
    """Whether a table has no rows yet, and so no staleness; what has rows but no event time never has one."""
    is_known = "complete" in table and "rows" in table
    return is_known and table["complete"] is None and not table["rows"] and table.get("kind") != "dimension"


def lag(table: Json, now: float) -> float:
    since = table.get("waiting_since")
    return 0.0 if since is None else max(0.0, now - since)


def silence(table: Json, now: float, started: float | None) -> float:
    """For how long a source has given nothing, if that is much longer than usual; otherwise 0.

    What is usual is its period, or how often it gave something since the run has ``started``.
    """
    updates, last, period = table.get("updates") or 0, table.get("last_update"), table.get("period") or 0.0
    if table.get("kind") != "stream" or updates < 3 or last is None or lag(table, now) > 0:
        return 0.0
    if started is None and not period:
        return 0.0
    usual = max(period, 0.0 if started is None else (last - started) / updates)
    return now - last if now - last > max(60.0, 10 * usual) else 0.0


def _less(value: float | None) -> float:
    """A key by which larger values come first and unknown ones last."""
    return 1.0 if value is None else -1.0 - value


COLUMNS = (
    TopColumn("table", 22, lambda table, now: (), is_left=True),
    TopColumn("prio", 6, lambda table, now: (_less(table.get("priority")),)),
    TopColumn("class", 5, lambda table, now: (_less(table.get("class")),)),
    TopColumn("stale", 7, lambda table, now: (_less(staleness(table, now)),)),
    TopColumn("", SPARK, lambda table, now: (_less(staleness(table, now)),), is_left=True),
    TopColumn("lag", 7, lambda table, now: (_less(lag(table, now)),)),
    TopColumn("target", 7, lambda table, now: (-lag(table, now) / (table.get("target") or float("inf")),)),
    TopColumn("state", 13, lambda table, now: (str(table.get("state", "")),), is_left=True),
    TopColumn("queue", 5, lambda table, now: (table.get("place") or float("inf"),)),
    TopColumn("rows", 7, lambda table, now: (_less(table.get("rows")),)),
    TopColumn("rejected", 8, lambda table, now: (_less(table.get("rejected")),)),
)
#: those that rows can be sorted by
SORTED_BY = tuple(place for place, column in enumerate(COLUMNS) if column.title)


def ordered(
    tables: Mapping[str, Json], now: float, column: int = 1, reverse: bool = False, wanted: str = ""
) -> list[str]:
    """The names of the tables whose name or state has ``wanted`` in it, sorted by a column and then by name."""
    low = wanted.lower()
    names = sorted(
        name for name, table in tables.items() if low in name.lower() or low in str(table.get("state", "")).lower()
    )
    key = COLUMNS[column].key
    if column == 0:
        return names[::-1] if reverse else names
    return sorted(names, key=lambda name: key(tables[name], now), reverse=reverse)


def cells(name: str, table: Json, now: float, curve: Sequence[float | None] = ()) -> tuple[str, ...]:
    """The texts of one row, without anything that a terminal would take as an order."""
    stale, late, target = staleness(table, now), lag(table, now), table.get("target")
    state, track = str(table.get("state", "-")), table.get("track")
    place = table.get("place")
    found = (
        name,
        "-" if table.get("priority") is None else f"{table['priority']:g}",
        str(table.get("class", 0)),
        "past" if is_past(stale, late) else length(stale),
        sparkline(curve, target),
        length(late),
        length(target),
        state if track is None else f"{state} on {track}",
        "-" if place is None else str(place),
        count(table.get("rows", 0)),
        count(table.get("rejected", 0)),
    )
    return tuple(printable(text).replace("\n", " ").replace("\t", " ") for text in found)


def attention(overview: Json, now: float) -> list[str]:
    """What needs a person, the worst first: one line for each kind."""
    tables: Mapping[str, Json] = overview["tables"]
    # The socket of a run tells neither of its disk nor since when it goes on.
    started = overview.get("started") if "disk" in overview else None
    disk = overview.get("disk")
    kinds: tuple[tuple[str, Callable[[Json], bool]], ...] = (
        ("stopped, as the run has failed", lambda table: table.get("state") == "stopped"),
        ("cancelled, but its update does not end", lambda table: table.get("state") == "stuck"),
        ("held until you resume", lambda table: table.get("state") == "held"),
        ("with a target that cannot be met", lambda table: bool(table.get("target_note"))),
        ("later than the target", lambda table: bool(table.get("target")) and lag(table, now) > table["target"]),
        ("without its source", lambda table: table.get("state") == "no source"),
        ("silent for longer than usual", lambda table: silence(table, now, started) > 0),
        ("with rejected rows", lambda table: table.get("rejected", 0) > 0),
    )
    lines = []
    trouble = str(overview.get("trouble") or "")
    # That the run is over, or its scheduler silent, is said beside the connection.
    if trouble and not trouble.startswith(("the run has ended", "the scheduler has not answered")):
        lines.append(printable(trouble).replace("\n", " "))
    if problem := overview.get("file_problem"):
        lines.append(printable(str(problem)).replace("\n", " "))
    if disk and (disk["free"] < 0.1 * disk["total"] or disk["free"] < 1e9):
        lines.append(f"the disk is filling: {disk['free'] / 1e9:.1f} of {disk['total'] / 1e9:.0f} GB are free")
    for what, holds in kinds:
        if names := [name for name, table in tables.items() if holds(table)]:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            listed = ", ".join(names[:3])
            lines.append(printable(f"{len(names)} {what}: {listed}{more}").replace("\n", " "))
    return lines


def headline(overview: Json, now: float, connection: str) -> str:
    """The line on top: whether there is a connection, how stale, by which settings, and which warehouse.

    What may be long comes last: a line that is longer than the terminal is wide is cut.
    """
    settings = overview.get("settings", {})
    curve = overview.get("staleness") or [(now, None)]
    busy = len(overview.get("running", ()))
    empty = sum(is_empty(table) for table in overview.get("tables", {}).values())
    times = (overview.get("bound") or {}).get("times")
    parts = (
        connection,
        f"staleness {length(curve[-1][1])}{f' without {empty} empty' if empty else ''}",
        *([] if times is None else [f"{times:.2f} times the bound"]),
        f"policy {settings.get('policy', '-')}",
        f"tracks {busy} of {settings.get('tracks', '-')} busy",
        str(overview.get("warehouse", "-")),
    )
    return printable("  ·  ".join(parts)).replace("\n", " ")


def sparkline(values: Sequence[float | None], target: float | None = None) -> str:
    """The latest values as bars; the highest is the largest value, or the target if that is larger."""
    shown = list(values)[-SPARK:]
    top = max((value for value in (*shown, target) if value is not None), default=0.0)
    if top <= 0:
        return "".join(" " if value is None else _BARS[0] for value in shown)
    steps = len(_BARS) - 1
    return "".join(" " if value is None else _BARS[min(steps, max(0, round(steps * value / top)))] for value in shown)


def length(seconds: float | None) -> str:
    """A length of time in at most 6 letters."""
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, divisor, unit in ((99.5, 1, "s"), (99.5 * 60, 60, "min"), (99.5 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def count(number: int | None) -> str:
    """A number in at most 5 letters."""
    value = float(number or 0)
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if not unit or value >= 9.95 else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}T"
