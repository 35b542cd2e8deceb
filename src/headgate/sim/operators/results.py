"""What a simulated run of operators came to. Frozen data; all times in seconds, all rates per second.

Everything counts from ``measure_from`` on, except what is said to count from the very beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.core.latency import LatencySummary


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
    ``read``, ``place`` and ``rank`` of *rounds*; ``switch`` of all. ``decisions`` (of *rounds*: meetings) and
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
