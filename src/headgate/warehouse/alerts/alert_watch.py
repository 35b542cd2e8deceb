"""Looks at a running warehouse every few seconds and has its alerts delivered.

What has fired, and what is still to be delivered, is kept in a small file of the warehouse: a run that is started
again, also on another machine, neither repeats nor forgets an alert.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.places.place import AnyPath
from headgate.warehouse.alerts.delivery import Courier, Message, stop_all
from headgate.warehouse.alerts.kept_alerts import KeptAlerts
from headgate.warehouse.alerts.rules import AlertRules, Firing, Key
from headgate.warehouse.declare.alert import Alert
from headgate.warehouse.schedule.ledger import NodeStatistics

if TYPE_CHECKING:
    from headgate.warehouse.declare.spec import WarehouseSpec

#: seconds between two looks
LOOK_SECONDS = 5.0
#: how long the end of a run waits for the last look, for messages that are being delivered, and for the file
END_SECONDS = 2.0
#: before the number that a destination has in the file: the URL of a webhook may be a secret
_NUMBERED = "sha256:"

_VERSION = 2


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
        file: AnyPath,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        courier: Callable[..., Courier] = Courier,
    ) -> None:
        self._spec = spec
        self._statistics = statistics
        self._kept = KeptAlerts(file, say)
        self._say = say
        self._clock = clock
        self._courier = courier
        #: guards what has fired, what is still to be delivered, and the file, which holds both as of one moment
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []
        #: not before it is known what has fired: an alert that has must not be repeated
        self._rules: AlertRules | None = None
        self._couriers: dict[str | tuple[str, ...], Courier] = {}
        self._is_first = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-alerts", daemon=True)

    def start(self) -> AlertWatch:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Look once more, as a run that has failed says so at its end; takes ``END_SECONDS`` at most."""
        end = time.monotonic() + END_SECONDS
        self._ended.set()
        if self._thread.ident is None:
            self._look_at_the_end()
        else:
            self._thread.join(END_SECONDS)
        # A little is left for the file, which says what was delivered.
        stop_all(list(self._couriers.values()), max(0.0, end - END_SECONDS / 4 - time.monotonic()))
        self._kept.stop(end)

    def _look_at_the_end(self) -> None:
        with suppress(Exception):
            self.look()

    def _watch(self) -> None:
        trouble = ""
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # the tables go on, and so do the other looks
                if str(error) != trouble:
                    trouble = str(error)
                    self._say(f"the alerts could not be looked after: {type(error).__name__}: {error}")
        self._look_at_the_end()

    def look(self) -> None:
        """Find out what fires and what recovers, keep that, and have it delivered."""
        spec = self._spec()
        if not spec.alerts and not (self._rules and self._rules.fired):
            return
        if self._rules is None:
            fired, self._pending = _read(self._kept.read(), spec.alerts)
            self._rules = AlertRules(fired)
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
        assert self._rules is not None
        content: dict[str, Any] = {
            "version": _VERSION,
            "fired": [[_number(to), *key, at] for (to, *key), at in self._rules.fired.items()],
            "pending": [[_number(each.key[0]), *each.key[1:], dict(each.message)] for each in self._pending],
        }
        self._kept.write(json.dumps(content))


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


def _number(to: str | tuple[str, ...]) -> str:
    """By what a destination is known in the file."""
    return _NUMBERED + hashlib.sha256(json.dumps(to).encode()).hexdigest()


def _read(text: str, alerts: Iterable[Alert]) -> tuple[dict[Key, float], list[_Pending]]:
    """What has fired and what is still to be delivered, of alerts to the same destinations as ``alerts``.

    Nothing if the text is damaged, or of another version.
    """
    known = {_number(alert.to): alert.to for alert in alerts}

    def key(to: Any, table: Any, condition: Any) -> Key:
        return known[str(to)], str(table), condition

    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            return {}, []
        fired = {key(*each[:3]): float(each[3]) for each in content["fired"] if each[0] in known}
        pending = [_Pending(key(*each[:3]), dict(each[3])) for each in content["pending"] if each[0] in known]
    except (ValueError, TypeError, KeyError, IndexError):
        return {}, []
    return fired, pending


def alerts_file(warehouse: AnyPath) -> AnyPath:
    """Where the alerts of a warehouse are kept: beside its tables."""
    return warehouse / "alerts.json"
