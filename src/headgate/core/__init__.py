"""The scheduling core: what runs next, where, and how much of it.

Standard library and NumPy only. No clock, no thread, no I/O: time and chance are passed in, and decisions come out as
data. The same code runs in the simulator and in the engines.

Import from here, from ``headgate.core.policies``, ``headgate.core.placements`` and ``headgate.core.trace``. All other
modules below are internal: their names may change from one version to the next.
"""

from headgate.core.consumption import AtMost, Consumption, TimeSlice, consumption_from
from headgate.core.cost import LEAST_UPDATE_TIME, MOST_SECONDS, STRETCH, CostModel, fits, keeping_up
from headgate.core.dispatch import LOOP_FEATURES, Dispatch, DispatchStatistics
from headgate.core.errors import (
    DeclarationError,
    GraphError,
    HeadgateError,
    InvariantError,
    MissingFeatureError,
    ParameterError,
    ScenarioError,
    SchedulerMisuseError,
    UnknownNameError,
    UserCodeError,
    said_by,
    user_error,
)
from headgate.core.explain import Decision, DispatchExplanation, Explanation, Ranked, RoundsExplanation
from headgate.core.features import FEATURES, MOST_CLASS, ChangedBy, Feature, features_named
from headgate.core.graph import Floats, Graph, Ints, uniform
from headgate.core.inheritance import (
    MOST_PRIORITY,
    Inheritance,
    InheritanceRule,
    PeriodReading,
    derive_periods,
    inherit_priorities,
    inheritance_from,
    inheritance_in_force,
    work_per_second,
)
from headgate.core.joint import (
    JointChoice,
    JointJobs,
    SharedSetup,
    Together,
    WaitingUpdate,
    choose_together,
    together_from,
)
from headgate.core.latency import LatencyRecorder, LatencySummary
from headgate.core.locality import FifoStealScheduler, LocalityScheduler
from headgate.core.loop import Loop, LoopStatistics, Start
from headgate.core.matrix import FeatureMatrix, FeatureView, in_view
from headgate.core.observe import (
    PATIENCE_PERIODS,
    TABLE_FEATURES,
    OperatorColumns,
    OperatorFacts,
    TableColumns,
    operator_features,
    operator_readings,
)
from headgate.core.placement import MOST_TRACKS, Lane, Lanes, Placement, Workers
from headgate.core.policies.classes import BACKFILL, LIVE, MAINTENANCE, URGENT, Layered
from headgate.core.policy import Policy, WrappingPolicy, answers_of, rank, text_of, vet
from headgate.core.registry import PLACEMENTS, POLICIES, placement_from, policy_from
from headgate.core.rounds import NewRound, Rounds, RoundsStatistics
from headgate.core.staleness import ArrivalLog, LagMeter, StalenessMeter, is_past, waiting_since
from headgate.core.target_plan import (
    TargetDemand,
    TargetHelp,
    TargetPlan,
    help_lines,
    impossible_line,
    plan_lines,
    plan_targets,
    without_help,
)
from headgate.core.targets import TargetTables, fill_targets
from headgate.core.update import Layer, OperatorFigures, Update, added_up, first_line, node_name
from headgate.core.worklist import Reschedule, RoundsConfig, Wait

__all__ = [
    "BACKFILL",
    "FEATURES",
    "LEAST_UPDATE_TIME",
    "LIVE",
    "LOOP_FEATURES",
    "MAINTENANCE",
    "MOST_CLASS",
    "MOST_PRIORITY",
    "MOST_SECONDS",
    "MOST_TRACKS",
    "PATIENCE_PERIODS",
    "PLACEMENTS",
    "POLICIES",
    "STRETCH",
    "TABLE_FEATURES",
    "URGENT",
    "ArrivalLog",
    "AtMost",
    "ChangedBy",
    "Consumption",
    "CostModel",
    "Decision",
    "DeclarationError",
    "Dispatch",
    "DispatchExplanation",
    "DispatchStatistics",
    "Explanation",
    "Feature",
    "FeatureMatrix",
    "FeatureView",
    "FifoStealScheduler",
    "Floats",
    "Graph",
    "GraphError",
    "HeadgateError",
    "Inheritance",
    "InheritanceRule",
    "Ints",
    "InvariantError",
    "JointChoice",
    "JointJobs",
    "LagMeter",
    "Lane",
    "Lanes",
    "LatencyRecorder",
    "LatencySummary",
    "Layer",
    "Layered",
    "LocalityScheduler",
    "Loop",
    "LoopStatistics",
    "MissingFeatureError",
    "NewRound",
    "OperatorColumns",
    "OperatorFacts",
    "OperatorFigures",
    "ParameterError",
    "PeriodReading",
    "Placement",
    "Policy",
    "Ranked",
    "Reschedule",
    "Rounds",
    "RoundsConfig",
    "RoundsExplanation",
    "RoundsStatistics",
    "ScenarioError",
    "SchedulerMisuseError",
    "SharedSetup",
    "StalenessMeter",
    "Start",
    "TableColumns",
    "TargetDemand",
    "TargetHelp",
    "TargetPlan",
    "TargetTables",
    "TimeSlice",
    "Together",
    "UnknownNameError",
    "Update",
    "UserCodeError",
    "Wait",
    "WaitingUpdate",
    "Workers",
    "WrappingPolicy",
    "added_up",
    "answers_of",
    "choose_together",
    "consumption_from",
    "derive_periods",
    "features_named",
    "fill_targets",
    "first_line",
    "fits",
    "help_lines",
    "impossible_line",
    "in_view",
    "inherit_priorities",
    "inheritance_from",
    "inheritance_in_force",
    "is_past",
    "keeping_up",
    "node_name",
    "operator_features",
    "operator_readings",
    "placement_from",
    "plan_lines",
    "plan_targets",
    "policy_from",
    "rank",
    "said_by",
    "text_of",
    "together_from",
    "uniform",
    "user_error",
    "vet",
    "waiting_since",
    "without_help",
    "work_per_second",
]
