"""Path arithmetic: what lies before and after every node of a graph, for all nodes at once.

The sums and products that policies share. Each takes one number per node of the graph, in the order of the graph,
and works level by level, so a Python loop is as long as the longest path and not as the list of nodes. Nothing
here knows queues, workers or time.
"""

from __future__ import annotations

import numpy as np

from headgate.core.graph import Floats, Graph, Level

#: Seconds. A cost or time that was measured as 0 counts as this much, so that rates stay finite.
LEAST_TIME = 1e-12


def at_least_a_moment(seconds: Floats) -> Floats:
    """``seconds``, with everything below ``LEAST_TIME`` raised to it: safe to divide by."""
    return np.maximum(seconds, LEAST_TIME)


def downstream_sums(graph: Graph, own: Floats, factor: Floats) -> Floats:
    """X(i) = own(i) + factor(i) * (the sum of X over the nodes that i feeds).

    ``own`` and ``factor`` are flat, or ``own`` has one column per sum wanted and ``factor`` a single one.
    """
    total = own.astype(np.float64)
    for level in graph.from_sinks[1:]:
        total[level.nodes] += factor[level.nodes] * _per_node(np.add, total, level)
    return total


def inflow(graph: Graph, selectivity: Floats) -> Floats:
    """Tuples that reach each node for one tuple entering at every source (EdgeWise's ``q``).

    Where streams meet, their flows add up; where a stream forks, each branch gets all of it.
    """
    arriving = np.zeros(len(graph))
    arriving[graph.sources] = 1.0
    for level in graph.from_sources[1:]:
        arriving[level.nodes] = _per_node(np.add, arriving * selectivity, level)
    return arriving


def cumulative_selectivity(graph: Graph, selectivity: Floats) -> Floats:
    """Tuples that leave each node for one tuple entering at every source; along a chain, the product so far."""
    return inflow(graph, selectivity) * selectivity


def output_rate(graph: Graph, cost: Floats, selectivity: Floats) -> Floats:
    """Result tuples per second of work, if a node and everything after it ran: GS / GC.

    GS(i) = s(i) * sum of GS over the nodes that i feeds, and 1 at a sink: result tuples that one input tuple becomes.
    GC(i) = c(i) + s(i) * sum of GC over the nodes that i feeds: seconds of work that it takes.
    """
    own = np.empty((len(graph), 2))
    own[:, 0] = graph.is_sink
    own[:, 1] = at_least_a_moment(cost)
    both = downstream_sums(graph, own, selectivity[:, np.newaxis])
    rate: Floats = both[:, 0] / both[:, 1]
    return rate


def longest_path(graph: Graph, length: Floats) -> Floats:
    """The length of the longest path from a source to a sink through each node, lengths of its nodes added up."""
    return _longest_before(graph.from_sources, length) + length + _longest_before(graph.from_sinks, length)


def _longest_before(levels: tuple[Level, ...], length: Floats) -> Floats:
    before = np.zeros(len(length))
    for level in levels[1:]:
        before[level.nodes] = _per_node(np.maximum, before + length, level)
    return before


def _per_node(combine: np.ufunc, values: Floats, level: Level) -> Floats:
    """The values of each node's neighbours, combined; one row per node of the level."""
    neighbours = values[level.neighbours]
    if len(level.neighbours) == len(level.nodes):
        return neighbours  # nothing to combine: one neighbour each, as everywhere in a chain
    combined: Floats = combine.reduceat(neighbours, level.starts, axis=0)
    return combined
