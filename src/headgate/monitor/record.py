"""What is known of one run, whether it goes on or was recorded: the state of every table, and what has happened.

Its size does not grow with the length of the run. Moments are seconds since the epoch, lengths are seconds. What is
given out is plain data that can be written as JSON.

Staleness grows by itself, a second every second. So a table is described by ``complete``, the moment up to which it is
complete, and ``waiting_since``, the arrival of the oldest data that it has not taken in: these change only when
something happens, and whoever shows them counts on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.core import POLICIES, Update, is_past
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.monitor.series import Series
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.ledger import NodeStatistics

#: how many of the latest updates are kept: of all tables together, and of each
UPDATES_KEPT, UPDATES_KEPT_EACH = 2_000, 200
#: how many points a curve of one table has
POINTS = 120
CHANGES_KEPT = 200
NOTICES_KEPT = 200

#: what is written as JSON
Json = dict[str, Any]

#: states of statistics as people see them; "updating" and "ok" depend on more
_STATES = {"failing": "retrying", "waiting": "no source"}


@dataclass(slots=True)
class TableRecord:
    """One table: as it was declared, how it stands, and its latest updates."""

    declared: TraceTable
    now: Json = field(default_factory=dict)
    staleness: Series = field(default_factory=lambda: Series(POINTS))
    updates: deque[Json] = field(default_factory=lambda: deque(maxlen=UPDATES_KEPT_EACH))


class RunRecord:
    """Told of everything that happens, by one thread at a time; asked from another under the same lock."""

    def __init__(self, header: TraceHeader) -> None:
        self.header = header
        self.settings: Json = {
            "policy": header.policy,
            "placement": header.placement,
            "tracks": header.tracks,
            "budget": header.budget,
        }
        self.at = header.started
        self.tables: dict[str, TableRecord] = {each.name: TableRecord(each) for each in header.tables}
        #: the mean over all tables, weighted by priority
        self.staleness = Series()
        self.updates: deque[Json] = deque(maxlen=UPDATES_KEPT)
        self.changes: deque[Json] = deque(maxlen=CHANGES_KEPT)
        self.notices: deque[Json] = deque(maxlen=NOTICES_KEPT)
        self.running: list[Json] = []
        self.queue: list[Json] = []

    # --- what happens ---------------------------------------------------------------------------------------

    def redeclared(self, tables: Iterable[TraceTable]) -> None:
        """The run goes on with these tables."""
        before = self.tables
        self.tables = {}
        for each in tables:
            known = before.get(each.name)
            if known is None:
                known = TableRecord(each)
            known.declared = each
            self.tables[each.name] = known

    def updated(self, update: Update) -> Json:
        told = told_of(update)
        self.updates.append(told)
        if (table := self.tables.get(update.table)) is not None:
            table.updates.append(told)
        return told

    def changed(self, at: float, what: Mapping[str, object]) -> Json:
        told: Json = {"at": at, "what": dict(what)}
        self.changes.append(told)
        return told

    def noticed(self, notice: RunNotice) -> Json:
        told: Json = {"at": notice.at, "table": notice.table, "text": notice.text}
        self.notices.append(told)
        return told

    def seen(self, glance: Glance) -> Json:
        """Take in how everything stands; returns what is different from the last time."""
        self.at = glance.now
        settings = {
            "policy": glance.policy,
            "placement": glance.placement,
            "tracks": glance.tracks,
            "budget": glance.budget,
        }
        self.settings = settings
        self.running = [
            {"name": each.name, "table": each.table, "layer": each.layer, "track": each.track, "began": each.began}
            for each in glance.running
        ]
        self.queue = [{"name": each.name, "priority": list(each.priority)} for each in glance.queue]
        tracks = {each.table: each.track for each in glance.running if each.layer == "live"}
        places = {each.name: place for place, each in enumerate(glance.queue, start=1)}
        different: dict[str, Json] = {}
        for row in glance.tables:
            table = self.tables.get(row.name)
            if table is None:
                continue
            now = _standing(row, glance.now, tracks.get(row.name), places.get(row.name))
            if changed := {key: value for key, value in now.items() if table.now.get(key, self) != value}:
                different[row.name] = changed
            table.now = now
            table.staleness.add(glance.now, row.staleness)
        mean = weighted_staleness(glance.tables)
        self.staleness.add(glance.now, mean)
        return {
            "at": glance.now,
            "staleness": mean,
            "settings": settings,
            "running": self.running,
            "queue": [each["name"] for each in self.queue],
            "tables": different,
        }

    # --- what is known --------------------------------------------------------------------------------------

    def overview(self) -> Json:
        """Everything that the first view shows."""
        return {
            "warehouse": self.header.warehouse,
            "started": self.header.started,
            "at": self.at,
            "settings": self.settings,
            "policies": sorted(POLICIES),
            "staleness": list(self.staleness),
            "changes": list(self.changes),
            "notices": list(self.notices),
            "running": self.running,
            "queue": [each["name"] for each in self.queue],
            "tables": {name: {**declared_as(table.declared), **table.now} for name, table in self.tables.items()},
            "updates": list(self.updates),
        }

    def table(self, name: str) -> Json:
        """Everything about one table; raises KeyError if there is none of that name."""
        table = self.tables[name]
        return {
            "name": name,
            **declared_as(table.declared),
            **table.now,
            "at": self.at,
            "curve": list(table.staleness),
            "updates": list(table.updates),
            "notices": [each for each in self.notices if each["table"] == name],
        }


def declared_as(table: TraceTable) -> Json:
    return {
        "kind": table.kind,
        "sources": list(table.sources),
        "class": table.importance_class,
        "target": table.target_lag,
        "patience": table.patience,
        "period": table.period,
    }


def told_of(update: Update) -> Json:
    """An update that has ended, as viewers see it."""
    return {
        "table": update.table,
        "layer": update.layer,
        "track": update.track,
        "released": update.released,
        "began": update.began,
        "seconds": update.seconds,
        "work": update.work,
        "amount": update.amount,
        "unit": update.unit or "seconds of data",
        "rows": update.rows,
        "rejected": update.rejected,
        "error": update.error,
    }


def weighted_staleness(rows: Iterable[NodeStatistics]) -> float | None:
    """The mean staleness, weighted by priority, of tables with data of the present; None if there are none."""
    known = [
        (row.priority, max(0.0, row.staleness))
        for row in rows
        if row.staleness is not None and not is_past(row.staleness, row.lag)
    ]
    total = sum(priority for priority, _ in known)
    return sum(priority * staleness for priority, staleness in known) / total if total > 0 else None


def _standing(row: NodeStatistics, now: float, track: int | None, place: int | None) -> Json:
    """How a table stands, in fields that change only when something happens to it."""
    return {
        "priority": row.priority,
        "state": shown_state(row, track, place),
        "track": track,
        "place": place,
        # To the hundredth of a second: the difference of two clocks is never the same twice.
        "complete": None if row.staleness is None else round(now - row.staleness, 2),
        "waiting_since": round(now - row.lag, 2) if row.lag > 0 else None,
        "met": None if row.target_met is None else round(row.target_met, 3),
        "rows": row.rows,
        "rejected": row.rejected,
        "updates": row.updates,
        "left": row.updates_left,
        "last_update": row.last_update,
        "last_seconds": row.last_seconds,
        "failures": row.failures,
        "error": row.error,
        "note": row.note,
    }


def shown_state(row: NodeStatistics, track: int | None, place: int | None) -> str:
    """The state of a table as people see it; ``place`` is its place in the queue, if it waits there."""
    if row.state == "updating":
        return "running" if track is not None else "recomputing"
    if row.state == "ok":
        return "fresh" if place is None and row.lag <= 0 else "queued"
    return _STATES.get(row.state, row.state)
