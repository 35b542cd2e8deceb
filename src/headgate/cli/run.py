"""``headgate check``, ``graph`` and ``run``: check and draw a pipeline file, and keep its tables fresh."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from headgate.cli.json_log import JsonLog
from headgate.cli.live import UpdateLines, live_view, print_summary
from headgate.cli.output import PlainConsole, say, say_error
from headgate.cli.page import PageOptions, Ui, UiHost, UiNames, UiPort, UiPreviews, UiReadOnly
from headgate.core import (
    MOST_SECONDS,
    MOST_TRACKS,
    DeclarationError,
    ParameterError,
    placement_from,
    plan_lines,
    policy_from,
)
from headgate.core.lengths import plural
from headgate.places.place import AnyPath
from headgate.warehouse.declare.durations import readable, seconds
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.declare.warehouse import missing_sources
from headgate.warehouse.report.drawing import FORMATS, counts
from headgate.warehouse.run.control_commands import LEAST_SECONDS

if TYPE_CHECKING:
    from headgate.warehouse.declare.modes import TableMode
    from headgate.warehouse.declare.spec import WarehouseSpec
    from headgate.warehouse.run.run import SparkOptions, WarehouseRun
    from headgate.warehouse.schedule.run_options import RunOptions

PipelineFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The pipeline file: a Python file that declares a warehouse, or spark-pipeline.yml."
    ),
]


class GraphFormat(StrEnum):
    """How a graph is written."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


class ChangedQuery(StrEnum):
    """What becomes of a table whose query has changed since its rows were computed."""

    REBUILD = "rebuild"
    KEEP = "keep"
    REFUSE = "refuse"


#: the exit status of ``run --once`` if not all tables are fresh at the end
NOT_FRESH = 3
#: what the ending of an output file says about its format
_ENDINGS = {".svg": GraphFormat.SVG, ".mmd": GraphFormat.MERMAID, ".mermaid": GraphFormat.MERMAID}


def check(
    file: PipelineFile,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Do not start Spark: columns are not checked, and no modes are shown.")
    ] = False,
    tracks: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_TRACKS, help="Check target lags for this number of tracks; default 2, as headgate run has."
        ),
    ] = None,
) -> None:
    """Check a pipeline file, list every error in it, and show how each table will be kept up to date.

    Spark analyses the queries on empty data, which takes some seconds; --no-spark leaves that out. Also names the
    directories of sources that do not exist: a stream waits for its directory. If the tables were updated before, says
    whether their target lags can be met on --tracks tracks, and what would help. Writes nothing.
    """
    warehouse = load(file)
    spec = warehouse.spec()
    modes, warnings = ({}, []) if no_spark or not spec.tables else _modes(spec)
    say(f"{spec.name}: {counts(spec)}: no errors")
    width = max((len(name) for name in modes), default=0)
    for name, mode in modes.items():
        say(f"  {name.ljust(width)}  {mode.name.ljust(6)}  {mode.reason}")
    for warning in (*warehouse.warnings, *warnings):
        say(f"warning: {warning}")
    for mistake in missing_sources(spec):
        say(f"not there yet: {mistake}")
    for line in _targets(spec, tracks):
        say(line)


def _targets(spec: WarehouseSpec, tracks: int | None) -> list[str]:
    """Whether target lags can be met, by what earlier runs have learned."""
    from headgate.warehouse.schedule.kept_costs import read_costs, read_paces
    from headgate.warehouse.schedule.run_options import DEFAULT_TRACKS
    from headgate.warehouse.schedule.target_watch import plan_before_run

    folder = spec.folder()
    plan = plan_before_run(spec, tracks or DEFAULT_TRACKS, read_costs(folder), read_paces(folder))
    if plan is None:
        return []
    on = f"{plan.tracks} {plural('track', plan.tracks)}"
    unknown = f"; it is not known yet what updates of {', '.join(plan.unknown)} cost" if plan.unknown else ""
    why = f"headgate run has {on} by default, and on a cluster one for each core: --tracks N checks another number"
    default = [f"  {why}"] if tracks is None else []
    if lines := plan_lines(plan, readable):
        return [f"target lags on {on}{unknown}:", *(f"  {line}" for line in lines), *default]
    if plan.unknown and not plan.busy:
        return [f"target lags: run it for a while, then check again{unknown}"]
    return [f"target lags: can be met on {on}, of which they take {plan.busy:.2f}{unknown}", *default]


def _modes(spec: WarehouseSpec) -> tuple[dict[str, TableMode], list[str]]:
    """How each table is kept up to date, found out by a Spark that is stopped again; and what is doubtful."""
    from headgate.warehouse.declare.analysis import analyse
    from headgate.warehouse.declare.modes import table_modes
    from headgate.warehouse.run.run import resolved
    from headgate.warehouse.session import open_session

    session = open_session(spec.name, "local[1]")
    try:
        analyses = analyse(resolved(spec), session)
        warnings = [
            f"{table.place}: table {table.name!r} calls {', '.join(analyses[table.name].unrepeatable)}, which gives "
            "another value each time: rows that are computed again change, others keep the values of their time"
            for table in spec.tables
            if analyses[table.name].unrepeatable
        ]
        return table_modes(spec, analyses), warnings
    finally:
        session.stop()


def graph(
    file: PipelineFile,
    form: Annotated[
        GraphFormat | None,
        typer.Option("--format", help="Output format; by default from the suffix of --output, else text."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to this file instead of standard output.")
    ] = None,
    modes: Annotated[
        bool, typer.Option("--modes", help="Show how each table is kept up to date; Spark finds that out.")
    ] = False,
) -> None:
    """Draw which table is computed from which.

    Formats are text, Mermaid and SVG.
    """
    spec = load(file).spec()
    if modes:
        known, _ = _modes(spec)
        spec = replace(spec, tables=tuple(replace(table, mode=known[table.name].name) for table in spec.tables))
    if form is None:
        form = _ENDINGS.get(output.suffix.lower(), GraphFormat.TEXT) if output else GraphFormat.TEXT
    picture = FORMATS[form](spec)
    if output is None:
        say(picture.removesuffix("\n"))
        return
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise DeclarationError(f"cannot write the graph to {output}: {error.strerror}") from None
    say_error(f"wrote {output}")


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The pipeline file, or the spark-pipeline.yml of a project.")
    ],
    master: Annotated[str, typer.Option(help="Spark master URL.")] = "local[*]",
    shared: Annotated[
        bool, typer.Option("--shared", help="All machines of the cluster see the folders of the warehouse.")
    ] = False,
    tracks: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_TRACKS,
            help="Number of updates that may run at the same time; by default 2, on a cluster one for each core.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME[:k=v,..]",
            help="Decides which table is updated next; auto begins with max-benefit and changes policy and placement "
            "when replays of the last minutes show a lasting gain.",
        ),
    ] = "max-benefit",
    placement: Annotated[
        str, typer.Option(metavar="NAME[:k=v,..]", help="Decides on which tracks a table may be updated.")
    ] = "proportional",
    inheritance: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="What sources inherit from the tables built on them: none, sum, max, max-plus, max-plus:k=3 or "
            "density; by default what the pipeline states or the policy asks for, or else max.",
        ),
    ] = "default",
    budget: Annotated[
        str, typer.Option(metavar="DURATION", help="How long one update should take at most; 'none' for no limit.")
    ] = "1 s",
    together: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="Which tables share jobs: those of a declared group (declared), those with the same sources of which "
            "the scheduler expects a gain (auto), or none (never); by default what the pipeline states, or else "
            "declared.",
        ),
    ] = "default",
    chop: Annotated[
        float | None,
        typer.Option(metavar="PERIODS", help="Load at most this many periods of data per update, instead of --budget."),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Cancel an update after this time; by default 20 times its longest update, at least 2 minutes.",
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="Stop after this time, such as '1 min'; by default run until Ctrl-C."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all tables have taken in what had arrived at the start.")
    ] = False,
    on_change: Annotated[
        ChangedQuery, typer.Option(help="What to do with tables whose query has changed since they were computed.")
    ] = ChangedQuery.REBUILD,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report at the end: .html, .md, .txt or .json.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Write a line of JSON for each update and message; no live table.")
    ] = False,
    ui: Ui = True,
    ui_port: UiPort = None,
    ui_host: UiHost = "127.0.0.1",
    ui_name: UiNames = None,
    ui_read_only: UiReadOnly = False,
    ui_previews: UiPreviews = True,
) -> None:
    """Keep the tables of a pipeline file fresh until stopped.

    Ctrl-C lets the running updates finish, a second Ctrl-C cancels them. When the file is saved, the run continues
    with the new declarations. With --once the exit status is 3 if not all tables are fresh at the end.
    """
    from headgate.warehouse.run.run import SparkOptions
    from headgate.warehouse.schedule.catching_up import NotFreshError

    limit = None if duration is None else seconds(duration, "--for")
    options = options_from(tracks, policy, placement, chop, budget_from(budget))
    options = replace(options, inheritance=inheritance, together=together)
    if time_limit is not None:
        options = replace(options, time_limit=some_seconds(time_limit, "--time-limit", "'10 min'"))
    settings = dict(_setting(text) for text in conf or ())
    page = PageOptions(ui_host, ui_port, ui_read_only, ui_previews, tuple(ui_name or ())) if ui else None
    if page is not None:
        page.refuse_a_token_in(None if log_json else sys.stderr)  # where UpdateLines writes its messages
    where = SparkOptions(master, settings, shared=shared)
    behind = run_file(file, options, where, limit, report, once, on_change, page, log_json)
    if behind:
        say_error(NotFreshError(behind))
        raise typer.Exit(NOT_FRESH)


def budget_from(text: str) -> float:
    """How long an update may take, in seconds; infinity for ``none``."""
    return math.inf if text.strip().lower() == "none" else some_seconds(text, "--budget", "'1 s', or 'none'")


def some_seconds(text: str, option: str, such_as: str) -> float:
    """The value of an option that takes a length of time which is not 0."""
    length = seconds(text, option)
    if not LEAST_SECONDS <= length <= MOST_SECONDS:
        least, most = readable(LEAST_SECONDS), readable(MOST_SECONDS)
        raise ParameterError(f"{option} takes a length of time from {least} to {most}, such as {such_as}; got {text!r}")
    return length


def options_from(
    tracks: int | None, policy: str, placement: str, chop: float | None = None, budget: float = 1.0
) -> RunOptions:
    """The options of a run, from those of the command line."""
    from headgate.warehouse.schedule.run_options import DEFAULT_TRACKS, RunOptions

    if chop is not None and not chop >= 1:
        raise ParameterError(f"--chop takes a number of periods of at least 1; got {chop:g}")
    return RunOptions(
        tracks=DEFAULT_TRACKS if tracks is None else tracks,
        follows_cores=tracks is None,
        policy=policy_from(policy),
        placement=placement_from(placement),
        budget=budget,
        chop=math.inf if chop is None else chop,
    )


def run_file(
    file: Path,
    options: RunOptions,
    spark: SparkOptions,
    limit: float | None,
    report: Path | None,
    once: bool = False,
    on_change: ChangedQuery = ChangedQuery.REBUILD,
    page: PageOptions | None = None,
    log_json: bool = False,
) -> Mapping[str, str]:
    """Run a pipeline file until it is stopped or ``limit`` seconds have passed; then print a summary.

    With ``once`` it also ends when all tables have caught up. Returns those that have not, each with the reason.
    """
    from headgate.warehouse.report.report import check_report
    from headgate.warehouse.run.run import WarehouseRun

    if report is not None:
        check_report(report)
    warehouse = load(file)
    spec = warehouse.spec()
    lines = JsonLog() if log_json else UpdateLines()
    for warning in warehouse.warnings:
        lines.message(f"warning: {warning}")
    watch = None if page is None else page.watch()
    running = WarehouseRun(
        spec,
        options,
        spark,
        lines.note,
        pipeline=file,
        on_message=lines.message,
        on_change=on_change.value,
        watcher=watch,
    )
    started = time.monotonic()
    with ExitStack() as closing:
        closing.callback(running.stop)
        running.start()
        if page is not None and watch is not None:
            watch.trace = running.trace
            watch.runs_folder = None if running.kept_trace is None else running.kept_trace.parent
            server = closing.enter_context(page.server(watch))
            closing.callback(running.stop)  # before the page, which shows how it ends and says that it has
            lines.message(f"watch it at {server.address}")
            running.announce_page(server.address.partition("login?")[0])  # without the token
        behind = _watch(running, limit, once, shows=not log_json)
        rows = running.runtime.statistics()
        if report is not None:
            # Before the lock is released: `headgate stop` returns then.
            running.before_release(partial(_write_report, running, report))
    assert running.kept_trace is not None
    places: list[tuple[str, AnyPath]] = [("trace", running.kept_trace)]
    if report is not None:
        places.append(("report", report))
    if log_json:
        return behind
    print_summary(spec.name, spec.folder(), rows, time.monotonic() - started, places)
    return behind


def _write_report(running: WarehouseRun, report: Path) -> None:
    from headgate.monitor.bounding import bound_apart
    from headgate.warehouse.report.report import write_report
    from headgate.warehouse.run.trace import read_trace

    assert running.trace is not None
    write_report(read_trace(running.trace), report, bound_apart(running.trace))


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ParameterError(f"--conf takes KEY=VALUE, such as spark.driver.memory=4g; got {text!r}")
    return key, value


def _watch(running: WarehouseRun, limit: float | None, once: bool, shows: bool = True) -> Mapping[str, str]:
    """Show the live table until the run is stopped or ``limit`` seconds have passed.

    With ``once`` also until all tables have caught up and what is published of them is, or no further one will. Returns
    those that have not.
    """
    from headgate.warehouse.run.scheduler_thread import STOP_SECONDS

    runtime = running.runtime
    catch_up = runtime.catch_up(publications=True) if once else None
    stopping = threading.Event()

    def asked_to_stop(*_: object) -> None:
        # Told to the run at once: this thread may be waiting for an answer from it.
        runtime.stop_soon(0.0 if stopping.is_set() else STOP_SECONDS)
        stopping.set()

    before = {number: signal.signal(number, asked_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        end = time.monotonic() + (float("inf") if limit is None else limit)
        console = PlainConsole()
        with Live(console=console, refresh_per_second=4, transient=True, auto_refresh=False) as live:
            while not stopping.is_set() and time.monotonic() < end and runtime.is_running:
                if shows and console.is_terminal:
                    live.update(live_view(running.spec.name, runtime.statistics(), time.time()), refresh=True)
                if catch_up is not None and runtime.behind(catch_up).stuck:
                    break
                stopping.wait(min(0.5, max(0.0, end - time.monotonic())))
        behind = {} if catch_up is None else runtime.behind(catch_up).tables
        stopping.set()  # from now on, a signal cancels the updates that still run
        runtime.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return behind
