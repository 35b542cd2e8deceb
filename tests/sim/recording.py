"""Traces of runs that are known to the last detail: a simulation that records itself as a warehouse would."""

from __future__ import annotations

from headgate.core.registry import placement_from, policy_from
from headgate.core.trace import Trace
from headgate.sim import Table, TableResult, TableScenario
from headgate.sim.tables.recording import RecordingSimulation

#: when all these runs begin, by the wall clock
START = 1_794_736_800.0
#: more than one track can do
BUSY = TableScenario(
    tables=(
        Table("air", period=1.0, priority=10.0, setup_time=0.4, time_per_unit=0.1),
        Table("meters", period=1.0, priority=1.0, setup_time=0.6, time_per_unit=0.1),
        Table("alerts", sources=("air",), priority=20.0, setup_time=0.3, time_per_unit=0.0),
    ),
    tracks=1,
    horizon=60.0,
    events=1000,
)


def recorded(
    scenario: TableScenario, policy: str, placement: str = "anywhere", seed: int = 0
) -> tuple[TableResult, Trace]:
    """A run of ``scenario``, with the trace that it would have left."""
    simulation = RecordingSimulation(scenario, policy_from(policy), placement_from(placement), seed, START)
    header = simulation.header()
    result = simulation.run()
    return result, Trace(header, tuple(simulation.records), (), START + result.seconds)
