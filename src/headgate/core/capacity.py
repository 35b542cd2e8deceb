"""How much a graph can take: EdgeWise's model of a topology as a queueing network (section 5.1).

A node i gets q(i) tuples for each tuple that enters, serves 1 / c(i) tuples per second when it runs, and runs on
average on w(i) of the C cores. It keeps up as long as ``q(i) rate < w(i) / c(i)``; the largest input rate is that of
the node which fails first, and it is highest when work is shared out so that all fail together:
w(i) proportional to q(i) / r(i).

The model knows means only: no queues, no bursts, no cost of scheduling. What it predicts is a ceiling. If there are
several sources, each of them is taken to get the same input rate.
"""

from __future__ import annotations

import numpy as np

from headgate.core.errors import ParameterError
from headgate.core.flow import at_least_a_moment, inflow
from headgate.core.graph import Floats, Graph


def input_scaling(graph: Graph, selectivity: Floats) -> Floats:
    """q: tuples that reach each node for one tuple entering at every source."""
    return inflow(graph, selectivity)


def relative_rates(graph: Graph, cost: Floats) -> Floats:
    """r: the service rate of each node compared with that of the first, ``r(i) = mu(i) / mu(0) = c(0) / c(i)``.

    The first node is the source whose name sorts first.
    """
    seconds = at_least_a_moment(cost)
    rates: Floats = seconds[np.argmin(graph.position)] / seconds if len(graph) else seconds
    return rates


def fair_weights(graph: Graph, cores: float, max_workers: float | Floats = 1.0) -> Floats:
    """w under an operating system that gives one thread per node the same share, but none more than it can use."""
    _check_cores(cores)
    return np.minimum(cores / max(len(graph), 1), _per_node(graph, max_workers))


def best_weights(
    graph: Graph, cost: Floats, selectivity: Floats, cores: float, max_workers: float | Floats = 1.0
) -> Floats:
    """w that allow the largest input rate: proportional to q / r, none above ``max_workers``, together ``cores``.

    What a node cannot use because it may not run on more workers goes to the others, in the same proportion. If all
    nodes are at their limits, or have nothing to do, the rest of the cores stays idle.
    """
    _check_cores(cores)
    demand = input_scaling(graph, selectivity) / relative_rates(graph, cost)
    return _share(demand, _per_node(graph, max_workers), cores)


def max_input_rate(
    graph: Graph, cost: Floats, selectivity: Floats, cores: float, weights: Floats | None = None
) -> float:
    """The largest rate, in tuples per second at every source, at which no queue grows without end.

    ``weights`` are the best ones unless given, for example ``fair_weights``. Infinite if nothing costs anything.
    """
    _check_cores(cores)
    shares = best_weights(graph, cost, selectivity, cores) if weights is None else weights
    if shares.sum() > cores * (1 + 1e-9):
        raise ParameterError(
            f"weights are numbers of cores and must not add up to more than cores={cores}; got {shares.sum():g}"
        )
    seconds = input_scaling(graph, selectivity) * cost
    busy = seconds > 0
    return float(np.min(shares[busy] / seconds[busy], initial=np.inf))


def _per_node(graph: Graph, values: float | Floats) -> Floats:
    return np.broadcast_to(np.asarray(values, dtype=np.float64), len(graph))


def _share(demand: Floats, limit: Floats, amount: float) -> Floats:
    """``min(limit, level * demand)`` with the level at which that adds up to ``amount``, or all limits."""
    with_demand = np.flatnonzero(demand > 0)
    full_at = limit[with_demand] / demand[with_demand]
    by_level = with_demand[np.argsort(full_at, kind="stable")]
    # If the first k nodes are at their limits, the others share what is left: at which level would that be?
    used = np.concatenate(([0.0], np.cumsum(limit[by_level])[:-1]))
    open_demand = np.cumsum(demand[by_level][::-1])[::-1]
    levels = (amount - used) / open_demand
    # The right k is the first whose level leaves the next node below its limit.
    right = np.flatnonzero(levels <= np.sort(full_at))
    level = levels[right[0]] if len(right) else np.inf
    shares = np.zeros(len(demand))
    shares[with_demand] = np.minimum(limit[with_demand], level * demand[with_demand])
    return shares


def _check_cores(cores: float) -> None:
    if not cores > 0:
        raise ParameterError(f"cores must be greater than 0; got {cores}")
