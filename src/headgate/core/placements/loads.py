"""How much of a worker each node needs, and dealing unequal things so that no bin is much fuller than another.

Two measures of need. A *job* (Golab et al., 2.4 and 3.2.1) loads the data of one period P every period, which takes
E(P) = alpha + beta P and so keeps a worker busy for the fraction u = E(P) / P. The *load* of a node is whatever best
says how much work it is at this engine.

Placements must not depend on the order in which nodes were declared. Adding floats in another order rounds
differently and can tip a balance, so whoever sums here says in which order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headgate.core.graph import Floats, Ints
from headgate.core.matrix import FeatureView, in_view

#: the features that jobs are made of
JOB_FEATURES = ("period", "setup_time", "time_per_unit")


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """The nodes in view as periodic jobs, one entry per node in each array.

    A node whose period is not known (0, or not finite) is taken to have one without end: its execution time is
    the set-up time alone and its utilisation 0, so it takes no share from nodes of which more is known.
    """

    #: P, never 0; infinite if not known
    period: Floats
    #: E(P), finite and never negative
    execution: Floats
    #: u = E(P) / P
    utilisation: Floats
    #: rank by name, the last word between equals
    tie: Ints

    @classmethod
    def of(cls, view: FeatureView) -> Jobs:
        stated = view["period"]
        known = np.isfinite(stated) & (stated > 0)
        period = np.where(known, stated, np.inf)
        execution = view["setup_time"] + view["time_per_unit"] * np.where(known, stated, 0.0)
        # fits through few observations can come out below zero, or as no number at all
        execution = np.fmax(execution, 0.0)
        return cls(period, execution, execution / period, in_view(view, view.graph.tie))

    def __len__(self) -> int:
        return len(self.period)

    def by_period(self) -> Ints:
        """Shortest period first; between equals the shorter execution time, then the name."""
        return np.lexsort((self.tie, self.execution, self.period))

    def by_execution(self) -> Ints:
        """Shortest execution time first; between equals the shorter period, then the name."""
        return np.lexsort((self.tie, self.period, self.execution))


def load(view: FeatureView) -> Floats:
    """The load of every node in view, by the first of these that the engine has the features for.

    1. ``cost * pending``: seconds to work off what waits now.
    2. The utilisation of the node's job.
    3. 1: every node counts the same.
    """
    if "cost" in view and "pending" in view:
        return np.fmax(view["cost"] * view["pending"], 0.0)
    if all(feature in view for feature in JOB_FEATURES):
        return Jobs.of(view).utilisation
    return np.ones(len(view))


def names_in_view(view: FeatureView) -> tuple[str, ...]:
    names = view.graph.names
    return names if view.rows is None else tuple(names[i] for i in view.rows)


def sums(part: Ints, weight: Floats, order: Ints, parts: int = 0) -> Floats:
    """The sum of ``weight`` over each part, added up in ``order``; at least ``parts`` sums."""
    return np.bincount(part[order], weights=weight[order], minlength=parts).astype(np.float64)


def members(part: Ints, order: Ints) -> list[Ints]:
    """The things in each part, parts 0, 1, ... and inside them in ``order``."""
    by_part = order[np.argsort(part[order], kind="stable")]
    starts = np.searchsorted(part[by_part], np.arange(int(part.max(initial=-1)) + 2))
    return [by_part[start:end] for start, end in pairwise(starts)]


def longest_first(weight: Floats, tie: Ints, size: Floats) -> Ints:
    """The bin of each thing: heaviest first, each into the bin that is then least full for its size.

    Things that weigh nothing would all go to whichever bin happens to be the emptiest, so they are dealt last and by
    number: into the bin that holds the fewest things for its size. Between equals, ``tie`` says who is dealt first,
    and the bin with the lowest number takes it.
    """
    order = np.lexsort((tie, -weight))
    weighing = np.count_nonzero(weight)
    heavy, weightless = order[:weighing], order[weighing:]
    one_each = np.ones(len(weight))
    bins = np.zeros(len(weight), dtype=np.intp)
    fill(bins, heavy, weight, np.zeros(len(size)), size)
    fill(bins, weightless, one_each, sums(bins, one_each, heavy, len(size)), size)
    return bins


def fill(bins: Ints, things: Iterable[int], weight: Floats, held: Floats, size: Floats) -> None:
    """Set ``bins`` of ``things``, in order, each to the bin that is then least full for its size.

    ``held`` is the weight that each bin holds already; it grows.
    """
    for thing in things:
        chosen = np.argmin((held + weight[thing]) / size)
        bins[thing] = chosen
        held[chosen] += weight[thing]
