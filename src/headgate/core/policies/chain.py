"""Chain: the policy that frees memory fastest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.core.flow import at_least_a_moment
from headgate.core.graph import Floats, Graph, Ints
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy

#: Slopes that differ by less than this part of themselves differ by rounding only: they are one segment.
_SAME_SLOPE = 1e-9
#: Seconds; between two points of a chart that rounding has brought to the same time.
_NO_TIME = 1e-200


@dataclass(frozen=True)
class Chain(Policy):
    """Runs what discards most tuples per second of work, counting a slow discarder's neighbours in: operators that
    only together discard fast form one segment and share its slope. Keeps the queues' memory low.

    Rule: ``(slope, -head_time)``. Along each path of the graph a tuple's progress chart has the points
    ``T(k) = T(k-1) + c(k) S(k-1)`` and ``S(k) = S(k-1) s(k)``, from (0, 1), and S = 0 after a sink. The slopes
    are those of the chart's lower envelope; a node has the slope of the segment over its own step. (The public code
    of Haren gives the last operator of a segment the slope of the next one.)
    Features: cost, selectivity, head_time.
    Fails: latency suffers, as whatever discards little waits; under overload for ever. A node with several inputs or
    outputs is charted along its first ones only: the others begin paths of their own.
    Paper: Haren, section 7.2; EdgeWise, section 3.4.
    """

    name = "chain"
    summary = "the segment of a path that discards most tuples per second of work"
    paper = "Haren 7.2, EdgeWise 3.4"
    needs = ("cost", "selectivity", "head_time")
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((chain_slopes(view.graph, view["cost"], view["selectivity"]), -view["head_time"]))


def chain_slopes(graph: Graph, cost: Floats, selectivity: Floats) -> Floats:
    """For each node, the slope of the segment of the lower envelope that covers its own step: tuples per second."""
    table, real = graph.path_table
    left = np.ones((len(table), table.shape[1] + 1))
    kept = np.where(graph.is_sink, 0.0, selectivity)
    np.cumprod(np.where(real, kept[table], 1.0), axis=1, out=left[:, 1:])
    time = np.zeros_like(left)
    np.cumsum(at_least_a_moment(cost)[table] * left[:, :-1], axis=1, out=time[:, 1:])
    left[:, 1:][~real] = np.inf  # points beyond the end of a path: no way down leads there
    slopes = np.empty(len(graph))
    slopes[table[real]] = _envelopes(time, left, real.sum(axis=1))[real]
    return slopes


def _envelopes(time: Floats, left: Floats, last: NDArray[np.int_]) -> Floats:
    """The slopes of the lower envelopes of many charts at once, one row each; ``last`` is a chart's last point.

    Each round finds, in every chart that has not come to its end, the next segment: from where the one before ended
    to the point with the steepest way down, the farthest of those if there are several.
    """
    points = np.arange(time.shape[1])
    slopes = np.zeros((len(time), len(points) - 1))
    begins = np.zeros(slopes.shape, dtype=bool)
    chart: Ints = np.arange(len(time))
    start = np.zeros(len(time), dtype=np.intp)
    while len(chart):
        rows = np.arange(len(chart))
        span = np.maximum(time - time[rows, start, np.newaxis], _NO_TIME)
        down = np.where(points > start[:, np.newaxis], (left[rows, start, np.newaxis] - left) / span, -np.inf)
        steepest = down.max(axis=1, keepdims=True)
        end = points[-1] - (down >= steepest - _SAME_SLOPE * np.abs(steepest))[:, ::-1].argmax(axis=1)
        slopes[chart, start] = down[rows, end]
        begins[chart, start] = True
        going_on = end < last[chart]
        chart, start, time, left = chart[going_on], end[going_on], time[going_on], left[going_on]
    segment = np.maximum.accumulate(np.where(begins, points[:-1], 0), axis=1)
    return np.take_along_axis(slopes, segment, axis=1)
