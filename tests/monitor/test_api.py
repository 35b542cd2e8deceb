"""The API: strange requests get an answer in JSON, and its description is that of its routes."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from headgate.monitor.server import application
from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import PretendedRun


def asked(method: str, path: str, body: bytes | None = None) -> httpx.Response:
    watch = RunWatch()
    PretendedRun(watch, tables=6)
    watch.look()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=application(watch, "127.0.0.1"), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4300") as client:
            return await client.request(method, path, content=body, headers={"x-headgate": "1"})

    try:
        return asyncio.run(ask())
    finally:
        watch.stop()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/commands/pause", b'{"name": "table003"}', 200),
        ("POST", "/api/commands/pause", b'{"name": "nobody"}', 404),
        ("POST", "/api/commands/pause", b'{"name": "\\ud800"}', 404),
        ("POST", "/api/commands/pause", b"{}", 400),
        ("POST", "/api/commands/pause", b"[]", 400),
        ("POST", "/api/commands/pause", b"null", 400),
        ("POST", "/api/commands/pause", b"\xff\xfe", 400),
        ("POST", "/api/commands/pause", b"[" * 20_000, 400),
        ("POST", "/api/commands/pause", b'{"name":' * 9_000, 413),
        ("POST", "/api/commands/set_tracks", b'{"count": 1e400}', 400),
        ("POST", "/api/commands/replace_policy", b'{"policy": "nobody"}', 404),
        ("POST", "/api/commands/replace_policy", b'{"policy": "this.Policy"}', 404),
        ("POST", "/api/commands/replace_policy", b'{"policy": "fifo:speed=2"}', 400),
        ("POST", "/api/commands/explain", b"{}", 404),
        ("PUT", "/api/overview", b"", 405),
        ("GET", "/api/commands/pause", None, 405),
        ("GET", "/api/tables/%00%ff", None, 404),
        ("GET", "/healthz", None, 200),
    ],
)
def test_every_request_gets_an_answer_in_json(method: str, path: str, body: bytes | None, status: int) -> None:
    answer = asked(method, path, body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert ("error" in answer.json()) == (status >= 400)


def test_the_description_names_every_command() -> None:
    described = asked("GET", "/api/openapi.json").json()
    assert described["openapi"] == "3.1.0"
    assert "post" in described["paths"]["/api/commands/backfill"]
    assert described["paths"]["/api/tables/{name}"]["get"]["parameters"][0]["name"] == "name"
