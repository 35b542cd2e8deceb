"""What fires and what recovers, given how the tables stand and the time. No clock, no threads, no network.

An alert recovers only on evidence: an update that was committed after it fired, or rows that were loaded. So a restart,
after which nothing has been held or late yet, neither recovers an alert nor makes it fire a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headgate.warehouse.declare.alert import Alert
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.schedule.ledger import NodeStatistics

Condition = Literal["late", "held", "rejected", "silent"]
#: (where it goes, table, condition)
Key = tuple[str | tuple[str, ...], str, Condition]

#: shares of rejected rows are of the last one or two lengths of this many seconds
WINDOW_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fires, or with ``recovered`` does not any more: of which table, why, and since when."""

    key: Key
    at: float
    text: str
    recovered: bool = False

    @property
    def table(self) -> str:
        return self.key[1]


@dataclass(slots=True)
class _Seen:
    """What is remembered of a table: since when it misses its target, when its source gave something, and its rows."""

    heard: float
    late_since: float | None = None
    #: (at, written, rejected) at the beginning of this window and of the one before
    window: tuple[float, int, int] = (0.0, 0, 0)
    before: tuple[int, int] = (0, 0)


class AlertRules:
    """Decides at every look. ``fired`` is {what has fired: when}, as it was when the last run ended."""

    def __init__(self, fired: Mapping[Key, float]) -> None:
        self.fired = dict(fired)
        self._seen: dict[str, _Seen] = {}

    def look(
        self, alerts: Iterable[Alert], streams: Iterable[str], rows: Sequence[NodeStatistics], now: float
    ) -> list[Firing]:
        """What fires and what recovers now. ``streams`` are the names of those tables that have a source."""
        loaded = frozenset(streams)
        found: list[Firing] = []
        watched: set[Key] = set()
        for row in rows:
            self._note(row, now)
        for alert in alerts:
            named = frozenset(alert.tables)
            for row in rows:
                if named and row.name not in named:
                    continue
                for condition in _conditions(alert, row, row.name in loaded):
                    key: Key = (alert.to, row.name, condition)
                    if key in watched:
                        continue  # two alerts about the same to the same place
                    watched.add(key)
                    if (firing := self._firing(key, alert, row, now)) is not None:
                        found.append(firing)
        # What is not declared any more has nothing to recover from.
        self.fired = {key: at for key, at in self.fired.items() if key in watched}
        return found

    def _note(self, row: NodeStatistics, now: float) -> None:
        seen = self._seen.get(row.name)
        if seen is None:
            seen = self._seen[row.name] = _Seen(heard=now, window=(now, 0, 0))
        if row.lag > 0:
            seen.heard = now
        elif row.last_update is not None:
            seen.heard = max(seen.heard, row.last_update)
        if row.target_lag is None or row.lag <= row.target_lag:
            seen.late_since = None
        elif seen.late_since is None:
            seen.late_since = now - (row.lag - row.target_lag)
        began, written, rejected = seen.window
        if now >= began + WINDOW_SECONDS or row.written < written:
            seen.before = (written, rejected) if row.written >= written else (0, 0)
            seen.window = (now, row.written, row.rejected)

    def _firing(self, key: Key, alert: Alert, row: NodeStatistics, now: float) -> Firing | None:
        fired = self.fired.get(key)
        is_updated = fired is not None and row.last_update is not None and row.last_update > fired
        why, is_well = _STATES[key[2]](_Moment(alert, row, self._seen[row.name], now, is_updated))
        if fired is None and why:
            self.fired[key] = now
            return Firing(key, now, f"{row.name} {why}")
        if fired is not None and is_well:
            del self.fired[key]
            return Firing(key, now, f"{row.name} {_WELL[key[2]]}", recovered=True)
        return None


_WELL: Mapping[Condition, str] = {
    "late": "is within its target again",
    "held": "is updated again",
    "rejected": "rejects no more rows than it may",
    "silent": "gets data again",
}


def _conditions(alert: Alert, row: NodeStatistics, is_loaded: bool) -> list[Condition]:
    """The conditions of an alert that a table can be in."""
    found: list[Condition] = []
    if alert.late is not None and row.target_lag is not None:
        found.append("late")
    if alert.held:
        found.append("held")
    if alert.rejected is not None:
        found.append("rejected")
    if alert.silent is not None and is_loaded:
        found.append("silent")
    return found


# --- the conditions ----------------------------------------------------------------------------------------------
# Each says why it holds, empty if it does not; and whether there is evidence that it does not any more.


@dataclass(frozen=True, slots=True)
class _Moment:
    """A table at one look. ``is_updated``: an update was committed since the alert fired."""

    alert: Alert
    row: NodeStatistics
    seen: _Seen
    now: float
    is_updated: bool


def _late(moment: _Moment) -> tuple[str, bool]:
    row, since, most = moment.row, moment.seen.late_since, moment.alert.late
    if since is None:
        return "", moment.is_updated
    assert most is not None and row.target_lag is not None
    if moment.now - since <= most:
        return "", False
    target = f"its target of {readable(row.target_lag)} for {readable(moment.now - since)}"
    return f"has missed {target}: its lag is {readable(row.lag)}", False


def _held(moment: _Moment) -> tuple[str, bool]:
    row = moment.row
    if row.state in ("held", "stopped"):
        return f"is {row.state}: {row.error}", False
    return "", moment.is_updated and row.state not in ("failing", "paused")


def _rejected(moment: _Moment) -> tuple[str, bool]:
    most = moment.alert.rejected
    assert most is not None
    written, rejected = moment.row.written - moment.seen.before[0], moment.row.rejected - moment.seen.before[1]
    total = written + rejected
    if total and rejected / total > most:
        return f"has rejected {rejected / total:.1%} of its {total} rows of the last minutes", False
    return "", moment.is_updated


def _silent(moment: _Moment) -> tuple[str, bool]:
    most, silence = moment.alert.silent, moment.now - moment.seen.heard
    assert most is not None
    if silence > most:
        note = f": {moment.row.note}" if moment.row.note else ""
        return f"has got no data for {readable(silence)}{note}", False
    return "", moment.is_updated or moment.row.lag > 0


_STATES: Mapping[Condition, Callable[[_Moment], tuple[str, bool]]] = {
    "late": _late,
    "held": _held,
    "rejected": _rejected,
    "silent": _silent,
}
