"""What stands on the screen while a warehouse runs, and after its end."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from headgate.cli.live import UpdateLines, live_view, operators_table, print_summary
from headgate.core.errors import InvariantError
from headgate.core.update import OperatorFigures, Update
from headgate.warehouse.schedule.ledger import NodeStatistics
from headgate.warehouse.sources.errors import SourceChanged
from tests.warehouse.control_helpers import statistics_of

NOW = 1_794_736_800.0
SOURCE = OperatorFigures("query", "source", "source", 120_000, 120_000, 0, 0.02, 4096, 0.2, 2.0)
SESSIONS = OperatorFigures("query", "sessions", "partitioned", 120_000, 3_000, 3, 0.38, 50_000, 0.624, 2.0)
#: 18 letters, as many as the table of tables has room for
VISITS = statistics_of("visits_of_each_day", priority=100.0, last_update=NOW, operators=(SOURCE, SESSIONS))
CLICKS = statistics_of("clicks", priority=1.0, last_update=NOW)


def shown(what: RenderableType, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_of_each_table_with_queries_one_line_shows_the_operator_that_works_hardest() -> None:
    sums = statistics_of("sums", operators=(replace(SOURCE, query="s"),))
    *_, first, second = shown(live_view("shop", [CLICKS, sums, VISITS], NOW))
    assert " ".join(first.split()) == "visits_of_each_day sessions 95% 380ms 3.17µs 120k 0.025 50k 62% 3"
    assert " ".join(second.split()) == "sums source 100% 20ms 0.167µs 120k 1 4096 20% 0"


def test_without_queries_the_live_table_is_that_of_tables_alone() -> None:
    assert len(shown(live_view("shop", [CLICKS, statistics_of("sums")], NOW))) == 4  # title, headings, two tables
    assert operators_table("inside", [CLICKS]) is None


def test_the_live_view_fits_a_terminal_of_80_columns() -> None:
    cut = [line for line in shown(live_view("shop", [CLICKS, VISITS], NOW)) if "…" in line]
    assert cut == []


def test_operators_of_several_queries_in_a_table_are_called_by_both_names() -> None:
    both = statistics_of("both", operators=(SOURCE, replace(SESSIONS, query="again")))
    table = operators_table("inside", [both])
    assert table is not None
    assert [line.split()[1] for line in shown(table)[2:]] == ["again/sessions", "query/source"]


@pytest.mark.parametrize(
    ("operator", "cells"),
    [
        pytest.param(replace(SOURCE, rows_in=0, rows_out=0, processor=0.0), "- 0µs - 0 -", id="no rows, no work"),
        pytest.param(replace(SOURCE, processor=360.0), "100% 360s 3ms 120k 1", id="minutes of work"),
        pytest.param(replace(SOURCE, rows_in=10, rows_out=25), "100% 20ms 2ms 10 2.5", id="more rows out than in"),
    ],
)
def test_figures_are_shown_as_short_as_can_be(operator: OperatorFigures, cells: str) -> None:
    table = operators_table("inside", [statistics_of("t", operators=(operator,))])
    assert table is not None
    assert shown(table)[2].split()[2:7] == cells.split()


@pytest.mark.parametrize(("rows", "says"), [([CLICKS, VISITS], True), ([CLICKS], False)])
def test_the_summary_has_a_line_for_every_operator_and_says_what_its_words_mean(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, rows: list[NodeStatistics], says: bool
) -> None:
    print_summary("shop", tmp_path, rows, 60.0, [])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.split()[:2] == ["visits_of_each_day", "sessions"] for line in lines) == says
    assert sum(line.split()[:2] == ["visits_of_each_day", "source"] for line in lines) == says
    assert any("out/in: output rows per" in line for line in lines) == says


DAY = 86_400.0
HISTORY = statistics_of("history", staleness=900 * DAY, mean_staleness=900 * DAY, lag=3.0, mean_lag=2.0, priority=1.0)
BEHIND = statistics_of("behind", staleness=3 * DAY, mean_staleness=3 * DAY, lag=3 * DAY - 60, priority=1.0)


def test_the_staleness_of_data_of_the_past_is_not_shown_but_its_lag_is() -> None:
    _, _, behind, history = shown(live_view("shop", [HISTORY, BEHIND], NOW))
    assert history.split()[:5] == ["history", "1", "past", "past", "3.0s"]
    assert behind.split()[:4] == ["behind", "1", "3d", "3d"], "it is stale because its data waits"


def test_the_summary_of_a_run_over_data_of_the_past_has_the_mean_lag(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    print_summary("shop", tmp_path, [HISTORY], 60.0, [])
    printed = capsys.readouterr().out
    assert "Mean lag, weighted by priority: 2.0 s" in printed
    assert "Mean staleness" not in printed


def test_below_the_live_table_is_what_tables_wait_for() -> None:
    waiting = statistics_of("orders", state="waiting", note="waiting for the directory [in]")
    unfinished = statistics_of("clicks", note="1 file is not complete yet: a.json")
    failing = statistics_of("sums", state="failing", error="no such column")
    lines = shown(live_view("shop", [waiting, unfinished, failing], NOW))
    assert lines[-3:] == [
        "orders is waiting: waiting for the directory [in]",
        "clicks: 1 file is not complete yet: a.json",
        "sums is failing: no such column",
    ]


def test_a_failure_that_says_everything_in_a_line_has_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    expected, bug = Update("clicks"), Update("clicks")
    expected.fails(SourceChanged("a.json", "a.json changed before its rows were loaded", "Try again"))
    bug.fails(InvariantError("two updates of one table ran"))
    UpdateLines().note(expected)
    assert "Traceback" not in (said := capsys.readouterr().err) and "a.json changed" in said
    UpdateLines().note(bug)
    assert "InvariantError" in capsys.readouterr().err


def test_rows_are_those_in_the_table_and_a_log_line_says_written(capsys: pytest.CaptureFixture[str]) -> None:
    _, headings, clicks = shown(live_view("shop", [replace(CLICKS, rows=70, written=900)], NOW))
    assert dict(zip(headings.split(), clicks.split(), strict=False))["rows"] == "70"
    UpdateLines().note(Update("clicks", rows=900, seconds=0.5, status="committed"))
    assert "clicks: 900 rows written in 0.50 s" in capsys.readouterr().out


@pytest.mark.parametrize(("left", "then"), [(0, "-"), (27, "+27")], ids=["nothing left", "not all taken in"])
def test_the_summary_of_a_run_that_has_ended_expects_nothing(
    capsys: pytest.CaptureFixture[str], left: int, then: str
) -> None:
    row = statistics_of("air", state="ok", next_update=0.0, updates_left=left)
    print_summary("city", Path("city"), [row], 1.0, [])
    headings, air = capsys.readouterr().out.splitlines()[1:3]
    assert dict(zip(headings.split(), air.split(), strict=True))["next"] == then
