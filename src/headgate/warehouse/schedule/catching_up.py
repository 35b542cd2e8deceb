"""Catching up: have tables taken in all that had arrived at one moment?

A stream has, when nothing that arrived before that moment waits any more. A table has, when its sources have, it has
taken in these versions of them up to their trailing edge, and nothing of its past is to be recomputed. An update that
computes a few blocks of time names the newest versions of its sources, so the versions alone do not tell. What arrives
later does not matter, so this ends even if data comes all the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headgate.core import HeadgateError, UnknownNameError, node_name
from headgate.warehouse.schedule.explaining import Standing
from headgate.warehouse.schedule.retries import MOST_FAILURES
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


class NotFreshError(HeadgateError):
    """Tables have not caught up, and will not, or not in the time given. ``tables``: each with the reason."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self.tables = dict(tables)
        super().__init__(self.tables)

    def __str__(self) -> str:
        return "\n".join(f"{table} is not fresh: {why}" for table, why in self.tables.items())


@dataclass(frozen=True, slots=True)
class Behind:
    """The tables that have not caught up, each with the reason; ``stuck``: none of them will without a user's help.

    If all have caught up there is none, and ``stuck`` is true, too.
    """

    tables: Mapping[str, str]
    stuck: bool


@dataclass(frozen=True, slots=True)
class PublicationStanding:
    """The last version of a table that all its places have, -1 if that is not known, and the failures since then."""

    version: int
    failures: int = 0
    error: str = ""


class CatchUp:
    """The tables that have caught up with what had arrived at the moment ``since``, in seconds since the epoch.

    With ``publications`` also whether this is published, for the tables that are.

    Invariant: ``_reached`` has the version at which each of them had, and its freshness; later versions have it, too.
    """

    def __init__(
        self,
        warehouse: OpenWarehouse,
        since: float,
        tables: Iterable[str] | None = None,
        publications: bool = False,
    ) -> None:
        names = list(warehouse.nodes if tables is None else tables)
        for name in names:
            if name not in warehouse.nodes:
                raise UnknownNameError("table", name, warehouse.nodes)
        self._wanted = frozenset(names)
        self._since = since
        self._publications = publications
        self._reached: dict[str, tuple[int, int | None]] = {}

    def behind(
        self,
        warehouse: OpenWarehouse,
        standings: Mapping[str, Standing],
        published: Mapping[str, PublicationStanding] = MappingProxyType({}),
    ) -> Behind:
        """What has not caught up by now. ``standings`` are those of all tables, ``published`` of those that are."""
        left: dict[str, str] = {}
        stuck: set[str] = set()
        needed = self._needed(warehouse)
        for name, node in warehouse.nodes.items():  # each after its sources
            if name not in needed or name in self._reached:
                continue
            why, for_good = self._why_behind(node, standings[name], left, stuck)
            if not why:
                self._reached[name] = node.store.version, node.freshness
                continue
            left[name] = why
            if for_good:
                stuck.add(name)
        for name in self._wanted.intersection(published, self._reached) if self._publications else ():
            place, publication = published[name], node_name(name, "publish")
            if place.version < self._reached[name][0]:
                left[publication] = place.error or "it is not published yet"
                if place.failures >= MOST_FAILURES:
                    stuck.add(publication)
        return Behind(left, stuck=stuck.issuperset(left))

    def _needed(self, warehouse: OpenWarehouse) -> set[str]:
        """The tables that are wanted, and all above them."""
        graph = warehouse.graph
        indices = [graph.index[name] for name in self._wanted if name in graph.index]
        return {graph.names[i] for index in indices for i in (index, *graph.ancestors(index))}

    def _why_behind(self, node: Node, standing: Standing, left: Mapping[str, str], stuck: set[str]) -> tuple[str, bool]:
        """Why a table has not caught up, and whether it will not; an empty text if it has."""
        above = [source for source in node.sources if source in left]
        if above:
            return f"it waits for {', '.join(above)}", bool(stuck.intersection(above))
        if standing.updating or standing.recomputing:
            return "it is being updated", False
        try:
            waiting = self._waits(node)
        except Exception as error:  # the source cannot be polled
            return f"its source cannot be read: {error}", True
        looked_at = node.last_poll.looked_at
        if not waiting and looked_at is not None and looked_at < self._since:
            note = node.last_poll.note if node.last_poll.missing else ""
            return note or "its source has not been looked at since", bool(note)
        if waiting:
            # What may pass by itself is tried for ever; whoever waits for it wants to know.
            is_stuck = standing.paused or standing.held or standing.failures >= MOST_FAILURES
            return standing.obstacle or waiting, is_stuck
        return "", False

    def _waits(self, node: Node) -> str:
        """What a table that is not being updated has not taken in yet."""
        update = node.plan()
        if not node.sources:
            if update is None:
                return ""
            earliest = -math.inf if update.arrived is None else update.arrived[0]
            if node.last_poll.earliest is not None:  # when it arrived is only about known
                earliest = min(earliest, node.last_poll.earliest)
            return "data that has arrived is not loaded yet" if earliest < self._since else ""
        if node.rebuild_reason:
            return f"it is to be rebuilt: {node.rebuild_reason}"
        if node.repairs is not None:
            return f"still to be recomputed: {node.repairs}"
        if update is None or self._has_all_of_its_sources(node):
            return ""
        return "it has not taken in all of its sources"

    def _has_all_of_its_sources(self, node: Node) -> bool:
        state = node.state
        if any(state.sources.get(source, -1) < self._reached[source][0] for source in node.sources):
            return False
        edges = [fresh for _, fresh in (self._reached[source] for source in node.sources) if fresh is not None]
        return not edges or (state.freshness is not None and state.freshness >= min(edges))
