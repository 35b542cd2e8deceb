"""A recorded run as it was measured, and beside it the same run under other policies, placements and tracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headgate.core.latency import LatencyRecorder, LatencySummary
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.core.trace import track_use
from headgate.sim.compare import NodeRow
from headgate.sim.tables.result import TableResult
from headgate.sim.trace_file import Replay


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """How a run went or would have gone. What cannot be told from a trace is None where it was measured."""

    run: Literal["measured", "simulated"]
    policy: str
    placement: str
    tracks: int
    seconds: float
    weighted_staleness: float
    relative_lateness: float | None
    latency: LatencySummary
    updates: int
    track_utilisation: tuple[float, ...]
    guard_strikes: int | None
    tables: tuple[NodeRow, ...]


def compare_replay(
    replay: Replay, chosen: Sequence[tuple[Policy, Placement]], tracks: int | None = None, seed: int = 0
) -> Iterator[ReplayRow]:
    """The run as it was, then as it would have been under each of ``chosen``, on the tracks it had unless stated."""
    ideal = replay.without_waiting(seed).weighted_staleness
    yield _measured(replay, ideal)
    for policy, placement in chosen:
        yield _simulated(replay.run(policy, placement, tracks, seed), ideal)


def _measured(replay: Replay, ideal: float) -> ReplayRow:
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
        latency=latency.summary(),
        updates=sum(table.updates for table in found.tables),
        track_utilisation=track_use(trace, replay.skip),
        guard_strikes=None,
        tables=tuple(
            NodeRow(table.name, table.priority, table.utilisation, table.mean_staleness, table.max_staleness)
            for table in found.tables
        ),
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
        latency=result.latency,
        updates=sum(table.updates for table in result.tables),
        track_utilisation=result.worker_utilisation,
        guard_strikes=result.guard_strikes,
        tables=tuple(
            NodeRow(table.name, table.priority, table.utilisation, table.mean_staleness, table.max_staleness)
            for table in result.tables
        ),
    )


def _relative(weighted: float, ideal: float) -> float | None:
    return weighted / ideal if ideal > 0 else None
