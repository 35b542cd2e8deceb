"""Makes the pictures of the documents again: ``python scripts/make_pictures.py``.

A picture is what a command prints on a terminal of 80 columns, recorded by rich and written as SVG. Nothing is drawn by
hand, so a picture shows what the command shows; run this after changing what ``headgate demo`` prints. The line
``events/s`` is measured by the wall clock and differs from run to run.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 80

#: {file: (arguments of the headgate command that it shows, with what the part of it begins that is shown)}
SHOWN = {
    "demo.svg": (("demo",), "city, after"),
    "simulate.svg": (("simulate", "examples/scenarios/city.toml", "--story", "--nodes", "0"), ""),
}


def printed(arguments: tuple[str, ...]) -> str:
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
    # rich has the browser fetch a font; a picture in a document should ask nobody for anything.
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for file, (arguments, first) in SHOWN.items():
        path = PICTURES / file
        title = " ".join(("headgate", *arguments))
        lines = printed(arguments).splitlines(keepends=True)
        begin = next(number for number, line in enumerate(lines) if first in line)
        path.write_text(as_svg("".join(lines[begin:]), title, path.stem) + "\n", encoding="utf-8")
        print(f"{path.relative_to(PICTURES.parents[1])}: what '{title}' prints")


if __name__ == "__main__":
    main()
