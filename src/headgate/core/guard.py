"""The guard against starvation: which nodes have been runnable for longer than their patience.

Policies only rank, and under overload several of them let a node wait for ever (with Max Benefit, the rank levels off
at p / beta as data piles up, so a table of low priority is never ranked before those of high priority). So the loops
keep a deadline for every runnable node, and an overdue node goes to the front of its lane.
"""

from __future__ import annotations

import heapq
import math


class Guard:
    """Deadlines of runnable nodes, by lane.

    Invariants:
    1. ``_deadline[node]`` is finite if and only if the node is watched, that is runnable with finite patience.
    2. Every watched node has an entry with that very deadline in the heap of its lane; entries with another
       deadline are stale and skipped when they surface, or swept out when they are more than half of the heap.

    The bound: a loop that serves the most overdue node first whenever one of the workers of its lane is free lets a
    node wait for at most its patience, plus one longest run on those workers for itself and for every node that may
    use the same workers and was overdue before it.
    """

    def __init__(self, lane_of: list[int], lanes: int, tie: list[int]) -> None:
        self._lane_of = lane_of
        self._tie = tie
        self._deadline = [math.inf] * len(lane_of)
        self._heaps: list[list[tuple[float, int, int]]] = [[] for _ in range(lanes)]
        #: a node of finite patience has ever been watched; while none has, nobody can be overdue
        self.watches = False

    def watch(self, node: int, deadline: float) -> None:
        """The node became runnable and must run by ``deadline``."""
        if deadline == self._deadline[node]:
            return
        self._deadline[node] = deadline
        if deadline < math.inf:
            self.watches = True
            heap = self._heaps[self._lane_of[node]]
            heapq.heappush(heap, (deadline, self._tie[node], node))
            if len(heap) > 64 + 2 * len(self._deadline):
                heap[:] = [entry for entry in heap if self._deadline[entry[2]] == entry[0]]
                heapq.heapify(heap)

    def release(self, node: int) -> None:
        """The node was started, or cannot run any more."""
        self._deadline[node] = math.inf

    def most_overdue(self, lane: int, now: float) -> tuple[float, int, int] | None:
        """The node of ``lane`` whose deadline passed first, as (deadline, its place between equals, node), or None."""
        heap = self._heaps[lane]
        while heap:
            deadline, _, node = heap[0]
            if self._deadline[node] != deadline:
                heapq.heappop(heap)
            elif deadline <= now:
                return heap[0]
            else:
                return None
        return None

    def deadline(self, node: int) -> float:
        """When the guard strikes for this node; infinity if it is not watched."""
        return self._deadline[node]
