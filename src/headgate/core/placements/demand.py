"""How much of a worker each node needs, as far as its features tell.

Two measures. A *job* (Golab et al., 2.4 and 3.2.1) loads the data of one period P every period, which takes
E(P) = alpha + beta P and so keeps a worker busy for the fraction u = E(P) / P. The *load* of a node is whatever
best says how much work it is at this engine. Neither knows of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.graph import Floats, Ints
from headgate.core.matrix import FeatureView

#: the features that jobs are made of
JOB_FEATURES = ("period", "setup_time", "time_per_unit")

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """The nodes in view as periodic jobs, one entry per node in each array.

    A node whose period is not known (0, or not finite) is taken to have one without end: its execution time is
    the set-up time alone and its utilisation 0, so it takes no share from nodes of which more is known.
    """

    #: P, never 0; infinite if not known
    period: Floats
    #: E(P), finite and never negative
    execution: Floats
    #: u = E(P) / P
    utilisation: Floats
    #: rank by name, the last word between equals
    tie: Ints

    @classmethod
    def of(cls, view: FeatureView) -> Jobs:
        stated = view["period"]
        known = np.isfinite(stated) & (stated > 0)
        period = np.where(known, stated, np.inf)
        execution = view["setup_time"] + view["time_per_unit"] * np.where(known, stated, 0.0)
        # fits through few observations can come out below zero, or as no number at all
        execution = np.fmax(execution, 0.0)
        return cls(period, execution, execution / period, in_view(view, view.graph.tie))

    def __len__(self) -> int:
        return len(self.period)

    def by_period(self) -> Ints:
        """Shortest period first; between equals the shorter execution time, then the name."""
        return np.lexsort((self.tie, self.execution, self.period))

    def by_execution(self) -> Ints:
        """Shortest execution time first; between equals the shorter period, then the name."""
        return np.lexsort((self.tie, self.period, self.execution))


def load(view: FeatureView) -> Floats:
    """The load of every node in view, by the first of these that the engine has the features for.

    1. ``cost * pending``: seconds to work off what waits now.
    2. The utilisation of the node's job.
    3. 1: every node counts the same.
    """
    if "cost" in view and "pending" in view:
        return np.fmax(view["cost"] * view["pending"], 0.0)
    if all(feature in view for feature in JOB_FEATURES):
        return Jobs.of(view).utilisation
    return np.ones(len(view))


def in_view(view: FeatureView, per_node: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The entries of an array over the whole graph that belong to the nodes in view."""
    return per_node if view.rows is None else per_node[view.rows]


def names_in_view(view: FeatureView) -> tuple[str, ...]:
    names = view.graph.names
    return names if view.rows is None else tuple(names[i] for i in view.rows)
