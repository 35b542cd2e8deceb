"""What the command line prints, all of it ``printable``. No other module of the command line prints by itself."""

from __future__ import annotations

import os
import sys
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.warehouse.report.printable import printable

#: a pipe or a file has no width: names in tables are not wrapped there, and sentences as on a usual terminal
_UNLIMITED, _USUAL = 10_000, 80


class PlainConsole(Console):
    """Prints tables and lines of text. Nothing in a text is markup: styles are given beside it.

    ``width`` is that of the terminal if it is not given; if there is no terminal, tables are as wide as they are.
    """

    def __init__(self, file: IO[str] | None = None, width: int | None = None) -> None:
        super().__init__(file=file, width=width, markup=False, highlight=False, emoji=False)
        self._has_no_width = width is None and not self.is_terminal
        if self._has_no_width:
            self.width = _UNLIMITED

    def print(self, *objects: Any, **options: Any) -> None:
        if self._has_no_width and not any(isinstance(each, Table) for each in objects):
            options.setdefault("width", _USUAL)
        super().print(*objects, **options)

    # Every string that is printed, in tables too, becomes a Text here.
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def styled(text: str, style: str) -> Text:
    """A text in one style."""
    return Text(printable(text), style)


def say(text: object = "", *, flush: bool = False) -> None:
    """Print to standard output."""
    print(printable(str(text)), flush=flush)


def flush() -> None:
    """Write what was printed, and forget it if that fails: at its end Python would try again, and tell its own way."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def say_error(text: object) -> None:
    """Print to standard error: problems and progress."""
    print(printable(str(text)), file=sys.stderr, flush=True)
