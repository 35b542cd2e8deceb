"""The page and the API on a port, in a thread of the process that runs the tables."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headgate.core import HeadgateError
from headgate.monitor.access import Access, check_token, is_for_this_machine_only, new_token
from headgate.monitor.api import api_routes, refused
from headgate.monitor.connections import ImpatientProtocol
from headgate.monitor.shown import ShownRun

PAGE = Path(__file__).parent / "page"
#: the port that is tried first; then any that is free
PORT = 4300
#: how long open requests may take when the server ends
END_SECONDS = 1


class MonitorError(HeadgateError):
    """The page cannot be shown."""


def application(
    watch: ShownRun,
    host: str,
    names: Sequence[str] = (),
    token: str | None = None,
    read_only: bool = False,
    previews: bool = True,
) -> ASGIApp:
    async def page(request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    routes = [Route("/", page), *api_routes(watch, read_only, previews), Mount("/static", StaticFiles(directory=PAGE))]
    handlers = {HTTPException: refused, Exception: refused}
    return Access(Starlette(routes=routes, exception_handlers=handlers), host, names, token, read_only)


class MonitorServer:
    """Serves a watch from ``start`` to ``stop``, or as a context. ``address`` is what a person opens.

    Without a ``port``, the usual one is taken, or any free one if that is in use. ``names`` are further names that it
    is opened by. Beyond this machine a token is needed: ``token``, which is needed on this machine as well, or a new
    one. A new one is part of the address; one that the user has chosen is known to the user, and not shown.
    Without ``previews`` no rows of tables are shown.
    """

    def __init__(
        self,
        watch: ShownRun,
        host: str = "127.0.0.1",
        port: int | None = None,
        read_only: bool = False,
        names: Sequence[str] = (),
        token: str | None = None,
        previews: bool = True,
    ) -> None:
        shows_token = token is None and not is_for_this_machine_only(host, names)
        if token is not None:
            check_token(token)
        elif shows_token:
            token = new_token()
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/" + (f"login?token={token}" if shows_token else "")
        self._feed = watch.feed
        config = uvicorn.Config(
            application(watch, host, names, token, read_only, previews),
            http=ImpatientProtocol,
            log_config=None,
            log_level="critical",  # a request that is broken off at the end is nothing that a user should know
            access_log=False,  # it would show tokens
            proxy_headers=False,  # anybody on this machine could send them
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=END_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="headgate-page", daemon=True)

    def start(self) -> MonitorServer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._feed.close()  # requests that go on for ever would be broken off
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(END_SECONDS + 2.0)
        with suppress(OSError):
            self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> MonitorServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _listening(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = [PORT, 0] if port is None else [port]
    for each in tried:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, each))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if each == tried[-1]:
                raise MonitorError(
                    f"the page cannot be shown at {host} port {each}: {error.strerror}. Choose another one with "
                    "--ui-port, or go without a page with --no-ui"
                ) from None
            continue
        return listener
    raise AssertionError("one of the ports was tried last")
