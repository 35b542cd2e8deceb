"""How a warehouse, a run and a report look in a notebook: HTML without scripts, in the colours of the notebook.

Every text is escaped. Colours are those of the page around it, so it is readable on light and on dark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from headgate.core import HeadgateError, is_past
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.report.printable import printable

if TYPE_CHECKING:
    from headgate.warehouse.declare.spec import NodeSpec
    from headgate.warehouse.report.figures import RunFigures
    from headgate.warehouse.schedule.ledger import NodeStatistics

#: seconds between two pictures of a live view
LIVE_SECONDS = 1.0
#: how many tables are shown: those of the highest priority
MOST_TABLES = 200

_CELL = "padding:.15em .6em;border-bottom:1px solid rgba(128,128,128,.35);white-space:nowrap;text-align:"


class NoNotebookError(HeadgateError):
    """There is no notebook to show something in."""


def declared_html(name: str, path: str, nodes: Iterable[NodeSpec]) -> str:
    """What a warehouse declares, whether or not it is complete."""
    rows = []
    for node in nodes:
        lag, sources = getattr(node, "target_lag", None), getattr(node, "sources", ())
        kind = type(node).__name__.removesuffix("Spec").lower()
        target = "" if lag is None else readable(lag)
        rows.append((node.name, kind, f"{node.priority:g}", target, ", ".join(map(str, sources))))
    headings = ("name", "kind", "priority", "target lag", "computed from")
    return _titled(name, f"declared at {path}", headings, rows)


def run_html(name: str, about: str, statistics: Sequence[NodeStatistics]) -> str:
    """How the tables of a run stand."""
    ordered = sorted(statistics, key=lambda row: (-row.priority, row.name))
    rows = [
        (
            row.name,
            f"{row.priority:g}",
            row.state,
            "past" if is_past(row.staleness, row.lag) else _length(row.staleness),
            _length(row.lag),
            _length(row.target_lag),
            f"{row.rows:,}",
            f"{row.rejected:,}",
            f"{row.updates:,}",
            row.error or row.note,
        )
        for row in ordered
    ]
    headings = ("table", "priority", "state", "stale", "lag", "target", "rows", "rejected", "updates", "")
    return _titled(name, about, headings, rows)


def report_html(figures: RunFigures) -> str:
    """The report of a run as a page inside the page, which keeps the styles of both apart; scripts are off in it."""
    from headgate.warehouse.report.page import html

    inside = escape(printable(html(figures)), quote=True)
    return f'<iframe sandbox srcdoc="{inside}" style="width:100%;height:40em;border:0"></iframe>'


def show_live(picture: Callable[[], str], goes_on: Callable[[], bool], seconds: float = LIVE_SECONDS) -> None:
    """Show ``picture()`` in the notebook again and again, until the run ends or the cell is interrupted."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import HTML, display
    except ImportError:
        raise NoNotebookError(
            "show() needs IPython, as in a notebook, and it is not installed here; use `headgate top DIR`"
        ) from None
    if get_ipython() is None:
        raise NoNotebookError("show() is for a notebook or IPython, and this is neither; use `headgate top DIR`")
    # IPython's functions have no types.
    new: Callable[[str], object] = HTML
    show: Callable[..., Any] = display
    handle = show(new(picture()), display_id=True)
    try:
        while goes_on():
            time.sleep(seconds)
            if handle is not None:
                handle.update(new(picture()))
    except KeyboardInterrupt:  # the cell was interrupted: the run goes on, only nobody looks
        return


def _length(seconds: float | None) -> str:
    return "-" if seconds is None else readable(max(0.0, seconds))


def _titled(name: str, about: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    more = len(rows) - MOST_TABLES
    lines = [
        '<div style="color:inherit;font-variant-numeric:tabular-nums;overflow-x:auto">',
        f"<p><b>{_shown(name)}</b> {_shown(about)}</p>",
        '<table style="border-collapse:collapse;color:inherit;background:transparent">',
        f"<thead>{_row('th', headings)}</thead><tbody>",
        *(_row("td", row) for row in rows[:MOST_TABLES]),
        "</tbody></table>",
        f"<p>and {more:,} more</p>" if more > 0 else "",
        "</div>",
    ]
    return "\n".join(filter(None, lines))


def _row(kind: str, cells: Sequence[str]) -> str:
    numbers = set("0123456789")
    styled = (f"{_CELL}{'right' if numbers.intersection(text[:1]) else 'left'}" for text in cells)
    return (
        "<tr>"
        + "".join(f'<{kind} style="{s}">{_shown(t)}</{kind}>' for s, t in zip(styled, cells, strict=True))
        + "</tr>"
    )


def _shown(text: str) -> str:
    return escape(printable(text), quote=True)
