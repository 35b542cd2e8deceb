"""What a simulated run of operators came to, and how that is worked out from the counters at its end.

Results are frozen data; all times in seconds, all rates per second. Everything counts from ``measure_from`` on, except
what is said to count from the very beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.core import LatencyRecorder, LatencySummary
from headgate.sim.operators.executor import Executor
from headgate.sim.operators.node import QueryTally, SimulatedNode, Tally
from headgate.sim.operators.queues import Network


@dataclass(frozen=True, slots=True)
class FlowResult:
    """A query, an importance class, or everything.

    ``latency`` is the time from a tuple's coming into the system to the result it contributed to last. ``ingested``
    are tuples from outside that sources have processed, ``results`` those that sinks have put out. ``queued_mean`` and
    ``queued_max`` count the tuples in queues, ``outside_mean`` those that a full queue kept waiting outside.
    """

    latency: LatencySummary
    ingested: int
    results: int
    throughput_in: float
    throughput_out: float
    queued_mean: float
    queued_max: int
    outside_mean: float


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node.

    ``rho`` is EdgeWise's utilisation, 1 - T_emptyQ / T_window (equation 11): the share of time in which there was
    input or somebody ran. The latency of a tuple at this node is ``queue_time + schedule_time + compute_time`` in the
    mean (section 5.2): behind others in the queue, waiting for a turn, being processed; nan if nothing was processed.
    ``consumed``, ``produced`` and ``runs`` (turns of a worker; of a thread, hand-overs) count from the very beginning;
    ``queued``, ``outside`` and ``in_progress`` is what there was at the end.
    """

    name: str
    query: str
    consumed: int
    produced: int
    in_progress: int
    runs: int
    queued: int
    outside: int
    queued_mean: float
    queued_max: int
    rho: float
    queue_time: float
    schedule_time: float
    compute_time: float


@dataclass(frozen=True, slots=True)
class SchedulingResult:
    """What scheduling took.

    ``share`` is the share of all worker time spent on scheduling (Haren's T_S), ``switch_share`` on going from one
    node to another. ``parts`` are worker seconds: ``lock`` and ``decide`` of *dispatch*; ``update``, ``wait``,
    ``read``, ``place`` and ``rank`` of *rounds*; ``switch`` of all. ``decisions`` (of *rounds*: reschedulings) and
    ``guard_strikes`` count from the very beginning.
    """

    decisions: int
    guard_strikes: int
    share: float
    switch_share: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ClassSample:
    """One importance class over the time since the sample before; ``max_latency_so_far`` over all time measured."""

    throughput_in: float
    throughput_out: float
    mean_latency: float
    max_latency: float
    max_latency_so_far: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment: tuples in queues and outside, and how each class has fared."""

    time: float
    queued: int
    outside: int
    classes: Mapping[int, ClassSample]


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """A whole run.

    ``seconds`` is when it ended, ``window`` how long was measured. ``arrived`` tuples came from outside,
    ``discarded`` went with queries that were removed, ``runs`` of nodes were made, all from the very beginning.
    ``rho_variation`` is the coefficient of variation of rho over all nodes (EdgeWise, figure 8): the smaller, the
    better balanced.
    """

    scenario: str
    loop: str
    policy: str
    placement: str
    seed: int
    seconds: float
    window: float
    arrived: int
    discarded: int
    runs: int
    overall: FlowResult
    queries: Mapping[str, FlowResult]
    classes: Mapping[int, FlowResult]
    nodes: tuple[NodeResult, ...]
    rho_variation: float
    worker_utilisation: tuple[float, ...]
    scheduling: SchedulingResult
    samples: tuple[Sample, ...]


# --- from counters to results -----------------------------------------------------------------------------------


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


def node_result(node: SimulatedNode, window: float, measured: int) -> NodeResult:
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
