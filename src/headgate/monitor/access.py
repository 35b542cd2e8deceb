"""Who may look at a run, and who may change it.

On the machine itself everybody with an account can connect to a port, and every page in a browser can send requests to
it. So, whatever the address: a request must be made to a name of this server (or a page of another site could reach it
by a name of its own that leads here), pages of other sites may link here and do nothing else, changes must come from
our own page or from a program, and beyond the machine itself every request needs the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.core import ParameterError

COOKIE = "headgate_token"
#: the environment variable with a token that stays the same, for the page and for those who look at it
TOKEN_VARIABLE = "HEADGATE_TOKEN"
#: fewer letters could be guessed
LEAST_LETTERS = 16
#: where a browser hands in the token
LOGIN = "/login"
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


def is_for_this_machine_only(host: str, names: Sequence[str] = ()) -> bool:
    """Whether a page at ``host`` that is opened by further ``names`` is one for people on this machine.

    Another name is that of a proxy or of a tunnel, so people elsewhere come by it.
    """
    return all(is_loopback(each.strip("[]").lower()) for each in (host, *names))


def check_name(name: str) -> None:
    """Raises ParameterError for what cannot be the name of a server in the address of a page."""
    if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", name):
        return
    try:
        ipaddress.IPv6Address(name.strip("[]"))
    except ValueError:
        raise ParameterError(
            f"--ui-name takes a name without a scheme and a port, such as city.example; got {name!r}"
        ) from None


def new_token() -> str:
    return secrets.token_urlsafe(24)


def check_token(token: str) -> None:
    """Raises ParameterError if a token that somebody has chosen is too short, or cannot be part of an address."""
    if not re.fullmatch(rf"[A-Za-z0-9_.~-]{{{LEAST_LETTERS},}}", token):
        raise ParameterError(
            f"a token, in {TOKEN_VARIABLE}, has at least {LEAST_LETTERS} letters, digits, '_', '-', '.' or '~'; got "
            f"{len(token)} characters. Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )


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
        own = {_in_address(each).lower() for each in (host, *names)}
        if is_loopback(host):
            own |= {"localhost", "127.0.0.1", "[::1]"}
        self._names = own
        # Who listens at all addresses has more names than we know. Then there is a token, and a browser has it only for
        # the name that it was handed over at, so that another name that leads here is of no use to anybody.
        self._any_name = token is not None and host in ("0.0.0.0", "::")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer: ASGIApp = self._refused(request) or self._login(request) or self._app

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                known = {name.lower() for name, _ in headers}
                headers += [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in known]
                message = {**message, "headers": headers}
            await send(message)

        await answer(scope, receive, send_safely)

    def _refused(self, request: Request) -> Response | None:
        if not self._is_for_us(request.headers):
            names = ", ".join(sorted(self._names))
            more = "or start it with --ui-name for the one that you have used"
            return _refusal(421, f"this server is called {names}; open it by that name, {more}")
        if request.url.path == LOGIN:
            return None
        if self._token is not None and not self._has_token(request):
            where = (
                f"open the address that `headgate run` has printed, or {LOGIN}?token=... with that of {TOKEN_VARIABLE}"
            )
            return _refusal(401, f"a token is needed: {where}")
        is_change = request.method not in ("GET", "HEAD")
        if is_change and self._read_only:
            why = "this page is read-only: it was started with --ui-read-only"
        elif is_change and not self._comes_from_us(request):
            why = f"changes are made from the page itself, or with the header {CHANGE_HEADER}: 1"
        elif not _is_own(request.headers) and request.headers.get("sec-fetch-mode") != "navigate":
            why = "pages of other sites may link here, and not read from here"
        else:
            return None
        return _refusal(403, why)

    def _is_for_us(self, headers: Headers) -> bool:
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return name in self._names or (self._any_name and name != "")

    def _has_token(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return self._is_token(request.cookies.get(_cookie(request), "")) or (
            scheme.lower() == "bearer" and self._is_token(given.strip())
        )

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), (self._token or "").encode())

    @staticmethod
    def _comes_from_us(request: Request) -> bool:
        origin = request.headers.get("origin")
        is_same = origin is None or origin.partition("://")[2].lower() == request.headers.get("host", "").lower()
        return _is_own(request.headers) and is_same and request.headers.get(CHANGE_HEADER) == "1"

    def _login(self, request: Request) -> Response | None:
        """Hand the token over in a cookie that scripts cannot read, and take it out of the address."""
        if request.url.path != LOGIN:
            return None
        if request.method != "GET":
            return _refusal(405, "open this address with a browser")
        response = Response(status_code=303, headers={"location": "/"})
        if self._token is None:
            return response
        if not self._is_token(request.query_params.get("token", "")):
            return _refusal(
                401, "this token is not the one of this run: it has printed its own, unless it was given one"
            )
        # A link from another site may be followed with it; changes need our header and origin beside.
        response.set_cookie(_cookie(request), self._token, httponly=True, samesite="lax", path="/")
        return response


def _in_address(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _cookie(request: Request) -> str:
    """The name of the cookie: browsers do not tell ports apart, and several runs may have a page on one machine."""
    server = request.scope.get("server")
    return f"{COOKIE}_{server[1]}" if server else COOKIE


def _is_own(headers: Headers) -> bool:
    """Whether a request comes from our own page, from a person, or from a program that is no browser."""
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _refusal(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status)
