"""One scenario, or one recorded run, under several policies, placements and loops, side by side.

Both grains come out as the same kind of row, so one table shows either. A recorded run stands beside what the simulator
says of it, as it was measured. Wall-clock time is measured here, around the simulation, and nowhere inside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from headgate.core import LatencyRecorder, LatencySummary, Placement, Policy
from headgate.core.autopilot import refuse_replay
from headgate.core.policies import Autopilot, MaxBenefit
from headgate.core.trace import MeasuredTable, track_use
from headgate.sim.operators.engine import simulate_operators
from headgate.sim.operators.scenario import LoopModel, OperatorScenario, ThreadsModel
from headgate.sim.run_bound import run_bound
from headgate.sim.tables.autopilot import simulate_autopilot
from headgate.sim.tables.bound import LowerBound, lower_bound
from headgate.sim.tables.scenario import TableScenario
from headgate.sim.tables.simulation import TableOutcome, TableResult, simulate_tables, simulate_without_waiting
from headgate.sim.trace_replay import TraceReplay

#: the run without waiting settles quickly, so fewer events than this are never needed for it
_IDEAL_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class Variant:
    """What to run a scenario under; ``loop`` only where the scenario has loops, and None is the scenario's own."""

    policy: Policy
    placement: Placement
    loop: LoopModel | None = None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A table or an operator of one run.

    ``utilisation`` of a table is the share of time it was being updated; of an operator EdgeWise's rho. ``staleness``
    is the mean in seconds of a table, None for an operator. ``target_met`` is the share of time in which its lag was
    within its target, None without one.
    """

    name: str
    priority: float | None
    utilisation: float
    staleness: float | None
    max_staleness: float | None
    target_lag: float | None = None
    target_met: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One variant's outcome. What a grain does not have is None; queues are in tuples, of tables in seconds of data.

    ``lower_bound`` is what no policy can beat in a run of that length, if it was asked for; a run of 0 s has none.
    """

    grain: Literal["tables", "operators"]
    loop: str
    policy: str
    placement: str
    relative_lateness: float | None
    weighted_staleness: float | None
    lower_bound: float | None
    latency: LatencySummary
    throughput: float
    queue_mean: float
    queue_max: float
    worker_utilisation: tuple[float, ...]
    nodes: tuple[NodeRow, ...]
    guard_strikes: int
    scheduling_share: float | None
    simulated_seconds: float
    events: int
    events_per_second: float
    #: of tables with target lags: the share of time in which all were within them, and the largest lag to target
    targets_met: float | None = None
    worst_ratio: float | None = None


def variants(
    scenario: TableScenario | OperatorScenario,
    policies: Sequence[Policy],
    placements: Sequence[Placement],
    loops: Sequence[LoopModel] = (),
) -> Iterator[Variant]:
    """Every combination once; the *threads* loop asks no policy, so it comes up a single time."""
    stated: Sequence[LoopModel | None] = loops or (None,)
    for loop in stated:
        effective = scenario.loop if loop is None and isinstance(scenario, OperatorScenario) else loop
        combinations = [(policy, placement) for policy in policies for placement in placements]
        for policy, placement in combinations[:1] if isinstance(effective, ThreadsModel) else combinations:
            yield Variant(policy, placement, loop)


def compare(
    scenario: TableScenario | OperatorScenario,
    chosen: Sequence[Variant],
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    bound: bool = False,
) -> Iterator[Compared]:
    """Run the scenario under each variant in turn.

    ``progress`` is called with the variants done and the events of the present one. With ``bound``, tables come with
    the lower bound of their weighted staleness.
    """
    if isinstance(scenario, OperatorScenario):
        for done, variant in enumerate(chosen):
            if progress is not None:
                progress(done, 0)
            yield _operators(scenario, variant, seed)
        return
    ideal = simulate_without_waiting(replace(scenario, events=min(scenario.events, _IDEAL_EVENTS)), MaxBenefit(), seed)
    least = bounds(scenario, seed)
    for done, variant in enumerate(chosen):
        row = _tables(scenario, variant, seed, ideal, progress, done)
        if bound and row.simulated_seconds > 0:
            row = replace(row, lower_bound=least(variant.policy, row.simulated_seconds).weighted_staleness)
        yield row


def bounds(
    scenario: TableScenario, seed: int = 0, portions: bool = False, certain: bool = False
) -> Callable[[Policy, float], LowerBound]:
    """The lower bound for a run under a policy that lasts so many seconds, by these two.

    ``portions`` is whether it is to hold for policies that cut updates, also beside one that does not, and ``certain``
    whether for every run. One bound takes as long as many runs, and is mostly that of several policies, so each is
    computed once.
    """

    @cache
    def least(tracks: int, seconds: float, cut: bool) -> LowerBound:
        return lower_bound(replace(scenario, tracks=tracks), seconds, seed=seed, portions=cut, certain=certain)

    def under(policy: Policy, seconds: float) -> LowerBound:
        # The autopilot may use more tracks than there are.
        tracks = max(scenario.tracks, policy.tracks) if isinstance(policy, Autopilot) else scenario.tracks
        return least(tracks, seconds, portions or scenario.cuts_under(policy))

    return under


def simulated(
    scenario: TableScenario,
    policy: Policy,
    placement: Placement,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> TableResult:
    """A scenario of tables under a policy, also if that is the autopilot."""
    if isinstance(policy, Autopilot):
        return simulate_autopilot(scenario, policy, placement, seed, progress).result
    return simulate_tables(scenario, policy, placement, seed, progress)


def _tables(
    scenario: TableScenario,
    variant: Variant,
    seed: int,
    ideal: TableResult,
    progress: Callable[[int, int], None] | None,
    done: int,
) -> Compared:
    report = None if progress is None else lambda events: progress(done, events)
    start = time.perf_counter()
    result = simulated(scenario, variant.policy, variant.placement, seed, report)
    wall = time.perf_counter() - start
    return Compared(
        grain="tables",
        loop="dispatch",
        policy=result.policy,
        placement=result.placement,
        relative_lateness=_relative(result.weighted_staleness, ideal.weighted_staleness),
        weighted_staleness=result.weighted_staleness,
        lower_bound=None,
        latency=result.latency,
        throughput=result.latency.count / result.seconds if result.seconds else 0.0,
        queue_mean=result.queue_mean,
        queue_max=result.queue_max,
        worker_utilisation=result.worker_utilisation,
        nodes=_table_rows(result.tables),
        guard_strikes=result.guard_strikes,
        scheduling_share=None,
        simulated_seconds=result.seconds,
        events=result.events,
        events_per_second=result.events / wall,
        targets_met=result.targets_met,
        worst_ratio=result.worst_ratio,
    )


def _table_rows(tables: Sequence[TableOutcome] | Sequence[MeasuredTable]) -> tuple[NodeRow, ...]:
    rows = []
    for table in tables:
        targets = (table.target_lag, table.target_met) if isinstance(table, TableOutcome) else (None, None)
        rows.append(
            NodeRow(table.name, table.priority, table.utilisation, table.mean_staleness, table.max_staleness, *targets)
        )
    return tuple(rows)


def _operators(scenario: OperatorScenario, variant: Variant, seed: int) -> Compared:
    changed = scenario if variant.loop is None else replace(scenario, loop=variant.loop)
    threads = isinstance(changed.loop, ThreadsModel)
    start = time.perf_counter()
    policy = None if threads else variant.policy
    result = simulate_operators(changed, policy, None if threads else variant.placement, seed)
    wall = time.perf_counter() - start
    priorities = _stated_priorities(scenario)
    events = result.arrived + result.runs
    return Compared(
        grain="operators",
        loop=result.loop,
        policy="-" if threads else result.policy,
        placement="-" if threads else result.placement,
        relative_lateness=None,
        weighted_staleness=None,
        lower_bound=None,
        latency=result.overall.latency,
        throughput=result.overall.throughput_in,
        queue_mean=result.overall.queued_mean,
        queue_max=float(result.overall.queued_max),
        worker_utilisation=result.worker_utilisation,
        nodes=tuple(NodeRow(node.name, priorities.get(node.name), node.rho, None, None) for node in result.nodes),
        guard_strikes=result.scheduling.guard_strikes,
        scheduling_share=result.scheduling.share,
        simulated_seconds=result.seconds,
        events=events,
        events_per_second=events / wall,
    )


def _stated_priorities(scenario: OperatorScenario) -> Mapping[str, float]:
    return {
        query.node_name(operator.name): query.priority if operator.priority is None else operator.priority
        for query in scenario.all_queries()
        for operator in query.operators
    }


# --- a recorded run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """How a run went or would have gone. What a trace does not tell is None where it was measured.

    ``lower_bound`` is what no policy could have beaten in the simulator, if it was asked for; of the measured run, what
    it could not have beaten itself: see ``run_bound``. There is none of the latter if there are unknown tables.
    """

    run: Literal["measured", "simulated"]
    policy: str
    placement: str
    tracks: int
    seconds: float
    weighted_staleness: float
    relative_lateness: float | None
    lower_bound: float | None
    latency: LatencySummary
    updates: int
    track_utilisation: tuple[float, ...]
    guard_strikes: int | None
    tables: tuple[NodeRow, ...]


def compare_replay(
    replay: TraceReplay,
    chosen: Sequence[tuple[Policy, Placement]],
    tracks: int | None = None,
    seed: int = 0,
    bound: bool = False,
) -> Iterator[ReplayRow]:
    """The run as it was, then as it would have been under each of ``chosen``, on the tracks it had unless stated."""
    for policy, _ in chosen:
        refuse_replay(policy)
    ideal = replay.without_waiting(seed).weighted_staleness
    own = run_bound(replay, everything=True).least if bound and not replay.unknown else None
    yield replace(_measured(replay, ideal), lower_bound=own)
    least = cache(replay.lower_bound)
    for policy, placement in chosen:
        row = _simulated(replay.run(policy, placement, tracks, seed), ideal)
        if bound:
            row = replace(row, lower_bound=least(tracks, replay.scenario.cuts_under(policy)).weighted_staleness)
        yield row


def _measured(replay: TraceReplay, ideal: float) -> ReplayRow:
    trace, begin = replay.trace, replay.begin
    found = replay.measured()
    latency = LatencyRecorder()
    for table in found.tables:
        for update in trace.updates_of(table.name):
            if update.ended > begin:
                latency.add(max(0.0, update.ended - update.released))
    return ReplayRow(
        run="measured",
        policy=trace.policy(begin),
        placement=replay.placement,
        tracks=trace.tracks(begin),
        seconds=found.seconds,
        weighted_staleness=found.weighted_staleness,
        relative_lateness=_relative(found.weighted_staleness, ideal),
        lower_bound=None,
        latency=latency.summary(),
        updates=sum(table.updates for table in found.tables),
        track_utilisation=track_use(trace, replay.skip),
        guard_strikes=None,
        tables=_table_rows(found.tables),
    )


def _simulated(result: TableResult, ideal: float) -> ReplayRow:
    return ReplayRow(
        run="simulated",
        policy=result.policy,
        placement=result.placement,
        tracks=len(result.worker_utilisation),
        seconds=result.seconds,
        weighted_staleness=result.weighted_staleness,
        relative_lateness=_relative(result.weighted_staleness, ideal),
        lower_bound=None,
        latency=result.latency,
        updates=sum(table.updates for table in result.tables),
        track_utilisation=result.worker_utilisation,
        guard_strikes=result.guard_strikes,
        tables=_table_rows(result.tables),
    )


def _relative(weighted: float, ideal: float) -> float | None:
    return weighted / ideal if ideal > 0 else None
