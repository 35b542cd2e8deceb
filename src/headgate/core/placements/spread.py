"""Placements that spread nodes over workers: everywhere, by chance, in turn, by load, by NUMA node.

They know of queries and loads, not of deadlines; for those see ``edf_partitioned`` and ``proportional``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.graph import Ints, uniform
from headgate.core.matrix import FeatureView, in_view
from headgate.core.placement import Lane, Lanes, Placement, Workers
from headgate.core.placements.loads import load, longest_first, sums


@dataclass(frozen=True)
class Anywhere(Placement):
    """Global scheduling: the policy alone decides, no worker is ever idle while a node can run.

    Fails when long nodes take all workers and short ones wait behind them; see ``Proportional``.
    """

    name = "anywhere"
    summary = "every node may run on every worker"
    paper = "global scheduling: Golab et al. 3.2, EdgeWise 4.1"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.single(len(view), Lane(tuple(range(len(workers)))))


@dataclass(frozen=True)
class RandomWorker(Placement):
    """Each node on one worker drawn uniformly, anew at every turn, from the seed, the turn and the node's name.

    Fails with few nodes: they often land on the same worker while others have none.
    """

    name = "random"
    summary = "each node on one worker, chosen at random at each call"
    paper = "Haren 7.2"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        chance = uniform(view.seed, view.turn, in_view(view, view.graph.fingerprint))
        return Lanes.of_workers((chance * len(workers)).astype(np.intp))


@dataclass(frozen=True)
class RoundRobinQueries(Placement):
    """Whole queries dealt to workers in turn, in the order of the smallest node name of each.

    Keeps a query's data on one worker. Fails when queries are few or differ much in load.
    """

    name = "round-robin-queries"
    summary = "queries assigned to workers in turn, all nodes of a query on one worker"
    paper = "Haren 4.1"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        return Lanes.of_workers(_query_numbers(view) % len(workers))


@dataclass(frozen=True)
class LeastLoaded(Placement):
    """Loads as equal as a greedy pass can make them: heaviest node first, each to the worker with the least so far.

    What the load of a node is depends on the features there are: ``loads.load`` says how. Nodes without load go to
    the worker with the fewest nodes. Fails between two placements, when loads move faster than nodes are
    placed again.
    """

    name = "least-loaded"
    summary = "each node on one worker, loads as equal as possible"
    paper = "Haren 4.1"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        tie = in_view(view, view.graph.tie)
        return Lanes.of_workers(longest_first(load(view), tie, np.ones(len(workers))))


@dataclass(frozen=True)
class ByNode(Placement):
    """Each query at home on the workers of one group (NUMA node, executor), so that its data stays near.

    Queries are dealt to groups by load, like nodes by ``LeastLoaded``; a group counts by its number of workers. Workers
    of other groups are spare: they help if nobody at home there can run, or, if ``aggressive``, at once.
    """

    aggressive: bool = False

    name = "by-node"
    summary = "each query on the workers of one NUMA node or executor; others may help"
    paper = "Bobox (Falt and Yaghob) 5.1, 5.2"

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        groups = np.unique(workers.group)
        worker_group = np.searchsorted(groups, workers.group)
        query = _query_numbers(view)
        query_load = sums(query, load(view), np.argsort(in_view(view, view.graph.tie)))
        size = np.bincount(worker_group).astype(np.float64)
        group = longest_first(query_load, np.arange(len(query_load)), size)
        lane = [self._lane(worker_group, g) for g in range(len(groups))]
        per_query = Lanes.of_nodes(lane[g] for g in group)
        return Lanes(per_query.lanes, per_query.of[query])

    def _lane(self, worker_group: Ints, group: int) -> Lane:
        home = np.flatnonzero(worker_group == group)
        spare = np.flatnonzero(worker_group != group)
        return Lane(tuple(home.tolist()), tuple(spare.tolist()), self.aggressive)


def _query_numbers(view: FeatureView) -> Ints:
    """The number of each node's query, queries counted in the order of the smallest node name of each."""
    by_name = np.argsort(in_view(view, view.graph.tie))
    query = in_view(view, view.graph.query)[by_name]
    _, first, which = np.unique(query, return_index=True, return_inverse=True)
    numbers = np.empty(len(view), dtype=np.intp)
    numbers[by_name] = np.argsort(np.argsort(first))[which]
    return numbers
