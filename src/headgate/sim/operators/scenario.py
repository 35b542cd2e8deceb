"""What is simulated at the operator grain: queries of operators, how workers get their work, the machine, how long.

Plain frozen data, checked when it is made; nothing here runs. Operators are named inside their query; outside, a
node is called ``query/operator``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from headgate.core import (
    MOST_CLASS,
    MOST_TRACKS,
    AtMost,
    Consumption,
    Graph,
    GraphError,
    Placement,
    Policy,
    RoundsConfig,
    ScenarioError,
    Workers,
    derive_periods,
)
from headgate.sim.kernel import ArrivalPattern

# --- queries ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorModel:
    """A step of a query.

    One input tuple takes ``cost`` seconds, or anything in ``cost * (1 ± spread)`` with equal chance, and brings
    ``selectivity`` output tuples in the mean, which may be more than 1; every output goes to all operators that name
    this one among their ``inputs``. The input queue holds ``capacity`` tuples. A source names no inputs and has
    ``arrivals``; what does not fit into its queue waits outside, so nothing is lost. ``max_workers`` workers may
    run it at once. ``priority`` and ``patience`` left out are those of the query.
    """

    name: str
    cost: float
    selectivity: float = 1.0
    inputs: tuple[str, ...] = ()
    arrivals: ArrivalPattern | None = None
    spread: float = 0.0
    capacity: int = 10_000
    max_workers: int = 1
    priority: float | None = None
    patience: float | None = None

    def __post_init__(self) -> None:
        where = f"operator {self.name!r}"
        _demand(bool(self.name), "an operator", "a name", self.name)
        _demand(0 < self.cost < math.inf, where, "a cost of more than 0 seconds", self.cost)
        _demand(0 <= self.selectivity < math.inf, where, "a selectivity of at least 0", self.selectivity)
        _demand(0 <= self.spread <= 1, where, "a spread between 0 and 1", self.spread)
        _demand(self.capacity >= 1, where, "a capacity of at least 1 tuple", self.capacity)
        _demand(self.max_workers >= 1, where, "max_workers of at least 1", self.max_workers)
        _demand(len(set(self.inputs)) == len(self.inputs), where, "each input once", self.inputs)
        _demand(self.patience is None or self.patience > 0, where, "a patience of more than 0 seconds", self.patience)


@dataclass(frozen=True, slots=True)
class QueryModel:
    """Operators that belong together. A larger ``importance_class`` is more important; ``patience`` is how long a node
    may stay runnable before the guard puts it in front."""

    name: str
    operators: tuple[OperatorModel, ...]
    importance_class: int = 0
    priority: float = 1.0
    patience: float = math.inf

    def __post_init__(self) -> None:
        where = f"query {self.name!r}"
        _demand(bool(self.name), "a query", "a name", self.name)
        _demand(bool(self.operators), where, "at least one operator", self.operators)
        _demand(self.patience > 0, where, "a patience of more than 0 seconds", self.patience)
        most = MOST_CLASS
        _demand(-most <= self.importance_class <= most, where, f"a class of -{most} to {most}", self.importance_class)
        try:
            graph = self._graph()
        except GraphError as error:
            raise ScenarioError(f"{where}: {error}") from None
        for operator, downstream in zip(self.operators, graph.downstream, strict=True):
            self._check_source(operator)
            for reader in (self.operators[i] for i in downstream):
                most = math.ceil(operator.selectivity)
                if most > reader.capacity:
                    raise ScenarioError(
                        f"{where}: one tuple of operator {operator.name!r} can become {most}, but the queue of "
                        f"operator {reader.name!r} holds {reader.capacity}: raise its capacity, or nothing ever fits"
                    )

    def _check_source(self, operator: OperatorModel) -> None:
        where = f"query {self.name!r}: operator {operator.name!r}"
        if operator.inputs and operator.arrivals is not None:
            raise ScenarioError(f"{where} has inputs and arrivals; only a source has arrivals: remove one of the two")
        if not operator.inputs and operator.arrivals is None:
            raise ScenarioError(f"{where} has no inputs, so it is a source and needs arrivals: say when tuples come")

    def _graph(self) -> Graph:
        return Graph((operator.name for operator in self.operators), self._edges())

    def _edges(self) -> Iterator[tuple[str, str]]:
        return ((source, operator.name) for operator in self.operators for source in operator.inputs)

    def node_name(self, operator: str) -> str:
        """What the node of an operator is called in graphs and results."""
        return f"{self.name}/{operator}"

    def node_names(self) -> tuple[str, ...]:
        return tuple(self.node_name(operator.name) for operator in self.operators)

    def node_edges(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.node_name(a), self.node_name(b)) for a, b in self._edges())

    def rates(self) -> tuple[float, ...]:
        """Tuples per second that reach each operator if all keep up, from what the arrival patterns declare."""
        graph = self._graph()
        rates = [operator.arrivals.mean_rate if operator.arrivals else 0.0 for operator in self.operators]
        for i in graph.order:
            rates[i] += sum(rates[u] * self.operators[u].selectivity for u in graph.upstream[i])
        return tuple(rates)

    def periods(self) -> tuple[float, ...]:
        """Seconds between arrivals; of an operator that is no source, the longest among its sources."""
        stated = np.array([operator.arrivals.period if operator.arrivals else 0.0 for operator in self.operators])
        return tuple(derive_periods(self._graph(), stated).tolist())

    def load(self) -> float:
        """The offered load: seconds of work per second, that is, workers kept busy."""
        return sum(rate * operator.cost for rate, operator in zip(self.rates(), self.operators, strict=True))


def chain(
    name: str,
    operators: Iterable[OperatorModel],
    arrivals: ArrivalPattern,
    *,
    importance_class: int = 0,
    priority: float = 1.0,
    patience: float = math.inf,
) -> QueryModel:
    """A query whose operators feed each other in the order given, the first fed by ``arrivals``."""
    linked: list[OperatorModel] = []
    for operator in operators:
        if linked:
            linked.append(replace(operator, inputs=(linked[-1].name,), arrivals=None))
        else:
            linked.append(replace(operator, inputs=(), arrivals=arrivals))
    return QueryModel(name, tuple(linked), importance_class, priority, patience)


# --- loops ------------------------------------------------------------------------------------------------------
# How the simulated workers get their work, and what deciding costs. All costs are seconds of worker time. They are
# modelled, not measured here: measure an engine and put its numbers in.


@dataclass(frozen=True, slots=True)
class DispatchModel:
    """Whenever a worker is free, the best runnable node goes there (``headgate.core.dispatch``).

    A worker takes what ``consumption`` allows, and no more than its outputs have room downstream. A decision holds one
    lock for ``decision_cost``; going on with another node than the worker ran last costs ``switch_cost``. Nodes are
    placed again ``place_every`` seconds, for placements that go by costs. ``window`` is the length of the window in
    which ``window_time`` counts.
    """

    kind: ClassVar[str] = "dispatch"
    consumption: Consumption = field(default_factory=lambda: AtMost(50))
    decision_cost: float = 0.0
    switch_cost: float = 0.0
    place_every: float | None = None
    window: float = math.inf

    def __post_init__(self) -> None:
        _check_costs(self, "decision_cost", "switch_cost")
        _check_positive(self, "window", "place_every")


@dataclass(frozen=True, slots=True)
class RoundsModel:
    """Workers run their own lists for a ``period``, then reschedule (``headgate.core.rounds``; Haren's P, b and d).

    At a rescheduling, reading one feature of one node costs ``feature_cost``, placing a node ``place_cost``, ranking
    and sorting a node ``rank_cost``. How long workers wait for each other is a result of the simulation.
    """

    kind: ClassVar[str] = "rounds"
    period: float = 0.1
    batch: int = 10
    delay: float | None = None
    backoff_min: float = 0.001
    feature_cost: float = 0.0
    place_cost: float = 0.0
    rank_cost: float = 0.0
    switch_cost: float = 0.0

    def __post_init__(self) -> None:
        _check_costs(self, "feature_cost", "place_cost", "rank_cost", "switch_cost")
        self.config(0)

    def config(self, seed: int) -> RoundsConfig:
        return RoundsConfig(self.period, self.batch, self.delay, self.backoff_min, seed)


@dataclass(frozen=True, slots=True)
class ThreadsModel:
    """One thread for each worker a node may have, and the operating system decides: the baseline.

    The thread that has had least processor time goes next, for at most ``quantum`` seconds, as under Linux's CFS. One
    that has slept is credited with at most ``sleeper_credit`` seconds, and takes the processor that it ran on last from
    a thread that is more than ``wakeup_granularity`` ahead of it. These defaults are CFS's for four processors: half a
    latency period of 18 ms, and 3 ms. How early a bottleneck falls behind depends on them, so vary them before
    drawing conclusions. A change of threads costs ``switch_cost``.
    """

    kind: ClassVar[str] = "threads"
    quantum: float = 0.004
    sleeper_credit: float = 0.009
    wakeup_granularity: float = 0.003
    switch_cost: float = 5e-6

    def __post_init__(self) -> None:
        _check_costs(self, "sleeper_credit", "wakeup_granularity", "switch_cost")
        _check_positive(self, "quantum")


LoopModel = DispatchModel | RoundsModel | ThreadsModel


def _check_costs(loop: LoopModel, *names: str) -> None:
    for name in names:
        if not getattr(loop, name) >= 0:
            raise ScenarioError(f"{name} of the {loop.kind} loop must be at least 0; got {getattr(loop, name)}")


def _check_positive(loop: LoopModel, *names: str) -> None:
    """What may be left out may be None."""
    for name in names:
        value = getattr(loop, name)
        if value is not None and not value > 0:
            raise ScenarioError(f"{name} of the {loop.kind} loop must be more than 0; got {value}")


# --- the scenario -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplacePolicy:
    """From ``at`` seconds on, rank by another policy."""

    at: float
    policy: Policy


@dataclass(frozen=True, slots=True)
class ReplacePlacement:
    """From ``at`` seconds on, place by another rule."""

    at: float
    placement: Placement


@dataclass(frozen=True, slots=True)
class AddQuery:
    """At ``at`` seconds a query comes; its arrivals count from then."""

    at: float
    query: QueryModel


@dataclass(frozen=True, slots=True)
class RemoveQuery:
    """At ``at`` seconds a query goes, and with it what waits in its queues."""

    at: float
    name: str


ScenarioChange = ReplacePolicy | ReplacePlacement | AddQuery | RemoveQuery


@dataclass(frozen=True, slots=True)
class OperatorScenario:
    """Queries on a machine of ``workers`` workers, in ``groups`` NUMA nodes of equal size.

    The run ends at ``horizon`` seconds or, if ``events`` is stated, when so many tuples have come in from outside and
    have been worked off. Statistics count from ``measure_from`` seconds on. A worker hands on its outputs every
    ``hand_over`` input tuples: the fewer, the finer the picture and the slower the simulation. If costs and
    selectivities are not ``known``, policies go by what was measured: an exponential mean in which the newest run has
    the weight ``learning``. ``sample_every`` seconds a ``Sample`` is taken, if stated.
    """

    queries: tuple[QueryModel, ...]
    workers: int = 4
    loop: LoopModel = field(default_factory=DispatchModel)
    name: str = "operators"
    horizon: float = math.inf
    events: int | None = None
    measure_from: float = 0.0
    groups: int = 1
    hand_over: int = 10
    known: bool = False
    learning: float = 0.3
    sample_every: float | None = None
    changes: tuple[ScenarioChange, ...] = ()

    def __post_init__(self) -> None:
        where = f"scenario {self.name!r}"
        _demand(bool(self.queries), where, "at least one query", self.queries)
        _demand(1 <= self.workers <= MOST_TRACKS, where, f"from 1 to {MOST_TRACKS} workers", self.workers)
        _demand(1 <= self.groups <= self.workers, where, "at least one worker for each of its groups", self.groups)
        _demand(self.horizon > 0, where, "a horizon of more than 0 seconds", self.horizon)
        _demand(self.events is None or self.events >= 1, where, "at least 1 event", self.events)
        _demand(0 <= self.measure_from < self.horizon, where, "measure_from before the horizon", self.measure_from)
        _demand(self.hand_over >= 1, where, "hand_over of at least 1 tuple", self.hand_over)
        _demand(0 < self.learning <= 1, where, "a learning weight above 0, at most 1", self.learning)
        _demand(
            self.sample_every is None or 0 < self.sample_every < math.inf,
            where,
            "sample_every of more than 0 seconds",
            self.sample_every,
        )
        self._check_changes(where)
        self._check_that_it_ends(where)

    def _check_changes(self, where: str) -> None:
        present = Counter(query.name for query in self.queries)
        for change in sorted(self.changes, key=lambda change: change.at):
            if not 0 <= change.at < math.inf:
                raise ScenarioError(f"{where}: a change takes a time of at least 0 seconds; got {change}")
            if isinstance(change, AddQuery):
                present[change.query.name] += 1
            elif isinstance(change, RemoveQuery):
                if not present[change.name]:
                    raise ScenarioError(f"{where}: there is no query {change.name!r} to remove at {change.at:g} s")
                present[change.name] -= 1
            elif isinstance(self.loop, ThreadsModel):
                raise ScenarioError(f"{where}: the threads loop has no policy or placement to replace; got {change}")
            twice = [name for name, count in present.items() if count > 1]
            if twice:
                raise ScenarioError(f"{where}: two queries are called {twice[0]!r}: rename one")
        if len({query.name for query in self.queries}) < len(self.queries):
            raise ScenarioError(f"{where}: two queries have the same name: rename one")

    def _check_that_it_ends(self, where: str) -> None:
        if self.events is None and self.horizon == math.inf:
            for query in self.all_queries():
                for operator in query.operators:
                    if operator.arrivals is not None and operator.arrivals.endless:
                        raise ScenarioError(
                            f"{where} would never end: tuples of operator {operator.name!r} of query {query.name!r} "
                            "never stop coming; state a horizon in seconds or a number of events"
                        )

    def all_queries(self) -> Iterator[QueryModel]:
        """Those that are there from the start and those that come later."""
        yield from self.queries
        yield from (change.query for change in self.changes if isinstance(change, AddQuery))

    def graph(self) -> Graph:
        """The graph of the queries that are there from the start."""
        return Graph(
            (name for query in self.queries for name in query.node_names()),
            (edge for query in self.queries for edge in query.node_edges()),
            {name: query.name for query in self.queries for name in query.node_names()},
        )

    def utilisation(self) -> float:
        """The offered load as a share of all workers; above 1 the machine cannot keep up."""
        return sum(query.load() for query in self.queries) / self.workers

    def machine(self) -> Workers:
        """The workers, numbered group by group."""
        return Workers(tuple(w * self.groups // self.workers for w in range(self.workers)))


def _demand(fulfilled: bool, where: str, expected: str, got: object) -> None:
    if not fulfilled:
        raise ScenarioError(f"{where} needs {expected}; got {got}")
