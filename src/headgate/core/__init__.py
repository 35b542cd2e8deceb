"""The scheduling core: what runs next, where, and how much of it.

Standard library and NumPy only. No clock, no thread, no I/O: time and chance are passed in, and decisions come out as
data. The same code runs in the simulator and in the engines.
"""

from headgate.core.features import FEATURES, ChangedBy, Feature
from headgate.core.graph import Graph
from headgate.core.matrix import FeatureMatrix, FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers
from headgate.core.policy import Policy, rank

__all__ = [
    "FEATURES",
    "ChangedBy",
    "Feature",
    "FeatureMatrix",
    "FeatureView",
    "Graph",
    "Lane",
    "Lanes",
    "Placement",
    "Policy",
    "Workers",
    "rank",
]
