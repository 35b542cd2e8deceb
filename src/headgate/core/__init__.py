"""The scheduling core: what runs next, where, and how much of it.

Standard library and NumPy only. No clock, no thread, no I/O: time and chance are passed in, and decisions come out as
data. The same code runs in the simulator and in the engines.

Import from here, from ``headgate.core.policies``, ``headgate.core.placements`` and ``headgate.core.trace``. All other
modules below are internal: their names may change from one version to the next.
"""

from headgate.core.consumption import Consumption, consumption_from
from headgate.core.dispatch import LOOP_FEATURES, Dispatch, DispatchStatistics
from headgate.core.errors import (
    DeclarationError,
    GraphError,
    HeadgateError,
    InvariantError,
    MissingFeatureError,
    ParameterError,
    UnknownNameError,
    UserCodeError,
)
from headgate.core.explain import Decision, DispatchExplanation, Explanation, Ranked, RoundsExplanation
from headgate.core.features import FEATURES, ChangedBy, Feature, features_named
from headgate.core.graph import Floats, Graph, Ints, uniform
from headgate.core.inheritance import derive_periods, inherit_priorities
from headgate.core.locality import FifoStealScheduler, LocalityScheduler
from headgate.core.loop import Loop, LoopStatistics, Start
from headgate.core.matrix import FeatureMatrix, FeatureView, in_view
from headgate.core.placement import Lane, Lanes, Placement, Workers
from headgate.core.policy import Policy, rank
from headgate.core.registry import placement_from, policy_from
from headgate.core.rounds import NewRound, Rounds, RoundsStatistics
from headgate.core.worklist import Reschedule, RoundsConfig, Wait

__all__ = [
    "FEATURES",
    "LOOP_FEATURES",
    "ChangedBy",
    "Consumption",
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
    "Ints",
    "InvariantError",
    "Lane",
    "Lanes",
    "LocalityScheduler",
    "Loop",
    "LoopStatistics",
    "MissingFeatureError",
    "NewRound",
    "ParameterError",
    "Placement",
    "Policy",
    "Ranked",
    "Reschedule",
    "Rounds",
    "RoundsConfig",
    "RoundsExplanation",
    "RoundsStatistics",
    "Start",
    "UnknownNameError",
    "UserCodeError",
    "Wait",
    "Workers",
    "consumption_from",
    "derive_periods",
    "features_named",
    "in_view",
    "inherit_priorities",
    "placement_from",
    "policy_from",
    "rank",
    "uniform",
]
