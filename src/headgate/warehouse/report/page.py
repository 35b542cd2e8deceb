"""A report as one HTML page without script or network, with its two kinds of chart as SVG.

The charts are pure functions of numbers and texts. Their elements have default colours, and classes (``grid``,
``label``, ``most``, ``mean``, ``bar``) by which the page's style sheet overrides them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from headgate.warehouse.declare.durations import readable, readable_alike
from headgate.warehouse.report.figures import RunFigures, TableFigures
from headgate.warehouse.report.text import (
    COLUMNS,
    OPERATOR_COLUMNS,
    Columns,
    Row,
    failure_line,
    how,
    inside_tables,
    length,
    moment,
    notes,
    summary,
    title,
)

#: how many tables get a chart: those of the highest priority
MOST_PICTURES = 60

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --faint: #52606d; --line: #d9e2ec; --paper: #ffffff;
  --most: #c9dcf3; --mean: #2f6db5; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --faint: #a5b1bd; --line: #38444f; --paper: #14191e;
  --most: #274566; --mean: #7cb1ee; --bad: #ff8f85; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p.how, p.note { color: var(--faint); overflow-wrap: anywhere; }
p.note { font-size: .85rem; margin: .4rem 0; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .8rem 1.6rem; }
dt { color: var(--faint); font-size: .85rem; }
dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--faint); font-weight: normal; font-size: .85rem; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
table.inside :is(th, td):nth-child(-n+3) { text-align: left; }
td.bad { color: var(--bad); font-weight: bold; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1.2rem; }
figure { margin: 0; min-width: 0; display: flex; flex-direction: column; justify-content: flex-end; }
figcaption { font-size: .85rem; color: var(--faint); overflow-wrap: anywhere; }
figcaption b { color: var(--ink); font-size: .95rem; }
svg { width: 100%; height: auto; display: block; }
svg.bars { max-width: 50rem; }
.grid { stroke: var(--line); }
.label { fill: var(--faint); }
.most { fill: var(--most); }
.mean { stroke: var(--mean); }
.bar { fill: var(--mean); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .6em; }
li { margin: .3rem 0; overflow-wrap: anywhere; }
code { font: .9em ui-monospace, monospace; white-space: pre-wrap; }
"""


def html(figures: RunFigures) -> str:
    """The whole page."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title(figures))}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f'<h1>{escape(title(figures))}</h1>\n<p class="how">{escape(how(figures))}</p>',
            *_summary(figures),
            *_tables(figures),
            *_pictures(figures),
            *_inside(figures),
            *_failures(figures),
            *_listed("Notices", figures.notices),
            *_listed("Changes while it ran", figures.changes),
            "<h2>What the words mean</h2>",
            *(f'<p class="note">{escape(note)}</p>' for note in notes(figures)),
            "</body>\n</html>\n",
        ]
    )


def _summary(figures: RunFigures) -> Iterator[str]:
    yield "<dl>"
    yield from (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in summary(figures).items()
    )
    yield "</dl>"


def _tables(figures: RunFigures) -> Iterator[str]:
    yield "<h2>Tables, by priority</h2>"
    yield from _table("tables", COLUMNS, figures.tables)


def _inside(figures: RunFigures) -> Iterator[str]:
    if operators := inside_tables(figures):
        yield "<h2>Inside the tables</h2>"
        yield from _table("inside", OPERATOR_COLUMNS, operators)


def _table(kind: str, columns: Columns[Row], rows: Sequence[Row]) -> Iterator[str]:
    yield f'<div class="wide"><table class="{kind}">'
    yield f"<thead><tr>{''.join(f'<th>{escape(heading)}</th>' for heading in columns)}</tr></thead>\n<tbody>"
    yield from (f"<tr>{''.join(_cells(columns, row))}</tr>" for row in rows)
    yield "</tbody></table></div>"


def _cells(columns: Columns[Row], row: Row) -> Iterator[str]:
    for heading, show in columns.items():
        shown = show(row)
        bad = heading in ("failures", "rejected") and shown != "0"
        opening = '<td class="bad">' if bad else "<td>"
        yield f"{opening}{escape(shown)}</td>"


def _pictures(figures: RunFigures) -> Iterator[str]:
    with_time = [table for table in figures.tables if table.kind != "dimension"]
    shown = with_time[:MOST_PICTURES]
    if not shown:
        return
    left_out = f" The {len(shown)} tables of the highest priority are shown." if len(with_time) > len(shown) else ""
    yield "<h2>Mean staleness against priority</h2>"
    yield '<p class="note">A scheduler that does its work keeps the bars at the top short.</p>'
    rows = [(table.name, f"priority {table.priority:g}", table.mean_staleness) for table in shown]
    yield bars(rows, "mean staleness of each table, by priority").replace("<svg ", '<svg class="bars" ', 1)
    yield (
        '<h2>Staleness over time</h2>\n<p class="note">Each table on its own scale.'
        '<span class="key" style="background: var(--mean)"></span>mean'
        f'<span class="key" style="background: var(--most)"></span>at most.{left_out}</p>\n<div class="pictures">'
    )
    yield from (_picture(table, figures.seconds) for table in shown)
    yield "</div>"


def _picture(table: TableFigures, seconds: float) -> str:
    points = [None if stretch is None else (stretch.mean, stretch.max) for stretch in table.staleness]
    caption = f"priority {table.priority:g}, mean {length(table.mean_staleness)}"
    return (
        f"<figure><figcaption><b>{escape(table.name)}</b> {escape(caption)}</figcaption>"
        f"{over_time(points, seconds, f'staleness of {table.name} over time')}</figure>"
    )


def _failures(figures: RunFigures) -> Iterator[str]:
    lines = (f"{escape(failure_line(f))}<br><code>{escape(f.message)}</code>" for f in figures.failures)
    return _section("Failures", lines)


def _listed(heading: str, entries: Sequence[tuple[float, str]]) -> Iterator[str]:
    return _section(heading, (f"{moment(at)}: {escape(what)}" for at, what in entries))


def _section(heading: str, lines: Iterable[str]) -> Iterator[str]:
    items = [f"<li>{line}</li>" for line in lines]
    if items:
        yield from (f"<h2>{heading}</h2>\n<ul>", *items, "</ul>")


# --- charts --------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 300.0, 110.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 8.0, 8.0, 18.0

_INK, _LINE, _MOST, _MEAN = "#52606d", "#d9e2ec", "#c9dcf3", "#2f6db5"

_BARS_WIDTH, _ROW, _BAR = 640.0, 20.0, 13.0
_NAMES, _PRIORITIES, _VALUES = 180.0, 84.0, 60.0
_LONGEST_NAME = 28


#: tops of an axis in minutes
_MINUTES = (2, 3, 4, 6, 10, 20, 30, 40, 60)


def rounded_up(value: float) -> float:
    """The next larger round number of seconds, minutes, hours or days, as the top of an axis.

    >>> [rounded_up(value) for value in (0.03, 1.0, 7.0, 130.0, 4000.0)]
    [0.05, 1.0, 10.0, 180.0, 7200.0]
    """
    if value <= 0:
        return 1.0
    for size, steps in ((1.0, (20, 30, 40, 60)), (60.0, _MINUTES), (3600.0, (2, 3, 4, 6, 8, 12, 24))):
        if (10.0 if size == 1.0 else size) < value <= steps[-1] * size:
            return size * next(step for step in steps if step * size >= value * (1 - 1e-9))
    if value > 86400.0:
        return 86400.0 * _decimal_up(value / 86400.0)
    return _decimal_up(value)


def _decimal_up(value: float) -> float:
    """The next larger 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))
    return factor * power


def over_time(points: Sequence[tuple[float, float] | None], seconds: float, description: str) -> str:
    """A chart of (mean, maximum) over stretches of equal length of a run of ``seconds``; None leaves a gap."""
    top = rounded_up(max((largest for _, largest in filter(None, points)), default=0.0))
    across = (_WIDTH - _LEFT - _RIGHT) / max(1, len(points))

    def x(number: float) -> float:
        return _LEFT + across * number

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(1.0, max(0.0, value / top))

    parts = [_opening(_WIDTH, _HEIGHT, description)]
    marks = (0.0, top / 2, top)
    for value, label in zip(marks, readable_alike(marks), strict=True):
        parts.append(f'<path class="grid" stroke="{_LINE}" d="M{_LEFT:g} {y(value):.1f}H{_WIDTH - _RIGHT:g}"/>')
        parts.append(_svg_text(_LEFT - 6, y(value) + 3.5, label, "end"))
    for run in _unbroken(points):
        left = f"M{x(run[0][0]):.1f}"
        most = "".join(f"V{y(largest):.1f}H{x(number + 1):.1f}" for number, (_, largest) in run)
        mean = "".join(f"V{y(value):.1f}H{x(number + 1):.1f}" for number, (value, _) in run)
        parts.append(f'<path class="most" fill="{_MOST}" d="{left} {y(0):.1f}{most}V{y(0):.1f}z"/>')
        first = f"{left} {y(run[0][1][0]):.1f}"
        parts.append(f'<path class="mean" fill="none" stroke="{_MEAN}" stroke-width="1.4" d="{first}{mean}"/>')
    parts.append(_svg_text(_LEFT, _HEIGHT - 4, "0", "start"))
    parts.append(_svg_text(_WIDTH - _RIGHT, _HEIGHT - 4, readable(seconds), "end"))
    return "".join(parts) + "</svg>"


def bars(rows: Iterable[tuple[str, str, float | None]], description: str) -> str:
    """A bar for each (name, text beside it, seconds), from top to bottom; None has no bar."""
    rows = list(rows)
    longest = max((value for _, _, value in rows if value is not None), default=0.0) or 1.0
    start = _NAMES + _PRIORITIES
    room = _BARS_WIDTH - start - _VALUES
    parts = [_opening(_BARS_WIDTH, _ROW * len(rows) + 4, description)]
    for number, (name, beside, value) in enumerate(rows):
        line = _ROW * number + _ROW / 2 + 2
        shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        parts.append(f"<g><title>{escape(name)}</title>{_svg_text(_NAMES, line + 4, shown, 'end')}</g>")
        parts.append(_svg_text(start - 12, line + 4, beside, "end"))
        width = 0.0 if value is None else max(1.0, room * value / longest)
        box = f'x="{start:g}" y="{line - _BAR / 2:.1f}" width="{width:.1f}" height="{_BAR:g}"'
        parts.append(f'<rect class="bar" fill="{_MEAN}" {box}/>')
        parts.append(
            _svg_text(start + width + 6, line + 4, "-" if value is None else readable(max(0.0, value)), "start")
        )
    return "".join(parts) + "</svg>"


def _unbroken(
    points: Sequence[tuple[float, float] | None],
) -> list[list[tuple[int, tuple[float, float]]]]:
    """The numbered points, split at gaps."""
    runs = groupby(enumerate(points), key=lambda numbered: numbered[1] is not None)
    return [[(number, point) for number, point in run if point is not None] for there, run in runs if there]


def _opening(width: float, height: float, description: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(description)}"'
        ' font-family="system-ui, sans-serif" font-size="10">'
    )


def _svg_text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="label" fill="{_INK}" {place}>{escape(words)}</text>'
