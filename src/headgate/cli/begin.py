"""``headgate init`` and ``headgate demo``: the first steps."""

from __future__ import annotations

import os
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import say
from headgate.cli.page import PageOptions, Ui, UiPort
from headgate.cli.run import options_from, run_file
from headgate.core import MOST_TRACKS, ParameterError
from headgate.warehouse.declare.durations import seconds

_DEMO_FOLDER = "headgate-demo"


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file to write.")] = Path("pipeline.py"),
) -> None:
    """Write an example pipeline file.

    It runs as it is; change it into your own.
    """
    if file.suffix != ".py":
        raise ParameterError(f"a pipeline file is a Python file, such as shop.py; got {str(file)!r}")
    name = re.sub(r"\W", "_", file.stem)
    if name[0].isdigit():
        name = f"_{name}"
    text = _template("first.py").replace("{name}", name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as pipeline:
            pipeline.write(text)
    except FileExistsError:
        raise ParameterError(f"{file} exists already and was not changed; give another file name") from None
    except OSError as error:
        raise ParameterError(f"cannot write {file}: {error.strerror}") from None
    say(f"Wrote {file}. Next: headgate run {file}")


def demo(
    duration: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long to run.")] = "1 min",
    tracks: Annotated[
        int, typer.Option(min=1, max=MOST_TRACKS, help="Number of updates that may run at the same time.")
    ] = 2,
    policy: Annotated[
        str, typer.Option(metavar="NAME[:k=v,..]", help="Decides which table is updated next.")
    ] = "max-benefit",
    placement: Annotated[
        str, typer.Option(metavar="NAME[:k=v,..]", help="Decides on which tracks a table may be updated.")
    ] = "proportional",
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the pipeline file, its tables and the report.")
    ] = Path(_DEMO_FOLDER),
    ui: Ui = True,
    ui_port: UiPort = None,
) -> None:
    """Run an example for a minute, with generated data.

    It keeps 4 streams and 12 tables of a city fresh, and writes a report.
    """
    from headgate.warehouse.run.run import SparkOptions
    from headgate.warehouse.run.trace import newest_trace

    limit = seconds(duration, "--for")
    options = options_from(tracks, policy, placement)
    file = _begun_again(folder)
    shown = os.path.relpath(file)
    say(f"A city's sensors: 4 streams, 12 tables, {tracks} updates at a time, for {duration} ({shown}).")
    page = PageOptions(port=ui_port) if ui else None
    run_file(file, options, SparkOptions(), limit, folder / "report.html", page=page)
    say(f"\nQuery a table:  headgate query {shown} 'select * from dashboard order by minute desc limit 5'")
    trace = newest_trace(folder / "city.warehouse")
    if trace is not None:
        say(f"Replay the run under other policies:  headgate simulate {os.path.relpath(trace)}")


def _begun_again(folder: Path) -> Path:
    """The demo's pipeline file. Deletes what earlier demos left, unless the user has edited the file."""
    from headgate.warehouse.run.lock import WarehouseLock

    file, text = folder / "city.py", _template("city.py")
    if file.exists() and file.read_text(encoding="utf-8") != text:
        return file
    warehouse = folder / "city.warehouse"
    with WarehouseLock(warehouse):
        shutil.rmtree(warehouse / "tables", ignore_errors=True)
        shutil.rmtree(warehouse / "runs", ignore_errors=True)
    file.write_text(text, encoding="utf-8")
    return file


def _template(name: str) -> str:
    return resources.files("headgate.cli").joinpath("templates", name).read_text(encoding="utf-8")
