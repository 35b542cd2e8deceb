"""``headgate run FILE``: keep the tables of a pipeline file fresh."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headgate.core.errors import ParameterError
from headgate.core.registry import placement_from, policy_from
from headgate.warehouse.durations import readable, seconds

if TYPE_CHECKING:
    from headgate.warehouse.book import NodeStatistics
    from headgate.warehouse.runtime import Runtime, UpdateMade
    from headgate.warehouse.spec import WarehouseSpec


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    tracks: Annotated[int, typer.Option(min=1, help="How many updates may run at once.")] = 2,
    policy: Annotated[str, typer.Option(metavar="NAME[:k=v,..]", help="Which table goes first.")] = "max-benefit",
    placement: Annotated[str, typer.Option(metavar="NAME[:k=v,..]", help="On which tracks.")] = "proportional",
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Stop after so long, such as '1 min'.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A Spark setting; give it several times for several.")
    ] = None,
) -> None:
    """Keep the tables of a pipeline file fresh until stopped.

    Ctrl-C finishes the updates that are running; a second one cancels them.
    """
    from headgate.warehouse.lock import WarehouseLock
    from headgate.warehouse.opened import open_warehouse
    from headgate.warehouse.pipeline_file import load
    from headgate.warehouse.runtime import RunOptions, Runtime
    from headgate.warehouse.session import open_session

    limit = None if duration is None else seconds(duration, "--for")
    options = RunOptions(tracks=tracks, policy=policy_from(policy), placement=placement_from(placement))
    settings = dict(_setting(text) for text in conf or ())
    spec = resolved(load(file).spec())
    with WarehouseLock(Path(spec.path)):
        spark = open_session(spec.name, master, settings)
        try:
            reporter = _Lines()
            runtime = Runtime(open_warehouse(spec, spark), spark, options, reporter.note)
            runtime.start()
            _watch(runtime, limit, spec)
            _print_summary(spec, runtime.statistics())
        finally:
            spark.stop()


def resolved(spec: WarehouseSpec) -> WarehouseSpec:
    """The spec with relative source paths taken from the pipeline file's folder."""
    from headgate.warehouse.declare import base_folder

    base = base_folder(spec.place)
    return replace(
        spec,
        streams=tuple(replace(stream, source=stream.source.resolve(base)) for stream in spec.streams),
        dimensions=tuple(replace(d, source=d.source.resolve(base)) for d in spec.dimensions),
    )


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ParameterError(f"--conf takes KEY=VALUE, such as spark.driver.memory=4g; got {text!r}")
    return key, value


class _Lines:
    """One log line per update, for output that is not a terminal."""

    def __init__(self) -> None:
        self._quiet = sys.stdout.isatty()

    def note(self, made: UpdateMade) -> None:
        if made.failure is not None:
            print(made.failure.traceback, file=sys.stderr)
            print(f"{_clock()} {made.name}: failed: {made.failure.summary}", file=sys.stderr, flush=True)
        elif made.outcome is not None and not self._quiet and made.outcome.freshness is not None:
            rejected = f", {made.outcome.rejected} rejected" if made.outcome.rejected else ""
            print(
                f"{_clock()} {made.name}: {made.outcome.rows} rows{rejected} in {made.seconds:.2f} s",
                flush=True,
            )


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _watch(runtime: Runtime, limit: float | None, spec: WarehouseSpec) -> None:
    """Wait for the end, showing how the tables fare; then stop."""
    asked = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        end = time.monotonic() + (float("inf") if limit is None else limit)
        console = Console()
        with Live(console=console, refresh_per_second=4, transient=True, auto_refresh=False) as live:
            while not asked.is_set() and time.monotonic() < end and runtime.error is None:
                if console.is_terminal:
                    live.update(_table(spec.name, runtime.statistics()), refresh=True)
                asked.wait(min(0.5, max(0.0, end - time.monotonic())))
        signal.signal(signal.SIGINT, lambda *_: runtime.stop(cancel=True))
        runtime.stop()
    finally:
        signal.signal(signal.SIGINT, before)


def _table(title: str, rows: Sequence[NodeStatistics]) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    table.add_column("table", no_wrap=True)
    for heading in ("prio", "stale", "mean", "max", "rows", "bad", "updates", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in sorted(rows, key=lambda row: (-row.priority, row.name)):
        stale = (row.staleness, row.mean_staleness, row.max_staleness)
        cells = ["-" if value is None else _short(value) for value in stale]
        took = "-" if row.last_seconds is None else _short(row.last_seconds)
        counts = [f"{row.rows:,}", f"{row.rejected:,}", f"{row.updates:,}", took]
        table.add_row(row.name, f"{row.priority:g}", *cells, *counts, row.state)
    return table


def _short(length: float) -> str:
    return readable(max(0.0, length)).replace(" ", "")


def _print_summary(spec: WarehouseSpec, rows: Sequence[NodeStatistics]) -> None:
    console = Console()
    console.print(_table(f"{spec.name}, at the end", rows))
    console.print("[dim]stale: how far the table is behind now, on the mean and at most; bad: rows rejected[/dim]")
    console.print(f"The tables are Delta tables in {Path(spec.path) / 'tables'}", highlight=False, soft_wrap=True)
    for row in rows:
        if row.error:
            console.print(f"{row.name} is {row.state}: {row.error}", highlight=False, soft_wrap=True)
