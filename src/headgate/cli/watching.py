"""``headgate top``: look at a run from a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.cli.read import warehouse_directory

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

    run: RemoteRun
    if where.startswith(("http://", "https://")):
        run = PageRun(where)
    else:
        run = SocketRun(warehouse_directory(where))
    app = TopApp(run)
    app.run()
    if app.return_code:
        raise typer.Exit(app.return_code)
