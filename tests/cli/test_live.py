"""What stands on the screen while a warehouse runs, and after its end."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from headgate.cli.live import live_view, operators_table, print_summary
from headgate.core.update import OperatorFigures
from headgate.warehouse.schedule.ledger import NodeStatistics
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
