"""What a node takes over from its neighbours: priority from its dependents, period from its sources.

A view of high priority over a table of low priority is only as fresh as that table, so sources inherit the
priority of what is built on them (Golab et al., section 3.3). Applied to the whole graph before a policy ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from headgate.core.errors import ParameterError
from headgate.core.graph import Floats, Graph

Inheritance = Literal["none", "sum", "max", "max-plus", "density"]
PeriodReading = Literal["ancestors", "descendants"]

#: seconds of work that a second of data costs at least
LEAST_WORK = 1e-9
#: the period counts as at least so many seconds
LEAST_PERIOD = 1e-6

#: the highest priority that may be stated; what is computed from priorities stays a finite number
MOST_PRIORITY = 1e12
#: the largest factor of max-plus
MOST_K = 1000.0
#: no priority is lifted above this, however long a chain is: what policies compute from it stays finite, too
MOST_INHERITED = 1e100


@dataclass(frozen=True, slots=True)
class InheritanceRule:
    """How sources inherit: the mode, and the factor of max-plus."""

    mode: Inheritance = "max"
    k: float = 2.0

    def __post_init__(self) -> None:
        _check_k(self.k)

    def __str__(self) -> str:
        return f"{self.mode}:k={self.k:g}" if self.mode == "max-plus" else self.mode


def inheritance_from(text: str) -> InheritanceRule | None:
    """The rule written as ``none``, ``sum``, ``max``, ``max-plus``, ``max-plus:k=3`` or ``density``.

    None for ``default``: what the policy asks for, or else ``max``.
    """
    mode, colon, parameter = (part.strip() for part in text.partition(":"))
    key, _, value = (part.strip() for part in parameter.partition("="))
    if mode == "default" and not colon:
        return None
    for known in get_args(Inheritance):
        if mode == known and not colon:
            return InheritanceRule(known)
    try:
        k = float(value) if mode == "max-plus" and key == "k" else math.nan
    except ValueError:
        k = math.nan
    if not 1 < k <= MOST_K:
        raise ParameterError(
            f"inheritance is default, {', '.join(get_args(Inheritance))}, or max-plus:k=NUMBER with a number above 1 "
            f"and at most {MOST_K:g}; got {text[:100]!r}"
        )
    return InheritanceRule("max-plus", k)


def inheritance_in_force(stated: InheritanceRule | None, by_policy: Inheritance | None) -> InheritanceRule:
    """What is stated, or else what the policy asks for, or else ``max``."""
    return stated or InheritanceRule(by_policy or "max")


def inherit_priorities(
    graph: Graph, priority: Floats, mode: Inheritance = "max", k: float = 2.0, work: Floats | None = None
) -> Floats:
    """Priorities after inheritance.

    ``none``      as stated.
    ``sum``       the sum over the node and all of its direct and indirect dependents, each counted once.
    ``max``       the largest among the node and all of its dependents.
    ``max-plus``  like max, but each step from dependent to source multiplies by ``k``, above 1. The paper's sentence
                  ("K times the maximum, including itself") taken for every table alike would only scale all
                  priorities; applied step by step it does what the paper says of it: it lifts base tables, the
                  more so the longer the chain above them.
    ``density``   such that the node takes away as much weighted staleness per second of work as the best set of it
                  and of dependents of it that become fresher with it. ``work`` is what a second of data costs each
                  node, in seconds; left out, all cost the same. No less than stated.
    """
    if mode not in get_args(Inheritance):
        raise ParameterError(f"inheritance must be one of {', '.join(get_args(Inheritance))}; got {mode!r}")
    _check_k(k)
    inherited = np.array(priority, dtype=np.float64)
    if mode == "none":
        return inherited
    if mode == "sum":
        for node in range(len(graph)):
            inherited[node] += sum(priority[d] for d in graph.dependents(node))
        return inherited
    if mode == "density":
        return np.maximum(inherited, _densities(graph, inherited, work))
    factor = k if mode == "max-plus" else 1.0
    for level in graph.from_sinks[1:]:
        best = np.maximum.reduceat(inherited[level.neighbours], level.starts)
        lifted = np.minimum(factor * best, MOST_INHERITED)
        inherited[level.nodes] = np.maximum(inherited[level.nodes], lifted)
    return inherited


def _check_k(k: float) -> None:
    if not 1 < k <= MOST_K:
        raise ParameterError(f"k of inheritance max-plus must be a number above 1 and at most {MOST_K:g}; got {k}")


def work_per_second(setup_time: Floats, time_per_unit: Floats, period: Floats) -> Floats:
    """What a second of data costs each table, in seconds of work, if it is updated once in each period: for
    ``inherit_priorities``."""
    return time_per_unit + setup_time / np.maximum(period, LEAST_PERIOD)


def _densities(graph: Graph, priority: Floats, work: Floats | None) -> Floats:
    """The priority at which each node alone is as dense as the best set that its update makes possible.

    A set is closed: it has every node between the first one and any other of it. From the sinks up, a node takes in the
    best sets of its dependents, the densest first, as long as each is denser than what it has (Horn, 1972, for trees,
    where this is exact). Where ways meet, a set brings along what it needs.
    """
    cost = np.ones(len(graph)) if work is None else np.maximum(work, LEAST_WORK)
    weights, costs = priority.tolist(), cost.tolist()
    best: dict[int, frozenset[int]] = {}
    density = np.zeros(len(graph))

    for node in reversed(graph.order):
        taken = {node}
        weight, seconds = weights[node], costs[node]
        below = graph.dependents(node)
        open_: set[int] = set(graph.downstream[node])
        #: by child: its density, what breaks ties, the nodes that it brings along, their weight and their seconds
        offers: dict[int, tuple[float, int, set[int], float, float]] = {}
        while open_:
            for child in open_ - offers.keys():
                needed = _with_sources(graph, best[child], below, taken)
                members = sorted(needed)
                more, longer = sum(weights[i] for i in members), sum(costs[i] for i in members)
                offers[child] = (more / longer, -int(graph.tie[child]), needed, more, longer)
            ratio, _, needed, more, longer = max(offers.values(), key=lambda offer: offer[:2])
            if ratio * seconds <= weight:
                break
            taken |= needed
            weight, seconds = weight + more, seconds + longer
            # Only offers that bring along some of the same nodes have changed.
            offers = {child: offer for child, offer in offers.items() if offer[2].isdisjoint(needed)}
            open_ = (open_ | {child for member in needed for child in graph.downstream[member]}) - taken
        best[node] = frozenset(taken)
        density[node] = weight / seconds
    return density * cost


def _with_sources(graph: Graph, nodes: Iterable[int], below: Set[int], taken: Set[int]) -> set[int]:
    """``nodes`` and everything ``below`` that they are computed from, without what is taken already."""
    found: set[int] = set()
    looked_at = [*nodes]
    while looked_at:
        node = looked_at.pop()
        if node in below and node not in taken and node not in found:
            found.add(node)
            looked_at.extend(graph.upstream[node])
    return found


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
