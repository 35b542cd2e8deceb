"""The requests that the API takes, each described once: the routes and the OpenAPI description are made from the same.

A description is in JSON Schema. It names the fields that stay; an answer may have more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Json = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request: where, what it does, what it takes and what it answers.

    ``takes`` is the schema of its body, ``answers`` that of its answer. ``refuses`` is {status: when}; each of these
    answers is an error. ``media`` are the types that it answers in. ``of_run``: it may be about another run than the
    one that is shown.
    """

    path: str
    summary: str
    do: Handler
    answers: Json = field(default_factory=dict)
    takes: Json | None = None
    refuses: Mapping[int, str] = field(default_factory=dict)
    media: tuple[str, ...] = (JSON,)
    of_run: bool = False

    @property
    def method(self) -> str:
        return "GET" if self.takes is None else "POST"


def route_of(endpoint: Endpoint) -> Route:
    return Route(endpoint.path, endpoint.do, methods=[endpoint.method])


# --- schemas -----------------------------------------------------------------------------------------------------

TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
WHOLE: Json = {"type": "integer"}


def or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Json) -> Json:
    return {"type": "array", "items": schema}


def map_of(schema: Json) -> Json:
    return {"type": "object", "additionalProperties": schema}


def record(**fields: Json) -> Json:
    """An object with these fields, and perhaps more."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def exactly(fields: Mapping[str, Json]) -> Json:
    """An object with these fields and no others."""
    return {**record(**fields), "additionalProperties": False}


ERROR = record(error={"type": "string", "description": "What is wrong, and what to do."})


# --- the description ---------------------------------------------------------------------------------------------


def description(endpoints: Iterable[Endpoint], version: str, change_header: str) -> Json:
    """All endpoints as an OpenAPI document."""
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, change_header)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": version,
            "description": "A running warehouse: how its tables stand, why, and what can be changed. Moments are "
            "seconds since the epoch, lengths of time are seconds. Commands are those of the protocol in "
            "docs/operations.md; they take policies and placements that come with Headgate only.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, change_header: str) -> Json:
    refuses = dict(endpoint.refuses)
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in endpoint.path.split("/")
        if part.startswith("{")
    ]
    if endpoint.of_run:
        parameters.append(
            {
                "name": "run",
                "in": "query",
                "description": "The name of a recorded run, of those that /api/runs lists.",
                "schema": {"type": "string"},
            }
        )
        refuses.setdefault(404, "there is no such run")
    operation: Json = {"operationId": _identifier(endpoint.path), "summary": endpoint.summary}
    if endpoint.takes is not None:
        parameters.append(
            {
                "name": change_header,
                "in": "header",
                "required": True,
                "description": "Says that the request comes from a program, and not from a page of another site.",
                "schema": {"type": "string", "enum": ["1"]},
            }
        )
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": endpoint.takes}}}
        refuses[413] = "the body is too long"
    refuses |= {
        401: "a token is needed, beyond the machine itself",
        403: "read-only, or the request may come from a page of another site",
        421: "the request was made to another name",
    }
    if parameters:
        operation["parameters"] = parameters
    operation["responses"] = {
        "200": {"description": "as asked", "content": {each: {"schema": endpoint.answers} for each in endpoint.media}},
        **{
            str(status): {
                "description": when,
                "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
            }
            for status, when in sorted(refuses.items())
        },
    }
    operation["security"] = [{"token": []}, {}]
    return operation


def _identifier(path: str) -> str:
    words = [word.strip("{}") for word in path.split("/") if word and word != "api"]
    return "_".join(word.replace(".", "_") for word in words)
