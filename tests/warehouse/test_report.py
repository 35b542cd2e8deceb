"""The report of a run: its figures are those of the trace, and every format shows them all."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headgate.core.errors import ParameterError
from headgate.core.trace import Change, Redeclared, RunBound, RunNotice, Trace, TraceHeader, TraceTable
from headgate.core.update import OperatorFigures, Update
from headgate.warehouse.report import text
from headgate.warehouse.report.figures import STRETCHES, figures_of
from headgate.warehouse.report.page import bars, over_time, rounded_up
from headgate.warehouse.report.report import FORMATS, check_report, write_report

START = 1_794_736_800.0
LENGTH = 120.0
TRICKY = 'a <b> & "c" | d_e `f`'


def micros(seconds: float) -> int:
    return round((START + seconds) * 1e6)


def some_run(seed: int = 1) -> Trace:
    """A stream, a table on it with a target, a dimension, maintenance, failures and changes; two tracks for a while."""
    chance = random.Random(seed)
    updates = []
    for came in range(5, 115, 5):
        load, derive = chance.uniform(0.3, 2.0), chance.uniform(0.3, 2.0)
        arrived = (START + came, START + came, 1)
        updates.append(_update("readings", came, came + 0.1, load, came - 1.0, arrived=arrived, rejected=1))
        updates.append(_update(TRICKY, came + 0.1 + load, came + 2.2, derive, came - 1.0))
    updates.append(_update("zones", 2.0, 2.0, 0.5, None, rows=3))
    updates.append(_update("readings", 50.0, 53.0, 1.5, None, layer="maintenance", track=1, rows=0))
    updates += [_update(TRICKY, 60.0, 60.0 + n, 0.2, None, error=f"no column <{TRICKY}>", rows=0) for n in (0, 1)]
    tables = (
        TraceTable("readings", kind="stream", freshness=micros(0)),
        TraceTable("zones", kind="dimension", priority=5.0),
        TraceTable(TRICKY, sources=("readings", "zones"), priority=100.0, target_lag=3.0),
        TraceTable("never", sources=("readings",)),
    )
    header = TraceHeader("city", START, 1, "max-benefit", "proportional", "max", None, tables)
    changes = (Change(START + 40, {"tracks": 2}), Change(START + 50, {"priority": ["never", 2.0]}))
    return Trace(header, tuple(updates), changes, START + LENGTH)


def _update(name: str, released: float, began: float, seconds: float, reaches: float | None, **more: object) -> Update:
    fresh = None if reaches is None else micros(reaches)
    plain = Update(
        name, "live", 0, START + released, START + began, seconds, 5.0, 10, 0, fresh, None, seconds / 4, None
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def with_queries(trace: Trace) -> Trace:
    """The same run, but two of the tables hold queries, one of which never got a row."""
    inside = {
        TRICKY: (
            OperatorFigures("q|1", "source", "source", 50, 50, 0, 0.001, 40, 0.5, 2.0),
            OperatorFigures("q|1", TRICKY, "partitioned", 50, 20, 1, 0.05, 30, 0.25, 2.0),
        ),
        "zones": (OperatorFigures("q|1", "idle", "stateless", 0, 0, 0, 0.0, 0, 0.0, 1.0),),
    }
    return replace(
        trace,
        updates=tuple(
            replace(update, operators=inside.get(update.name, ()) if update.error is None else ())
            for update in trace.updates
        ),
    )


# --- the figures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_staleness_and_lag_are_what_a_look_at_every_moment_gives(seed: int) -> None:
    """An independent, slow way: look at the tables ten times a second."""
    trace = some_run(seed)
    figures = {table.name: table for table in figures_of(trace).tables}
    arrivals = [(u.arrived[0], u.freshness or 0) for u in trace.updates if u.arrived is not None]
    for name, starts_at in (("readings", micros(0)), (TRICKY, None)):
        made = [(u.ended, u.freshness) for u in trace.updates if u.name == name and u.freshness and u.layer == "live"]
        stale, late = [], 0
        for tick in range(round(LENGTH * 10)):
            now = START + (tick + 0.5) / 10
            known = [fresh for ended, fresh in made if ended <= now and fresh] + ([starts_at] if starts_at else [])
            if known:
                stale.append(now - max(known) / 1e6)
            waiting = [came for came, reaches in arrivals if came <= now and reaches > max(known, default=0)]
            late += bool(waiting) and now - min(waiting) > 3.0
        assert figures[name].mean_staleness == pytest.approx(sum(stale) / len(stale), rel=0.02)
        assert figures[name].max_staleness == pytest.approx(max(stale), abs=0.11)
        if figures[name].target_lag is not None:
            assert figures[name].on_time == pytest.approx(1 - late / (LENGTH * 10), abs=0.02)
            assert 0 < 1 - late / (LENGTH * 10) < 1, "the run should miss its target now and then"


def test_a_run_is_counted_table_by_table_with_the_highest_priority_first() -> None:
    figures = figures_of(some_run())
    assert [(t.name, t.priority, t.updates, t.written, t.rejected, t.failures) for t in figures.tables] == [
        (TRICKY, 100.0, 22, 220, 0, 2),
        ("zones", 5.0, 1, 3, 0, 0),
        ("never", 2.0, 0, 0, 0, 0),
        ("readings", 1.0, 22, 220, 22, 0),
    ]
    assert (figures.updates, figures.written, figures.recorded) == (45, 443, "end")
    tricky, zones, never, readings = figures.tables
    mine = [u.seconds for u in some_run().updates if u.name == TRICKY and u.error is None]
    assert tricky.mean_seconds == pytest.approx(sum(mine) / len(mine))
    assert (zones.mean_staleness, never.mean_staleness, never.mean_seconds) == (None, None, None)
    weighted = 100 * (tricky.mean_staleness or 0) + (readings.mean_staleness or 0)
    assert figures.weighted_staleness == pytest.approx(weighted)
    assert figures.typical_staleness == pytest.approx(weighted / 101)


@pytest.mark.parametrize(
    ("bound", "line"),
    [
        pytest.param(RunBound(106.0, 100.0, 1.0, LENGTH, 2, True, 2, 0), "1.06", id="all of it"),
        pytest.param(
            RunBound(250.0, 100.0, 1.0, 60.0, 2, True, 2, 3), "2.50, over the last 1 min, without 3 tables", id="a part"
        ),
        pytest.param("it took too long", "not computed: it took too long", id="none"),
    ],
)
@pytest.mark.parametrize("suffix", [".html", ".md", ".txt"])
def test_a_report_tells_how_far_the_run_was_from_the_bound(
    tmp_path: Path, bound: RunBound | str, line: str, suffix: str
) -> None:
    path = tmp_path / f"report{suffix}"
    write_report(some_run(), path, bound)
    told = path.read_text("utf-8")
    name = "times the lower bound"
    assert f"{name}</dt><dd>{line}" in told if suffix == ".html" else f"{name}: {line}\n" in told
    assert "no policy could have been below" in told
    write_report(some_run(), path)
    assert "bound" not in path.read_text("utf-8"), "nobody has asked"


def test_a_report_for_machines_has_the_bound_in_numbers(tmp_path: Path) -> None:
    write_report(some_run(), tmp_path / "a.json", RunBound(106.0, 100.0, 1.0, LENGTH, 2, True, 2, 0))
    told = json.loads((tmp_path / "a.json").read_text("utf-8"))["bound"]
    assert (told["times"], told["least"], told["portions"]) == (pytest.approx(1.06), 100.0, True)


def test_a_table_that_never_had_rows_is_said_to_be_in_no_mean() -> None:
    told = text.summary(figures_of(some_run()))["mean staleness, weighted by priority"]
    assert told.endswith("(without 1 table that never had rows)")


def test_track_time_is_that_of_the_tracks_there_were() -> None:
    trace, figures = some_run(), figures_of(some_run())
    live = sum(u.seconds for u in trace.updates if u.layer == "live")
    assert figures.busy["live"] == pytest.approx(live / (40 + 2 * 80))
    assert figures.busy["maintenance"] == pytest.approx(1.5 / (40 + 2 * 80))
    assert figures.overhead == pytest.approx(0.25)


def test_the_stretches_of_a_table_add_up_to_its_mean() -> None:
    tricky, zones, _, readings = figures_of(some_run()).tables
    means = [stretch.mean for stretch in readings.staleness if stretch is not None]
    assert len(means) == STRETCHES
    assert sum(means) / STRETCHES == pytest.approx(readings.mean_staleness)
    assert max(s.max for s in tricky.staleness if s is not None) == tricky.max_staleness
    assert [s is None for s in tricky.staleness[:4]] == [True, True, False, False]  # it has rows from second 8 on
    assert set(zones.staleness) == {None}


def test_the_same_failure_is_told_once_with_how_often_it_happened() -> None:
    (failure,) = figures_of(some_run()).failures
    assert (failure.table, failure.layer, failure.times) == (TRICKY, "live", 2)
    assert (failure.first, failure.last) == (START + 60.2, START + 61.2)
    assert TRICKY in failure.message


def test_operators_are_counted_over_all_live_updates_of_their_table() -> None:
    trace = with_queries(some_run())
    again = replace(trace.updates[1], layer="backfill")
    tricky, zones, never, readings = figures_of(replace(trace, updates=(*trace.updates, again))).tables
    source, counted = tricky.operators
    assert (source.rows_in, counted.rows_in, counted.rows_out, counted.rejected) == (1_100, 1_100, 440, 22)
    assert (counted.cost, counted.selectivity) == (pytest.approx(0.001), 0.4)
    assert (counted.peak_rows_waiting, counted.utilisation, counted.seconds) == (30, pytest.approx(0.25), 44.0)
    assert [operator.name for operator in zones.operators] == ["idle"]
    assert (never.operators, readings.operators) == ((), ())


# --- the formats ----------------------------------------------------------------------------------------------

VOID = {"meta", "br", "path", "rect"}


class Page(HTMLParser):
    """Fails on tags that are not closed in order; collects the text, and what the page would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.loads: list[str] = []
        self.pictures = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.pictures += tag == "svg"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def written(trace: Trace, folder: Path, suffix: str) -> str:
    path = folder / f"report{suffix}"
    write_report(trace, path)
    return path.read_text("utf-8")


def test_the_page_is_well_formed_and_shows_every_table_whatever_it_is_called(tmp_path: Path) -> None:
    page = Page(written(some_run(), tmp_path, ".html"))
    assert page.open == []
    for table in some_run().header.tables:
        assert table.name in page.words
    assert f"no column <{TRICKY}>" in page.words
    assert page.pictures == 1 + 3  # the bars, and staleness of every table that has event time


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    content = written(some_run(), tmp_path, ".html")
    assert Page(content).loads == []
    assert re.findall(r"https?:|url\(|@import|<script", content) == []


@pytest.mark.parametrize("suffix", [".md", ".txt"])
def test_text_has_a_line_for_every_table(tmp_path: Path, suffix: str) -> None:
    plain = written(some_run(), tmp_path, suffix).replace("\\", "")
    for table in figures_of(some_run()).tables:
        (line,) = [line for line in plain.splitlines() if re.match(rf"(\| )?{re.escape(table.name)}  *\|? *\d", line)]
        assert f"{table.updates:,}" in line
    assert "2 times" in plain
    assert "priority of never: 2.0" in plain


def test_names_cannot_break_the_table_of_a_markdown_report(tmp_path: Path) -> None:
    lines = written(some_run(), tmp_path, ".md").splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {14}


def test_the_numbers_are_there_for_machines(tmp_path: Path) -> None:
    numbers = json.loads(written(some_run(), tmp_path, ".json"))
    assert [table["name"] for table in numbers["tables"]] == [table.name for table in figures_of(some_run()).tables]
    assert numbers["weighted_staleness"] == figures_of(some_run()).weighted_staleness


OPERATOR_CELLS = [TRICKY, f"q|1/{TRICKY}", "partitioned", "1,100", "0.4", "1,000 µs", "1.1 s", "30", "25%", "22"]
IDLE_CELLS = ["zones", "q|1/idle", "stateless", "0", "-", "-", "0 s", "0", "0%", "0"]


def test_the_page_has_a_line_for_every_operator_inside_a_table(tmp_path: Path) -> None:
    page = Page(written(with_queries(some_run()), tmp_path, ".html"))
    assert page.open == []
    words = [word for word in page.words if word.strip()]
    inside = words[words.index("Inside the tables") :]
    for cells in (OPERATOR_CELLS, IDLE_CELLS):
        (place,) = [n for n in range(1, len(inside)) if inside[n - 1 : n + 1] == cells[:2]]
        assert inside[place - 1 : place + 9] == cells


def test_markdown_has_a_line_for_every_operator_inside_a_table(tmp_path: Path) -> None:
    lines = written(with_queries(some_run()), tmp_path, ".md").splitlines()
    inside = [line for line in lines[lines.index("## Inside the tables") :] if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in inside} == {11}
    cells = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in inside]
    assert [[re.sub(r"\\(.)", r"\1", cell) for cell in row] for row in cells[3:]] == [OPERATOR_CELLS, IDLE_CELLS]


def test_plain_text_has_a_line_for_every_operator_inside_a_table(tmp_path: Path) -> None:
    lines = written(with_queries(some_run()), tmp_path, ".txt").splitlines()
    start = lines.index("Inside the tables")
    _, _, tricky, idle = lines[start + 1 : start + 5]
    assert re.split(r" {2,}", tricky) == OPERATOR_CELLS
    assert re.split(r" {2,}", idle) == IDLE_CELLS


def test_the_numbers_of_operators_are_there_for_machines(tmp_path: Path) -> None:
    numbers = json.loads(written(with_queries(some_run()), tmp_path, ".json"))
    operators = {table["name"]: table["operators"] for table in numbers["tables"]}
    assert [(o["query"], o["name"], o["rows_in"]) for o in operators["zones"]] == [("q|1", "idle", 0)]
    assert [len(operators[name]) for name in (TRICKY, "never")] == [2, 0]


@pytest.mark.parametrize("suffix", [".html", ".md", ".txt"])
def test_the_words_for_operators_are_explained_only_where_there_are_any(tmp_path: Path, suffix: str) -> None:
    plain, hosting = (written(trace, tmp_path, suffix) for trace in (some_run(), with_queries(some_run())))
    for word in ("Inside the tables", "Selectivity:", "Utilisation:"):
        assert word not in plain
        assert word in hosting


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(Trace(some_run().header, (), (), None), id="nothing happened"),
        pytest.param(replace(some_run(), end=None), id="killed"),
        pytest.param(replace(some_run(), end=None, full=START + 60), id="full"),
        pytest.param(replace(some_run(), header=replace(some_run().header, tables=())), id="no tables"),
    ],
)
def test_a_report_can_be_written_of_every_run(trace: Trace, suffix: str, tmp_path: Path) -> None:
    assert "city" in written(trace, tmp_path, suffix)


@pytest.mark.parametrize(
    ("name", "named"),
    [("report.pdf", (".html", ".json", "report.pdf")), ("nowhere/report.md", ("nowhere",)), ("report", (".html",))],
)
def test_a_file_that_no_report_can_be_written_to_is_refused(tmp_path: Path, name: str, named: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError) as refused:
        check_report(tmp_path / name)
    assert all(word in str(refused.value) for word in named)


# --- pictures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "top"),
    [
        (0.0, 1.0),
        (0.03, 0.05),
        (1.0, 1.0),
        (1.1, 2.0),
        (4.9, 5.0),
        (7.0, 10.0),
        (130.0, 180.0),
        (4e3, 7200.0),
        (9e4, 172800.0),
    ],
)
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert rounded_up(value) == pytest.approx(top)


def test_a_line_is_broken_where_there_is_nothing_and_stays_inside_the_picture() -> None:
    points = [None, (1.0, 2.0), (1.5, 3.0), None, (4.0, 9.0)]
    picture = over_time(points, 60.0, "a < b")
    lines = re.findall(r'class="mean"[^>]* d="([^"]+)"', picture)
    assert len(lines) == 2
    heights = [float(y) for line in lines for y in re.findall(r"V([\d.]+)", line)]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)  # larger values stand higher
    assert min(heights) >= 0 and max(heights) <= 110
    assert 'aria-label="a &lt; b"' in picture


def test_bars_are_as_long_as_their_values() -> None:
    picture = bars([("x", "priority 2", 4.0), ("y", "priority 1", 2.0), ("z", "priority 0", None)], "bars")
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', picture)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert widths[2] == 0


# --- what came while it ran -------------------------------------------------------------------------------------


def changed_run() -> Trace:
    """As ``some_run``, but after a minute the table never is gone and late_one is there; and a source was missing."""
    run = some_run()
    late = TraceTable("late_one", sources=("readings",), declared=START + 60)
    anew = Redeclared(START + 60, (*run.header.tables[:3], late))
    notices = (RunNotice(START + 2, "readings", "waiting for the directory /landing"),)
    updates = (*run.updates, _update("late_one", 70.0, 70.0, 1.0, 65.0))
    return replace(run, updates=updates, redeclared=(anew,), notices=notices)


def test_tables_that_were_declared_while_it_ran_are_in_the_report() -> None:
    figures = figures_of(changed_run())
    late = next(table for table in figures.tables if table.name == "late_one")
    assert (late.updates, late.written) == (1, 10)
    assert late.mean_staleness is not None
    assert (START + 60, "the pipeline file has changed (new: late_one; gone: never)") in figures.changes


@pytest.mark.parametrize("suffix", [".html", ".md", ".txt", ".json"])
def test_every_format_has_the_notices_of_the_run(tmp_path: Path, suffix: str) -> None:
    assert "waiting for the directory /landing" in written(changed_run(), tmp_path, suffix)


def test_staleness_of_data_of_the_past_is_called_so_and_the_lag_is_shown(tmp_path: Path) -> None:
    old = 10 * 86_400.0
    run = some_run()
    updates = [replace(u, freshness=u.freshness and u.freshness - round(old * 1e6)) for u in run.updates]
    tables = [replace(t, freshness=t.freshness and t.freshness - round(old * 1e6)) for t in run.header.tables]
    trace = replace(run, updates=tuple(updates), header=replace(run.header, tables=tuple(tables)))
    figures = figures_of(trace)
    readings = next(table for table in figures.tables if table.name == "readings")
    assert readings.past
    as_of_now = next(table for table in figures_of(run).tables if table.name == "readings")
    assert readings.mean_lag == pytest.approx(as_of_now.mean_lag)
    line = next(line for line in written(trace, tmp_path, ".txt").splitlines() if line.startswith("readings"))
    assert line.split()[2:4] == ["past", "past"]
    summary = text.summary(figures)
    assert summary["mean staleness, weighted by priority"] == "-", "there is none that says anything"
    assert "mean lag of data of the past, weighted by priority" in summary
    assert not any(table.past for table in figures_of(run).tables)
