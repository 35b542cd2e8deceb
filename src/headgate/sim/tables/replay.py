"""A recorded run of tables once more, in virtual time and under any policy: the simulation with a past.

A plain simulation begins at time 0 with all tables fresh. A replay begins with every table as far behind as it was,
data arrives when it did and reaches the event times that it reached, updates are slow when they were, and what stood
behind the updates of tables (backfills, maintenance) takes up tracks behind them here, too. Nothing is left to chance.
What a trace looks like is not known here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headgate.core.latency import LatencyRecorder
from headgate.core.placement import Placement
from headgate.core.policies.classes import LIVE, Layered
from headgate.core.policy import Policy
from headgate.sim.fitted_cost import LEAST_TIME
from headgate.sim.tables.result import TableResult
from headgate.sim.tables.scenario import TableScenario
from headgate.sim.tables.simulation import Progress, TableSimulation


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """What a replay knows of a table beyond its ``Table``. Times are seconds from the beginning of the replay.

    ``fresh`` is the event time up to which the table was complete at the beginning, and ``empty`` that it had no rows:
    then its staleness counts from its first update on. Of a stream, ``waiting`` is the event time up to which data lay
    there, and ``reaches`` are those that it reaches with its arrivals. What lay there had been waiting from ``since``,
    at most 0. ``seen`` are updates made before, as (seconds of data, seconds of work). ``slowness`` is how long updates
    took compared with what was to be expected, by when they began. ``counts`` is false for work that is not the update
    of a table with event time: it takes up tracks, and nothing of it is measured.
    """

    fresh: float
    empty: bool = False
    waiting: float = -math.inf
    since: float = 0.0
    reaches: tuple[float, ...] = ()
    seen: tuple[tuple[float, float], ...] = ()
    slowness: tuple[tuple[float, float], ...] = ()
    layer: float = LIVE
    counts: bool = True


class CostEstimate(Protocol):
    """What an engine that learns takes updates of a table to cost: ``E(n) = alpha + beta n``, so far."""

    @property
    def alpha(self) -> float: ...

    @property
    def beta(self) -> float: ...

    def predict(self, n: float) -> float: ...

    def observe(self, n: float, time: float) -> None:
        """An update of ``n`` seconds of data took ``time`` seconds."""


NewEstimate = Callable[[], CostEstimate]


class ReplaySimulation(TableSimulation):
    """One run of a scenario from where ``recorded``, one for each of its tables, says that it began.

    With ``new_estimate``, policies go by costs that are learned from update to update; else they know the true ones.
    """

    def __init__(
        self,
        scenario: TableScenario,
        recorded: Sequence[RecordedTable],
        policy: Policy,
        placement: Placement,
        seed: int = 0,
        new_estimate: NewEstimate | None = None,
    ) -> None:
        self._recorded = tuple(recorded)
        super().__init__(scenario, Layered(policy), placement, seed)
        for i, table in enumerate(self._recorded):
            self._target[i] = self._available[i] = table.fresh
            # What is built on an empty table can do nothing before that has rows.
            self._fresh[i] = -math.inf if table.empty else table.fresh
        self._empty = [table.empty for table in self._recorded]
        #: from when on a table's staleness counts
        self._counted_from = [0.0] * len(self._recorded)
        self._still_to_come = [iter(table.reaches) for table in self._recorded]
        self._counted_latency = LatencyRecorder()
        self._estimates = [] if new_estimate is None else [_taught(new_estimate(), t.seen) for t in self._recorded]
        #: {track: the seconds of data that its update brings}
        self._amounts: dict[int, float] = {}

    def _fill_stated_features(self) -> None:
        super()._fill_stated_features()
        self.matrix.fill("layer", [table.layer for table in self._recorded])

    def run(self, progress: Progress | None = None) -> TableResult:
        """Go on from where the recorded run stood, until the scenario's end, and report."""
        for i, upstream in enumerate(self._upstream):
            table = self._recorded[i]
            reached = min((self._fresh[source] for source in upstream), default=table.waiting)
            self._offer(i, reached, table.since)
        # Counted from now on, whatever lay there before.
        self._waiting_area = self._waiting_since = 0.0
        for start in self.loop.decide(0.0):
            self._start(start.node, start.worker, 0.0)
        return self._counted(super().run(progress))

    def _arrive(self, table: int, now: float) -> None:
        self._offer(table, next(self._still_to_come[table], -math.inf), now)
        self._expect_arrival(table, self._arrivals[table]())

    def _refresh(self, table: int, now: float) -> None:
        super()._refresh(table, now)
        if self._estimates:
            estimate = self._estimates[table]
            amount = float(self._columns.freshness_delta[table])
            columns = self.matrix.columns
            columns["execution_time"][table] = max(LEAST_TIME, estimate.predict(amount))
            columns["setup_time"][table] = estimate.alpha
            columns["time_per_unit"][table] = estimate.beta
            columns["cost"][table] = max(1e-9, estimate.beta)
            self.loop.note_change(table)

    def _start(self, table: int, track: int, now: float) -> None:
        before = self._target[table]
        super()._start(table, track, now)
        self._amounts[track] = self._target[table] - before

    def _duration(self, table: int, amount: float, now: float) -> float:
        return super()._duration(table, amount, now) * _nearest(self._recorded[table].slowness, now)

    def _complete(self, track: int, now: float) -> None:
        table, came, _, duration = self._running[track]
        amount = self._amounts.pop(track)
        if self._estimates:
            self._estimates[table].observe(amount, duration)
        if self._recorded[table].counts:
            self._counted_latency.add(now - came)
        super()._complete(track, now)

    def _freshen(self, table: int, now: float) -> None:
        if self._empty[table]:
            self._empty[table] = False
            self._counted_from[table] = self._since[table] = now
            self._fresh[table] = self._target[table]
        super()._freshen(table, now)

    def _integrate(self, table: int, now: float) -> None:
        if self._empty[table]:  # it has no rows even at the end: then it counts as far as its data goes back
            self._fresh[table] = self._recorded[table].fresh
        super()._integrate(table, now)

    def _counted(self, result: TableResult) -> TableResult:
        """``result`` of the tables that count, each from when it had rows."""
        tables = tuple(
            replace(outcome, mean_staleness=self._area[i] / max(result.seconds - self._counted_from[i], 1e-12))
            for i, outcome in enumerate(result.tables)
            if self._recorded[i].counts
        )
        return replace(
            result,
            weighted_staleness=sum(table.priority * table.mean_staleness for table in tables),
            latency=self._counted_latency.summary(),
            tables=tables,
        )


def _taught(estimate: CostEstimate, seen: Sequence[tuple[float, float]]) -> CostEstimate:
    for amount, time in seen:
        estimate.observe(amount, time)
    return estimate


def _nearest(slowness: Sequence[tuple[float, float]], now: float) -> float:
    """The slowness of the update that began nearest to ``now``: what made it slow would have done so to another."""
    if not slowness:
        return 1.0
    index = bisect_left(slowness, (now, 0.0))
    return min(slowness[max(0, index - 1) : index + 1], key=lambda entry: abs(entry[0] - now))[1]
