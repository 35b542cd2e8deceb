"""Looks at a running warehouse every few seconds and has its alerts delivered.

What has fired, and what is still to be delivered, is kept in a small file beside the runs, which is replaced as a
whole: a run that is started again neither repeats nor forgets an alert.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.warehouse.alerts.delivery import Courier, Message
from headgate.warehouse.alerts.rules import AlertRules, Firing, Key
from headgate.warehouse.schedule.ledger import NodeStatistics

if TYPE_CHECKING:
    from headgate.warehouse.declare.spec import WarehouseSpec

#: seconds between two looks
LOOK_SECONDS = 5.0
#: how long the end of a run waits for messages that are being delivered
END_SECONDS = 2.0

_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Pending:
    """A message that is still to be delivered."""

    key: Key
    message: Message


class AlertWatch:
    """Watches from ``start`` to ``stop``. ``spec`` gives the declarations of now, ``statistics`` how tables stand."""

    def __init__(
        self,
        spec: Callable[[], WarehouseSpec],
        statistics: Callable[[], tuple[NodeStatistics, ...]],
        file: Path,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        courier: Callable[..., Courier] = Courier,
    ) -> None:
        self._spec = spec
        self._statistics = statistics
        self._file = file
        self._say = say
        self._clock = clock
        self._courier = courier
        #: guards what has fired, what is still to be delivered, and the file, which holds both as of one moment
        self._lock = threading.Lock()
        fired, self._pending = _read(file)
        self._rules = AlertRules(fired)
        self._couriers: dict[str | tuple[str, ...], Courier] = {}
        self._is_first = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-alerts", daemon=True)

    def start(self) -> AlertWatch:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Look once more, as a run that has failed says so at its end."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)
        if not self._thread.is_alive():
            with suppress(Exception):
                self.look()
        for courier in self._couriers.values():
            courier.stop(END_SECONDS)

    def _watch(self) -> None:
        trouble = ""
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # the tables go on, and so do the other looks
                if str(error) != trouble:
                    trouble = str(error)
                    self._say(f"the alerts could not be looked after: {type(error).__name__}: {error}")

    def look(self) -> None:
        """Find out what fires and what recovers, keep that, and have it delivered."""
        spec = self._spec()
        if not spec.alerts and not self._rules.fired:
            return
        shown = {alert.to: alert.shown for alert in spec.alerts}
        streams = {each.name for each in spec.streams}
        rows = self._statistics()
        with self._lock:
            firings = self._rules.look(spec.alerts, streams, rows, self._clock())
            sent = [_Pending(firing.key, _message(spec.name, firing)) for firing in firings]
            if self._is_first:  # what the last run has left
                self._pending = [each for each in self._pending if each.key[0] in shown]
                self._pending, sent = [*self._pending, *sent], [*self._pending, *sent]
            else:
                self._pending += sent
            if firings or self._is_first:
                self._write()
            self._is_first = False
        for each in sent:
            self._send(each, shown[each.key[0]])

    def _send(self, each: _Pending, shown: str) -> None:
        to = each.key[0]
        if to not in self._couriers:
            self._couriers[to] = self._courier(to, shown, self._delivered, self._say)
        if not self._couriers[to].put(each.message):
            self._say(f"too many alerts wait for {shown}; one is dropped: {each.message['text']}")
            self._delivered(each.message)

    def _delivered(self, message: Message) -> None:
        with self._lock:
            self._pending = [each for each in self._pending if each.message is not message]
            self._write()

    def _write(self) -> None:
        """Replace the file. A disk that is full stops no alert, but then a restart may repeat one."""
        content: dict[str, Any] = {
            "version": _VERSION,
            "fired": [[*key, at] for key, at in self._rules.fired.items()],
            "pending": [[*each.key, dict(each.message)] for each in self._pending],
        }
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_suffix(".tmp")
            part.touch(mode=0o600)  # the URL of a webhook may be a secret
            part.write_text(json.dumps(content), "utf-8")
            os.replace(part, self._file)


def _message(warehouse: str, firing: Firing) -> Message:
    """What is delivered. Its fields are stable."""
    return {
        "warehouse": warehouse,
        "table": firing.table,
        "condition": firing.key[2],
        "status": "recovered" if firing.recovered else "firing",
        "at": firing.at,
        "text": firing.text,
    }


def _read(file: Path) -> tuple[dict[Key, float], list[_Pending]]:
    """What has fired, and what is still to be delivered; nothing if the file is not there or is damaged."""
    try:
        content = json.loads(file.read_text("utf-8"))
        if content["version"] != _VERSION:
            return {}, []
        fired: dict[Key, float] = {_key(*each[:3]): float(each[3]) for each in content["fired"]}
        pending = [_Pending(_key(*each[:3]), dict(each[3])) for each in content["pending"]]
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return {}, []
    return fired, pending


def _key(to: Any, table: str, condition: Any) -> Key:
    return (tuple(to) if isinstance(to, list) else str(to), str(table), condition)


def alerts_file(runs: Path) -> Path:
    """Where the alerts of a warehouse are kept: beside the folder of its runs."""
    return runs.parent / "alerts.json"
