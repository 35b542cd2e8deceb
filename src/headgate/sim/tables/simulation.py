"""Tables on tracks in virtual time (Golab et al., section 4.1).

Every arrival and every completion is an event; after each, the dispatch loop of the core is asked what to start. Only
the clock and the executor are modelled: policies, placements, the guard and the decisions are the real ones.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from headgate.core import (
    PATIENCE_PERIODS,
    STRETCH,
    TABLE_FEATURES,
    Dispatch,
    FeatureMatrix,
    Inheritance,
    JointJobs,
    LatencyRecorder,
    LatencySummary,
    Placement,
    Policy,
    StalenessMeter,
    Start,
    TableColumns,
    Workers,
    answers_of,
    features_named,
    fill_targets,
    fits,
    keeping_up,
    text_of,
)
from headgate.core.placements import Anywhere
from headgate.sim.kernel import EventQueue, Rank, first_moment, periodic
from headgate.sim.tables.lags import SimulatedLags
from headgate.sim.tables.scenario import Table, TableScenario

#: called now and then with the number of events done
Progress = Callable[[int], None]
_PROGRESS_EVERY = 1 << 14
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """One table: staleness in seconds (weighted by nothing), number of updates, share of time it was being updated.

    Of a table with a target: the highest lag, and the share of time in which the lag was within the target.
    """

    name: str
    priority: float
    mean_staleness: float
    max_staleness: float
    updates: int
    longest_wait: float
    utilisation: float
    target_lag: float | None = None
    max_lag: float | None = None
    target_met: float | None = None


@dataclass(frozen=True, slots=True)
class TableResult:
    """A whole run.

    ``weighted_staleness`` is the mean over time of the sum of priority times staleness. ``latency`` is the time from
    the arrival of the oldest data of an update to its commit. Queues are the amount of data waiting, in seconds of data
    over all tables. ``targets_met`` is the share of time in which all tables were within their targets; None without
    targets.
    """

    scenario: str
    policy: str
    placement: str
    seed: int
    events: int
    seconds: float
    weighted_staleness: float
    latency: LatencySummary
    queue_mean: float
    queue_max: float
    worker_utilisation: tuple[float, ...]
    guard_strikes: int
    tables: tuple[TableOutcome, ...]
    targets_met: float | None = None

    @property
    def worst_ratio(self) -> float | None:
        """The largest ratio of lag to target of any table; None without targets."""
        ratios = [t.max_lag / t.target_lag for t in self.tables if t.max_lag is not None and t.target_lag]
        return max(ratios, default=None)


class TableRun(NamedTuple):
    """An update on a track, running or after others of its job: its amount of data, how long it takes, when the oldest
    and the newest of its chunks came, how many it takes in to their end, and how many it leaves."""

    table: int
    amount: float
    duration: float
    came: float
    last: float
    chunks: int
    left: int


class TableSimulation:
    """One run. Make it, ``run`` it once.

    ``believed`` is the same scenario with the costs that policies and limits go by, if these are not the true ones.

    Invariants:
    1. ``_meters[i].fresh <= _target[i] <= _available[i]``: what is loaded, what will be when the running update is
       done, and what has arrived (for a derived table: the trailing edge of its sources).
    2. Table i is ready if and only if ``_available[i] > _target[i]`` and it is not in ``_joined``.
    """

    def __init__(
        self,
        scenario: TableScenario,
        policy: Policy,
        placement: Placement,
        seed: int = 0,
        believed: TableScenario | None = None,
    ) -> None:
        answers = answers_of(policy)
        self.scenario = scenario
        #: what policies and limits go by: costs as they are believed, tracks and priorities as they are now
        self._believed = scenario if believed is None else believed
        self.seed = seed
        tables, graph = scenario.tables, scenario.graph()
        count = len(tables)
        self.matrix = FeatureMatrix(graph, features_named(TABLE_FEATURES))
        self._columns = TableColumns(self.matrix)
        self._fill_stated_features()
        self._fill_ranks(answers.inheritance)
        self.loop = Dispatch(self.matrix, policy, placement, Workers.of(scenario.tracks), seed=seed, answers=answers)

        self._downstream = graph.downstream
        self._upstream = graph.upstream
        self._alpha = [table.setup_time for table in tables]
        self._beta = [table.time_per_unit for table in tables]
        self._known_alpha = [table.setup_time for table in self._believed.tables]
        self._known_beta = [table.time_per_unit for table in self._believed.tables]
        self._period: list[float] = self.matrix.columns["period"].tolist()
        self._most: list[float] = [scenario.chop * period for period in self._period]
        #: what the last update of each table left waiting because of the budget; empty if there is none
        self._left = [0.0] * count if scenario.budget < math.inf else []
        self._random = [random.Random(f"{seed}/{table.name}") for table in tables]
        self._meters = [StalenessMeter(0.0, fresh=0.0) for _ in tables]
        self._target = [0.0] * count
        self._available = [0.0] * count
        #: per table the pending data as (up to which event time, when it came), oldest first; never empty while ready
        self._chunks: list[deque[tuple[float, float]]] = [deque() for _ in tables]
        self._longest_wait = [0.0] * count
        self._updates = [0] * count
        self._busy_table = [0.0] * count
        self._busy_track = [0.0] * scenario.tracks
        #: {track: (since when its update runs, that update and those after it)}
        self._running: dict[int, tuple[float, tuple[TableRun, ...]]] = {}
        #: the tables whose update runs, or waits for others of its job, without the loop knowing it
        self._joined: set[int] = set()
        sharing = scenario.sharing()
        #: None if no tables share jobs
        self._joint = JointJobs(self.matrix, sharing) if sharing else None
        self._latency = LatencyRecorder()
        #: None if no table has a target
        self._lags = SimulatedLags.of(graph, [table.target_lag for table in tables])
        self._waiting = 0.0
        self._waiting_area = 0.0
        self._waiting_max = 0.0
        self._waiting_since = 0.0
        #: at one moment, updates complete before data arrives
        self._events: EventQueue[float] = EventQueue(0.0)
        #: what is done beside the tables, and counts for nothing: how often it was, and how often it is to come
        self._beside_done = self._beside_ahead = 0
        self._arrivals = [self._arrival_times(i, table) for i, table in enumerate(tables)]

    def _fill_stated_features(self) -> None:
        scenario, matrix = self._believed, self.matrix
        periods = scenario.periods()
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

    def _fill_ranks(self, by_policy: Inheritance | None) -> None:
        """What follows from priorities, targets and the number of tracks, and from the way that sources inherit: if
        that is not stated, the one that the policy asks for."""
        now = self._believed
        self.matrix.fill("priority", now.priorities(by_policy))
        fill_targets(self.matrix, now.target_lags(), now.stated_priorities(), now.tracks)

    def _arrival_times(self, number: int, table: Table) -> Iterator[float]:
        if table.arrivals or table.sources:
            return iter(table.arrivals)
        return periodic(first_moment(table.offset, table.period, self._random[number]), table.period)

    # --- the run --------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> TableResult:
        """Process events until the scenario's end and report."""
        self._begin()
        events, loop, end = self._events, self.loop, self.scenario.horizon
        limit = self.scenario.events
        done = beside = 0
        now = 0.0
        while done < limit and (moment := events.run_next(end)) is not None:
            for start in loop.decide(moment):
                self._start(start, moment)
            if self._beside_done > beside:
                beside = self._beside_done
                continue
            now = moment
            done += 1
            if progress is not None and not done % _PROGRESS_EVERY:
                progress(done)
        nothing_left = done < limit or len(events) == self._beside_ahead
        return self._report(end if nothing_left and end < math.inf else now, done)

    def _begin(self) -> None:
        """What is so when the run begins."""
        for table in range(len(self._arrivals)):
            self._expect_arrival(table)

    def _at_beside(self, when: float, action: Callable[[float], None]) -> None:
        """Call ``action`` at a moment, with that, if something is to come after it. It is no event of the run."""
        self._beside_ahead += 1
        self._events.at(when, Rank.ARRIVAL, self._do_beside, action)

    def _do_beside(self, action: Callable[[float], None], now: float) -> None:
        self._beside_ahead -= 1
        self._beside_done += 1
        if len(self._events) > self._beside_ahead:
            action(now)

    def _expect_arrival(self, table: int) -> None:
        when = next(self._arrivals[table], math.inf)
        self._columns.set_next_release(table, when)
        if when < math.inf:
            self._events.at(when, Rank.ARRIVAL, self._arrive, table)

    def _arrive(self, table: int, now: float) -> None:
        self._offer(table, now - self.scenario.tables[table].delay, now)
        self._expect_arrival(table)

    def _offer(self, table: int, edge: float, now: float) -> None:
        """Data up to event time ``edge`` can be loaded into ``table`` from now on."""
        more = edge - self._available[table]
        if more <= 0:
            return
        self._available[table] = edge
        if self._lags is not None and not self._upstream[table]:
            self._lags.arrived(table, edge, now)
        self._note_waiting(table, more, now)
        chunks = self._chunks[table]
        chunks.append((edge, now))
        if len(chunks) == 1:
            self._release(table, now)
        self._refresh(table, now)

    def _release(self, table: int, now: float) -> None:
        """The next update of a table is released."""
        self._columns.set_release(table, now, self._chunks[table][0][1])
        if self._upstream[table]:
            self._columns.set_next_release(table, now + self._period[table])

    def _refresh(self, table: int, now: float) -> None:
        """Write what the policies read about a table after its data or its target moved."""
        pending = self._available[table] - self._target[table]
        if pending > 0:
            amount = min(pending, self._limit(table, pending))
            seconds = self._known_alpha[table] + self._known_beta[table] * amount
            self._columns.set_pending(table, pending, amount, seconds)
            if self._lags is not None:
                self._columns.waiting_since[table] = self._lags.since(table, self._target[table])
            self.loop.set_ready(table, table not in self._joined, now)
        else:
            self._columns.set_idle(table, self._known_alpha[table])
            self.loop.set_ready(table, False, now)

    def _start(self, start: Start, now: float) -> None:
        """Begin the job of a start: the update of its table, and of those that share it."""
        first, track = start.node, start.worker
        job = [first] if self._joint is None else self._job(start, now)
        self._joined.update(job[1:])
        portion = start.portion
        if len(job) > 1:  # all take in the same data, as in the warehouse
            portion = min(portion, *(self._limit(table, self._available[table] - self._target[table]) for table in job))
        runs = tuple([self._begin_update(table, now, portion, first) for table in job])
        self._running[track] = (now, runs)
        self._events.at(now + runs[0].duration, Rank.WORK, self._complete, track)

    def _job(self, start: Start, now: float) -> list[int]:
        """The tables of a job, the first of them the one that was chosen."""
        assert self._joint is not None
        ready, workers = self.matrix.columns["ready"], self.matrix.columns["workers"]
        offered = [
            table
            for table in self._joint.companions(start.node)
            if ready[table] and not workers[table] and self.loop.allows(table, start.worker)
        ]
        if not offered or self.scenario.together == "always":
            return [start.node, *offered]
        offered = self.loop.joining(start.node, offered, now)
        return list(self._joint.choose(start.node, offered, self._believed.shared_setup).members)

    def _begin_update(self, table: int, now: float, portion: float, first: int) -> TableRun:
        """Take in what waits for a table, or as much of it as one update may; ``first`` has set up its job."""
        chunks = self._chunks[table]
        came = last = chunks[0][1]
        waited = len(chunks)
        pending = self._available[table] - self._target[table]
        # What is left over by rounding only is not left over.
        most = min(portion, self._limit(table, pending))
        whole = pending <= most * _ROUNDING
        amount = pending if whole else most
        if self._left:
            self._left[table] = pending - amount
        self._target[table] = self._available[table] if whole else self._target[table] + amount
        while chunks and chunks[0][0] <= self._target[table]:
            last = chunks.popleft()[1]
        if chunks:
            self._columns.head_time[table] = chunks[0][1]
        self._longest_wait[table] = max(self._longest_wait[table], now - came)
        self._note_waiting(table, -amount, now)
        self._refresh(table, now)
        duration, left = self._duration(table, amount, now, first), len(chunks)
        return TableRun(table, amount, duration, came, last, waited - left, left)

    def _limit(self, table: int, pending: float) -> float:
        """How much of what is pending an update may take in."""
        if not self._left:
            return self._most[table]
        alpha, beta, budget = self._known_alpha[table], self._known_beta[table], self.scenario.budget
        within, stretched = fits(alpha, beta, budget), fits(alpha, beta, STRETCH * budget)
        return min(self._most[table], keeping_up(within, stretched, pending, self._left[table]))

    def _duration(self, table: int, amount: float, now: float, first: int) -> float:
        duration = self._alpha[table] + self._beta[table] * amount
        if table != first:
            duration -= self.scenario.shared_setup * min(self._alpha[table], self._alpha[first])
        if self.scenario.spread is not None:
            duration *= self.scenario.spread + self._random[table].random()
        if self.scenario.slowdown is not None:
            duration = self.scenario.slowdown.lasts(duration, now)
        return duration

    def _complete(self, track: int, now: float) -> None:
        started, (run, *after) = self._running.pop(track)
        table = run.table
        self._busy_track[track] += now - started
        self._busy_table[table] += run.duration
        self._updates[table] += 1
        self._latency.add(now - run.came)
        self._meters[table].refresh(now, self._target[table])
        if self._lags is not None:
            self._lags.completed(table, self._target[table], now)
        if run.left:  # as in the warehouse, or tables with a backlog would always be those that were released first
            self._release(table, now)
        if after:
            self._running[track] = (now, tuple(after))
            self._events.at(now + after[0].duration, Rank.WORK, self._complete, track)
        else:
            self.loop.finished(track, now)
        if table in self._joined:
            self._joined.discard(table)
            self._refresh(table, now)
        for dependent in self._downstream[table]:
            self._offer(dependent, min(self._meters[s].fresh for s in self._upstream[dependent]), now)

    def _note_waiting(self, table: int, more: float, now: float) -> None:
        """Data came to wait for ``table``, or with a negative number left the queue."""
        for source in self._upstream[table]:
            self._columns.output_pending[source] += more
            self.loop.note_change(source)
        self._waiting_area += self._waiting * (now - self._waiting_since)
        self._waiting_since = now
        self._waiting += more
        self._waiting_max = max(self._waiting_max, self._waiting)

    # --- change while running -------------------------------------------------------------------------------

    def change_settings(
        self,
        policy: Policy | None = None,
        placement: Placement | None = None,
        tracks: int | None = None,
        priorities: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Go on with other settings, as after a change by a user; those that are left out stay.

        ``priorities`` are by table. What is reported counts with the stated ones all the same.
        """
        loop, before = self.loop, self._believed
        if tracks is not None:
            loop.set_workers(Workers.of(tracks))
            self._busy_track += [0.0] * (tracks - len(self._busy_track))
        if placement is not None:
            loop.replace_placement(placement)
        if policy is not None:
            loop.replace_policy(policy)
        tables = tuple(replace(table, priority=priorities.get(table.name, table.priority)) for table in before.tables)
        self._believed = replace(before, tables=tables, tracks=len(loop.workers))
        self._fill_ranks(loop.answers.inheritance)
        for number in range(len(tables)):
            loop.note_change(number)

    # --- the report -----------------------------------------------------------------------------------------

    def _report(self, end: float, events: int) -> TableResult:
        for track, (started, runs) in self._running.items():
            self._busy_track[track] += end - started
            self._busy_table[runs[0].table] += end - started
        for meter in self._meters:
            meter.advance(end)
        self._waiting_area += self._waiting * (end - self._waiting_since)
        lags = {} if self._lags is None else self._lags.meters_at(end)
        length = max(end, 1e-12)
        outcomes = tuple(
            TableOutcome(
                name=table.name,
                priority=table.priority,
                mean_staleness=meter.area / max(meter.seconds, 1e-12),
                max_staleness=meter.maximum,
                updates=self._updates[i],
                longest_wait=self._longest_wait[i],
                utilisation=self._busy_table[i] / length,
                target_lag=table.target_lag,
                max_lag=lags[i].maximum if i in lags else None,
                target_met=lags[i].target_met if i in lags else None,
            )
            for i, (table, meter) in enumerate(zip(self.scenario.tables, self._meters, strict=True))
        )
        return TableResult(
            scenario=self.scenario.name,
            policy=self.loop.answers.text,
            placement=text_of(self.loop.placement),
            seed=self.seed,
            events=events,
            seconds=end,
            weighted_staleness=sum(outcome.priority * outcome.mean_staleness for outcome in outcomes),
            latency=self._latency.summary(),
            queue_mean=self._waiting_area / length,
            queue_max=self._waiting_max,
            worker_utilisation=tuple(busy / length for busy in self._busy_track),
            guard_strikes=self.loop.statistics().guard_strikes,
            tables=outcomes,
            targets_met=None if self._lags is None else self._lags.together(end),
        )


def simulate_tables(
    scenario: TableScenario,
    policy: Policy,
    placement: Placement,
    seed: int = 0,
    progress: Progress | None = None,
    believed: TableScenario | None = None,
) -> TableResult:
    """Run ``scenario`` once; the same seed gives the same result, number for number.

    ``believed`` is the same scenario with the costs that the policy goes by, if these are not the true ones.
    """
    return TableSimulation(scenario, policy, placement, seed, believed).run(progress)


def simulate_without_waiting(scenario: TableScenario, policy: Policy, seed: int = 0) -> TableResult:
    """The same run on a track for every table: every update starts when it is released.

    Relative lateness is weighted staleness divided by that of this run.
    """
    unlimited = replace(scenario, tracks=len(scenario.tables), guard=False)
    return simulate_tables(unlimited, policy, Anywhere(), seed)
