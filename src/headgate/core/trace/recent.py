"""The last minutes of a run, as a trace: for those who look at a run that goes on, however long it has gone on.

What is older is forgotten, but for how far each table had come by then and a few updates of each, from which one can
tell what they cost and how often data came. Of tables that are not declared any more everything is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.core.trace.records import Change, Redeclared, Trace, TraceHeader, TraceTable
from headgate.core.update import Update

#: how many updates of a table are kept that are older than what is asked for
OLDER_KEPT = 16
#: what the autopilot may change, and what every window says that is replayed for it
SETTINGS = ("policy", "placement", "tracks")
#: changes after which what was before does not tell what is to come
TELLING = (*SETTINGS, "inheritance", "together", "budget", "priority", "paused", "resumed")


@dataclass(slots=True)
class RecentTrace:
    """Hears of everything that happens in a run; tables that are declared anew come with the priorities that they have
    then, set by a user or declared. Not for several threads.

    ``header`` is as if the run began now, with the settings and tables that it has now; only ``freshness`` of its
    tables is that from before the updates that are kept. ``settled`` is since when the settings have been as they are.
    """

    header: TraceHeader
    settled: float = field(init=False)
    _updates: deque[Update] = field(default_factory=deque)
    #: {(table, layer): its last updates that are too old to be asked for}
    _older: dict[tuple[str, str], deque[Update]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settled = self.header.started

    @property
    def began(self) -> float:
        """From when on something is known."""
        return self.header.started

    def __len__(self) -> int:
        return len(self._updates)

    def add(self, entry: Update | Change | Redeclared) -> None:
        if isinstance(entry, Update):
            self._updates.append(entry)
        elif isinstance(entry, Change):
            if any(key in entry.what for key in TELLING):
                self.settled = max(self.settled, entry.at)
            self.header = changed_header(self.header, entry.what)
        else:
            self.settled = max(self.settled, entry.at)
            known = {table.name: table.freshness for table in self.header.tables}
            tables = tuple(
                replace(table, freshness=known.get(table.name, table.freshness), declared=None)
                for table in entry.tables
            )
            self.header = replace(self.header, tables=tables)
            names = {table.name for table in tables}
            self._updates = deque(update for update in self._updates if update.table in names)
            self._older = {key: older for key, older in self._older.items() if key[0] in names}

    def forget(self, before: float, most: int) -> None:
        """Keep the updates that ended from ``before`` on, at most so many of them, and a few of each table."""
        freshness: dict[str, int] = {}
        while self._updates and (self._updates[0].ended < before or len(self._updates) > most):
            update = self._updates.popleft()
            older = self._older.setdefault((update.table, update.layer), deque())
            older.append(update)
            if len(older) > OLDER_KEPT:
                gone = older.popleft()
                if gone.freshness is not None and gone.error is None and gone.layer in ("live", "backfill"):
                    freshness[gone.table] = max(gone.freshness, freshness.get(gone.table, gone.freshness))
        if freshness:
            tables = tuple(_reached(table, freshness.get(table.name)) for table in self.header.tables)
            self.header = replace(self.header, tables=tables)

    def begins(self, before: float, most: int) -> float:
        """The earliest moment, from ``before`` on, from which at most so many updates are kept."""
        return max(before, self.settled, self._updates[-most].ended if len(self._updates) > most else before)

    def trace(self, until: float) -> Trace:
        """What is kept, up to a moment; the settings are those of now from the beginning on."""
        older = [update for kept in self._older.values() for update in kept]
        updates = sorted((*older, *self._updates), key=lambda update: update.ended)
        return Trace(self.header, tuple(update for update in updates if update.ended <= until), (), until)


def _reached(table: TraceTable, freshness: int | None) -> TraceTable:
    return table if freshness is None else replace(table, freshness=max(freshness, table.freshness or freshness))


def changed_header(header: TraceHeader, what: Mapping[str, object]) -> TraceHeader:
    """The header of a run that begins with what was changed."""
    for key in ("policy", "placement", "inheritance", "together", "tracks"):
        if key in what:
            header = replace(header, **{key: what[key]})  # type: ignore[arg-type]
    if "budget" in what:
        budget = what["budget"]
        header = replace(header, budget=float(budget) if isinstance(budget, int | float) else None)
    match what.get("priority"):
        case [str(name), int() | float() as priority] | (str(name), int() | float() as priority):
            tables = tuple(
                replace(table, priority=float(priority)) if table.name == name else table for table in header.tables
            )
            header = replace(header, tables=tables)
    return header
