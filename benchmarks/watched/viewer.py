"""Somebody who looks at a run as the page does: the first snapshot, and then every event."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Viewer:
    """Reads from `start` to `stop`. Seconds from the end of an update to its event, the first `skip` seconds left out.

    Both clocks are that of this machine.
    """

    address: str
    skip: float
    delays: list[float] = field(default_factory=list)
    #: of the snapshot, and of all events
    snapshot_bytes: int = 0
    event_bytes: int = 0
    snapshot_seconds: float = 0.0
    missed: int = 0

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="viewer", daemon=True)

    def start(self) -> Viewer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(30.0)

    def _look(self) -> None:
        began = time.perf_counter()
        content = asked(self.address, "/api/overview")
        json.loads(content)
        self.snapshot_seconds, self.snapshot_bytes = time.perf_counter() - began, len(content)
        connection = _connected(self.address)
        connection.request("GET", "/api/events")
        kind, counts_from = b"", time.time() + self.skip
        try:
            for line in connection.getresponse():
                if self._ended.is_set():
                    break
                self.event_bytes += len(line)
                name, _, value = line.rstrip(b"\n").partition(b": ")
                if name == b"event":
                    kind = value
                    self.missed += kind == b"missed"
                elif name == b"data" and kind == b"update" and (now := time.time()) >= counts_from:
                    update = json.loads(value)
                    self.delays.append(now - update["began"] - update["seconds"])
        except (OSError, http.client.HTTPException):
            pass  # the run has ended
        finally:
            connection.close()


def _connected(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60.0)


def asked(address: str, path: str) -> bytes:
    """The answer to one request."""
    connection = _connected(address)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == http.client.OK, (path, answer.status, content[:200])
        return content
    finally:
        connection.close()
