"""What a node takes over from its neighbours: priority from its dependents, period from its sources.

A view of high priority over a table of low priority is only as fresh as that table, so sources inherit the
priority of what is built on them (Golab et al., section 3.3). Applied to the whole graph before a policy ranks.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from headgate.core.errors import ParameterError
from headgate.core.graph import Floats, Graph

Inheritance = Literal["none", "sum", "max", "max-plus"]
PeriodReading = Literal["ancestors", "descendants"]

#: the highest priority that may be stated; what is computed from priorities stays a finite number
MOST_PRIORITY = 1e12


def inherit_priorities(graph: Graph, priority: Floats, mode: Inheritance = "max", k: float = 2.0) -> Floats:
    """Priorities after inheritance.

    ``none``      as stated.
    ``sum``       the sum over the node and all of its direct and indirect dependents, each counted once.
    ``max``       the largest among the node and all of its dependents.
    ``max-plus``  like max, but each step from dependent to source multiplies by ``k`` > 1. The paper's sentence
                  ("K times the maximum, including itself") taken for every table alike would only scale all
                  priorities; applied step by step it does what the paper says of it: it lifts base tables, the
                  more so the longer the chain above them.
    """
    if mode not in get_args(Inheritance):
        raise ParameterError(f"inheritance must be one of {', '.join(get_args(Inheritance))}; got {mode!r}")
    if mode == "max-plus" and not k > 1:
        raise ParameterError(f"inheritance max-plus needs k > 1; got k={k}")
    inherited = np.array(priority, dtype=np.float64)
    if mode == "none":
        return inherited
    if mode == "sum":
        for node in range(len(graph)):
            inherited[node] += sum(priority[d] for d in graph.dependents(node))
        return inherited
    factor = k if mode == "max-plus" else 1.0
    for level in graph.from_sinks[1:]:
        best = np.maximum.reduceat(inherited[level.neighbours], level.starts)
        inherited[level.nodes] = np.maximum(inherited[level.nodes], factor * best)
    return inherited


def derive_periods(graph: Graph, period: Floats, reading: PeriodReading = "ancestors") -> Floats:
    """The period of every node, those of the sources being given.

    Golab et al. say twice what the period of a derived table is, and not the same. ``ancestors`` (section 2.4,
    the default): the largest period of the tables it is built from, which is how often it can really change.
    ``descendants`` (section 3.1): the largest period, so found, among the tables built on it; itself if there are
    none.
    """
    if reading not in get_args(PeriodReading):
        raise ParameterError(f"a period reading is one of {', '.join(get_args(PeriodReading))}; got {reading!r}")
    derived = np.array(period, dtype=np.float64)
    for level in graph.from_sources[1:]:
        derived[level.nodes] = np.maximum.reduceat(derived[level.neighbours], level.starts)
    if reading == "ancestors":
        return derived
    widest = derived.copy()
    for level in graph.from_sinks[1:]:
        widest[level.nodes] = np.maximum(
            derived[level.nodes], np.maximum.reduceat(widest[level.neighbours], level.starts)
        )
    widest[graph.sources] = derived[graph.sources]
    return widest
