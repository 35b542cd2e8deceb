"""How a warehouse, a run and a report look in a notebook."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import headgate as hg
from headgate.warehouse.report.figures import figures_of
from headgate.warehouse.report.notebook import NoNotebookError, run_html, show_live
from tests.sim.recording import recorded
from tests.warehouse.control_helpers import statistics_of

NASTY = '<img src=x onerror=alert(1)>"&\x1b[31m'


class Elements(HTMLParser):
    """The names of the elements in a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)


def test_a_warehouse_shows_what_it_declares(tmp_path: Path) -> None:
    wh = hg.Warehouse(NASTY, tmp_path)
    wh.stream(
        "readings", hg.Files(tmp_path, format="json", schema="at timestamp"), time="at", priority=5, target_lag="10 s"
    )
    shown = wh._repr_html_()
    assert "readings" in shown and "10 s" in shown
    assert Elements(shown).names <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert "\x1b" not in shown


def test_a_run_shows_how_its_tables_stand_with_every_text_escaped() -> None:
    rows = (statistics_of("air", priority=1.0, staleness=3.0), statistics_of(NASTY, priority=9.0, error=NASTY))
    shown = run_html("city", "is running", rows)
    assert shown.index("&lt;img") < shown.index("air")
    assert "3 s" in shown
    assert "img" not in Elements(shown).names and "\x1b" not in shown


def test_a_report_is_a_page_inside_the_page_without_scripts() -> None:
    from tests.monitor.test_recorded import BUSY

    shown = figures_of(recorded(BUSY, "fifo")[1])._repr_html_()
    assert shown.startswith("<iframe sandbox srcdoc=") and Elements(shown).names == {"iframe"}


def test_outside_of_a_notebook_it_says_so() -> None:
    with pytest.raises(NoNotebookError, match="headgate top"):
        show_live(lambda: "", lambda: False)


@pytest.mark.slow
def test_in_ipython_the_picture_changes_until_the_run_ends_or_the_cell_is_interrupted() -> None:
    pytest.importorskip("IPython")
    script = """
from headgate.warehouse.report.notebook import show_live
left = [1, 2, 3]
show_live(lambda: f"<b>{len(left)} left</b>", lambda: bool(left and left.pop()), seconds=0.0)
def interrupted():
    raise KeyboardInterrupt
show_live(lambda: "<b>x</b>", interrupted)
print("done", left)
"""
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "done []" in done.stdout, done.stderr + done.stdout
    assert done.stdout.count("HTML object") == 5
