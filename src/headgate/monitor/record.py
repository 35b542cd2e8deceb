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

from headgate.core import PLACEMENTS, POLICIES, CostModel, OperatorFigures, Update, added_up, is_past
from headgate.core.trace import RunNotice, TraceHeader, TraceTable
from headgate.monitor.series import Series
from headgate.warehouse.schedule.glance import Glance
from headgate.warehouse.schedule.ledger import NodeStatistics

#: how many of the latest updates are kept for the first view, of all tables together
UPDATES_KEPT = 2_000
#: of each table so many, and at least some; but of all tables together not more than so many, if there are many tables
UPDATES_KEPT_EACH, LEAST_KEPT_EACH, MOST_KEPT = 200, 10, 20_000
#: so many letters of an error are kept: one may hold a whole plan of Spark, and there are as many as failed updates
ERROR_LETTERS = 4_000
#: how many points a curve of one table has
POINTS = 120
#: how many points the small curve of a table has, one for every so many visits
RECENT, RECENT_EVERY = 60, 2
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
    #: its staleness at the last visits
    recent: deque[float | None] = field(default_factory=lambda: deque(maxlen=RECENT))
    updates: deque[Json] = field(default_factory=deque)
    operators: tuple[OperatorFigures, ...] = ()
    #: the most that the backfill which goes on had still to do, in seconds of event time
    most_repairs: float = 0.0

    def repairing(self, row: NodeStatistics) -> Json:
        """What a backfill has still to compute again, in seconds of event time, and the share that is done.

        The share is of the most that was left since it began, or since the run did. Of all of the past nobody knows how
        much it is.
        """
        if row.repairs is None or row.repairs.is_all:
            self.most_repairs = 0.0
            return {"repairs": None if row.repairs is None else row.repairs.seconds, "repaired": None}
        left = row.repairs.seconds
        self.most_repairs = max(self.most_repairs, left)
        return {"repairs": left, "repaired": round(1 - left / self.most_repairs, 3) if self.most_repairs else None}

    def cost(self) -> Json | None:
        """The line ``alpha + beta n`` that the scheduler would fit to the kept updates; None if there are too few."""
        seen = [each for each in self.updates if each["layer"] == "live" and not each["error"]]
        seen = [each for each in seen if each["unit"] == seen[-1]["unit"]][1:]  # the first one compiles code
        if len(seen) < 2:
            return None
        model = CostModel()
        for each in seen:
            model.observe(each["amount"], each["seconds"])
        return {"alpha": model.alpha, "beta": model.beta, "unit": seen[-1]["unit"], "updates": len(seen)}


class RunRecord:
    """Told of everything that happens, by one thread at a time; asked from another under the same lock."""

    def __init__(self, header: TraceHeader) -> None:
        self.header = header
        self.settings = _settings(header)
        self.at = header.started
        self.tables: dict[str, TableRecord] = {each.name: TableRecord(each) for each in header.tables}
        #: the mean over all tables, weighted by priority
        self.staleness = Series()
        self.updates: deque[Json] = deque(maxlen=UPDATES_KEPT)
        self.changes: deque[Json] = deque(maxlen=CHANGES_KEPT)
        self.notices: deque[Json] = deque(maxlen=NOTICES_KEPT)
        self.running: list[Json] = []
        self.queue: list[Json] = []
        self.file_problem = ""
        self._visits = 0

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
            while len(table.updates) > kept_each(len(self.tables)):
                table.updates.popleft()
            if update.operators:
                table.operators = added_up((*table.operators, *update.operators))
        return told

    def changed(self, at: float, what: Mapping[str, object]) -> Json:
        told: Json = {"at": at, "what": dict(what)}
        self.changes.append(told)
        return told

    def noticed(self, notice: RunNotice) -> Json:
        told: Json = {"at": notice.at, "table": notice.table, "text": shortened(notice.text)}
        self.notices.append(told)
        return told

    def seen(self, glance: Glance) -> Json:
        """Take in how everything stands; returns what is different from the last time."""
        self.at = glance.now
        self.file_problem = shortened(glance.file_problem)
        self.settings = _settings(glance)
        self.running = [
            {"name": each.name, "table": each.table, "layer": each.layer, "track": each.track, "began": each.began}
            for each in glance.running
        ]
        self.queue = [{"name": each.name, "priority": list(each.priority)} for each in glance.queue]
        tracks = {each.table: each.track for each in glance.running if each.layer == "live"}
        left = frozenset(glance.left)
        places = {each.name: place for place, each in enumerate(glance.queue, start=1)}
        different: dict[str, Json] = {}
        self._visits += 1
        for row in glance.tables:
            table = self.tables.get(row.name)
            if table is None:
                continue
            now = _standing(row, glance.now, tracks.get(row.name), places.get(row.name), row.name in left)
            now |= table.repairing(row)
            if changed := {key: value for key, value in now.items() if table.now.get(key, self) != value}:
                different[row.name] = changed
            table.now = now
            table.staleness.add(glance.now, row.staleness)
            if self._visits % RECENT_EVERY == 1:
                table.recent.append(None if row.staleness is None else round(row.staleness, 2))
        mean = staleness_of(glance.tables)
        self.staleness.add(glance.now, mean)
        return {
            "at": glance.now,
            "staleness": mean,
            "settings": self.settings,
            "running": self.running,
            "queue": [each["name"] for each in self.queue],
            "file_problem": self.file_problem,
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
            "placements": sorted(PLACEMENTS),
            "staleness": list(self.staleness),
            "changes": list(self.changes),
            "notices": list(self.notices),
            "running": self.running,
            "queue": [each["name"] for each in self.queue],
            "file_problem": self.file_problem,
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
            "cost": table.cost(),
            "notices": [each for each in self.notices if each["table"] == name],
        }

    def sparks(self) -> Json:
        """The small curve of each table: its staleness at the last visits, every ``every`` of them, oldest first."""
        return {"every": RECENT_EVERY, "tables": {name: list(table.recent) for name, table in self.tables.items()}}

    def operators(self) -> Json:
        """The operators of the stream queries inside tables, over all updates of the run."""
        found = [(name, each) for name, table in self.tables.items() for each in table.operators]
        return {"operators": [{"table": name, **told_of_operator(each)} for name, each in found]}


def _settings(of: TraceHeader | Glance) -> Json:
    return {
        "policy": of.policy,
        "placement": of.placement,
        "tracks": of.tracks,
        "budget": of.budget,
        "inheritance": of.inheritance,
        "together": of.together,
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


def kept_each(tables: int) -> int:
    """How many updates are kept of each table."""
    return max(LEAST_KEPT_EACH, min(UPDATES_KEPT_EACH, MOST_KEPT // max(1, tables)))


def shortened(error: str) -> str:
    """An error without what nobody reads on a page; the trace has all of it."""
    if len(error) <= ERROR_LETTERS:
        return error
    return f"{error[:ERROR_LETTERS]}... ({len(error) - ERROR_LETTERS} letters more, in the trace of the run)"


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
        "planning": update.planning,
        "commit": update.committing,
        "amount": update.amount,
        "unit": update.unit or "seconds of data",
        "rows": update.rows,
        "rejected": update.rejected,
        "together": list(update.together),
        "error": None if update.error is None else shortened(update.error),
    }


def told_of_operator(operator: OperatorFigures) -> Json:
    return {
        "query": operator.query,
        "name": operator.name,
        "kind": operator.kind,
        "inputs": list(operator.inputs),
        "rows_in": operator.rows_in,
        "rows_out": operator.rows_out,
        "rejected": operator.rejected,
        "peak_rows_waiting": operator.peak_rows_waiting,
        "utilisation": operator.utilisation,
        "in_queue": operator.in_queue,
        "for_a_turn": operator.for_a_turn,
        "computing": operator.computing,
        "selectivity": operator.selectivity,
        "cost": operator.cost,
        "processor": operator.processor,
    }


def staleness_of(rows: Iterable[NodeStatistics]) -> float | None:
    """The weighted staleness of tables as they stand now."""
    return weighted_staleness((row.priority, row.staleness, is_past(row.staleness, row.lag)) for row in rows)


def weighted_staleness(tables: Iterable[tuple[float, float | None, bool]]) -> float | None:
    """The mean staleness, weighted by priority, of tables with data of the present; None if there are none.

    A table is its priority, its staleness, and whether its data is of the past.
    """
    total = weights = 0.0
    for priority, staleness, past in tables:
        if staleness is not None and not past:
            total += priority * max(0.0, staleness)
            weights += priority
    return total / weights if weights > 0 else None


def _standing(row: NodeStatistics, now: float, track: int | None, place: int | None, left: bool) -> Json:
    """How a table stands, in fields that change only when something happens to it."""
    return {
        "priority": row.priority,
        "state": shown_state(row, track, place, left),
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
        "error": shortened(row.error),
        "note": shortened(row.note),
        "target_note": shortened(row.target_note),
    }


def shown_state(row: NodeStatistics, track: int | None, place: int | None, left: bool) -> str:
    """The state of a table as people see it; ``place`` is its place in the queue, if it waits there.

    ``left`` if its update was cancelled and does not end. A table is *queued* if it could be updated now, and *waiting*
    if its data waits in a table that it is computed from.
    """
    if row.state == "updating":
        return "running" if track is not None else "stuck" if left else "recomputing"
    if row.state == "ok":
        if place is not None:
            return "queued"
        return "fresh" if row.lag <= 0 else "waiting"
    return _STATES.get(row.state, row.state)
