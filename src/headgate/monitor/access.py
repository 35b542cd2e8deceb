"""Who may look at a run, and who may change it.

On the machine itself everybody with an account can connect to a port, and every page in a browser can send requests to
it. So, whatever the address: a request must be made to a name of this server (or a page of another site could reach it
by a name of its own that leads here), changes must come from our own page or from a program, and beyond the machine
itself every request needs the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "headgate_token"
#: the header that requests with changes carry: a page of another site cannot set it without being asked first
CHANGE_HEADER = "x-headgate"
#: what a browser may load and do: nothing from elsewhere, no code inside the page, no frame around it
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Access:
    """Lets requests through to ``app`` that may pass, and adds the headers that keep browsers safe.

    ``host`` is the address that the server listens at, ``names`` are further names that it is reached by. With a
    ``token``, every request needs it: in a cookie, which ``/login?token=...`` sets, or as ``Authorization: Bearer``.
    """

    def __init__(
        self, app: ASGIApp, host: str, names: Sequence[str] = (), token: str | None = None, read_only: bool = False
    ) -> None:
        self._app = app
        self._token = token
        self._read_only = read_only
        own = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(host) else {host}
        self._names = {*own, *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._login(request) or self._refused(request)

        async def send_safely(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message.get("headers", ())}  # type: ignore[attr-defined]
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in known]
                message = {**message, "headers": [*message.get("headers", ()), *added]}  # type: ignore[misc]
            await send(message)

        await (refused or self._app)(scope, receive, send_safely)  # type: ignore[arg-type]

    def _refused(self, request: Request) -> Response | None:
        if not self._is_for_us(request.headers):
            names = ", ".join(sorted(self._names))
            return _refusal(421, f"this server is called {names}; open it by that name")
        if self._token is not None and not self._has_token(request):
            return _refusal(401, "a token is needed: open the address that `headgate run` has printed")
        if request.method not in ("GET", "HEAD"):
            if self._read_only:
                return _refusal(403, "this page is read-only: it was started with --ui-read-only")
            if not self._comes_from_us(request):
                return _refusal(403, f"changes are made from the page itself, or with the header {CHANGE_HEADER}: 1")
        return None

    def _is_for_us(self, headers: Headers) -> bool:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return name in self._names

    def _has_token(self, request: Request) -> bool:
        given = request.cookies.get(COOKIE) or request.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), (self._token or "").encode())

    @staticmethod
    def _comes_from_us(request: Request) -> bool:
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin")
        is_same = origin is None or origin.partition("://")[2] == request.headers.get("host")
        return site in ("same-origin", "none") and is_same and CHANGE_HEADER in request.headers

    def _login(self, request: Request) -> Response | None:
        """Hand the token over in a cookie that scripts cannot read, and take it out of the address."""
        if self._token is None or request.url.path != "/login" or not self._is_for_us(request.headers):
            return None
        given = request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return _refusal(401, "this token is not the one that `headgate run` has printed")
        response = Response(status_code=303, headers={"location": "/"})
        response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", path="/")
        return response


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(why + "\n", status_code=status)
