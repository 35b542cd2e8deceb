"""Translates what writes to Google's object store, from its protocol in XML to the one in JSON: for an emulator that
takes writes by the second only. Everything else is passed on as it is; listings from a name on are cut to that.

A process of its own: clients in Rust may hold Python's lock while they wait for it.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import sys
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


def _listed_after(listing: str, name: str) -> str:
    """A listing without the objects up to ``name``, which the emulator does not leave out."""

    def kept(found: re.Match[str]) -> str:
        return found[0] if unescape(found[1]) > name else ""

    return re.sub(r"<Contents><Key>(.*?)</Key>.*?</Contents>", kept, listing)


def _serve(port: int, emulator: int) -> None:
    parts: dict[str, dict[int, bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            address = urlsplit(self.path)
            bucket, _, name = address.path.lstrip("/").partition("/")
            query = {key: values[0] for key, values in parse_qs(address.query, keep_blank_values=True).items()}
            is_write = self.command in ("PUT", "POST") and name and bucket not in ("storage", "batch", "upload")
            if not is_write:
                status, headers, content = self._ask(self.command, self.path, dict(self.headers.items()), body)
                kept = {key: value for key, value in headers.items() if key.lower() not in _NOT_PASSED_ON}
                if "start-after" in query:
                    content = _listed_after(content.decode(), query["start-after"]).encode()
                self._answer(status, kept, content, headers.get("Content-Length"))
            elif "uploads" in query:
                number = secrets.token_hex(8)
                parts[number] = {}
                self._answer(200, {}, f"<Upload><UploadId>{number}</UploadId></Upload>".encode())
            elif "partNumber" in query:
                parts[query["uploadId"]][int(query["partNumber"])] = body
                self._answer(200, {"ETag": f'"{query["partNumber"]}"'}, b"")
            elif "uploadId" in query:
                found = parts.pop(query["uploadId"])
                self._write(bucket, name, b"".join(found[number] for number in sorted(found)))
            else:
                self._write(bucket, name, body)

        def _write(self, bucket: str, name: str, content: bytes) -> None:
            condition = self.headers.get("x-goog-if-generation-match")
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(name), safe='')}"
            path += "" if condition is None else f"&ifGenerationMatch={condition}"
            status, _, answer = self._ask("POST", path, {"Content-Type": "application/octet-stream"}, content)
            if status != 200:
                self._answer(status, {}, answer)
                return
            told = json.loads(answer)
            headers = {"ETag": f'"{told["etag"]}"', "x-goog-generation": str(told["generation"])}
            self._answer(200, headers, f"<Upload><ETag>{headers['ETag']}</ETag></Upload>".encode())

        def _ask(
            self, method: str, path: str, headers: dict[str, str], body: bytes
        ) -> tuple[int, dict[str, str], bytes]:
            upstream = http.client.HTTPConnection("127.0.0.1", emulator, timeout=300)
            try:
                passed_on = {key: value for key, value in headers.items() if key.lower() not in _NOT_PASSED_ON}
                upstream.request(method, path, body, passed_on)
                answer = upstream.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                upstream.close()

        def _answer(self, status: int, headers: dict[str, str], content: bytes, length: str | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            is_head = self.command == "HEAD"
            self.send_header("Content-Length", (length or "0") if is_head else str(len(content)))
            self.end_headers()
            if not is_head:
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_one  # noqa: N815 - as the server calls them

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
