"""What a table waits for, in words: its source, a track, a table above it, a user, a retry, or live updates.

``standing`` is what the scheduler knows of one table at a moment; all else here is pure and made of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from headgate.core import DispatchExplanation, Explanation
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.storage.partitions import format_time
from headgate.warehouse.updates.repairs import Repairs


@dataclass(frozen=True, slots=True)
class Standing:
    """How one table stands. Lengths of time are seconds.

    ``sources`` are the tables that it is computed from, none for a table that is loaded. ``updating`` and
    ``recomputing``: its live update or its backfill runs. ``ready``: an update could run, which would take in ``most``
    of the ``pending`` event time. ``failures`` in a row are those of its live updates, or else of its backfills; it is
    tried again in ``next_try`` seconds, or not before a user says so if it is ``held``. ``note`` says why its source
    cannot be polled, ``remark`` what else the source has to say, such as files that are set aside. ``catalog`` says
    what is wrong with its entry in a catalog, ``target`` why its target lag cannot be kept, and what would help.
    ``rebuild`` says why it must be computed anew. ``job`` are the tables that share the job of its running update,
    ``together`` says why it shares jobs with others or does not. ``refresh`` says that it is part of a refresh.
    ``idle`` is the time since its last update, None if there was none. ``mode`` is how a derived table is kept up to
    date, and why.
    """

    name: str
    sources: tuple[str, ...] = ()
    freshness: int | None = None
    has_data: bool = True
    updating: bool = False
    recomputing: bool = False
    ready: bool = False
    pending: float = 0.0
    most: float = 0.0
    paused: bool = False
    failures: int = 0
    held: bool = False
    error: str = ""
    next_try: float = 0.0
    note: str = ""
    remark: str = ""
    catalog: str = ""
    target: str = ""
    repairs: Repairs | None = None
    rebuild: str = ""
    idle: float | None = None
    mode: str = ""
    job: tuple[str, ...] = ()
    together: str = ""
    refresh: str = ""

    @property
    def obstacle(self) -> str:
        """What keeps it from being updated, whatever is pending; empty if nothing does."""
        if self.paused:
            return "paused, until it is resumed (headgate resume)"
        if self.held:
            return f"held after {self.failures} failures in a row, until it is resumed; the last one: {self.error}"
        if self.failures:
            times = "once" if self.failures == 1 else f"{self.failures} times in a row"
            return f"failed {times}, tried again in {readable(max(0.0, self.next_try))}; the last failure: {self.error}"
        return f"its source cannot be read: {self.note}" if self.note else ""


@dataclass(frozen=True, slots=True)
class TableExplanation(DispatchExplanation):
    """Why a table is being updated or not: what the loop says, how it stands, and what it waits for."""

    standing: str = ""
    waits_for: tuple[str, ...] = ()
    #: what the autopilot has to say, if it chooses the policy
    autopilot: str = ""

    def __str__(self) -> str:
        if self.running_on or self.place is not None:
            first = DispatchExplanation.__str__(self)  # the class of super() is another one in a class with slots
        else:
            first = f"{self.node}: {self.standing}"
        autopilot = [f"autopilot: {self.autopilot}"] if self.autopilot else []
        return "\n".join([first, *(f"  {line}" for line in (*self.waits_for, *autopilot))])


def explained(told: DispatchExplanation, standings: Mapping[str, Standing]) -> TableExplanation:
    """What the loop tells of a table, and what the table waits for. ``standings`` are those of it and all above it."""
    table = standings[told.node]
    known = {field.name: getattr(told, field.name) for field in fields(told)}
    return TableExplanation(**known, standing=_headline(table, standings), waits_for=tuple(_lines(table, standings)))


def with_autopilot(told: Explanation, says: str) -> Explanation:
    """An explanation with what the autopilot has to say."""
    return replace(told, autopilot=says) if isinstance(told, TableExplanation) else told


def _headline(table: Standing, standings: Mapping[str, Standing]) -> str:
    if table.updating:
        return "being updated"
    if table.obstacle:
        return table.obstacle
    if table.rebuild:
        return _rebuilding(table, standings)
    if table.recomputing:
        return "its past is being recomputed"
    return _idle(table, standings)


def _idle(table: Standing, standings: Mapping[str, Standing]) -> str:
    """What a table that nothing is to be done for waits for."""
    if not table.sources:
        return _waits_for_source(table)
    if empty := [source for source in table.sources if not standings[source].has_data]:
        return f"waits for the first data of {', '.join(empty)}"
    return "up to date with its sources" if table.has_data else "not computed yet: its sources had nothing for it"


def _rebuilding(table: Standing, standings: Mapping[str, Standing]) -> str:
    above = [source for source in table.sources if standings[source].rebuild]
    if table.recomputing:
        how = "being rebuilt"
    elif above:
        how = f"waits to be rebuilt, after {', '.join(above)}"
    else:
        how = "waits to be rebuilt, while no live update waits for a track"
    return f"{how}: {table.rebuild}; until then it can be read as it was"


def _lines(table: Standing, standings: Mapping[str, Standing]) -> Iterator[str]:
    if table.refresh:
        yield table.refresh
    if (table.updating or table.ready) and table.paused:
        yield "paused: no further update begins until it is resumed"
    if table.ready and table.most < table.pending:
        what = f"an update takes at most {readable(table.most)} of the {readable(table.pending)} of data that wait"
        yield f"{what}; the rest is left to the next ones"
    yield from _company(table)
    if table.remark:
        yield f"its source says: {table.remark}"
    if table.catalog:
        yield f"it is updated all the same: {table.catalog}"
    if table.target:
        yield table.target
    if table.repairs is not None:
        yield f"to be recomputed: {table.repairs}; {_repairing(table)}"
    if not (table.updating or table.ready or table.obstacle or table.rebuild):
        yield from _causes(table, standings, set())
    yield from _trailing(table, standings)
    for source in _above(table, standings):
        repairs = standings[source].repairs
        if repairs is not None:
            yield f"its source {source} is still to be repaired, and then this table: {repairs}"
    if table.mode:
        yield f"kept in mode {table.mode}"


def _company(table: Standing) -> Iterator[str]:
    """Which tables it shares its jobs with."""
    if table.job:
        yield f"its update shares a job with {', '.join(name for name in table.job if name != table.name)}"
    if table.together:
        yield table.together


def _repairing(table: Standing) -> str:
    if table.recomputing:
        return "that is being done"
    if table.obstacle:
        return "that waits, too"
    return "that is done while no live update waits for a track"


def _causes(table: Standing, standings: Mapping[str, Standing], told: set[str]) -> Iterator[str]:
    """Why nothing new comes from the sources of a table, which is up to date with them."""
    for source in (standings[name] for name in table.sources):
        if source.name in told:
            continue
        told.add(source.name)
        if source.updating:
            yield f"{source.name} is being updated"
        elif source.obstacle:
            yield f"{source.name}: {source.obstacle}"
        elif source.ready:
            yield f"{source.name} has something pending and waits for a track"
        elif source.sources:
            yield from _causes(source, standings, told)
        else:
            yield f"{source.name} {_waits_for_source(source)}"


def _trailing(table: Standing, standings: Mapping[str, Standing]) -> Iterator[str]:
    """The source that holds the table back, if it uses several up to their trailing edge only."""
    known = {name: fresh for name in table.sources if (fresh := standings[name].freshness) is not None}
    if len(known) > 1 and min(known.values()) < max(known.values()):
        last = min(known, key=known.__getitem__)
        yield f"its sources are used up to {format_time(known[last])}, the freshness of {last}"


def _above(table: Standing, standings: Mapping[str, Standing]) -> list[str]:
    found: dict[str, None] = {}
    todo = list(table.sources)
    while todo:
        name = todo.pop(0)
        if name not in found:
            found[name] = None
            todo.extend(standings[name].sources)
    return list(found)


def _waits_for_source(table: Standing) -> str:
    nothing = f"nothing new{_since(table)}" if table.has_data else "given nothing yet"
    return f"waits for its source, which has {nothing}"


def _since(table: Standing) -> str:
    return "" if table.idle is None else f" since its last update {readable(max(0.0, table.idle))} ago"
