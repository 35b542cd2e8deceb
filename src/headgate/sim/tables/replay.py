"""A recorded run of tables once more, in virtual time and under any policy.

A plain simulation begins at time 0 with all tables fresh. A replay begins with every table as far behind as it was.
Data arrives when it did and reaches the event times that it reached; updates are slow when they were. Backfills and
maintenance take up tracks behind the updates of tables, as they did. Nothing is left to chance. What a trace looks like
is not known here.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headgate.core import (
    LEAST_UPDATE_TIME,
    LIVE,
    CostModel,
    LatencyRecorder,
    Placement,
    Policy,
    StalenessMeter,
    Start,
)
from headgate.core.placements import LayeredPlacement
from headgate.core.policies import Layered
from headgate.sim.kernel import Rank
from headgate.sim.tables.scenario import TableScenario
from headgate.sim.tables.simulation import TableResult, TableSimulation


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """What a replay knows of a table beyond its ``Table``. Times are seconds from the beginning of the replay.

    ``fresh`` is the event time up to which the table was complete at the beginning, and ``empty`` that it had no rows:
    then its staleness counts from its first update on. Of a stream, ``waiting`` is the event time up to which data lay
    there, and ``reaches`` are those that it reaches with its arrivals. What lay there had been waiting from ``since``,
    at most 0. ``came`` is what the stream had loaded by then, as (event time, when it came), as far as that is known.
    ``seen`` are updates from before, as (seconds of data, seconds of work). ``steps`` are the event times that its
    updates reached, in order: what one of them took in at once is not cut, as most of it may be time without data.
    ``empty_times`` are those of which that is known, from where up to where: policies do not cut them either. Up to
    ``careful``, an update takes in no more either: it was cut when nothing was known yet of its costs. ``slowness``
    is how long updates took compared with what was to be expected, by when they began. ``counts`` is false for work
    that is not the update of a table with event time: it takes up tracks, and nothing of it is measured.
    """

    fresh: float
    empty: bool = False
    waiting: float = -math.inf
    since: float = 0.0
    reaches: tuple[float, ...] = ()
    came: tuple[tuple[float, float], ...] = ()
    seen: tuple[tuple[float, float], ...] = ()
    steps: tuple[float, ...] = ()
    empty_times: tuple[tuple[float, float], ...] = ()
    careful: float = -math.inf
    slowness: tuple[tuple[float, float], ...] = ()
    layer: float = LIVE
    counts: bool = True


@dataclass(frozen=True, slots=True)
class ReplayChange:
    """Settings that change ``at`` a moment, in seconds from the beginning of the replay; None for those that stay."""

    at: float
    policy: Policy | None = None
    placement: Placement | None = None
    tracks: int | None = None
    priority: tuple[str, float] | None = None


#: makes the model by which an engine learns what updates of one table cost
NewEstimate = Callable[[], CostModel]
#: told of every update that has ended: its table, when, and up to which event time the table is complete
OnUpdate = Callable[[str, float, float], None]


class ReplaySimulation(TableSimulation):
    """One run of a scenario from where ``recorded``, one for each of its tables, says that it began.

    With ``new_estimate``, policies go by costs that are learned from update to update; else they know the true ones.
    ``on_update`` is told of every update. ``changes`` are made while it runs, as a user would; the staleness of a table
    counts with its stated priority all the same.
    """

    def __init__(
        self,
        scenario: TableScenario,
        recorded: Sequence[RecordedTable],
        policy: Policy,
        placement: Placement,
        seed: int = 0,
        new_estimate: NewEstimate | None = None,
        on_update: OnUpdate | None = None,
        changes: Sequence[ReplayChange] = (),
    ) -> None:
        self._recorded = tuple(recorded)
        self._changes = tuple(changes)
        self._on_update = on_update
        super().__init__(scenario, Layered(policy), LayeredPlacement(placement), seed)
        for i, table in enumerate(self._recorded):
            self._target[i] = self._available[i] = table.fresh
            # What is built on an empty table can do nothing before that has rows.
            self._meters[i] = StalenessMeter(0.0, -math.inf if table.empty else table.fresh)
        self._still_to_come = [iter(table.reaches) for table in self._recorded]
        self._counted_latency = LatencyRecorder()
        self._estimates = [] if new_estimate is None else [new_estimate() for _ in self._recorded]
        for estimate, table in zip(self._estimates, self._recorded, strict=False):
            for amount, time in table.seen:
                estimate.observe(amount, time)

    def _fill_stated_features(self) -> None:
        super()._fill_stated_features()
        self.matrix.fill("layer", [table.layer for table in self._recorded])

    def _begin(self) -> None:
        """Go on from where the recorded run was."""
        super()._begin()  # policies may look at what is to come
        for change in self._changes:
            if change.at <= 0:
                self._change(change, 0.0)
            else:
                self._events.at(change.at, Rank.CHANGE, self._change, change)
        if self._lags is not None:
            had = [() if above else _had(table) for above, table in zip(self._upstream, self._recorded, strict=True)]
            self._lags.begin(self._target, [table.since for table in self._recorded], had)
        for i, upstream in enumerate(self._upstream):
            table = self._recorded[i]
            reached = min((self._meters[source].fresh for source in upstream), default=table.waiting)
            self._offer(i, reached, table.since)
        # Counted from now on, whatever lay there before.
        self._waiting_area = self._waiting_since = 0.0
        for start in self.loop.decide(0.0):
            self._start(start, 0.0)

    def _change(self, change: ReplayChange, now: float) -> None:
        self.change_settings(
            policy=None if change.policy is None else Layered(change.policy),
            placement=None if change.placement is None else LayeredPlacement(change.placement),
            tracks=change.tracks,
            priorities={} if change.priority is None else dict([change.priority]),
        )

    def _arrive(self, table: int, now: float) -> None:
        self._offer(table, next(self._still_to_come[table], -math.inf), now)
        self._expect_arrival(table)

    def _refresh(self, table: int, now: float) -> None:
        super()._refresh(table, now)
        if self._estimates:  # written after it is said to be ready, but before the next decision ranks it
            estimate = self._estimates[table]
            amount = float(self._columns.freshness_delta[table])
            self._columns.execution_time[table] = max(LEAST_UPDATE_TIME, estimate.predict(amount))
            self._columns.set_cost(table, *estimate.setup_and_slope)  # as in the warehouse

    def _start(self, start: Start, now: float) -> None:
        least = 0.0 if start.portion == math.inf else self._empty_time(start.node)
        super()._start(start._replace(portion=max(start.portion, least)), now)

    def _empty_time(self, table: int) -> float:
        """How much event time mostly without data comes next, which an update of the run took in at once."""
        times, target = self._recorded[table].empty_times, self._target[table]
        index = bisect_right(times, (target, math.inf)) - 1
        return max(0.0, times[index][1] - target) if index >= 0 else 0.0

    def _limit(self, table: int, pending: float) -> float:
        """At least up to where the run came from here: a budget holds for data, not for the time between two rows."""
        recorded, target = self._recorded[table], self._target[table]
        following = bisect_right(recorded.steps, target)
        limit = super()._limit(table, pending)
        if following == len(recorded.steps):
            return limit
        step = recorded.steps[following] - target
        return step if target < recorded.careful else max(limit, step)

    def _duration(self, table: int, amount: float, now: float, first: int) -> float:
        return super()._duration(table, amount, now, first) * _nearest(self._recorded[table].slowness, now)

    def _complete(self, track: int, now: float) -> None:
        run = self._running[track][1][0]
        teaches = bool(self._estimates) and run.table not in self._joined  # one that shared a set-up tells less
        if teaches:
            self._estimates[run.table].observe(run.amount, run.duration)
        if self._recorded[run.table].counts:
            self._counted_latency.add(now - run.came)
        super()._complete(track, now)
        if teaches:  # what waits was ranked by what was known before
            self._refresh(run.table, now)
        if self._on_update is not None:
            self._on_update(self.scenario.tables[run.table].name, now, self._meters[run.table].fresh)

    def _report(self, end: float, events: int) -> TableResult:
        """Of the tables that count, each from when it had rows."""
        for i, (meter, table) in enumerate(zip(self._meters, self._recorded, strict=True)):
            if meter.empty:  # it has no rows even at the end: then it counts as far as its data goes back
                self._meters[i] = StalenessMeter(0.0, table.fresh)
        result = super()._report(end, events)
        tables = tuple(outcome for outcome, table in zip(result.tables, self._recorded, strict=True) if table.counts)
        return replace(
            result,
            weighted_staleness=sum(table.priority * table.mean_staleness for table in tables),
            latency=self._counted_latency.summary(),
            tables=tables,
        )


def _had(stream: RecordedTable) -> tuple[tuple[float, float], ...]:
    """What a stream had, up to all that it had: of what nobody has seen coming, it is known that it had come by 0."""
    if stream.empty or (stream.came and stream.came[-1][0] >= stream.fresh):
        return stream.came
    return (*stream.came, (stream.fresh, 0.0))


def _nearest(slowness: Sequence[tuple[float, float]], now: float) -> float:
    """The slowness of the update that began nearest to ``now``: what made it slow would have done so to another."""
    if not slowness:
        return 1.0
    index = bisect_left(slowness, (now, 0.0))
    return min(slowness[max(0, index - 1) : index + 1], key=lambda entry: abs(entry[0] - now))[1]
