"""The lags of simulated tables: since when the oldest data that a table lacks has waited, and who was late when.

Data waits from its arrival at a stream, through every table on its path. For a table with several streams it waits from
when all of them had it (``headgate.core.staleness``).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from headgate.core import Graph, LagMeter

#: of a stream, so many arrivals are remembered before those that all tables have are forgotten
_REMEMBERED = 4096


class SimulatedLags:
    """Arrivals of streams, and the lag of every table with a target.

    Invariants:
    1. ``_edges[s]`` and ``_times[s]`` increase, and have all arrivals of stream s that some table built on it lacks.
    2. The meter of a table waits since the arrival of the oldest data beyond ``_fresh[table]``.
    """

    def __init__(self, graph: Graph, targets: Sequence[float | None]) -> None:
        above = [sorted({i, *graph.ancestors(i)}) for i in range(len(graph))]
        self._streams = [tuple(j for j in those if not graph.upstream[j]) for those in above]
        self._below = [tuple(sorted({i, *graph.dependents(i)})) for i in range(len(graph))]
        self._edges: list[list[float]] = [[] for _ in targets]
        self._times: list[list[float]] = [[] for _ in targets]
        self._fresh = [-math.inf] * len(targets)
        self._meters = {i: LagMeter(0.0, target) for i, target in enumerate(targets) if target is not None}
        self._late = _Union()

    @classmethod
    def of(cls, graph: Graph, targets: Sequence[float | None]) -> SimulatedLags | None:
        """None if no table has a target: then nothing has to be kept."""
        return None if all(target is None for target in targets) else cls(graph, targets)

    def begin(
        self, fresh: Sequence[float], since: Sequence[float], came: Sequence[Sequence[tuple[float, float]]]
    ) -> None:
        """Go on from where a run was at 0: up to where each table was complete, and since when it could be updated.

        ``came`` is what each stream had by then, as (event time, when it came at the latest); nothing for other tables.
        """
        self._fresh = list(fresh)
        for stream, had in enumerate(came):
            edges, times = [edge for edge, _ in had], [moment for _, moment in had]
            for table in self._below[stream]:
                place = bisect_right(edges, fresh[table])
                if place < len(edges):  # what the table could be updated with had come
                    times[place] = min(times[place], since[table])
            # Event times need not follow the order of arrival: the oldest of all that is lacking counts.
            self._edges[stream] = edges
            self._times[stream] = list(accumulate(reversed(times), min, initial=since[stream]))[:0:-1]
            self._forget(stream)
        for table, meter in self._meters.items():
            self._note(table, meter, 0.0)

    def arrived(self, stream: int, edge: float, now: float) -> None:
        """Data of a stream up to event time ``edge`` arrived, for the first time."""
        self._edges[stream].append(edge)
        self._times[stream].append(now)
        for table in self._below[stream]:
            meter = self._meters.get(table)
            if meter is not None and meter.waiting is None:
                self._note(table, meter, now)
        if len(self._edges[stream]) > _REMEMBERED:
            self._forget(stream)

    def completed(self, table: int, fresh: float, now: float) -> None:
        """An update has made the table complete up to event time ``fresh``."""
        self._fresh[table] = fresh
        meter = self._meters.get(table)
        if meter is not None:
            self._note(table, meter, now)

    def since(self, table: int, beyond: float) -> float:
        """When the oldest data of a table beyond an event time arrived; infinite if nothing did."""
        latest = -math.inf
        for stream in self._streams[table]:
            edges = self._edges[stream]
            place = bisect_right(edges, beyond)
            if place == len(edges):
                return math.inf
            latest = max(latest, self._times[stream][place])
        return latest

    def _note(self, table: int, meter: LagMeter, now: float) -> None:
        self._count_late(meter, now)
        since = self.since(table, self._fresh[table])
        meter.wait(now, None if since == math.inf else since)

    def _count_late(self, meter: LagMeter, now: float) -> None:
        if meter.waiting is not None and meter.target is not None:
            self._late.add(max(meter.since, meter.waiting + meter.target), now)

    def _forget(self, stream: int) -> None:
        place = bisect_right(self._edges[stream], min(self._fresh[table] for table in self._below[stream]))
        del self._edges[stream][:place], self._times[stream][:place]

    # --- the report -----------------------------------------------------------------------------------------

    def meters_at(self, end: float) -> Mapping[int, LagMeter]:
        """{table with a target: its meter}, counted up to ``end``."""
        for meter in self._meters.values():
            self._count_late(meter, end)
            meter.advance(end)
        return self._meters

    def together(self, end: float) -> float:
        """The share of time in which no table was late; ask for the meters first."""
        return 1 - self._late.length / end if end > 0 else 1.0


class _Union:
    """The length of the union of stretches of time, which are added in the order of their ends."""

    def __init__(self) -> None:
        #: disjoint, in order
        self._stretches: list[tuple[float, float]] = []
        self.length = 0.0

    def add(self, begin: float, end: float) -> None:
        if begin >= end:
            return
        while self._stretches and self._stretches[-1][1] >= begin:
            first, last = self._stretches.pop()
            begin = min(begin, first)
            self.length -= last - first
        self._stretches.append((begin, end))
        self.length += end - begin
