"""The API of a run, under ``/api``: what the page shows, and what can be changed.

Requests that ask return JSON; ``/api/events`` goes on for as long as somebody reads. Changes are the commands of the
control socket, so that a page can do what the command line can, and nothing else. Every answer is JSON with nothing but
ASCII in it, so whatever is in a name, a cell or an error stays text.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headgate.core import DeclarationError, HeadgateError
from headgate.monitor.access import CHANGE_HEADER
from headgate.monitor.openapi import (
    NUMBER,
    TEXT,
    WHOLE,
    Endpoint,
    Handler,
    Json,
    description,
    exactly,
    list_of,
    map_of,
    or_null,
    record,
    route_of,
)
from headgate.monitor.shown import ShownRun
from headgate.monitor.what_if import SCHEMA as WHAT_IF
from headgate.monitor.what_if import BusyError, WhatIf, what_if_from
from headgate.warehouse.run.control_commands import COMMANDS, MOST_BYTES, finite

#: the commands that change something
CHANGES = tuple(name for name in COMMANDS if name not in ("statistics", "notices", "explain", "glance"))

#: {the kind of error of a command: its status}; a run that refuses for another reason is in conflict with it
_STATUS = {"RequestError": 400, "UnknownNameError": 404}

_NO_TABLE = {404: "there is no such table"}

_UPDATE = record(
    table=TEXT,
    layer={"enum": ["live", "backfill", "maintenance", "publish"]},
    track=WHOLE,
    released=NUMBER,
    began=NUMBER,
    seconds=NUMBER,
    rows=WHOLE,
    rejected=WHOLE,
    error=or_null(TEXT),
)
_TABLE: dict[str, Json] = {
    "kind": {"enum": ["stream", "dimension", "table"]},
    "sources": list_of(TEXT),
    "class": WHOLE,
    "target": or_null(NUMBER),
}
_NOTICE = record(at=NUMBER, table=or_null(TEXT), text=TEXT)
#: pairs of a moment and a value
_CURVE = list_of({"type": "array", "prefixItems": [NUMBER, or_null(NUMBER)], "minItems": 2, "maxItems": 2})
_OVERVIEW = record(
    warehouse=TEXT,
    live={"type": "boolean"},
    started=NUMBER,
    at=NUMBER,
    settings=record(policy=TEXT, placement=TEXT, tracks=WHOLE, budget=or_null(NUMBER)),
    policies=list_of(TEXT),
    staleness=_CURVE,
    tables=map_of(record(**_TABLE)),
    running=list_of(record(name=TEXT, table=TEXT, layer=TEXT, track=WHOLE, began=NUMBER)),
    queue=list_of(TEXT),
    updates=list_of(_UPDATE),
    changes=list_of(record(at=NUMBER, what={"type": "object"})),
    notices=list_of(_NOTICE),
)
_ONE_TABLE = record(name=TEXT, **_TABLE, at=NUMBER, curve=_CURVE, updates=list_of(_UPDATE), notices=list_of(_NOTICE))
_RUN = record(name=TEXT, started=NUMBER, live={"type": "boolean"})
_WHAT_IF = record(measured=_CURVE, before=_CURVE, after=_CURVE, tables=list_of(record(name=TEXT)))
_WHY = record(text=TEXT, policy=TEXT, decisions=list_of(record(at=NUMBER, reason=TEXT, text=TEXT)))


def api_routes(watch: ShownRun) -> list[Route]:
    """All that the API takes, and the description of it."""
    endpoints = [*_questions(watch), *(_change(watch, name) for name in CHANGES)]

    async def openapi(request: Request) -> Response:
        return json_answer(described)

    endpoints.append(
        Endpoint("/api/openapi.json", "This description.", openapi, record(openapi=TEXT, paths={"type": "object"}))
    )
    described = api_description(endpoints)
    return [route_of(each) for each in endpoints]


def api_description(endpoints: list[Endpoint]) -> Json:
    from headgate import __version__

    return description(endpoints, __version__, CHANGE_HEADER)


def _questions(watch: ShownRun) -> list[Endpoint]:
    what_if = WhatIf()

    async def overview(request: Request) -> Response:
        return json_answer(await run_in_threadpool(_chosen(watch, request).overview))

    async def runs(request: Request) -> Response:
        return json_answer({"runs": await run_in_threadpool(watch.runs)})

    async def replayed(request: Request) -> Response:
        content = await _object(request)
        if isinstance(content, Response):
            return content
        trace = _chosen(watch, request).trace
        if trace is None:
            return error_answer(409, "this run is not recorded, so it cannot be replayed")
        try:
            return json_answer(await run_in_threadpool(what_if.ask, trace, what_if_from(content)))
        except BusyError as error:
            return error_answer(409, str(error))
        except DeclarationError as error:
            return error_answer(400, str(error))
        except HeadgateError as error:
            return error_answer(422, str(error))

    async def table(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            return json_answer(await run_in_threadpool(_chosen(watch, request).table, name))
        except KeyError:
            return error_answer(404, f"there is no table {name!r}")

    async def why(request: Request) -> Response:
        name = request.path_params["name"]
        run = _chosen(watch, request)
        try:
            run.table(name)
        except KeyError:
            return error_answer(404, f"there is no table {name!r}")
        return json_answer(await run_in_threadpool(run.why, name))

    async def events(request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            async with watch.feed.messages() as messages:
                yield "retry: 2000\n\n"
                async for message in messages:
                    yield message

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        content, kind = await run_in_threadpool(watch.metrics.written, request.headers.get("accept", ""))
        return Response(content, media_type=kind)

    async def health(request: Request) -> Response:
        trouble = watch.trouble()
        if trouble:
            return error_answer(503, trouble)
        return json_answer({"healthy": True, "left": watch.left()})

    healthy = record(healthy={"const": True}, left=list_of(TEXT))
    return [
        Endpoint("/api/overview", "Everything that the first view shows.", overview, _OVERVIEW),
        Endpoint("/api/runs", "The recorded runs; ?run=NAME shows one.", runs, record(runs=list_of(_RUN))),
        Endpoint(
            "/api/what-if",
            "What would have happened under other settings.",
            replayed,
            _WHAT_IF,
            takes=WHAT_IF,
            refuses={
                400: "the body is not a question of this kind, or names what does not exist",
                409: "another question is being answered, or the run is not recorded",
                422: "the run cannot be replayed; it says why",
            },
        ),
        Endpoint("/api/tables/{name}", "Everything about one table.", table, _ONE_TABLE, refuses=_NO_TABLE),
        Endpoint("/api/tables/{name}/why", "Why a table is or is not updated.", why, _WHY, refuses=_NO_TABLE),
        Endpoint(
            "/api/events", "What happens from now on, as server-sent events.", events, TEXT, media="text/event-stream"
        ),
        Endpoint("/metrics", "The numbers of the run for Prometheus.", metrics, TEXT, media="text/plain"),
        Endpoint(
            "/healthz",
            "Whether the scheduler answers and no track is stuck.",
            health,
            healthy,
            refuses={503: "the run has ended, or does not go on"},
        ),
    ]


def _change(watch: ShownRun, name: str) -> Endpoint:
    takes = {key: kind.schema for key, kind in COMMANDS[name].takes.items()}
    return Endpoint(
        f"/api/commands/{name}",
        f"The command {name} of the command line.",
        _commanded(watch, name),
        record(answer=or_null(TEXT)),
        takes=exactly(takes),
        refuses={
            400: "the body is not an object of these arguments",
            404: "there is no such table, policy or placement",
            409: "the run refuses; it says why",
        },
    )


def _commanded(watch: ShownRun, name: str) -> Handler:
    async def command(request: Request) -> Response:
        arguments = await _object(request)
        if isinstance(arguments, Response):
            return arguments
        line = json.dumps({"command": name, "arguments": arguments}).encode()
        answer = json.loads(await run_in_threadpool(_chosen(watch, request).do, line))
        if "error" in answer:
            return error_answer(_STATUS.get(answer["error"]["kind"], 409), answer["error"]["message"])
        return json_answer(answer)

    return command


def _chosen(shown: ShownRun, request: Request) -> ShownRun:
    """The run that a request is about: the one that is shown, or the one that it names."""
    name = request.query_params.get("run")
    try:
        return shown.of(name)
    except KeyError:
        raise HTTPException(404, f"there is no recorded run {name!r}; /api/runs lists them") from None
    except HeadgateError as error:
        raise HTTPException(404, str(error)) from None


async def _object(request: Request) -> Json | Response:
    """The JSON object in the body of a request, or why there is none."""
    body = await _body(request)
    if body is None:
        return error_answer(413, f"a body has at most {MOST_BYTES} bytes")
    try:
        content = json.loads(body or b"{}")
        json.dumps(content)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return error_answer(400, "the body of a command is a JSON object of its arguments")
    return content


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)


async def refused(request: Request, error: Exception) -> Response:
    """What becomes of a request that there is no route for, or whose handler has failed."""
    if not isinstance(error, HTTPException):
        return error_answer(500, "the answer could not be made: this is a mistake in Headgate")
    text = {404: "there is nothing at this address", 405: "this address does not take that method"}
    said = (
        error.detail
        if error.detail != HTTPStatus(error.status_code).phrase
        else text.get(error.status_code, error.detail)
    )
    answer = error_answer(error.status_code, said)
    answer.headers.update(error.headers or {})
    return answer


def json_answer(content: object, status: int = 200) -> Response:
    # Not starlette's own: that cannot write texts which UTF-8 has no bytes for.
    return Response(json.dumps(finite(content), separators=(",", ":")), status, media_type="application/json")


def error_answer(status: int, message: str) -> Response:
    return json_answer({"error": message}, status)
