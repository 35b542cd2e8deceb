"""The options of the page that shows a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headgate.monitor.server import MonitorServer
    from headgate.monitor.watch import RunWatch

Ui = Annotated[bool, typer.Option("--ui/--no-ui", help="Show the run on a page.")]
UiPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="The port of the page; by default 4300, or any that is free.")
]
UiHost = Annotated[str, typer.Option(help="The address of the page; beyond this machine, it asks for a token.")]
UiReadOnly = Annotated[bool, typer.Option("--ui-read-only", help="Nothing can be changed on the page.")]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Where the page is, and whether it can change anything."""

    host: str = "127.0.0.1"
    port: int | None = None
    read_only: bool = False

    def watch(self) -> RunWatch:
        """Who keeps the record of the run."""
        from headgate.monitor.watch import RunWatch

        return RunWatch()

    def server(self, watch: RunWatch) -> MonitorServer:
        from headgate.monitor.server import MonitorServer

        return MonitorServer(watch, self.host, self.port, self.read_only)
