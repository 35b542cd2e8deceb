"""The options of the page that shows a run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Annotated

import typer

from headgate.core import ParameterError

if TYPE_CHECKING:
    from headgate.monitor.server import MonitorServer
    from headgate.monitor.shown import ShownRun
    from headgate.monitor.watch import RunWatch

Ui = Annotated[bool, typer.Option("--ui/--no-ui", help="Show the run on a page.")]
UiPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="The port of the page; by default 4300, or any that is free.")
]
UiHost = Annotated[str, typer.Option(help="The address of the page; beyond this machine, it asks for a token.")]
UiNames = Annotated[
    list[str] | None,
    typer.Option("--ui-name", metavar="NAME", help="A further name that the page is opened by; may be repeated."),
]
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
    """Where the page is, by which further names it is opened, whether it can change anything or shows rows.

    Raises ParameterError for what is no name.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    read_only: bool = False
    previews: bool = True
    names: tuple[str, ...] = ()
    token: str | None = field(default_factory=own_token, repr=False)

    def __post_init__(self) -> None:
        from headgate.monitor.access import check_name

        for name in self.names:
            check_name(name)

    def refuse_a_token_in(self, stream: IO[str] | None) -> None:
        """Raises ParameterError if the address of the page, which is written to ``stream``, would leave a token there.

        That is, if it has one and ``stream`` is no terminal; None is a log.
        """
        from headgate.monitor.access import TOKEN_VARIABLE, is_for_this_machine_only

        if stream is not None and stream.isatty():
            return
        if self.token is None and not is_for_this_machine_only(self.host, self.names):
            raise ParameterError(
                "if the address of the page is not written to a terminal, a page beyond this machine takes its token "
                f"from {TOKEN_VARIABLE}: a new one would stand in the log. Set it, or leave out --ui-host and --ui-name"
            )

    def watch(self) -> RunWatch:
        """Who keeps the record of the run."""
        from headgate.monitor.watch import RunWatch

        return RunWatch()

    def server(self, watch: ShownRun) -> MonitorServer:
        from headgate.monitor.server import MonitorServer

        return MonitorServer(
            watch, self.host, self.port, self.read_only, self.names, token=self.token, previews=self.previews
        )
