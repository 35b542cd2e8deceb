"""Who comes next in each lane, kept up to date as cheaply as the policy allows.

Two ways to the same answer. ``LocalRanking`` keeps a heap per lane and, when a node changes, ranks just that node
again: for policies that are ``local``. ``FullRanking`` ranks all runnable nodes at each decision: for policies that
look at the clock, at other nodes or at their memory. Both break ties as ``headgate.core.policy.ties`` does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from math import inf, isnan

import numpy as np

from headgate.core.graph import Floats, Graph, Ints
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy, priorities_of, ties

#: compares heads of different lanes: the smaller key goes first
Key = tuple[float, ...]
_LAST = inf


def _nothing(node: int) -> float:
    """What waits for a node if the engine keeps no account of it."""
    return 0.0


class LocalRanking:
    """Heaps with lazy deletion.

    Invariants:
    1. Every runnable node that is not in ``_dirty`` has exactly one current entry, in the heap of its lane.
    2. An entry is current if its number equals ``_entry[node]``; others are skipped when they surface.
    3. A heap is at most four times as long as the lane has nodes, plus 64: stale entries are swept out.
    """

    def __init__(self, policy: Policy, lane_of: list[int], lanes: int, graph: Graph, runnable: Callable[[int], bool]):
        self._policy = policy
        self._lane_of = lane_of
        self._tie: list[int] = graph.tie.tolist()
        self._depth: list[int] = graph.depth.tolist()
        self._runnable = runnable
        self._heaps: list[list[tuple[Key, int, int]]] = [[] for _ in range(lanes)]
        self._limit = [64] * lanes
        for lane in lane_of:
            self._limit[lane] += 4
        self._entry = [0] * len(lane_of)
        self._dirty: set[int] = set()
        self._count = 0

    def changed(self, node: int) -> None:
        """Something about this node changed; it must be ranked again before it is next compared."""
        self._dirty.add(node)

    def prepare(self, view: FeatureView, runnable: Iterable[int]) -> None:
        """Bring the ranking up to date for one decision."""
        if not self._dirty:
            return
        nodes = [node for node in self._dirty if self._runnable(node)]
        keys = self._keys(view, nodes) if nodes else []
        # A node that is not runnable keeps no current entry: it is announced again when it becomes runnable. Nothing
        # is forgotten before the policy has answered: it may be the user's, and may fail.
        for node in self._dirty:
            self._entry[node] = 0
        self._dirty.clear()
        for node, key in zip(nodes, keys, strict=True):
            self._push(node, key)

    def _keys(self, view: FeatureView, nodes: list[int]) -> list[Key]:
        whole = len(nodes) * 4 > len(view.graph)
        view.rows = None if whole else np.array(nodes, dtype=np.intp)
        try:
            priorities = priorities_of(self._policy, view)
        finally:
            view.rows = None
        # Between equals: downstream first, then the most pending, then by name.
        depth, tie = self._depth, self._tie
        waits = view["pending"].item if "pending" in view else _nothing
        pending = [waits(node) for node in nodes]
        # A priority that is no number comes last; as a key it would compare with nothing and spoil the heap.
        if priorities.ndim == 1:
            values = priorities.tolist()
            if whole:
                values = [values[node] for node in nodes]
            return [
                (_LAST if isnan(v) else -v, -depth[node], -waiting, tie[node])
                for v, waiting, node in zip(values, pending, nodes, strict=True)
            ]
        rows = priorities.tolist()
        if whole:
            rows = [rows[node] for node in nodes]
        return [
            (*(_LAST if isnan(v) else -v for v in row), -depth[node], -waiting, tie[node])
            for row, waiting, node in zip(rows, pending, nodes, strict=True)
        ]

    def _push(self, node: int, key: Key) -> None:
        self._count += 1
        self._entry[node] = self._count
        lane = self._lane_of[node]
        heap = self._heaps[lane]
        heapq.heappush(heap, (key, node, self._count))
        if len(heap) > self._limit[lane]:
            heap[:] = [item for item in heap if self._entry[item[1]] == item[2]]
            heapq.heapify(heap)

    def head(self, lane: int) -> tuple[Key, int] | None:
        """The best runnable node of a lane with its key, or None."""
        heap = self._heaps[lane]
        while heap:
            key, node, number = heap[0]
            if self._entry[node] == number and self._runnable(node):
                return key, node
            heapq.heappop(heap)
            if self._entry[node] == number:
                self._entry[node] = 0
        return None

    def drop(self, node: int) -> None:
        """Take out a node that was just started; it comes back through ``changed``."""
        self._entry[node] = 0


class FullRanking:
    """All nodes given their priorities anew at each decision; a lane's best is then found without sorting them, and
    what breaks ties is looked up only for those that are equal. Methods as above."""

    def __init__(self, policy: Policy, lane_of: Ints, lanes: int):
        self._policy = policy
        self._lane_of = lane_of if lanes > 1 else None
        self._nodes: Ints = np.empty(0, dtype=np.intp)
        self._view: FeatureView | None = None
        #: by node: the columns of its priority; larger goes first
        self._columns: list[Floats] = []

    def changed(self, node: int) -> None:
        """Nothing to note: everything is ranked again anyway."""

    def prepare(self, view: FeatureView, runnable: Iterable[int]) -> None:
        self._view, self._columns = view, []
        self._nodes = nodes = np.array([*runnable], dtype=np.intp)
        if len(nodes) == 1:  # the usual case on a machine that keeps up
            return
        priorities = priorities_of(self._policy, view)
        self._columns = [priorities] if priorities.ndim == 1 else [*priorities.T]

    def head(self, lane: int) -> tuple[Key, int] | None:
        """The best runnable node of a lane with its key, or None."""
        best, view = self._nodes, self._view
        if self._lane_of is not None:
            best = best[self._lane_of[best] == lane]
        if not len(best) or view is None:
            return None
        for column in self._columns:
            if len(best) == 1:
                break
            values = column[best]
            highest = values.item(values.argmax())
            if isnan(highest):  # a priority that is no number comes last
                values = np.where(np.isnan(values), -inf, values)
                highest = values.max()
            best = best[values == highest]
        if len(best) > 1:
            best = best[np.lexsort(ties(view.only(best)))]
        node = best.item(0)
        if self._lane_of is None or not self._columns:
            return (), node  # there is no other head to compare it with
        priority = (column.item(node) for column in self._columns)
        waiting = view["pending"].item(node) if "pending" in view else 0.0
        key = (*(_LAST if isnan(value) else -value for value in priority), -view.graph.depth.item(node), -waiting)
        return (*key, view.graph.tie.item(node)), node

    def drop(self, node: int) -> None:
        """Nothing to do: everything is ranked again before the next choice."""


def ranking_for(
    policy: Policy, local: bool, lane_of: Ints, lanes: int, graph: Graph, runnable: Callable[[int], bool]
) -> LocalRanking | FullRanking:
    """The cheaper of the two rankings that is right for ``policy``, which has said whether it is local."""
    if local:
        return LocalRanking(policy, lane_of.tolist(), lanes, graph, runnable)
    return FullRanking(policy, lane_of, lanes)
