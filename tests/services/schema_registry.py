"""What readers use of a schema registry, served on loopback; and values as its serializers write them."""

from __future__ import annotations

import base64
import io
import json
import threading
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import pytest

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "n", "type": ["null", "long"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "ratio", "type": "double"},
    ],
}
AVRO_COLUMNS = "ts timestamp, n long, price decimal(6, 2), tags map<string, string>, ratio double"


def encoded(number: int, schema: dict[str, Any], record: Any) -> bytes:
    """A value as serializers with a schema registry write it."""
    fastavro = pytest.importorskip("fastavro")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def reading(n: int | None, ratio: float = 0.5) -> dict[str, Any]:
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return {"ts": moment, "n": n, "price": Decimal("12.34"), "tags": {"a": "b"}, "ratio": ratio}


class SchemaRegistryServer:
    """The part of a schema registry that readers use, on a free port: schemas by number, and by subject and version.

    With a password, only the user ``headgate`` gets an answer.
    """

    def __init__(self, password: str = "") -> None:
        self.by_number: dict[int, dict[str, Any]] = {}
        self.by_subject: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str | None]] = []
        server = self
        login = base64.b64encode(f"headgate:{password}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers.get("Authorization")))
                if password and self.headers.get("Authorization") != f"Basic {login}":
                    self.send_response(401)
                    self.end_headers()
                    return
                found = server._found(self.path)
                body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
                self.send_response(200 if found else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing to standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def _found(self, path: str) -> dict[str, Any] | None:
        *_, kind, name = path.split("/") if path.startswith("/schemas") else ("", path)
        return self.by_number.get(int(name)) if kind == "ids" else self.by_subject.get(path)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
