"""A report as one page of HTML that stands for itself: no script, no network, pictures inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from headgate.warehouse.report.charts import bars, over_time
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

#: tables that get a picture, those of the highest priority
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
            *_changes(figures),
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


def _changes(figures: RunFigures) -> Iterator[str]:
    return _section("Changes while it ran", (f"{moment(at)}: {escape(what)}" for at, what in figures.changes))


def _section(heading: str, lines: Iterable[str]) -> Iterator[str]:
    items = [f"<li>{line}</li>" for line in lines]
    if items:
        yield from (f"<h2>{heading}</h2>\n<ul>", *items, "</ul>")
