"""Who may look at a run and who may change it, as an attacker would try."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from headgate.core import ParameterError
from headgate.monitor import access, connections
from headgate.monitor.server import MonitorServer, application
from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import NASTY, PretendedRun

TOKEN = "a-token-that-nobody-guesses"
OURS = {"x-headgate": "1"}
PAUSE = ("POST", "/api/commands/pause")


@pytest.fixture(scope="module")
def watch() -> Iterator[RunWatch]:
    watch = RunWatch()
    run = PretendedRun(watch, tables=6)
    run.step(10)
    run.held["table003"] = NASTY
    watch.look()
    yield watch
    watch.stop()


def asked(
    watch: RunWatch,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    at: str = "http://127.0.0.1:4300",
    host: str = "127.0.0.1",
    token: str | None = None,
    read_only: bool = False,
    names: tuple[str, ...] = (),
) -> httpx.Response:
    async def ask() -> httpx.Response:
        app = application(watch, host, names, token, read_only)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=at) as client:
            body = {"name": "table003"} if method == "POST" else None
            return await client.request(method, path, headers=headers, json=body)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("at", "status"),
    [
        ("http://127.0.0.1:4300", 200),
        ("http://localhost:4300", 200),
        ("http://LOCALHOST", 200),
        ("http://[::1]:4300", 200),
        ("http://evil.example:4300", 421),
        ("http://127.0.0.1.evil.example", 421),
        ("http://localhost.evil.example:4300", 421),
    ],
)
def test_a_request_must_be_made_to_a_name_of_this_server(watch: RunWatch, at: str, status: int) -> None:
    assert asked(watch, "GET", "/healthz", at=at).status_code == status


def test_another_address_of_this_machine_is_a_name_of_this_server(watch: RunWatch) -> None:
    assert asked(watch, "GET", "/healthz", at="http://127.0.0.2:4300", host="127.0.0.2").status_code == 200
    assert asked(watch, "GET", "/healthz", at="http://127.0.0.2:4300").status_code == 421


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST /api/what-if HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"]
)
def test_a_connection_whose_request_does_not_come_is_closed(
    watch: RunWatch, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    with MonitorServer(watch, port=0) as server, socket.create_connection(("127.0.0.1", server.port), 60) as silent:
        silent.sendall(sent)
        with suppress(ConnectionResetError):
            while silent.recv(1000):
                pass


@pytest.mark.slow
def test_there_are_only_so_many_connections(watch: RunWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 600.0)
    with MonitorServer(watch, port=0) as server:
        opened = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(3)]
        with suppress(ConnectionResetError):
            assert opened[2].recv(1) == b""
        for each in opened:
            each.close()


@pytest.mark.parametrize(("host", "at"), [("fd00::1", "http://[fd00::1]:4300"), ("0.0.0.0", "http://machine:4300")])
def test_beyond_the_machine_it_is_reached_by_its_address(watch: RunWatch, host: str, at: str) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert asked(watch, "GET", "/healthz", bearer, at=at, host=host, token=TOKEN).status_code == 200


@pytest.mark.parametrize(
    ("at", "status"),
    [
        ("http://city.example:4300", 200),
        ("http://CITY.example", 200),
        ("http://[fd00::7]:4300", 200),
        ("http://192.168.1.5:4300", 200),
        ("http://other.example:4300", 421),
    ],
)
def test_it_is_opened_by_the_names_that_were_given(watch: RunWatch, at: str, status: int) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    names = ("City.example", "fd00::7")
    asked_at = asked(watch, "GET", "/healthz", bearer, at=at, host="192.168.1.5", token=TOKEN, names=names)
    assert asked_at.status_code == status
    if status == 421:
        assert "--ui-name" in asked_at.json()["error"]


def test_who_can_open_it_by_a_name_of_another_machine_needs_a_token(watch: RunWatch) -> None:
    with MonitorServer(watch, port=0, names=("city.example",)) as server:
        assert "login?token=" in server.address
        assert httpx.get(f"http://127.0.0.1:{server.port}/healthz", trust_env=False).status_code == 401
    with MonitorServer(watch, port=0, names=("localhost",)) as server:
        assert "token" not in server.address


def test_all_names_are_taken_only_where_a_token_is_needed(watch: RunWatch) -> None:
    assert asked(watch, "GET", "/healthz", at="http://evil.example", host="0.0.0.0").status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param(OURS, 200, id="a program"),
        pytest.param(OURS | {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:4300"}, 200, id="our page"),
        pytest.param({"x-headgate": "0"}, 403, id="another value of the header"),
        pytest.param({}, 403, id="without the header, as a form of another site"),
        pytest.param(OURS | {"origin": "http://evil.example"}, 403, id="another site"),
        pytest.param(OURS | {"origin": "null"}, 403, id="a sandboxed frame"),
        pytest.param(OURS | {"origin": "http://127.0.0.1:8000"}, 403, id="another port of this machine"),
        pytest.param(OURS | {"sec-fetch-site": "cross-site"}, 403, id="another site, says the browser"),
        pytest.param(OURS | {"sec-fetch-site": "same-site"}, 403, id="another port, says the browser"),
    ],
)
def test_changes_from_other_sites_are_refused(watch: RunWatch, headers: dict[str, str], status: int) -> None:
    assert asked(watch, *PAUSE, headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "/", 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "/api/overview", 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, "/metrics", 403),
    ],
)
def test_other_sites_may_link_here_and_not_read(
    watch: RunWatch, headers: dict[str, str], path: str, status: int
) -> None:
    assert asked(watch, "GET", path, headers).status_code == status


def test_no_site_is_allowed_to_ask_first(watch: RunWatch) -> None:
    preflight = {"origin": "http://evil.example", "access-control-request-headers": "x-headgate"}
    answer = asked(watch, "OPTIONS", PAUSE[1], preflight)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_read_only_refuses_every_change_and_no_question(watch: RunWatch) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert asked(watch, method, PAUSE[1], OURS, read_only=True).status_code == 403
    assert asked(watch, "GET", "/api/overview", read_only=True).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        ({"cookie": f"headgate_token_4300={TOKEN}"}, 200),
        ({"cookie": "headgate_token_4300=wrong", "authorization": f"Bearer {TOKEN}"}, 200),
        ({}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"cookie": "headgate_token_4300="}, 401),
        ({"cookie": f"headgate_token_4301={TOKEN}"}, 401),
    ],
)
def test_with_a_token_every_request_needs_it(watch: RunWatch, headers: dict[str, str], status: int) -> None:
    for path in ("/", "/api/overview", "/api/openapi.json", "/metrics", "/healthz", "/static/index.html"):
        assert asked(watch, "GET", path, headers, token=TOKEN).status_code == status, path


def test_the_token_is_handed_over_in_a_cookie_that_scripts_cannot_read(watch: RunWatch) -> None:
    answer = asked(watch, "GET", f"/login?token={TOKEN}", token=TOKEN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    name, _, rest = answer.headers["set-cookie"].partition("=")
    assert name == "headgate_token_4300"
    assert {"httponly", "samesite=lax", "path=/"} <= {part.strip().lower() for part in rest.split(";")}
    for wrong in ("", "x", TOKEN[:-1], "%ff", "ü"):
        refused = asked(watch, "GET", f"/login?token={wrong}", token=TOKEN)
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_that_the_user_has_chosen_is_needed_on_this_machine_too(watch: RunWatch, host: str) -> None:
    with MonitorServer(watch, host, port=0, token=TOKEN) as server:
        assert TOKEN not in server.address, "who has chosen it knows it"
        at = f"http://127.0.0.1:{server.port}/healthz"
        assert httpx.get(at, trust_env=False).status_code == 401
        assert httpx.get(at, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False).status_code == 200


def test_beyond_this_machine_there_is_always_a_token(watch: RunWatch) -> None:
    with MonitorServer(watch, "0.0.0.0", port=0) as one, MonitorServer(watch, "0.0.0.0", port=0) as other:
        tokens = {server.address.partition("token=")[2] for server in (one, other)}
    assert len(tokens) == 2 and min(map(len, tokens)) >= 32


@pytest.mark.parametrize("token", ["", "short", "with a space in the middle", "x" * 20 + "\n", "x" * 20 + "&"])
def test_a_token_that_can_be_guessed_or_is_no_part_of_an_address_is_refused(watch: RunWatch, token: str) -> None:
    with pytest.raises(ParameterError, match="HEADGATE_TOKEN") as caught:
        MonitorServer(watch, port=0, token=token)
    assert not token or token not in str(caught.value)


def test_tokens_are_compared_in_constant_time(watch: RunWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def digest(given: bytes, known: bytes) -> bool:
        compared.append((given, known))
        return False

    monkeypatch.setattr(access.hmac, "compare_digest", digest)
    assert asked(watch, "GET", "/", {"authorization": f"Bearer {TOKEN}"}, token=TOKEN).status_code == 401
    assert asked(watch, "GET", f"/login?token={TOKEN}", token=TOKEN).status_code == 401
    assert compared.count((TOKEN.encode(), TOKEN.encode())) == 2


def test_the_token_is_in_no_log_and_in_no_answer(watch: RunWatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for path in (f"/login?token={TOKEN}", f"/login?token={TOKEN}x", f"/api/tables/{TOKEN}?token={TOKEN}"):
        answer = asked(watch, "GET", path, token=TOKEN)
        assert TOKEN not in answer.text
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore", "asyncio"))]
    assert TOKEN not in "".join(record.getMessage() for record in ours)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/static/index.html", {}, 200),
        ("GET", "/api/overview", {}, 200),
        ("GET", "/metrics", {}, 200),
        ("GET", "/nowhere", {}, 404),
        ("GET", "/static/../access.py", {}, 404),
        ("DELETE", "/api/overview", OURS, 405),
        ("POST", "/api/commands/pause", {}, 403),
    ],
)
def test_every_answer_tells_browsers_to_be_strict(
    watch: RunWatch, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = asked(watch, method, path, headers)
    assert answer.status_code == status
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    if status >= 400:
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]


def test_markup_comes_back_as_the_text_of_json(watch: RunWatch) -> None:
    overview = asked(watch, "GET", "/api/overview")
    assert overview.headers["content-type"] == "application/json"
    assert overview.json()["tables"]["table003"]["error"] == NASTY
    unknown = asked(watch, "GET", "/api/tables/<script>alert(1)<%2Fscript>")
    assert unknown.status_code == 404
    assert unknown.headers["content-type"] == "application/json"
