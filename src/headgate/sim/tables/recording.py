"""A simulation that records itself as a warehouse would: every update, as it is in a trace."""

from __future__ import annotations

import math
from collections.abc import Callable

from headgate.core import Placement, Policy, Start, Update
from headgate.core.joint import AUTO, DECLARED
from headgate.core.trace import TraceHeader, TraceTable
from headgate.core.trace.measures import MICROS
from headgate.sim.tables.scenario import Table, TableScenario
from headgate.sim.tables.simulation import TableSimulation


class RecordingSimulation(TableSimulation):
    """Tells ``note`` of every update: when its data came, how far it reached, and how long it took.

    ``start`` is when the run begins, in seconds since the epoch. Unless somebody else wants them, ``records`` has all.
    """

    def __init__(
        self,
        scenario: TableScenario,
        policy: Policy,
        placement: Placement,
        seed: int,
        start: float = 0.0,
    ) -> None:
        super().__init__(scenario, policy, placement, seed)
        self.start_time = start
        self.records: list[Update] = []
        self.note: Callable[[Update], None] = self.records.append
        #: {track: the tables that share its job, if there are several}
        self._jobs: dict[int, tuple[str, ...]] = {}

    def header(self) -> TraceHeader:
        """How the run begins."""
        scenario, stated = self.scenario, self.scenario.stated_inheritance
        return TraceHeader(
            warehouse=scenario.name,
            started=self.start_time,
            tracks=scenario.tracks,
            policy=self.loop.answers.text,
            placement=str(self.loop.placement),
            inheritance="default" if stated is None else str(stated),
            chop=None if scenario.chop == math.inf else scenario.chop,
            tables=tuple(_traced(table, self.start_time) for table in scenario.tables),
            budget=None if scenario.budget == math.inf else scenario.budget,
            together=AUTO if scenario.sharing() else DECLARED,
        )

    def _start(self, start: Start, now: float) -> None:
        super()._start(start, now)
        job = tuple(self.scenario.tables[run.table].name for run in self._running[start.worker][1])
        self._jobs[start.worker] = job if len(job) > 1 else ()

    def _complete(self, track: int, now: float) -> None:
        began, (run, *_) = self._running[track]
        declared, reached, start = self.scenario.tables[run.table], self._target[run.table], self.start_time
        self.note(
            Update(
                table=declared.name,
                track=track,
                released=start + run.came,
                began=start + began,
                seconds=now - began,
                gained=run.amount,
                freshness=round((start + reached) * MICROS),
                arrived=None if declared.sources else (start + run.came, start + run.last, max(1, run.chunks)),
                together=self._jobs[track],
                status="committed",
            )
        )
        super()._complete(track, now)


def _traced(table: Table, start: float) -> TraceTable:
    return TraceTable(
        name=table.name,
        sources=table.sources,
        period=table.period or None,
        priority=table.priority,
        importance_class=table.importance_class,
        patience=table.patience,
        target_lag=table.target_lag,
        kind="table" if table.sources else "stream",
        freshness=round(start * MICROS),
    )
