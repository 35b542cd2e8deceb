"""A run in another process, as a terminal sees it: by the control socket of its directory, or by the URL of its page.

Both give overviews one after the other, in the form of ``RunRecord.overview``. When the run cannot be reached they
raise a HeadgateError that says why; whoever asks tries again.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, urlsplit

from headgate.core import HeadgateError, ParameterError, Ranked, together_from
from headgate.core.trace import TraceHeader, TraceTable
from headgate.monitor.access import TOKEN_VARIABLE
from headgate.monitor.bounding import WINDOW, RunBounds
from headgate.monitor.record import Json, RunRecord
from headgate.monitor.stuck import stuck_track
from headgate.places.place import AnyPath
from headgate.warehouse.run.control_client import RunningWarehouse
from headgate.warehouse.run.trace import local_runs, traces_in
from headgate.warehouse.schedule.glance import Glance, RunningUpdate
from headgate.warehouse.schedule.ledger import NodeStatistics

#: seconds between two questions over the control socket
ASK_SECONDS = 1.0
#: seconds without an answer, or without any event, after which a connection counts as lost
PATIENCE = 20.0


class UnreachableError(HeadgateError):
    """The page of a run does not answer, or not as one."""


class RemoteRun(Protocol):
    """A run that can be looked at from here. ``name`` says which one."""

    name: str

    def overviews(self, ended: threading.Event) -> Iterator[Json]:
        """How the run stands, about once a second, until ``ended`` is set; raises when it cannot be reached."""

    def explain(self, table: str) -> str: ...

    def do(self, command: str, table: str) -> None:
        """``pause``, ``resume`` or ``refresh`` a table."""


class SocketRun:
    """The run of a warehouse in a directory of this machine; needs no page.

    ``new_bounds`` makes what keeps the bound of a run: another run has another one.
    """

    def __init__(
        self,
        directory: AnyPath,
        seconds: float = ASK_SECONDS,
        new_bounds: Callable[[], RunBounds] = lambda: RunBounds(WINDOW),
    ) -> None:
        self.name = str(directory)
        self._running = RunningWarehouse(directory)
        self._runs = local_runs(directory)
        self._seconds = seconds
        self._new_bounds = new_bounds

    def overviews(self, ended: threading.Event) -> Iterator[Json]:
        record: RunRecord | None = None
        bounds = self._new_bounds()
        while not ended.is_set():
            answer = self._running.glance()
            glance = _glance(answer["glance"])
            declared = tuple(_table(each) for each in answer["declared"])
            if record is None:
                settings = (glance.tracks, glance.policy, glance.placement, glance.inheritance)
                record = RunRecord(TraceHeader(self.name, glance.now, *settings, None, declared, glance.budget))
            record.redeclared(declared)
            record.seen(glance)
            if bounds.is_due and (traces := traces_in(self._runs)):
                threading.Thread(target=bounds.of, args=(traces[0],), name="headgate-bound", daemon=True).start()
            troubles = {"trouble": stuck_track(glance), "left": list(glance.left)}
            yield {**record.overview(), "live": True, "bound": bounds.latest, **troubles}
            ended.wait(self._seconds)

    def explain(self, table: str) -> str:
        return self._running.explain(table)

    def do(self, command: str, table: str) -> None:
        getattr(self._running, command)(table)


class PageRun:
    """The run behind the page at ``url``. Its token is in the URL, as ``?token=...``, or in ``HEADGATE_TOKEN``."""

    def __init__(self, url: str, token: str | None = None, patience: float = PATIENCE) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError(f"the URL of a page is such as http://127.0.0.1:4300/; got {url!r}")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._token = token or "".join(parse_qs(parts.query).get("token", [])[:1]) or os.environ.get(TOKEN_VARIABLE)
        self._patience = patience
        #: the address without the token
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"

    def overviews(self, ended: threading.Event) -> Iterator[Json]:
        # The events first: they say what is different, so that none may be missed after the overview.
        connection, answer = self._opened("GET", "/api/events")
        try:
            overview = self._asked("GET", "/api/overview")
            yield overview
            for kind, content in _events(answer, ended):
                if kind in ("redeclared", "missed", "ended"):
                    overview = self._asked("GET", "/api/overview")
                    yield overview
                elif kind == "seen" and content["at"] > overview["at"]:
                    _take_in(overview, content)
                    yield overview
                elif kind == "notice":
                    overview["notices"].append(content)
                elif kind == "bound":
                    overview["bound"] = content
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnreachableError(f"{self.name} does not answer any more: {error}") from None
        finally:
            connection.close()
        if not ended.is_set():
            raise UnreachableError(f"{self.name} does not answer any more: the run has ended, or its page was closed")

    def explain(self, table: str) -> str:
        return str(self._asked("GET", f"/api/tables/{quote(table, safe='')}/why")["text"])

    def do(self, command: str, table: str) -> None:
        self._asked("POST", f"/api/commands/{command}", {"name": table})

    def _asked(self, method: str, path: str, content: Mapping[str, object] | None = None) -> Json:
        connection, answer = self._opened(method, path, content)
        try:
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnreachableError(f"{self.name} answers something that is not of a run: {error}") from None
        finally:
            connection.close()
        if not isinstance(told, dict):
            raise UnreachableError(f"{self.name} answers something that is not of a run")
        return told

    def _opened(
        self, method: str, path: str, content: Mapping[str, object] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._patience)
        headers = {"x-headgate": "1", "content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, None if content is None else json.dumps(content), headers)
            answer = connection.getresponse()
            if answer.status == http.client.OK:
                return connection, answer
            said = answer.read(10_000).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise UnreachableError(f"{self.name} does not answer: {error}; is `headgate run` running there?") from None
        connection.close()
        raise UnreachableError(f"{self.name} refuses: {_error_in(said)}")


def _error_in(said: str) -> str:
    try:
        return str(json.loads(said)["error"])
    except (ValueError, LookupError, TypeError):
        return said


def _events(answer: http.client.HTTPResponse, ended: threading.Event) -> Iterator[tuple[str, Json]]:
    """The server-sent events of an answer, until it ends."""
    kind = ""
    for raw in answer:
        if ended.is_set():
            return
        field, _, value = raw.decode(errors="replace").rstrip("\r\n").partition(": ")
        if field == "event":
            kind = value
        elif field == "data":
            yield kind, json.loads(value)


def _take_in(overview: Json, different: Json) -> None:
    """Change an overview by what is different since."""
    for key in ("at", "settings", "running", "queue", "disk", "trouble", "left", "file_problem"):
        if key in different:
            overview[key] = different[key]
    overview["staleness"] = [*overview["staleness"][-1:], (different["at"], different["staleness"])]
    for name, fields in different["tables"].items():
        if name in overview["tables"]:
            overview["tables"][name].update(fields)


def _glance(told: Mapping[str, Any]) -> Glance:
    return Glance(
        now=told["now"],
        policy=told["policy"],
        placement=told["placement"],
        tracks=told["tracks"],
        budget=told["budget"],
        tables=tuple(NodeStatistics(**{**row, "operators": (), "repairs": None}) for row in told["tables"]),
        queue=tuple(Ranked(each["name"], (), 0.0) for each in told["queue"]),
        running=tuple(_running(each) for each in told["running"]),
        left=tuple(told.get("left", ())),
        file_problem=told.get("file_problem", ""),
        inheritance=told.get("inheritance", "default"),
        together=together_from(told.get("together", "default")),
    )


def _running(told: Mapping[str, Any]) -> RunningUpdate:
    limit = told.get("limit")
    return RunningUpdate(**{**told, "limit": math.inf if limit is None else limit})


def _table(told: Mapping[str, Any]) -> TraceTable:
    return TraceTable(**{**told, "sources": tuple(told["sources"])})
