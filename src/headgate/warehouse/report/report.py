"""Write the report of a run, from its trace: as HTML, Markdown, plain text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from headgate.core import ParameterError
from headgate.core.trace import RunBound, Trace
from headgate.warehouse.report.figures import RunFigures, figures_of
from headgate.warehouse.report.page import html
from headgate.warehouse.report.printable import printable
from headgate.warehouse.report.text import markdown, text


def _as_json(figures: RunFigures) -> str:
    content = asdict(figures)
    if isinstance(figures.bound, RunBound):
        content["bound"]["times"] = figures.bound.times
    return json.dumps(content, indent=2) + "\n"


#: {suffix: the function that writes the format}
FORMATS: Mapping[str, Callable[[RunFigures], str]] = {
    ".html": html,
    ".md": markdown,
    ".txt": text,
    ".json": _as_json,
}


def check_report(path: Path) -> None:
    """Raise if no report can be written to ``path``; called before the run begins."""
    if path.suffix.lower() not in FORMATS:
        raise ParameterError(f"a report is written to a file called {', '.join(f'*{s}' for s in FORMATS)}; got {path}")
    if not path.parent.is_dir():
        raise ParameterError(f"cannot write the report {path}: there is no folder {path.parent}")


def write_report(trace: Trace, path: Path, bound: RunBound | str | None = None) -> None:
    """Write the report of a run, in the format of the file's suffix.

    ``bound`` is what ``headgate.sim.run_bound`` finds, or why it is not known; without it the report does not say how
    far the run was from the best possible.
    """
    check_report(path)
    content = printable(FORMATS[path.suffix.lower()](figures_of(trace, bound)))
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"cannot write the report {path}: {error.strerror}") from None
