"""Refreshes: a table that a user has asked for goes before all others, and so do the tables that it is built on.

A refresh takes in what had arrived when it was asked for: each table of it, when its sources have done so. A table is
*urgent* only as long as this is missing. So a refresh is one chain of updates, however fast data arrives. A source that
cannot be updated now is told of, and the refresh goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.core import LIVE, URGENT, Update
from headgate.core.trace import RunNotice
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.schedule.planning import Planning
from headgate.warehouse.schedule.standings import Standings
from headgate.warehouse.schedule.state import ScheduleState


@dataclass(slots=True, eq=False)
class _Refresh:
    """What is left of the refresh of a table that was asked for at ``since``.

    ``todo`` are its tables that have not taken in what had arrived, each after its sources. ``left`` has how many more
    updates those need that have had one. ``active`` are those whose turn has come, and ``early`` are the updates of
    them that had begun before.
    """

    table: str
    since: float
    todo: list[str]
    left: dict[str, int] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    early: list[Update] = field(default_factory=list)

    def waits_for(self, sources: tuple[str, ...]) -> list[str]:
        return [name for name in sources if name in self.todo]


class Refreshes:
    """The refreshes of a scheduler.

    Invariant: the tables in the urgent layer are those in ``_urgent``: some refresh has them to do, and none of their
    sources.
    """

    def __init__(self, state: ScheduleState, planning: Planning, standings: Standings) -> None:
        self._nodes = state.nodes
        self._graph = state.nodes.graph
        self._layers = state.nodes.matrix.columns["layer"]
        self._ledger = state.ledger
        self._loop = state.loop
        self._planned = state.planned
        self._running = state.running
        self._notices = state.notices
        self._planning = planning
        self._standings = standings
        self._refreshes: dict[str, _Refresh] = {}
        self._urgent: set[str] = set()

    def begin(self, table: str, now: float) -> None:
        """Refresh a table. Failures of it and its sources are forgotten, so that they are tried at once."""
        index = self._graph.index[table]
        # A source comes before what is built on it, so that its turn has been settled then.
        nodes = sorted((index, *self._graph.ancestors(index)), key=self._graph.position.__getitem__)
        names = [self._nodes.names[node] for node in nodes]
        for name in names:
            self._ledger.of(name).retries.reset()
        self._add(_Refresh(table, now, names), now)
        self.settle(now)

    def go_on_from(self, before: Refreshes, now: float) -> None:
        """Go on with the refreshes of the scheduler before; what is not there any more needs none."""
        for refresh in before._refreshes.values():
            names = [name for name in refresh.todo if name in self._graph.index]
            if refresh.table in names:
                self._add(_Refresh(refresh.table, refresh.since, names), now)

    def _add(self, refresh: _Refresh, now: float) -> None:
        for name in refresh.todo:
            self._planning.refresh(self._graph.index[name], now)
        self._refreshes[refresh.table] = refresh

    def ended(self, update: Update, now: float) -> None:
        """An update has ended: it may have been one that a refresh waits for."""
        for refresh in self._refreshes.values():
            if any(update is early for early in refresh.early):
                refresh.early = [early for early in refresh.early if early is not update]
            elif update.committed and update.name in refresh.active:
                # What arrives in the meantime comes in addition to what is left, and does not count.
                known = refresh.left.get(update.name)
                refresh.left[update.name] = update.left if known is None else min(known - 1, update.left)
        self.settle(now)

    def settle(self, now: float) -> None:
        """Find what each refresh has done, and make those tables urgent that are next in one."""
        if not self._refreshes and not self._urgent:
            return
        urgent: set[str] = set()
        for refresh in list(self._refreshes.values()):
            for name in list(refresh.todo):
                if refresh.waits_for(self._sources(name)):
                    continue
                if self._is_done(name, refresh, now):
                    refresh.todo.remove(name)
                    continue
                if name not in refresh.active:
                    refresh.active.add(name)
                    refresh.early += [update for update in self._running if update.name == name]
                urgent.add(name)
            if not refresh.todo:
                del self._refreshes[refresh.table]
        for name in urgent ^ self._urgent:
            index = self._graph.index[name]
            self._layers[index] = URGENT if name in urgent else LIVE
            self._loop.note_change(index)
        self._urgent = urgent

    def _is_done(self, name: str, refresh: _Refresh, now: float) -> bool:
        """Whether a table whose sources are done has taken in what had arrived, or cannot be updated now."""
        index = self._graph.index[name]
        node, entry = self._nodes[index], self._ledger.of(name)
        if refresh.left.get(name, 1) <= 0:
            return True
        if self._running.is_busy(node.table) or self._running.must_wait(node.table):
            return False
        if (update := self._planned.get(index)) is not None:
            # Only what comes from a source has a time of arrival.
            return update.arrived is not None and update.arrived[0] >= refresh.since
        if entry.paused or entry.retries.failures or entry.waiting:
            self._tell(name, refresh, self._standings.of(name, now).obstacle, now)
            return True
        if node.rebuild_reason:
            self._tell(name, refresh, f"it is to be rebuilt first: {node.rebuild_reason}", now)
            return True
        looked_at = node.last_poll.looked_at
        return looked_at is None or looked_at >= refresh.since

    def _tell(self, name: str, refresh: _Refresh, why: str, now: float) -> None:
        own = name == refresh.table
        text = "its refresh is over, it was not updated" if own else f"its refresh goes on without {name}"
        self._notices.append(RunNotice(now, refresh.table, f"{text}: {why}"))

    def told(self, table: str, now: float) -> str:
        """What is to be said of refreshes that a table is part of; empty if there are none."""
        return "; ".join(self._lines(table, now))

    def _lines(self, table: str, now: float) -> Iterator[str]:
        for refresh in self._refreshes.values():
            if table not in refresh.todo:
                continue
            whose = "a refresh" if refresh.table == table else f"a refresh of {refresh.table}"
            text = f"{whose} is in force, asked for {readable(max(0.0, now - refresh.since))} ago"
            waits_for = refresh.waits_for(self._sources(table))
            if waits_for:
                yield f"{text}; it waits for {', '.join(waits_for)}"
            else:
                yield f"it goes before all others: {text}"

    def _sources(self, table: str) -> tuple[str, ...]:
        return tuple(self._nodes.names[source] for source in self._graph.upstream[self._graph.index[table]])
