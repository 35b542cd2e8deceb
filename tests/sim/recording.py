"""Traces of runs that are known to the last detail: a simulation that records itself as a warehouse would."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import Trace, TraceHeader, TraceTable
from headgate.core.update import Update
from headgate.sim import Table, TableResult, TableScenario, TableSimulation

#: when all these runs begin, by the wall clock
START = 1_794_736_800.0


class RecordingSimulation(TableSimulation):
    """Notes every update: when its data came, how far it reached, and how long it took."""

    def __init__(self, scenario: TableScenario, policy: Policy, placement: Placement, seed: int) -> None:
        super().__init__(scenario, policy, placement, seed)
        self.records: list[Update] = []
        self._begun: dict[int, tuple[float, list[float]]] = {}

    def _start(self, table: int, track: int, now: float) -> None:
        before, waiting = self._target[table], list(self._chunks[table])
        super()._start(table, track, now)
        taken = [came for reaches, came in waiting if reaches <= self._target[table]]
        self._begun[track] = (before, taken)

    def _complete(self, track: int, now: float) -> None:
        table, released, began, _ = self._running[track]
        before, came = self._begun.pop(track)
        declared, reached = self.scenario.tables[table], self._target[table]
        self.records.append(
            Update(
                table=declared.name,
                layer="live",
                track=track,
                released=START + released,
                began=START + began,
                seconds=now - began,
                gained=reached - before,
                rows=round(10 * (reached - before)),
                rejected=0,
                freshness=round((START + reached) * 1e6),
                arrived=None if declared.sources else (START + came[0], START + came[-1], len(came)),
                overhead=0.0,
                error=None,
            )
        )
        super()._complete(track, now)


def recorded(
    scenario: TableScenario, policy: str, placement: str = "anywhere", seed: int = 0
) -> tuple[TableResult, Trace]:
    """A run of ``scenario``, with the trace that it would have left."""
    simulation = RecordingSimulation(scenario, policy_from(policy), placement_from(placement), seed)
    result = simulation.run()
    header = TraceHeader(
        warehouse="recorded",
        started=START,
        tracks=scenario.tracks,
        policy=policy,
        placement=placement,
        inheritance=scenario.inheritance,
        chop=None if scenario.chop == math.inf else scenario.chop,
        tables=_traced(scenario.tables),
        budget=None if scenario.budget == math.inf else scenario.budget,
    )
    return result, Trace(header, tuple(simulation.records), (), START + result.seconds)


def _traced(tables: Sequence[Table]) -> tuple[TraceTable, ...]:
    return tuple(
        TraceTable(
            name=table.name,
            sources=table.sources,
            period=table.period or None,
            priority=table.priority,
            importance_class=table.importance_class,
            patience=table.patience,
            kind="table" if table.sources else "stream",
            freshness=round(START * 1e6),
        )
        for table in tables
    )
