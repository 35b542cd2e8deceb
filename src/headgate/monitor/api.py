"""The API of a run, under ``/api``: what the page shows, and what can be changed.

Requests that ask return JSON; ``/api/events`` goes on for as long as somebody reads. Changes are the commands of the
control socket, so that a page can do what the command line can, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headgate.monitor.watch import STUCK_SECONDS, RunWatch
from headgate.warehouse.run.control_commands import COMMANDS, MOST_BYTES, answered, finite

#: the commands that change something
CHANGES = tuple(name for name in COMMANDS if name not in ("statistics", "notices", "explain", "glance"))

Handler = Callable[[Request], Awaitable[Response]]


def api_routes(watch: RunWatch) -> list[Route]:
    async def overview(request: Request) -> Response:
        return _json(watch.overview())

    async def table(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            return _json(watch.table(name))
        except KeyError:
            return _error(404, f"there is no table {name!r}")

    async def why(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            watch.table(name)
        except KeyError:
            return _error(404, f"there is no table {name!r}")
        return _json(await run_in_threadpool(watch.why, name))

    async def events(request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            async with watch.feed.messages() as messages:
                yield "retry: 2000\n\n"
                async for message in messages:
                    yield message

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def command(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in CHANGES:
            return _error(404, f"there is no command {name!r}; there are {', '.join(CHANGES)}")
        body = await _body(request)
        if body is None:
            return _error(413, f"a command takes at most {MOST_BYTES} bytes")
        try:
            arguments = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            return _error(400, "the body of a command is a JSON object of its arguments")
        line = json.dumps({"command": name, "arguments": arguments}).encode()
        answer = json.loads(await run_in_threadpool(answered, watch.run, line))
        if "error" in answer:
            return _error(400 if answer["error"]["asked_wrongly"] else 409, answer["error"]["message"])
        return _json(answer)

    return [
        Route("/api/overview", overview),
        Route("/api/tables/{name}", table),
        Route("/api/tables/{name}/why", why),
        Route("/api/events", events),
        Route("/api/commands/{name}", command, methods=["POST"]),
        Route("/healthz", _health(watch)),
    ]


def _health(watch: RunWatch) -> Handler:
    async def health(request: Request) -> Response:
        silent = watch.silent_for()
        if not watch.is_live:
            return _error(503, "the run has ended")
        if silent > STUCK_SECONDS:
            return _error(503, f"the scheduler has not answered for {silent:.0f} s")
        return _json({"healthy": True})

    return health


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return None
    return body


def _json(content: object) -> Response:
    return JSONResponse(finite(content))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)
