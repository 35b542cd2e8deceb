"""From counters to results: the statistics of a run, worked out at its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from headgate.core.latency import LatencyRecorder
from headgate.sim.operators.executor import Executor
from headgate.sim.operators.node import Node, QueryTally, Tally
from headgate.sim.operators.queues import Network
from headgate.sim.operators.results import ClassSample, FlowResult, NodeResult, Sample, SchedulingResult


def flow_results(network: Network, window: float) -> tuple[FlowResult, dict[str, FlowResult], dict[int, FlowResult]]:
    """Everything together, each query, each importance class."""
    queries = {name: _flow([tally], network, tally, window) for name, tally in network.queries.items()}
    classes = {
        number: _flow([q for q in network.queries.values() if q.importance_class == number], network, tally, window)
        for number, tally in sorted(network.classes.items(), reverse=True)
    }
    return _flow(list(network.queries.values()), network, network.total, window), queries, classes


def _flow(queries: Sequence[QueryTally], network: Network, tally: Tally, window: float) -> FlowResult:
    nodes = [node for node in network.nodes.values() if node.tally in queries]
    ingested = sum(query.ingested for query in queries)
    results = sum(query.results for query in queries)
    return FlowResult(
        latency=LatencyRecorder.joined(query.latency for query in queries).summary(),
        ingested=ingested,
        results=results,
        throughput_in=_per(ingested, window),
        throughput_out=_per(results, window),
        queued_mean=_per(sum(node.area for node in nodes), window),
        queued_max=tally.peak,
        outside_mean=_per(sum(node.outside_area for node in nodes), window),
    )


def node_result(node: Node, window: float, measured: int) -> NodeResult:
    """One node; ``measured`` are the tuples that it has processed since measuring began."""
    waited = _per(node.area, measured)
    # T_w = T_E N + T_emptyQ, and T_E = T_S + T_C (EdgeWise, equation 10)
    compute = _per(node.compute_time, measured)
    schedule = max(0.0, _per(window - node.empty_time, measured) - compute)
    return NodeResult(
        name=node.name,
        query=node.tally.name,
        consumed=node.completed,
        produced=node.delivered,
        in_progress=node.consumed - node.completed,
        runs=node.runs,
        queued=node.length,
        outside=node.outside_length,
        queued_mean=_per(node.area, window),
        queued_max=node.peak,
        rho=1.0 - _per(node.empty_time, window),
        queue_time=max(0.0, waited - schedule),
        schedule_time=min(schedule, waited) if measured else math.nan,
        compute_time=compute if measured else math.nan,
    )


def variation(values: Sequence[float]) -> float:
    """Standard deviation over mean."""
    mean = _per(sum(values), len(values))
    if not mean:
        return math.nan
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def scheduling_result(executor: Executor, window: float) -> SchedulingResult:
    worker_time = window * len(executor.computed)
    switching = executor.overhead.get("switch", 0.0)
    return SchedulingResult(
        decisions=executor.decisions,
        guard_strikes=executor.guard_strikes,
        share=_per(sum(executor.overhead.values()) - switching, worker_time),
        switch_share=_per(switching, worker_time),
        parts=dict(sorted(executor.overhead.items())),
    )


class Sampler:
    """Takes samples of a network, each with what happened since the one before."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.samples: list[Sample] = []
        self.forget(0.0)

    def forget(self, now: float) -> None:
        """The counters of the network have been put to zero."""
        self._since = now
        #: {class: (ingested, results, sum of latencies)} at the last sample
        self._before: dict[int, tuple[int, int, float]] = {}

    def take(self, now: float) -> None:
        nodes = self._network.nodes.values()
        classes = {number: self._class_sample(number, now) for number in sorted(self._network.classes, reverse=True)}
        outside = sum(node.outside_length for node in nodes)
        self.samples.append(Sample(now, self._network.total.queued, outside, classes))
        self._since = now

    def _class_sample(self, number: int, now: float) -> ClassSample:
        queries = [query for query in self._network.queries.values() if query.importance_class == number]
        so_far = _totals(queries)
        ingested, results, latency = (
            new - old for new, old in zip(so_far, self._before.get(number, (0, 0, 0.0)), strict=True)
        )
        self._before[number] = so_far
        recent_max = max(query.recent_max for query in queries)
        for query in queries:
            query.recent_max = 0.0
        return ClassSample(
            throughput_in=_per(ingested, now - self._since),
            throughput_out=_per(results, now - self._since),
            mean_latency=latency / results if results else math.nan,
            max_latency=recent_max if results else math.nan,
            max_latency_so_far=max(query.latency.max for query in queries),
        )


def _totals(queries: Iterable[QueryTally]) -> tuple[int, int, float]:
    listed = list(queries)
    return (
        sum(query.ingested for query in listed),
        sum(query.results for query in listed),
        sum(query.latency.total for query in listed),
    )


def _per(amount: float, base: float) -> float:
    return amount / base if base else 0.0
