"""Sums over parts, and dealing things of unequal weight to bins so that none is much fuller than another.

Placements must not depend on the order in which nodes were declared. Adding floats in another order rounds
differently and can tip a balance, so whoever sums here says in which order.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from headgate.core.graph import Floats, Ints


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
