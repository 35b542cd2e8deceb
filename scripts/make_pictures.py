"""Make the pictures of the documents: ``python scripts/make_pictures.py [NAME...]``, all of them without a name.

There are three kinds, and all show what a command gave:

- A terminal picture is what a command prints on a terminal of 80 columns, recorded by rich and written as SVG. Make it
  again after changing what the command prints. Times and ``events/s`` differ from run to run.
- The chart of the README is drawn from ``docs/pictures/spark_policies.csv``, the results of
  ``python -m benchmarks spark_policies``. After a new full run, put its numbers there.
- The pictures of the page are screenshots of ``headgate demo`` in Chromium, some minutes after its start, with a change
  of policy in between. They need Java, Chromium and playwright.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 80

#: {file: (arguments of the headgate command, text in the first line that is shown)}
TERMINALS = {
    "demo.svg": (("demo",), "city, after"),
    "simulate.svg": (("simulate", "examples/scenarios/city.toml", "--story", "--nodes", "0"), ""),
}
CHART = "spark_policies.svg"
#: {file: (view of the page, how many pixels high)}
PAGES = {
    "page_overview.png": ("#/", 900),
    "page_tracks.png": ("#/tracks", 560),
    "page_table.png": ("#/table/dashboard", 900),
}
#: how long the demo runs before the policy is changed, and then until the pictures are taken, in milliseconds
BEFORE, AFTER = 75_000, 75_000


def printed(arguments: Sequence[str]) -> str:
    """What the command prints in colour."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "headgate.cli", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return done.stdout


def as_svg(text: str, title: str, name: str) -> str:
    """A terminal window with ``text`` in it, whose colours are ANSI escapes."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text.strip("\n")), soft_wrap=True)
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    # rich has the browser fetch a font; a picture in a document should not load anything from the network.
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def terminal(file: str) -> str:
    """What the command of this picture prints, as SVG."""
    arguments, first = TERMINALS[file]
    lines = printed(arguments).splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if first in line)
    return as_svg("".join(lines[begin:]), " ".join(("headgate", *arguments)), Path(file).stem) + "\n"


def chart() -> str:
    """Mean staleness by policy, as SVG; numbers stay text, so that they can be searched."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with (PICTURES / CHART).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    staleness = [float(row["weighted staleness"]) for row in rows]
    # A fixed salt and no date: drawing the same numbers again gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": CHART}):
        figure = Figure(figsize=(7.2, 2.2), layout="constrained")
        axes = figure.subplots()
        names = [f"{row['policy']}, {row['placement']}" for row in rows]
        colours = ["#0072B2" if value == min(staleness) else "#B0B0B0" for value in staleness]
        axes.bar_label(axes.barh(names, staleness, color=colours), fmt="%.1f s", padding=4)
        axes.invert_yaxis()
        axes.set_xlim(0, max(staleness) * 1.12)
        axes.set_xlabel("mean staleness, weighted by priority (seconds; lower is better)")
        axes.set_title("24 tables on Spark, two cores, far more data than they can keep up with", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


@contextmanager
def running_demo() -> Iterator[str]:
    """The demo of the warehouse, without limit; gives the address of its page."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "headgate.cli", "demo", "--for", "1 h", "--folder", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
            assert demo.stdout is not None
            try:
                lines = iter(demo.stdout.readline, "")
                yield next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
            finally:
                demo.send_signal(signal.SIGINT)
                demo.communicate()


def pages(files: Sequence[str]) -> None:
    """Screenshots of the page of the demo, as light as in a browser that has not been told otherwise."""
    from playwright.sync_api import sync_playwright

    with running_demo() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_timeout(BEFORE)
        _change_policy(page)
        page.wait_for_timeout(AFTER)
        for file in files:
            view, height = PAGES[file]
            page.set_viewport_size({"width": 1280, "height": height})
            page.goto(f"{address}{view}")
            page.wait_for_timeout(3_000)
            page.screenshot(path=PICTURES / file)
        browser.close()


def _change_policy(page: Any) -> None:
    page.get_by_role("button", name="policy").click()
    page.get_by_role("dialog").get_by_label("Policy").select_option("fifo")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()


def main(names: Sequence[str]) -> None:
    chosen = names or (*TERMINALS, CHART, *PAGES)
    for file in chosen:
        if file not in PAGES:
            (PICTURES / file).write_text(chart() if file == CHART else terminal(file), encoding="utf-8")
    if shown := [file for file in chosen if file in PAGES]:
        pages(shown)
    for file in chosen:
        print((PICTURES / file).relative_to(PICTURES.parents[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
