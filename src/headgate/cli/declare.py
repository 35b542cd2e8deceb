"""``headgate check`` and ``headgate graph``: check and draw a pipeline file without starting anything."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headgate.core.errors import DeclarationError
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.report.drawing import FORMATS, counts

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file: a Python file that declares a warehouse.")
]


class Format(StrEnum):
    """How a graph is written."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


#: what the ending of an output file says about its format
_ENDINGS = {".svg": Format.SVG, ".mmd": Format.MERMAID, ".mermaid": Format.MERMAID}


def check(file: PipelineFile) -> None:
    """Check a pipeline file and list every error in it.

    Starts nothing and writes nothing.
    """
    spec = load(file).spec()
    print(f"{spec.name}: {counts(spec)}: no errors")


def graph(
    file: PipelineFile,
    written: Annotated[
        Format | None,
        typer.Option("--format", help="Output format; by default from the suffix of --output, else text."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this file instead of standard output.")
    ] = None,
) -> None:
    """Draw which table is computed from which.

    Formats are text, Mermaid and SVG.
    """
    spec = load(file).spec()
    if written is None:
        written = _ENDINGS.get(output.suffix.lower(), Format.TEXT) if output else Format.TEXT
    picture = FORMATS[written](spec)
    if output is None:
        sys.stdout.write(picture)
        return
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise DeclarationError(f"cannot write the graph to {output}: {error.strerror}") from None
    print(f"wrote {output}", file=sys.stderr)
