"""A simulated node: an operator with its queue and its counters. Data only; ``queues`` moves the tuples."""

from __future__ import annotations

import math
from collections import deque
from random import Random

from headgate.core import FEATURES, LatencyRecorder
from headgate.sim.operators.scenario import OperatorModel, QueryModel

#: (tuples, the time they came into the system)
Run = tuple[int, float]

#: up to so many tuples, the cost of a batch is drawn tuple by tuple; beyond, their sum is as good as normal
_DRAWN_ONE_BY_ONE = 12


class Tally:
    """Tuples that wait in a group of nodes, now and at most."""

    __slots__ = ("peak", "queued")

    def __init__(self) -> None:
        self.queued = 0
        self.peak = 0


class QueryTally(Tally):
    """What one query has brought, from the moment that measuring began."""

    __slots__ = ("importance_class", "ingested", "latency", "name", "patience", "priority", "recent_max", "results")

    def __init__(self, query: QueryModel) -> None:
        super().__init__()
        self.name = query.name
        self.describe(query)
        self.forget()

    def describe(self, query: QueryModel) -> None:
        """Take over what is stated about the query; one that went may come back with other statements."""
        self.importance_class = query.importance_class
        self.priority = query.priority
        self.patience = query.patience

    def forget(self) -> None:
        """Measuring begins now."""
        self.ingested = 0
        self.results = 0
        self.latency = LatencyRecorder()
        #: the largest latency since the last sample
        self.recent_max = 0.0


class SimulatedNode:
    """An operator with its queue and its counters.

    Invariants:
    1. ``queue`` holds ``length`` tuples, and ``outside`` ``outside_length``; the latter is empty while there is room.
    2. ``length + reserved + room == capacity`` with ``room >= 0``, where reserved are the outputs of upstream batches
       that are being processed.
    3. ``blocked`` is the number of downstream nodes that are ``tight``, that is, have less room than ``need``, the most
       that one input tuple of any node upstream of them can become.
    4. ``produced == floor(consumed * selectivity)``.
    5. ``running <= max_workers`` batches are being processed.
    """

    __slots__ = (
        "_chance",
        "area",
        "blocked",
        "completed",
        "compute_time",
        "consumed",
        "cost",
        "declared_rate",
        "delivered",
        "downstream",
        "empty_since",
        "empty_time",
        "index",
        "last_arrival",
        "length",
        "max_workers",
        "measured",
        "name",
        "need",
        "newest_taken",
        "operator",
        "outside",
        "outside_area",
        "outside_length",
        "outside_since",
        "peak",
        "period",
        "produced",
        "queue",
        "ready",
        "removed",
        "room",
        "running",
        "runs",
        "seen_cost",
        "seen_selectivity",
        "selectivity",
        "since",
        "spread",
        "tallies",
        "tally",
        "tight",
        "upstream",
        "waiting_since",
    )

    def __init__(
        self, operator: OperatorModel, name: str, tally: QueryTally, tallies: tuple[Tally, ...], chance: Random
    ) -> None:
        self.operator = operator
        self.name = name
        self.tally = tally
        #: all that the queue counts in: those of the query, of its class, and of everything
        self.tallies = tallies
        self._chance = chance
        #: the node's number in the graph of the moment; -1 while it is not in the graph
        self.index = -1
        self.removed = False
        self.cost = operator.cost
        self.spread = operator.spread
        self.selectivity = operator.selectivity
        self.max_workers = operator.max_workers
        #: seconds between arrivals, and tuples per second, as the arrival patterns of the node's sources declare them
        self.period = 0.0
        self.declared_rate = 0.0
        self.upstream: tuple[SimulatedNode, ...] = ()
        self.downstream: tuple[SimulatedNode, ...] = ()
        # queues
        self.queue: deque[Run] = deque()
        self.length = 0
        self.room = operator.capacity
        self.need = 1
        self.tight = False
        self.blocked = 0
        self.outside: deque[Run] = deque()
        self.outside_length = 0
        # what happened, from the very beginning; ``consumed`` counts when a batch is taken, ``completed`` when it ends
        self.consumed = 0
        self.produced = 0
        self.completed = 0
        self.delivered = 0
        self.runs = 0
        self.running = 0
        self.newest_taken = 0.0
        self.waiting_since = math.inf
        self.last_arrival = 0.0
        # what policies may know; nothing before it was measured, unless ``reveal`` tells them
        self.measured = False
        self.seen_cost = FEATURES["cost"].default
        self.seen_selectivity = FEATURES["selectivity"].default
        #: the loop knows that the node can run
        self.ready = False
        self.forget(0.0)

    @property
    def can_run(self) -> bool:
        """It has input, and room for what becomes of it."""
        return self.length > 0 and not self.blocked

    def reveal(self) -> None:
        """Let policies know the true cost and selectivity."""
        self.seen_cost, self.seen_selectivity, self.measured = self.cost, self.selectivity, True

    def learn(self, seconds: float, input_count: int, output_count: int, weight: float) -> None:
        """A run took ``seconds`` and made ``output_count`` of ``input_count`` tuples: the newest term of an exponential
        mean."""
        if not self.measured:
            self.measured, weight = True, 1.0
        self.seen_cost += weight * (seconds / input_count - self.seen_cost)
        self.seen_selectivity += weight * (output_count / input_count - self.seen_selectivity)

    def forget(self, now: float) -> None:
        """Measuring begins now."""
        #: tuple seconds waited in the queue, up to ``since``
        self.area = 0.0
        self.since = now
        self.outside_area = 0.0
        self.outside_since = now
        #: seconds with an empty queue and nobody running, up to ``empty_since``, which is inf if that is not so now
        self.empty_time = 0.0
        self.empty_since = math.inf if self.length or self.running else now
        self.compute_time = 0.0
        self.peak = self.length

    def work(self, tuples: int) -> float:
        """Seconds that a batch takes."""
        if not self.spread:
            return self.cost * tuples
        if tuples <= _DRAWN_ONE_BY_ONE:
            draw = self._chance.random
            drawn = sum(2.0 * draw() - 1.0 for _ in range(tuples))
        else:
            drawn = self._chance.gauss(0.0, math.sqrt(tuples / 3.0))
            drawn = min(max(drawn, -tuples), tuples)
        return self.cost * (tuples + self.spread * drawn)
