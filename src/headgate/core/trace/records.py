"""The records of a trace: plain frozen data.

Moments are wall-clock seconds since the epoch and lengths are seconds; event times are whole microseconds since the
epoch, as in the commits of a table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Literal, TypeVar

from headgate.core.joint import DECLARED, Together, together_from
from headgate.core.update import Layer, Update

TableKind = Literal["stream", "dimension", "table"]
CatchFirst = Literal["oldest", "newest"]
Setting = TypeVar("Setting", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TraceTable:
    """A table as it was declared. ``freshness`` is the event time up to which it was complete when the run began.

    If it was declared while the run went on, ``declared`` is when, and ``freshness`` is that of this moment.
    ``catch_up`` is what an update takes first if it cannot take everything.
    """

    name: str
    sources: tuple[str, ...] = ()
    period: float | None = None
    priority: float = 1.0
    importance_class: int = 0
    patience: float | None = None
    target_lag: float | None = None
    kind: TableKind = "table"
    freshness: int | None = None
    declared: float | None = None
    catch_up: CatchFirst = "oldest"


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """How a run began. ``policy`` and ``placement`` are as one would write them to choose them.

    ``chop`` and ``budget`` are None if there is no such limit on an update. ``together`` says which tables shared jobs.
    """

    warehouse: str
    started: float
    tracks: int
    policy: str
    placement: str
    inheritance: str
    chop: float | None
    tables: tuple[TraceTable, ...]
    budget: float | None = None
    together: Together = DECLARED


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a user changed while the run went on, such as ``{"policy": "fifo"}``."""

    at: float
    what: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Redeclared:
    """The pipeline file was saved: from ``at`` on, the run continued with these tables."""

    at: float
    tables: tuple[TraceTable, ...]


@dataclass(frozen=True, slots=True)
class RunNotice:
    """Something that users should know about a table, or about the whole run if ``table`` is None.

    ``details``, such as a traceback, are not recorded.
    """

    at: float
    table: str | None
    text: str
    details: str = ""

    def __str__(self) -> str:
        return self.text if self.table is None else f"{self.table}: {self.text}"


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """What had come to streams by a moment and was not loaded: when the first chunk came, when the last, how many.

    A stream that is not in ``streams`` had loaded everything. ``unknown`` are those that could not be looked at.
    """

    at: float
    streams: Mapping[str, tuple[float, float, int]]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A run as recorded.

    ``updates``, ``changes``, ``redeclared`` and ``notices`` are in the order in which they were written. ``end`` is
    None if the process was killed. ``full`` is the moment from which nothing more was recorded because the trace had
    become too large. ``not_loaded`` is what waited when that was recorded last; None if it never was.
    """

    header: TraceHeader
    updates: tuple[Update, ...]
    changes: tuple[Change, ...]
    end: float | None
    full: float | None = None
    redeclared: tuple[Redeclared, ...] = ()
    notices: tuple[RunNotice, ...] = ()
    not_loaded: NotLoaded | None = None

    @cached_property
    def tables(self) -> tuple[TraceTable, ...]:
        """Every table that the run had at any time, as it was declared last; ``declared`` as it was declared first."""
        found = {table.name: table for table in self.header.tables}
        for change in self.redeclared:
            for table in change.tables:
                first = found.get(table.name)
                known = replace(table, freshness=first.freshness, declared=first.declared) if first else table
                found[table.name] = known
        return tuple(found.values())

    def begin_of(self, table: TraceTable) -> float:
        """From when on the run had a table."""
        return self.header.started if table.declared is None else table.declared

    @property
    def finish(self) -> float:
        """The last moment that the trace tells of."""
        if self.full is not None:
            return self.full
        if self.end is not None:
            return self.end
        waited = () if self.not_loaded is None else (self.not_loaded,)
        noted: tuple[Change | Redeclared | RunNotice | NotLoaded, ...]
        noted = (*self.changes, *self.redeclared, *self.notices, *waited)
        ends = (*(update.ended for update in self.updates), *(entry.at for entry in noted))
        return max(self.header.started, *ends) if ends else self.header.started

    def updates_of(self, name: str, layer: Layer = "live") -> tuple[Update, ...]:
        """The updates of one table that were committed, by when they were."""
        return self._committed.get((name, layer), ())

    @cached_property
    def _committed(self) -> Mapping[tuple[str, Layer], tuple[Update, ...]]:
        found: dict[tuple[str, Layer], list[Update]] = {}
        for update in sorted(self.updates, key=lambda update: update.ended):
            if update.error is None:
                found.setdefault((update.table, update.layer), []).append(update)
        return {key: tuple(updates) for key, updates in found.items()}

    def failed_of(self, name: str) -> tuple[Update, ...]:
        """The updates of one table that were not committed, of all layers, in the order in which they were written."""
        return self._failed.get(name, ())

    @cached_property
    def _failed(self) -> Mapping[str, tuple[Update, ...]]:
        found: dict[str, list[Update]] = {}
        for update in self.updates:
            if update.error is not None:
                found.setdefault(update.table, []).append(update)
        return {name: tuple(updates) for name, updates in found.items()}

    def policy(self, since: float | None = None) -> str:
        """The policy that was in force for longest, from ``since`` on."""
        return _held_longest(self.header.policy, self._texts("policy"), self._since(since), self.finish)

    def placement(self, since: float | None = None) -> str:
        """The placement that was in force for longest, from ``since`` on."""
        return _held_longest(self.header.placement, self._texts("placement"), self._since(since), self.finish)

    def inheritance(self, since: float | None = None) -> str:
        """The way to inherit priorities that was in force for longest, from ``since`` on."""
        return _held_longest(self.header.inheritance, self._texts("inheritance"), self._since(since), self.finish)

    def together(self, since: float | None = None) -> Together:
        """The way to share jobs that was in force for longest, from ``since`` on."""
        return _held_longest(self.header.together, self._together[1:], self._since(since), self.finish)

    def together_at(self, moment: float) -> Together:
        """The way to share jobs that was in force at a moment."""
        return self._together[max(0, bisect_right(self._together, moment, key=itemgetter(0)) - 1)][1]

    @cached_property
    def _together(self) -> list[tuple[float, Together]]:
        """The ways to share jobs, each with the moment from which on, the earliest first."""
        changes = sorted(self._texts("together"), key=itemgetter(0))
        return [(self.header.started, self.header.together), *((at, together_from(text)) for at, text in changes)]

    def tracks(self, since: float | None = None) -> int:
        """How many tracks there were for longest, from ``since`` on."""
        return _held_longest(self.header.tracks, self.track_changes(), self._since(since), self.finish)

    def priority(self, table: TraceTable, since: float | None = None) -> float:
        """The priority that a table had for longest, from ``since`` on."""
        first, *changes = self.priorities(table)
        return _held_longest(first[1], changes, self._since(since), self.finish)

    def priorities(self, table: TraceTable) -> list[tuple[float, float]]:
        """The priorities that a table had, each with the moment from which on, the earliest first."""
        first, *later = self._declared_priorities(table)
        return [first, *sorted((*later, *self._priorities(table.name)))]

    def track_changes(self) -> list[tuple[float, int]]:
        """When the number of tracks was changed, and to what."""
        values = ((change.at, change.what.get("tracks")) for change in self.changes)
        return [(at, count) for at, count in values if isinstance(count, int)]

    def _since(self, since: float | None) -> float:
        return self.header.started if since is None else since

    def _texts(self, key: str) -> list[tuple[float, str]]:
        values = ((change.at, change.what.get(key)) for change in self.changes)
        return [(at, text) for at, text in values if isinstance(text, str)]

    def _declared_priorities(self, table: TraceTable) -> list[tuple[float, float]]:
        """The priorities that a table was declared with, and from when on."""
        declared = [(self.header.started, self.header.tables), *((each.at, each.tables) for each in self.redeclared)]
        found = [(at, known.priority) for at, tables in declared for known in tables if known.name == table.name]
        first, *later = found or [(self.header.started, table.priority)]
        changed = [now for before, now in pairwise((first, *later)) if now[1] != before[1]]
        return [first, *changed]

    def _priorities(self, name: str) -> list[tuple[float, float]]:
        found = []
        for change in self.changes:
            match change.what.get("priority"):
                case [table, int() | float() as priority] if table == name:
                    found.append((change.at, float(priority)))
        return found


def _held_longest(first: Setting, changes: Iterable[tuple[float, Setting]], since: float, until: float) -> Setting:
    held: dict[Setting, float] = {}
    value, begin = first, since
    for at, following in changes:
        moment = min(max(at, since), until)
        held[value] = held.get(value, 0.0) + moment - begin
        value, begin = following, moment
    held[value] = held.get(value, 0.0) + until - begin
    return max(held, key=held.__getitem__)
