"""``headgate import-dbt``: other people's pipelines as a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import say, say_error
from headgate.core import ParameterError


def import_dbt(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The manifest of dbt: target/manifest.json.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The pipeline file to write; it must not exist.")] = Path(
        "dbt_pipeline.py"
    ),
) -> None:
    """Make a pipeline file of the Spark models in a dbt manifest.

    Models, sources and seeds that cannot be taken over are listed with the reason, and left out.
    """
    from headgate.warehouse.pipelines.dbt import import_manifest

    made = import_manifest(manifest)
    for line in made.left:
        say_error(f"not taken over: {line}")
    if not made.taken:
        raise ParameterError(f"nothing in {manifest} can be taken over")
    try:
        with output.open("x", encoding="utf-8") as pipeline:
            pipeline.write(made.text)
    except FileExistsError:
        raise ParameterError(f"{output} exists already and was not changed; give another name with --output") from None
    except OSError as error:
        raise ParameterError(f"cannot write {output}: {error.strerror}") from None
    say(f"Wrote {output}, with {', '.join(made.taken)}. Next: headgate check {output}")
