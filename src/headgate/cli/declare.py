"""``headgate check`` and ``headgate graph``: what a pipeline file declares, before anything is started."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headgate.core.errors import DeclarationError
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.report.drawing import FORMATS, counts

PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file that declares a warehouse.")]


class Format(StrEnum):
    """How a graph is written."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


#: what the ending of an output file says about its format
_ENDINGS = {".svg": Format.SVG, ".mmd": Format.MERMAID, ".mermaid": Format.MERMAID}


def check(file: PipelineFile) -> None:
    """Find every mistake in a pipeline file; nothing is started and nothing is written."""
    spec = load(file).spec()
    print(f"{spec.name}: {counts(spec)}: no mistakes")


def graph(
    file: PipelineFile,
    written: Annotated[
        Format | None,
        typer.Option("--format", help="How to write it; by the ending of --output or as text, unless stated."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of printing.")] = None,
) -> None:
    """Draw which table is computed from which, as text, as a Mermaid flow chart or as an SVG picture."""
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
