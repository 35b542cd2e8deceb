"""Make the pictures of the documents: ``python scripts/make_pictures.py [NAME...]``, all of them without a name.

There are two kinds, and both show what a command gave:

- A terminal picture is what a command prints on a terminal of 80 columns, recorded by rich and written as SVG. Make it
  again after changing what the command prints. Times and ``events/s`` differ from run to run.
- The chart of the README is drawn from ``docs/pictures/spark_policies.csv``, the results of
  ``python -m benchmarks spark_policies``. After a new full run, put its numbers there.
"""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        axes = figure.subplots()
        names = [f"{row['policy']}, {row['placement']}" for row in rows]
        colours = ["#0072B2" if value == min(staleness) else "#B0B0B0" for value in staleness]
        axes.bar_label(axes.barh(names, staleness, color=colours), fmt="%.1f s", padding=4)
        axes.invert_yaxis()
        axes.set_xlim(0, max(staleness) * 1.12)
        axes.set_xlabel("mean staleness, weighted by priority (seconds; lower is better)")
        axes.set_title("24 tables on Spark, two cores, about twice the load they can carry", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def main(names: Sequence[str]) -> None:
    for file in names or (*TERMINALS, CHART):
        path = PICTURES / file
        path.write_text(chart() if file == CHART else terminal(file), encoding="utf-8")
        print(path.relative_to(PICTURES.parents[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
