"""``headgate top`` and ``headgate ui``: look at a run from a terminal, and at recorded ones on a page."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

from headgate.cli.output import say, say_error
from headgate.cli.page import PageOptions, UiHost, UiNames, UiPort, UiPreviews
from headgate.cli.read import WarehouseDirectory, warehouse_directory
from headgate.core import ParameterError

Where = Annotated[
    str,
    typer.Argument(metavar="DIR|URL", help="The directory of a warehouse, its pipeline file, or the URL of its page."),
]


def top(where: Where) -> None:
    """Show a running warehouse in the terminal: how stale every table is, and why.

    By its directory on the same machine, or by the URL of its page, with ?token=... or HEADGATE_TOKEN where it asks for
    one. Keys are listed at the bottom; q quits. A run that is stopped is waited for.
    """
    from headgate.monitor.remote import PageRun, RemoteRun, SocketRun
    from headgate.monitor.top import TopApp

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ParameterError("headgate top needs a terminal; `headgate status DIR` prints how things stand once")
    run: RemoteRun
    if where.startswith(("http://", "https://")):
        run = PageRun(where)
    else:
        run = SocketRun(warehouse_directory(where))
    app = TopApp(run)
    app.run()
    if app.return_code:
        raise typer.Exit(app.return_code)


def ui(
    directory: WarehouseDirectory,
    ui_port: UiPort = None,
    ui_host: UiHost = "127.0.0.1",
    ui_name: UiNames = None,
    ui_previews: UiPreviews = True,
) -> None:
    """Show the recorded runs of a stopped warehouse on a page, until Ctrl-C.

    If the warehouse is running, print the address of its page instead.
    """
    from headgate.monitor.recorded import RecordedRun
    from headgate.warehouse.run.lock import holder
    from headgate.warehouse.run.trace import newest_trace, runs_folder

    page = PageOptions(ui_host, ui_port, previews=ui_previews, names=tuple(ui_name or ()))
    found = holder(directory)
    if found is not None:
        if found.page is None:
            raise ParameterError(
                f"{directory} is being run, without a page or not ready yet; look at it with: headgate top {directory}"
            )
        say_error(f"{directory} is being run; watch it at")
        say(found.page)
        return
    trace = newest_trace(directory)
    if trace is None:
        raise ParameterError(
            f"no run of a warehouse in {directory} is recorded: there is none in {runs_folder(directory)}; "
            "start one with `headgate run FILE`"
        )
    page.refuse_a_token_in(sys.stdout)
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with page.server(RecordedRun(trace)) as server:
            say_error("the recorded runs, until Ctrl-C, at")
            say(server.address, flush=True)
            ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
