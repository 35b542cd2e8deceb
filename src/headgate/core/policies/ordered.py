"""The four heuristics of ordered stream processing: push, pull, most work left, least work done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.errors import ParameterError
from headgate.core.flow import at_least_a_moment, cumulative_selectivity
from headgate.core.graph import Floats, Graph
from headgate.core.matrix import FeatureView, in_view
from headgate.core.policy import Policy


@dataclass(frozen=True)
class QueueThrottle(Policy):
    """Pushes tuples in from the front, one operator at a time: the earliest operator whose output queue is not full.
    What full means follows the flow: the queues of a query share ``capacity`` tuples in proportion to what passes.

    Rule: ``(1, -depth)`` if ``output_pending < T``, else ``(0, depth)``, where ``T(i) = C cs(i) / sum of cs`` over the
    query, cs being the cumulative selectivity since ingress and C the capacity. In the paper a full operator is not
    scheduled at all; here it comes last, the latest first, so that queues drain if nothing else can run.
    Features: output_pending, selectivity.
    Fails: high latency, as tuples lie in queues up to their thresholds; a deep query waits for ever behind a shallow
    one whose sink keeps up with its source.
    Paper: ordered, section 6.1.
    """

    name = "qst"
    summary = "the earliest operator whose output queue is below its threshold"
    paper = "ordered 6.1"
    needs = ("output_pending", "selectivity")
    starves = True

    capacity: float = 1000.0

    def __post_init__(self) -> None:
        if not self.capacity > 0:
            raise ParameterError(f"policy 'qst': capacity, in tuples, must be greater than 0; got {self.capacity}")

    def thresholds(self, graph: Graph, selectivity: Floats) -> Floats:
        """T of every node: how many tuples its output queue may hold."""
        passing = cumulative_selectivity(graph, selectivity)
        by_name = np.argsort(graph.tie)  # a fixed order, or rounding would make the sum depend on the nodes' order
        total = np.bincount(graph.query[by_name], weights=passing[by_name], minlength=len(graph.query_names))
        share = np.divide(passing, total[graph.query], out=np.zeros(len(graph)), where=passing > 0)
        # one tuple at least: an empty queue is never full, not even where nothing has been seen to pass
        return np.maximum(self.capacity * share, 1.0)

    def priorities(self, view: FeatureView) -> Floats:
        room = view["output_pending"] < self.thresholds(view.graph, view["selectivity"])
        depth = view.graph.depth
        return np.column_stack((room, np.where(room, -depth, depth))).astype(np.float64)


@dataclass(frozen=True)
class LastInPipeline(Policy):
    """Pulls tuples out at the end: the latest operator with input runs, its upstream only when it has none.
    Needs no measurements; the lowest latency of the four, and throughput as good as ``ct`` in simple pipelines.

    Rule: ``(depth, -head_time)``.
    Features: head_time.
    Fails: under overload the sources wait for ever, those of shallow queries first, as depths of different queries
    are compared.
    Paper: ordered, section 6.2.
    """

    name = "lp"
    summary = "the latest operator of the pipeline that has input"
    paper = "ordered 6.2"
    needs = ("head_time",)
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((in_view(view, view.graph.depth), -view["head_time"]))


@dataclass(frozen=True)
class EstimatedTime(Policy):
    """The operator whose waiting tuples would take longest, even with one more worker: it is lagging behind.
    Like ``longest-queue``, but in seconds of work and aware of the workers already there.

    Rule: ``I c / (w + 1)`` if ``w < M``, else 0; I waiting tuples, c cost, w workers now, M workers allowed.
    Features: pending, cost, workers, max_workers.
    Fails: high latency, as it follows bursts at the input; a cheap operator with a short queue can wait for ever.
    Paper: ordered, section 6.3.
    """

    name = "et"
    summary = "the operator whose queue would take longest to work off"
    paper = "ordered 6.3"
    needs = ("pending", "cost", "workers", "max_workers")
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        workers = view["workers"]
        seconds = view["pending"] * view["cost"] / (workers + 1.0)
        return np.where(workers < view["max_workers"], seconds, 0.0)


@dataclass(frozen=True)
class LowestThroughput(Policy):
    """The operator that has processed least in the current window, counted in tuples at the ingress: the bottleneck.
    All operators advance together, and tuples flow continuously; the best throughput of the four.

    Rule: ``-(T + w s) / (c cs)``; T worker seconds spent in the window, w workers now, s a worker's time slice
    (``slice_seconds``), c cost, cs cumulative selectivity since ingress, flows added where streams meet.
    As in the paper, cs has the node's own selectivity in it, though T / c are tuples that it takes in: what discards
    most of its input goes last and finds more of it at once. Without it, on the stream engine, one of the paper's five
    queries had a lower latency (by a third) and two a lower throughput (by 8 to 10 %).
    Features: window_time, workers, cost, selectivity.
    Fails: every window starts from nothing, so if it is too short to give each node a slice, the same nodes can be
    left out each time, for ever.
    Paper: ordered, section 6.4.
    """

    name = "ct"
    summary = "the operator with the lowest normalised throughput in the window"
    paper = "ordered 6.4"
    needs = ("window_time", "workers", "cost", "selectivity")
    starves = True

    slice_seconds: float = 0.001

    def __post_init__(self) -> None:
        if not self.slice_seconds > 0:
            raise ParameterError(f"policy 'ct': slice_seconds must be greater than 0; got {self.slice_seconds}")

    def priorities(self, view: FeatureView) -> Floats:
        per_ingress_tuple = view["cost"] * cumulative_selectivity(view.graph, view["selectivity"])
        spent = view["window_time"] + view["workers"] * self.slice_seconds
        processed: Floats = spent / at_least_a_moment(per_ingress_tuple)
        return -processed
