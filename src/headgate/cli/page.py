"""The options of the page that shows a run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.core import ParameterError

if TYPE_CHECKING:
    from headgate.monitor.server import MonitorServer
    from headgate.monitor.watch import RunWatch

Ui = Annotated[bool, typer.Option("--ui/--no-ui", help="Show the run on a page.")]
UiPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="The port of the page; by default 4300, or any that is free.")
]
UiHost = Annotated[str, typer.Option(help="The address of the page; beyond this machine, it asks for a token.")]
UiReadOnly = Annotated[bool, typer.Option("--ui-read-only", help="Nothing can be changed on the page.")]

UiPreviews = Annotated[
    bool, typer.Option("--ui-previews/--no-ui-previews", help="Whether the page shows some rows of the tables.")
]


def own_token() -> str | None:
    """The token that the user has chosen for the page; None if there is none."""
    from headgate.monitor.access import TOKEN_VARIABLE, check_token

    token = os.environ.get(TOKEN_VARIABLE) or None
    if token is not None:
        check_token(token)
    return token


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Where the page is, whether it can change anything, and whether it shows rows."""

    host: str = "127.0.0.1"
    port: int | None = None
    read_only: bool = False
    previews: bool = True
    token: str | None = field(default_factory=own_token, repr=False)

    def refuse_a_token_in_the_log(self) -> None:
        """Raises ParameterError if the address of the page has a token in it, and so would the log."""
        from headgate.monitor.access import TOKEN_VARIABLE, is_loopback

        if self.token is None and not is_loopback(self.host):
            raise ParameterError(
                f"if output is not a terminal, a page beyond this machine takes its token from {TOKEN_VARIABLE}: "
                "a new one would stand in the log, in the address of the page. Set it, or leave out --ui-host"
            )

    def watch(self) -> RunWatch:
        """Who keeps the record of the run."""
        from headgate.monitor.watch import RunWatch

        return RunWatch()

    def server(self, watch: RunWatch) -> MonitorServer:
        from headgate.monitor.server import MonitorServer

        return MonitorServer(watch, self.host, self.port, self.read_only, token=self.token, previews=self.previews)
