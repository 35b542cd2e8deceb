"""The policies that come with Headgate, in the order in which they are listed."""

from __future__ import annotations

from headgate.core.policies.arrival import FirstCome, LongestQueue, RandomChoice, ReleaseOrder, RoundRobin
from headgate.core.policies.aurora import MinCost, MinLatency, MinMemory
from headgate.core.policies.auto import Autopilot
from headgate.core.policies.chain import Chain
from headgate.core.policies.classes import Layered, MultiClass, WeightedClasses
from headgate.core.policies.ordered import EstimatedTime, LastInPipeline, LowestThroughput, QueueThrottle
from headgate.core.policies.priced import PricedBenefit
from headgate.core.policies.rates import HighestRate, LongestStretch, RateBased
from headgate.core.policies.tables import (
    EarliestDeadline,
    Lookahead,
    MaxBenefit,
    MaxBenefitLookahead,
    PriorityDeadline,
    look_ahead,
)
from headgate.core.policies.targets import TargetLag
from headgate.core.policy import Policy

SHIPPED: tuple[type[Policy], ...] = (
    FirstCome,
    HighestRate,
    RateBased,
    Chain,
    MultiClass,
    LongestStretch,
    WeightedClasses,
    MinCost,
    MinLatency,
    MinMemory,
    LongestQueue,
    QueueThrottle,
    LastInPipeline,
    EstimatedTime,
    LowestThroughput,
    EarliestDeadline,
    PriorityDeadline,
    MaxBenefit,
    MaxBenefitLookahead,
    PricedBenefit,
    TargetLag,
    Autopilot,
    RoundRobin,
    RandomChoice,
    ReleaseOrder,
)

__all__ = [
    "SHIPPED",
    "Autopilot",
    "Chain",
    "EarliestDeadline",
    "EstimatedTime",
    "FirstCome",
    "HighestRate",
    "LastInPipeline",
    "Layered",
    "LongestQueue",
    "LongestStretch",
    "Lookahead",
    "LowestThroughput",
    "MaxBenefit",
    "MaxBenefitLookahead",
    "MinCost",
    "MinLatency",
    "MinMemory",
    "MultiClass",
    "PricedBenefit",
    "PriorityDeadline",
    "QueueThrottle",
    "RandomChoice",
    "RateBased",
    "ReleaseOrder",
    "RoundRobin",
    "TargetLag",
    "WeightedClasses",
    "look_ahead",
]
