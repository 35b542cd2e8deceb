"""A proxy on loopback before an object store: it refuses every so many requests, and answers some late or not at all.
It can also take the conditions from requests, as a store does that ignores them.

It reads each request as a whole and passes it on over a connection of its own, so that what it does to one does not
touch another. It is a process of its own: clients in Rust may hold Python's lock while they wait for it.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from urllib.request import urlopen

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_HOW_MANY = "/how-many-requests"
_CONDITIONS = ("if-match", "if-none-match")


class RoughProxy:
    """Passes requests on to ``port``; every ``refuses``-th is answered with 503 and not passed on, every
    ``loses_answers``-th is passed on and then answered with 503, every ``late``-th is answered ``delay`` seconds later.
    With ``unconditional``, the secret key of the store, requests are passed on without their conditions.
    """

    def __init__(
        self,
        port: int,
        refuses: int = 0,
        loses_answers: int = 0,
        late: int = 0,
        delay: float = 0.0,
        unconditional: str = "",
    ) -> None:
        self._arguments = [str(each) for each in (port, refuses, loses_answers, late, delay, unconditional)]

    def __enter__(self) -> RoughProxy:
        command = [sys.executable, __file__, *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def requests(self) -> int:
        """How many there were."""
        with urlopen(f"http://127.0.0.1:{self.port}{_HOW_MANY}") as answer:
            return int(answer.read())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _serve(port: int, refuses: int, loses_answers: int, late: int, delay: float, unconditional: str) -> None:
    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            number = next(numbers)
            if self.path == _HOW_MANY:
                self._answer(200, {}, str(number).encode())
            elif refuses and number % refuses == 0:
                self._answer(503, {}, b"")
            else:
                status, headers, content = self._passed_on(body)
                if late and number % late == 0:
                    time.sleep(delay)
                if loses_answers and number % loses_answers == 0:
                    status, headers, content = 503, {}, b""
                self._answer(status, headers, content)

        def _passed_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                headers = dict(self.headers.items())
                if unconditional:
                    headers = _without_conditions(self.command, self.path, headers, unconditional)
                for name, value in headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                upstream.close()

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = next((v for n, v in headers.items() if n.lower() == "content-length"), "0")
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
            with suppress(ConnectionError):  # some clients end a request of which they know enough
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_one  # noqa: N815 - as the server calls them

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


_SIGNED = re.compile(r"(\S+) Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)")


def _without_conditions(method: str, path: str, headers: dict[str, str], secret: str) -> dict[str, str]:
    """The headers without the conditions, which were signed with the others: so they are signed anew."""
    kept = {name.lower(): value for name, value in headers.items() if name.lower() not in _CONDITIONS}
    found = _SIGNED.fullmatch(kept["authorization"])
    assert found is not None, kept["authorization"]
    scheme, user, scope, names, _ = found.groups()
    signed = [name for name in names.split(";") if name not in _CONDITIONS]
    place, _, query = path.partition("?")
    sorted_query = "&".join(sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part))
    lines = [f"{name}:{' '.join(kept[name].split())}" for name in signed]
    request = [method, place, sorted_query, *lines, "", ";".join(signed), kept["x-amz-content-sha256"]]
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
    text = "\n".join([scheme, kept["x-amz-date"], scope, digest])
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={user}/{scope}, SignedHeaders={';'.join(signed)}, Signature={signature}"
    return {**kept, "authorization": f"{scheme} {credential}"}


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:5]), float(sys.argv[5]), sys.argv[6])
