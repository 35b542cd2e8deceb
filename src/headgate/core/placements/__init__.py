"""The placements that come with Headgate, in the order in which they are listed."""

from __future__ import annotations

from headgate.core.placement import Placement
from headgate.core.placements.by_length import ByLength
from headgate.core.placements.edf_partitioned import EdfPartitioned, Track
from headgate.core.placements.layered import LayeredPlacement
from headgate.core.placements.proportional import Cluster, ClusterShare, Proportional
from headgate.core.placements.spread import Anywhere, ByNode, LeastLoaded, RandomWorker, RoundRobinQueries

SHIPPED: tuple[type[Placement], ...] = (
    Anywhere,
    RandomWorker,
    RoundRobinQueries,
    LeastLoaded,
    ByNode,
    EdfPartitioned,
    Proportional,
    ByLength,
)

__all__ = [
    "SHIPPED",
    "Anywhere",
    "ByLength",
    "ByNode",
    "Cluster",
    "ClusterShare",
    "EdfPartitioned",
    "LayeredPlacement",
    "LeastLoaded",
    "Proportional",
    "RandomWorker",
    "RoundRobinQueries",
    "Track",
]
