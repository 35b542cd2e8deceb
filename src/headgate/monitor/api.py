"""The API of a run, under ``/api``: what the page shows, and what can be changed.

Requests that ask return JSON; ``/api/events`` goes on for as long as somebody reads. Changes are the commands of the
control socket, so that a page can do what the command line can, and nothing else. Every answer is JSON with nothing but
ASCII in it, so whatever is in a name, a cell or an error stays text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from headgate.core import DeclarationError, HeadgateError, UnknownNameError, placement_from, policy_from
from headgate.monitor.access import CHANGE_HEADER
from headgate.monitor.bounding import told_of_bound
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
from headgate.monitor.plain_json import json_text
from headgate.monitor.shown import ShownRun
from headgate.monitor.what_if import SCHEMA as WHAT_IF
from headgate.monitor.what_if import BusyError, WhatIf, what_if_from
from headgate.monitor.withheld import WITHHELD, withheld
from headgate.warehouse.run.control_commands import COMMANDS, MOST_BYTES

#: the commands that change nothing
_CHANGE_NOTHING = ("statistics", "notices", "explain", "glance", "check_settings")
#: the commands that change something
CHANGES = tuple(name for name in COMMANDS if name not in _CHANGE_NOTHING)

_NO_TABLE = {404: "there is no such table"}
_SILENT = {503: "the scheduler does not answer"}

#: seconds that the scheduler has to answer a request; and how many requests wait for it at a time, at most, so that
#: those that need no scheduler are answered although it is stuck
PATIENCE = 10.0
MOST_WAITING = 8
#: how many requests may wait at a time for a recorded run to be read
MOST_READING = 8

_Answer = TypeVar("_Answer")

_UPDATE = record(
    table=TEXT,
    layer={"enum": ["live", "backfill", "maintenance", "publish"]},
    track=WHOLE,
    released=NUMBER,
    began=NUMBER,
    seconds=NUMBER,
    rows=WHOLE,
    rejected=WHOLE,
    together=list_of(TEXT),
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
_CURVE = list_of({"type": "array", "items": or_null(NUMBER), "minItems": 2, "maxItems": 2})
_BOUND = record(times=or_null(NUMBER), why=TEXT)
_OVERVIEW = record(
    warehouse=TEXT,
    live={"type": "boolean"},
    read_only={"type": "boolean"},
    what_if={"type": "boolean"},
    started=NUMBER,
    at=NUMBER,
    settings=record(policy=TEXT, placement=TEXT, tracks=WHOLE, budget=or_null(NUMBER), inheritance=TEXT, together=TEXT),
    policies=list_of(TEXT),
    placements=list_of(TEXT),
    staleness=_CURVE,
    tables=map_of(record(**_TABLE)),
    running=list_of(record(name=TEXT, table=TEXT, layer=TEXT, track=WHOLE, began=NUMBER)),
    queue=list_of(TEXT),
    file_problem=TEXT,
    updates=list_of(_UPDATE),
    changes=list_of(record(at=NUMBER, what={"type": "object"})),
    notices=list_of(_NOTICE),
    bound=or_null(_BOUND),
)
_ONE_TABLE = record(name=TEXT, **_TABLE, at=NUMBER, curve=_CURVE, updates=list_of(_UPDATE), notices=list_of(_NOTICE))
_RUN = record(name=TEXT, started=NUMBER, live={"type": "boolean"})
_WHAT_IF = record(measured=_CURVE, before=_CURVE, after=_CURVE, tables=list_of(record(name=TEXT)))
_WHY = record(
    text=TEXT,
    policy=TEXT,
    begins=or_null(NUMBER),
    expected=or_null(NUMBER),
    needs=list_of(TEXT),
    decisions=list_of(record(at=NUMBER, reason=TEXT, text=TEXT)),
)
_CONTENTS = record(exists={"type": "boolean"}, previews={"type": "boolean"})
_SPARKS = record(every=WHOLE, tables=map_of(list_of(or_null(NUMBER))))
_OPERATORS = record(operators=list_of(record(table=TEXT, query=TEXT, name=TEXT, kind=TEXT, inputs=list_of(TEXT))))


def api_routes(watch: ShownRun, read_only: bool = False, previews: bool = True) -> list[Route]:
    """All that the API takes, and the description of it. Without ``previews``, it gives out no rows of tables."""
    scheduler = _Patient("the scheduler has not answered for {:g} s; a change that was asked for may still come")
    files = _Patient("the files of the table could not be read within {:g} s")
    watch.feed.withholds = not previews
    endpoints = [
        *_questions(watch, scheduler, read_only, previews),
        *_insides(watch, files, previews),
        *(_change(watch, scheduler, name) for name in CHANGES),
    ]

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


def _insides(watch: ShownRun, files: _Patient, previews: bool) -> list[Endpoint]:
    """What a first look does not need."""

    async def contents(request: Request) -> Response:
        name = request.path_params["name"]
        chosen = await _chosen(watch, request)
        try:
            return json_answer(await files.asked(chosen.contents, name, previews))
        except (KeyError, UnknownNameError):
            return _no_table(request)
        except HeadgateError as error:
            return error_answer(409, str(error) if previews else f"the table cannot be read; why is {WITHHELD}")

    async def sparks(request: Request) -> Response:
        chosen = await _chosen(watch, request)
        return await run_in_threadpool(lambda: json_answer(chosen.sparks()))

    async def operators(request: Request) -> Response:
        chosen = await _chosen(watch, request)
        return await run_in_threadpool(lambda: json_answer(chosen.operators()))

    async def bound(request: Request) -> Response:
        chosen = await _chosen(watch, request)
        try:
            # It takes seconds: those who wait for it do not use up the threads of all other requests.
            return json_answer(await run_sync(chosen.bound, limiter=_reading_limiter()))
        except asyncio.CancelledError:  # the server ends, and does not wait for it
            return json_answer(told_of_bound("the page was closed before it was computed"))

    unreadable = {**_NO_TABLE, 409: "the table cannot be read; it says why", **_SILENT}
    return [
        Endpoint(
            "/api/tables/{name}/contents", "What is in a table.", contents, _CONTENTS, refuses=unreadable, of_run=True
        ),
        Endpoint("/api/sparks", "The latest staleness of every table.", sparks, _SPARKS, of_run=True),
        Endpoint("/api/bound", "How many times its lower bound the run is at.", bound, _BOUND, of_run=True),
        Endpoint("/api/operators", "The operators of queries inside tables.", operators, _OPERATORS, of_run=True),
    ]


def _questions(watch: ShownRun, scheduler: _Patient, read_only: bool, previews: bool) -> list[Endpoint]:
    what_if = WhatIf()

    def allowed(content: Json) -> Json:
        return content if previews else dict(withheld(content))

    def told(chosen: ShownRun) -> Response:
        overview = chosen.overview()
        return json_answer(
            {**allowed(overview), "read_only": read_only or not overview["live"], "what_if": not read_only}
        )

    async def overview(request: Request) -> Response:
        return await run_in_threadpool(told, await _chosen(watch, request))

    async def runs(request: Request) -> Response:
        return json_answer({"runs": await run_in_threadpool(watch.runs)})

    async def replayed(request: Request) -> Response:
        content = await _object(request)
        if isinstance(content, Response):
            return content
        trace = (await _chosen(watch, request)).trace
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
        chosen = await _chosen(watch, request)
        try:
            return await run_in_threadpool(lambda: json_answer(allowed(chosen.table(request.path_params["name"]))))
        except KeyError:
            return _no_table(request)

    async def why(request: Request) -> Response:
        name = request.path_params["name"]
        chosen = await _chosen(watch, request)
        try:
            state = (await run_in_threadpool(chosen.table, name))["state"]
            told = await scheduler.asked(chosen.why, name)
            if not previews:  # its text quotes errors, its own and those of the tables above
                told["text"] = f"{name} is {state}. What it waits for is {WITHHELD}"
            return json_answer(allowed(told))
        except (KeyError, UnknownNameError):
            return _no_table(request)
        except HeadgateError as error:  # the run has failed
            return error_answer(409, str(error) if previews else f"the run has failed; why is {WITHHELD}")

    async def events(request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            if watch.feed.is_full:  # others have come at the same moment
                return
            async with watch.feed.messages() as messages:
                yield "retry: 2000\n\n"
                async for message in messages:
                    yield message

        media = "text/event-stream"
        if request.method == "HEAD":  # what has no body must not go on for ever
            return Response(media_type=media)
        if watch.feed.is_full:
            return error_answer(503, f"{watch.feed.viewers} look at this run already: close one of their pages")
        return StreamingResponse(stream(), media_type=media)

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
        Endpoint("/api/overview", "Everything that the first view shows.", overview, _OVERVIEW, of_run=True),
        Endpoint("/api/runs", "The recorded runs.", runs, record(runs=list_of(_RUN))),
        Endpoint(
            "/api/what-if",
            "What would have happened under other settings.",
            replayed,
            _WHAT_IF,
            takes=WHAT_IF,
            of_run=True,
            refuses={
                400: "the body is not a question of this kind, or names what does not exist",
                409: "another question is being answered, or the run is not recorded",
                422: "the run cannot be replayed; it says why",
            },
        ),
        Endpoint(
            "/api/tables/{name}", "Everything about one table.", table, _ONE_TABLE, refuses=_NO_TABLE, of_run=True
        ),
        Endpoint(
            "/api/tables/{name}/why",
            "Why a table is or is not updated.",
            why,
            _WHY,
            refuses={**_NO_TABLE, 409: "the run has failed; it says why", **_SILENT},
            of_run=True,
        ),
        Endpoint(
            "/api/events",
            "What happens from now on, as server-sent events.",
            events,
            TEXT,
            media=("text/event-stream",),
            refuses={503: "too many look already"},
        ),
        Endpoint(
            "/metrics",
            "The numbers of the run for Prometheus.",
            metrics,
            TEXT,
            media=("text/plain", "application/openmetrics-text"),
        ),
        Endpoint(
            "/healthz",
            "Whether the scheduler answers and no track is stuck.",
            health,
            healthy,
            refuses={503: "the run has ended, or does not go on"},
        ),
    ]


class _Patient:
    """Asks what may not answer on threads of their own, and waits only so long. ``silent`` is what is said then."""

    def __init__(self, silent: str) -> None:
        self._silent = silent
        self._places: anyio.CapacityLimiter | None = None

    async def asked(self, question: Callable[..., _Answer], *about: object) -> _Answer:
        if self._places is None:  # it belongs to the event loop, which is not there before
            self._places = anyio.CapacityLimiter(MOST_WAITING)
        places, place, loop = self._places, object(), asyncio.get_running_loop()
        is_asked = False

        def ask() -> _Answer:
            nonlocal is_asked
            is_asked = True
            try:
                return question(*about)
            finally:  # not before: a thread that nobody waits for any more is still one that waits
                with suppress(RuntimeError):  # the server has ended
                    loop.call_soon_threadsafe(places.release_on_behalf_of, place)

        try:
            with anyio.fail_after(PATIENCE):
                await places.acquire_on_behalf_of(place)
                try:
                    return await run_sync(ask, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
                except BaseException:
                    if not is_asked:
                        places.release_on_behalf_of(place)
                    raise
        except TimeoutError:
            raise HTTPException(503, self._silent.format(PATIENCE)) from None


def _change(watch: ShownRun, scheduler: _Patient, name: str) -> Endpoint:
    takes = {key: kind.schema for key, kind in COMMANDS[name].takes.items()}
    return Endpoint(
        f"/api/commands/{name}",
        f"The command {name} to the running warehouse, with all of its arguments.",
        _commanded(watch, scheduler, name),
        record(answer=or_null(TEXT)),
        takes=exactly(takes),
        of_run=True,
        refuses={
            400: "the body is not an object of these arguments, or they cannot be used",
            404: "there is no such table, policy or placement",
            409: "the run refuses; it says why",
            **_SILENT,
        },
    )


def _commanded(watch: ShownRun, scheduler: _Patient, name: str) -> Handler:
    async def command(request: Request) -> Response:
        arguments = await _object(request)
        if isinstance(arguments, Response):
            return arguments
        if refused := _without_imports(name, arguments):
            return refused
        line = json.dumps({"command": name, "arguments": arguments}).encode()
        chosen = await _chosen(watch, request)
        answer = json.loads(await scheduler.asked(chosen.do, line))
        if "error" in answer:
            said = _withheld_refusal(answer["error"]) if watch.feed.withholds else answer["error"]["message"]
            return error_answer(_status_of(answer["error"]), said)
        return json_answer(answer)

    return command


def _withheld_refusal(error: Json) -> str:
    """Why a command was refused, if that is about what was asked. Everything else may quote a value."""
    if error["asked_wrongly"]:
        return str(error["message"])
    if error["kind"] == "RunFailedError":
        return f"the run has failed, and nothing is updated any more; why is {WITHHELD}"
    return f"the run refuses; why is {WITHHELD}"


def _without_imports(command: str, arguments: Json) -> Response | None:
    """The refusal of a policy or placement that does not come with Headgate: who looks must not run modules here."""
    kind, read = _CHOICES.get(command, ("", None))
    text = arguments.get(kind)
    if read is None or not isinstance(text, str):
        return None
    try:
        read(text, imports=False)
    except UnknownNameError as error:
        return error_answer(404, f"{error} To use a {kind} of your own, use `headgate set --{kind}`.")
    except HeadgateError as error:
        return error_answer(400, str(error))
    return None


#: {command: what it replaces, and what reads that}
_CHOICES: dict[str, tuple[str, Callable[..., object]]] = {
    "replace_policy": ("policy", policy_from),
    "replace_placement": ("placement", placement_from),
}


def _status_of(error: Json) -> int:
    """The status of a command that was refused: by what was asked for, or because the run is in conflict with it."""
    if error["kind"] == UnknownNameError.__name__:
        return 404
    return 400 if error["asked_wrongly"] else 409


async def _chosen(shown: ShownRun, request: Request) -> ShownRun:
    """The run that a request is about: the one that is shown, or the one that it names."""
    name = request.query_params.get("run")
    if name is None:
        return shown
    try:
        # To read a long one takes seconds: those who wait for that do not use up the threads of all other requests.
        return await run_sync(shown.of, name, limiter=_reading_limiter())
    except KeyError:
        raise HTTPException(404, f"there is no recorded run {name!r}; /api/runs lists them") from None
    except HeadgateError as error:
        raise HTTPException(404, str(error)) from None


_READING: RunVar[anyio.CapacityLimiter] = RunVar("headgate_reading")


def _reading_limiter() -> anyio.CapacityLimiter:
    """That of this event loop."""
    try:
        return _READING.get()
    except LookupError:
        _READING.set(made := anyio.CapacityLimiter(MOST_READING))
        return made


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
    return Response(json_text(content), status, media_type="application/json")


def _no_table(request: Request) -> Response:
    return error_answer(404, f"there is no table {request.path_params['name']!r}")


def error_answer(status: int, message: str) -> Response:
    return json_answer({"error": message}, status)
