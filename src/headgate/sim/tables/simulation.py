"""Tables on tracks in virtual time (Golab et al., section 4.1).

Every arrival and every completion is an event; after each, the dispatch loop of the core is asked what to start. Only
the clock and the executor are made up here: policies, placements, the guard and the decisions are the real ones.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from headgate.core.dispatch import Dispatch
from headgate.core.features import features_named
from headgate.core.inheritance import derive_periods, inherit_priorities
from headgate.core.latency import LatencyRecorder
from headgate.core.matrix import FeatureMatrix
from headgate.core.observe import PATIENCE_PERIODS, TABLE_FEATURES, TableColumns
from headgate.core.placement import Placement, Workers
from headgate.core.placements import Anywhere
from headgate.core.policy import Policy
from headgate.sim.tables.result import TableOutcome, TableResult
from headgate.sim.tables.scenario import Table, TableScenario

#: called now and then with the number of events done
Progress = Callable[[int], None]
_PROGRESS_EVERY = 1 << 14
_ROUNDING = 1 + 1e-9


class TableSimulation:
    """One run. Make it, ``run`` it once.

    Invariants:
    1. ``_fresh[i] <= _target[i] <= _available[i]``: what is loaded, what will be when the running update is done,
       and what has arrived (for a derived table: the trailing edge of its sources).
    2. Table i is ready if and only if ``_available[i] > _target[i]``.
    """

    def __init__(self, scenario: TableScenario, policy: Policy, placement: Placement, seed: int = 0) -> None:
        self.scenario = scenario
        self.seed = seed
        tables, graph = scenario.tables, scenario.graph()
        count = len(tables)
        self.matrix = FeatureMatrix(graph, features_named(TABLE_FEATURES))
        self._columns = TableColumns(self.matrix)
        self._fill_stated_features()
        self.loop = Dispatch(self.matrix, policy, placement, Workers.of(scenario.tracks), seed=seed)

        self._downstream = graph.downstream
        self._upstream = graph.upstream
        self._alpha = [table.setup_time for table in tables]
        self._beta = [table.time_per_unit for table in tables]
        self._period: list[float] = self.matrix.columns["period"].tolist()
        self._most = [scenario.chop * period for period in self._period]
        self._random = [random.Random(f"{seed}/{table.name}") for table in tables]
        self._fresh = [0.0] * count
        self._target = [0.0] * count
        self._available = [0.0] * count
        #: per table the pending data as (up to which event time, when it came), oldest first; never empty while ready
        self._chunks: list[deque[tuple[float, float]]] = [deque() for _ in tables]
        self._area = [0.0] * count
        self._since = [0.0] * count
        self._max_staleness = [0.0] * count
        self._longest_wait = [0.0] * count
        self._updates = [0] * count
        self._busy_table = [0.0] * count
        self._busy_track = [0.0] * scenario.tracks
        self._running: dict[int, tuple[int, float, float, float]] = {}
        self._latency = LatencyRecorder()
        self._waiting = 0.0
        self._waiting_area = 0.0
        self._waiting_max = 0.0
        self._waiting_since = 0.0
        self._events = 0
        #: (time, kind: 0 completion before 1 arrival at one moment, number, track or table)
        self._heap: list[tuple[float, int, int, int]] = []
        self._number = 0
        self._arrivals = [self._arrival_times(i, table) for i, table in enumerate(tables)]

    def _fill_stated_features(self) -> None:
        scenario, matrix = self.scenario, self.matrix
        graph = matrix.graph
        periods = derive_periods(graph, scenario.periods_of_streams(), scenario.period_reading)
        stated = scenario.stated_priorities()
        matrix.fill("priority", inherit_priorities(graph, stated, scenario.inheritance, scenario.inheritance_k))
        matrix.fill("period", periods)
        matrix.fill("class", (float(table.importance_class) for table in scenario.tables))
        for number, table in enumerate(scenario.tables):
            self._columns.set_cost(number, table.setup_time, table.time_per_unit)
            self._columns.set_idle(number, table.setup_time)
        if scenario.guard:
            patience = [
                PATIENCE_PERIODS * period if table.patience is None else table.patience
                for table, period in zip(scenario.tables, periods.tolist(), strict=True)
            ]
            matrix.fill("patience", patience)

    def _arrival_times(self, number: int, table: Table) -> Callable[[], float]:
        if table.arrivals:
            remaining = iter(table.arrivals)
            return lambda: next(remaining, math.inf)
        if table.sources:
            return lambda: math.inf
        offset = self._random[number].random() * table.period if table.offset is None else table.offset
        step = 0

        def following() -> float:
            nonlocal step
            step += 1
            return offset + (step - 1) * table.period

        return following

    # --- the run --------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> TableResult:
        """Process events until the scenario's end and report."""
        for i, following in enumerate(self._arrivals):
            self._expect_arrival(i, following())
        heap, loop, end = self._heap, self.loop, self.scenario.horizon
        limit = self.scenario.events
        now = 0.0
        while heap and self._events < limit:
            if heap[0][0] > end:
                now = end
                break
            now, kind, _, which = heapq.heappop(heap)
            self._events += 1
            if kind == 0:
                self._complete(which, now)
            else:
                self._arrive(which, now)
            for start in loop.decide(now):
                self._start(start.node, start.worker, now)
            if progress is not None and not self._events % _PROGRESS_EVERY:
                progress(self._events)
        return self._report(end if not heap and end < math.inf else now)

    def _expect_arrival(self, table: int, when: float) -> None:
        self._columns.set_next_release(table, when)
        if when < math.inf:
            self._number += 1
            heapq.heappush(self._heap, (when, 1, self._number, table))

    def _arrive(self, table: int, now: float) -> None:
        self._offer(table, now - self.scenario.tables[table].delay, now)
        self._expect_arrival(table, self._arrivals[table]())

    def _offer(self, table: int, edge: float, now: float) -> None:
        """Data up to event time ``edge`` can be loaded into ``table`` from now on."""
        more = edge - self._available[table]
        if more <= 0:
            return
        self._available[table] = edge
        self._note_waiting(table, more, now)
        chunks = self._chunks[table]
        if not chunks:
            self._columns.set_release(table, now, now)
            if self._upstream[table]:
                self._columns.set_next_release(table, now + self._period[table])
        chunks.append((edge, now))
        self._refresh(table, now)

    def _refresh(self, table: int, now: float) -> None:
        """Write what the policies read about a table after its data or its target moved."""
        pending = self._available[table] - self._target[table]
        if pending > 0:
            amount = min(pending, self._most[table])
            self._columns.set_pending(table, pending, amount, self._alpha[table] + self._beta[table] * amount)
            self.loop.set_ready(table, True, now)
        else:
            self._columns.set_idle(table, self._alpha[table])
            self.loop.set_ready(table, False, now)

    def _start(self, table: int, track: int, now: float) -> None:
        chunks = self._chunks[table]
        came = chunks[0][1]
        pending = self._available[table] - self._target[table]
        # What is left over by rounding only is not left over.
        whole = pending <= self._most[table] * _ROUNDING
        amount = pending if whole else self._most[table]
        self._target[table] = self._available[table] if whole else self._target[table] + amount
        while chunks and chunks[0][0] <= self._target[table]:
            chunks.popleft()
        if chunks:
            self._columns.head_time[table] = chunks[0][1]
        self._longest_wait[table] = max(self._longest_wait[table], now - came)
        duration = self._duration(table, amount, now)
        self._running[track] = (table, came, now, duration)
        self._note_waiting(table, -amount, now)
        self._number += 1
        heapq.heappush(self._heap, (now + duration, 0, self._number, track))
        self._refresh(table, now)

    def _duration(self, table: int, amount: float, now: float) -> float:
        duration = self._alpha[table] + self._beta[table] * amount
        if self.scenario.spread is not None:
            duration *= self.scenario.spread + self._random[table].random()
        if self.scenario.slowdown is not None:
            duration *= self.scenario.slowdown.at(now)
        return duration

    def _complete(self, track: int, now: float) -> None:
        table, came, started, duration = self._running.pop(track)
        self._busy_track[track] += now - started
        self._busy_table[table] += duration
        self._updates[table] += 1
        self._latency.add(now - came)
        self._freshen(table, now)
        self.loop.finished(track, now)
        for dependent in self._downstream[table]:
            self._offer(dependent, min(self._fresh[s] for s in self._upstream[dependent]), now)

    def _freshen(self, table: int, now: float) -> None:
        self._integrate(table, now)
        self._fresh[table] = self._target[table]

    def _integrate(self, table: int, now: float) -> None:
        fresh, since = self._fresh[table], self._since[table]
        # staleness grows by one second a second, so its integral is that of a trapezium
        self._area[table] += ((now - fresh) ** 2 - (since - fresh) ** 2) / 2
        self._max_staleness[table] = max(self._max_staleness[table], now - fresh)
        self._since[table] = now

    def _note_waiting(self, table: int, more: float, now: float) -> None:
        """Data came to wait for ``table``, or with a negative number left the queue."""
        for source in self._upstream[table]:
            self._columns.output_pending[source] += more
            self.loop.note_change(source)
        self._waiting_area += self._waiting * (now - self._waiting_since)
        self._waiting_since = now
        self._waiting += more
        self._waiting_max = max(self._waiting_max, self._waiting)

    # --- the report -----------------------------------------------------------------------------------------

    def _report(self, end: float) -> TableResult:
        for track, (table, _, started, _) in self._running.items():
            self._busy_track[track] += end - started
            self._busy_table[table] += end - started
        for table in range(len(self.scenario.tables)):
            self._integrate(table, end)
        self._waiting_area += self._waiting * (end - self._waiting_since)
        length = max(end, 1e-12)
        outcomes = tuple(
            TableOutcome(
                name=table.name,
                priority=table.priority,
                mean_staleness=self._area[i] / length,
                max_staleness=self._max_staleness[i],
                updates=self._updates[i],
                longest_wait=self._longest_wait[i],
                utilisation=self._busy_table[i] / length,
            )
            for i, table in enumerate(self.scenario.tables)
        )
        return TableResult(
            scenario=self.scenario.name,
            policy=str(self.loop.policy),
            placement=str(self.loop.placement),
            seed=self.seed,
            events=self._events,
            seconds=end,
            weighted_staleness=sum(outcome.priority * outcome.mean_staleness for outcome in outcomes),
            latency=self._latency.summary(),
            queue_mean=self._waiting_area / length,
            queue_max=self._waiting_max,
            worker_utilisation=tuple(busy / length for busy in self._busy_track),
            guard_strikes=self.loop.statistics().guard_strikes,
            tables=outcomes,
        )


def simulate_tables(
    scenario: TableScenario, policy: Policy, placement: Placement, seed: int = 0, progress: Progress | None = None
) -> TableResult:
    """Run ``scenario`` once; the same seed gives the same result, number for number."""
    return TableSimulation(scenario, policy, placement, seed).run(progress)


def simulate_without_waiting(scenario: TableScenario, policy: Policy, seed: int = 0) -> TableResult:
    """The same run on a track for every table: every update starts when it is released.

    Relative lateness is weighted staleness divided by that of this run.
    """
    unlimited = replace(scenario, tracks=len(scenario.tables), guard=False)
    return simulate_tables(unlimited, policy, Anywhere(), seed)
