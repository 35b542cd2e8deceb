"""Virtual time: the loops, policies and placements of the core, run against modelled tables, operators and workers.

    >>> from headgate.core.registry import placement_from, policy_from
    >>> tables = (Table("events", period=1.0), Table("alarm", sources=("events",), priority=10.0))
    >>> scenario = TableScenario(tables, tracks=1, events=1000)
    >>> result = simulate_tables(scenario, policy_from("max-benefit"), placement_from("anywhere"))
    >>> [table.name for table in result.tables]
    ['events', 'alarm']

* Tables on tracks: write down a ``TableScenario`` and run it with ``simulate_tables``.
* Operators with queues, on a few workers: an ``OperatorScenario``, with ``simulate_operators``.
* The trace of a real run: ``replay_of`` makes it a ``TraceReplay``, which runs it again under any policy.
* ``simulate_autopilot`` runs a ``TableScenario`` under the policy ``auto``, which changes its settings meanwhile.
* ``lower_bound`` is the weighted staleness of a ``TableScenario`` that no policy can beat; ``run_bound`` is that of a
  recorded run.
* ``read_scenario`` reads a scenario from a TOML file; ``compare`` and ``compare_replay`` put several runs side by side.

Import from here: the modules below are internal.
"""

from headgate.core import CostModel
from headgate.sim.comparison import Compared, NodeRow, ReplayRow, Variant, compare, compare_replay, variants
from headgate.sim.kernel import (
    ArrivalPattern,
    BatchArrivals,
    BurstyArrivals,
    ConstantArrivals,
    EventQueue,
    PoissonArrivals,
    Rank,
    RecordedArrivals,
)
from headgate.sim.operators.engine import OperatorSimulation, simulate_operators
from headgate.sim.operators.results import OperatorResult
from headgate.sim.operators.scenario import (
    AddQuery,
    DispatchModel,
    LoopModel,
    OperatorModel,
    OperatorScenario,
    QueryModel,
    RemoveQuery,
    ReplacePlacement,
    ReplacePolicy,
    RoundsModel,
    ThreadsModel,
    chain,
)
from headgate.sim.run_bound import run_bound
from headgate.sim.scenario_file import ScenarioFile, loop_from, parse_scenario, read_scenario
from headgate.sim.tables.autopilot import AutopilotRun, simulate_autopilot
from headgate.sim.tables.bound import LowerBound, lower_bound
from headgate.sim.tables.scenario import Slowdown, Table, TableScenario
from headgate.sim.tables.simulation import (
    TableOutcome,
    TableResult,
    TableSimulation,
    simulate_tables,
    simulate_without_waiting,
)
from headgate.sim.trace_replay import TraceReplay, replay_of

__all__ = [
    "AddQuery",
    "ArrivalPattern",
    "AutopilotRun",
    "BatchArrivals",
    "BurstyArrivals",
    "Compared",
    "ConstantArrivals",
    "CostModel",
    "DispatchModel",
    "EventQueue",
    "LoopModel",
    "LowerBound",
    "NodeRow",
    "OperatorModel",
    "OperatorResult",
    "OperatorScenario",
    "OperatorSimulation",
    "PoissonArrivals",
    "QueryModel",
    "Rank",
    "RecordedArrivals",
    "RemoveQuery",
    "ReplacePlacement",
    "ReplacePolicy",
    "ReplayRow",
    "RoundsModel",
    "ScenarioFile",
    "Slowdown",
    "Table",
    "TableOutcome",
    "TableResult",
    "TableScenario",
    "TableSimulation",
    "ThreadsModel",
    "TraceReplay",
    "Variant",
    "chain",
    "compare",
    "compare_replay",
    "loop_from",
    "lower_bound",
    "parse_scenario",
    "read_scenario",
    "replay_of",
    "run_bound",
    "simulate_autopilot",
    "simulate_operators",
    "simulate_tables",
    "simulate_without_waiting",
    "variants",
]
