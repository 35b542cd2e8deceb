"""Who comes next in each lane, kept up to date as cheaply as the policy allows.

Two ways to the same answer. ``LocalRanking`` keeps a heap per lane and, when a node changes, ranks just that node
again: for policies that are ``local``. ``FullRanking`` ranks all runnable nodes at each decision: for policies that
look at the clock, at other nodes or at their memory. Both break ties by name.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from math import inf, isnan

import numpy as np

from headgate.core.graph import Ints
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy, as_table, best_first, priorities_of

#: compares heads of different lanes: the smaller key goes first
Key = tuple[float, ...]
_LAST = inf


class LocalRanking:
    """Heaps with lazy deletion.

    Invariants:
    1. Every runnable node that is not in ``_dirty`` has exactly one current entry, in the heap of its lane.
    2. An entry is current if its number equals ``_entry[node]``; others are skipped when they surface.
    3. A heap is at most four times as long as the lane has nodes, plus 64: stale entries are swept out.
    """

    def __init__(self, policy: Policy, lane_of: list[int], lanes: int, tie: list[int], runnable: Callable[[int], bool]):
        self._policy = policy
        self._lane_of = lane_of
        self._tie = tie
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
        tie = self._tie
        # A priority that is no number comes last; as a key it would compare with nothing and spoil the heap.
        if priorities.ndim == 1:
            values = priorities.tolist()
            if whole:
                values = [values[node] for node in nodes]
            return [(_LAST if isnan(v) else -v, tie[node]) for v, node in zip(values, nodes, strict=True)]
        rows = priorities.tolist()
        if whole:
            rows = [rows[node] for node in nodes]
        return [(*(_LAST if isnan(v) else -v for v in row), tie[node]) for row, node in zip(rows, nodes, strict=True)]

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

    def drop(self, lane: int, node: int) -> None:
        """Take out a node that was just started; it comes back through ``changed``."""
        self._entry[node] = 0


class FullRanking:
    """All runnable nodes ranked anew at each decision, then dealt out to their lanes. Methods as above."""

    def __init__(self, policy: Policy, lane_of: Ints):
        self._policy = policy
        self._lane_of = lane_of
        self._order: Ints = np.empty(0, dtype=np.intp)
        self._lanes: dict[int, list[tuple[Key, int]]] = {}

    def changed(self, node: int) -> None:
        """Nothing to note: everything is ranked again anyway."""

    def prepare(self, view: FeatureView, runnable: Iterable[int]) -> None:
        nodes = np.fromiter(runnable, dtype=np.intp)
        if len(nodes) == 1:  # the usual case on a machine that keeps up
            self._order = nodes
        else:
            table = as_table(priorities_of(self._policy, view))[nodes]
            self._order = nodes[best_first(table, view.graph.tie[nodes])]
        self._lanes.clear()

    def _lane(self, lane: int) -> list[tuple[Key, int]]:
        if lane not in self._lanes:
            places = np.flatnonzero(self._lane_of[self._order] == lane)[::-1]
            self._lanes[lane] = [((float(p),), int(self._order[p])) for p in places]
        return self._lanes[lane]

    def head(self, lane: int) -> tuple[Key, int] | None:
        best_last = self._lane(lane)
        return best_last[-1] if best_last else None

    def drop(self, lane: int, node: int) -> None:
        waiting = self._lane(lane)
        waiting[:] = [item for item in waiting if item[1] != node]


def ranking_for(
    policy: Policy, lane_of: Ints, lanes: int, tie: Ints, runnable: Callable[[int], bool]
) -> LocalRanking | FullRanking:
    """The cheaper of the two rankings that is right for ``policy``."""
    if policy.local:
        return LocalRanking(policy, lane_of.tolist(), lanes, tie.tolist(), runnable)
    return FullRanking(policy, lane_of)
