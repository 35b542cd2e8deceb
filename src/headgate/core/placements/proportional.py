"""Proportional (Golab et al., 3.2.3): clusters of like jobs, each at home on its share of the tracks.

A worker is a track. Tracks are handed out from number 0 up, to the cluster of the longest jobs first, so that the
tracks below a cluster's own belong to longer jobs, which suffer little when a short one goes in front.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from headgate.core.graph import Ints
from headgate.core.matrix import FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers, check_choice, check_positive
from headgate.core.placements.loads import JOB_FEATURES, Jobs, members, names_in_view, sums

Allocate = Literal["basic", "all"]
Compare = Literal["execution", "period"]

#: a boundary this close to a whole track is meant to be on it: the quotients it comes from are rounded
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Cluster:
    """Jobs that are alike enough to share tracks."""

    #: never empty; in the order in which they joined, by increasing execution time
    nodes: tuple[str, ...]
    #: UC, the sum of E(P) / P
    utilisation: float
    least_period: float


@dataclass(frozen=True, slots=True)
class ClusterShare:
    """The stretch of tracks of one cluster: track t is the stretch from t to t + 1."""

    #: track_lo: the ``high`` of the next cluster, 0 for the last; 0 for all if no utilisation is known
    low: float
    #: track_hi: the number of tracks handed out for the first cluster; for all if no utilisation is known
    high: float


@dataclass(frozen=True)
class Proportional(Placement):
    """Tracks in proportion to what each cluster of like jobs needs; longer jobs' tracks lent to shorter ones.

    Rule. Jobs by increasing E(P) join the current cluster while E(P) < k * (least period in it), else found a new one.
    Cluster j gets M * UC_j tracks, the last cluster from track 0 up, M being such that M * sum(UC) is a whole number. A
    node's home is the tracks of its cluster after the lowest, then the lowest, which longer jobs may
    share, then tracks left over. Spare are all tracks below.

    ``k``           larger: fewer clusters, more like ``anywhere``; smaller: more clusters, more strictly apart.
    ``allocate``    ``all``: all tracks are handed out. ``basic``: as few as the total utilisation needs.
    ``aggressive``  take a spare track even if a job at home there could run. With ``all``, the paper's best variant.
    ``compare``     ``execution``: the rule above, which is the paper's text. ``period``: P instead of E(P) is
                    compared with k * (least period), the only way that its example (3.2.4) comes out; choose
                    k > 1 then, since equal periods are not below one another.

    If utilisation exceeds the tracks there are, every cluster gets proportionally less than it needs; if none is
    known, every cluster is at home everywhere. Fails if E(P) is far from what a run really takes.
    """

    k: float = 1.0
    allocate: Allocate = "all"
    aggressive: bool = True
    compare: Compare = "execution"

    name = "proportional"
    summary = "clusters of similar jobs on a share of the tracks; short ones may use tracks of long ones"
    paper = "Golab et al. 3.2.3"
    needs = JOB_FEATURES

    def __post_init__(self) -> None:
        check_positive(self.name, "k", self.k)
        check_choice(self.name, "allocate", self.allocate, get_args(Allocate))
        check_choice(self.name, "compare", self.compare, get_args(Compare))

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        jobs = Jobs.of(view)
        cluster = self._cluster_of(jobs)
        handed_out = self._handed_out(jobs, len(workers))
        shares = _shares(jobs, cluster, handed_out)
        per_cluster = Lanes.of_nodes(self._lane(share, handed_out, len(workers)) for share in shares)
        return Lanes(per_cluster.lanes, per_cluster.of[cluster])

    def clusters(self, view: FeatureView) -> tuple[Cluster, ...]:
        """C_0, C_1, ...: the cluster of the shortest jobs first."""
        jobs = Jobs.of(view)
        names = names_in_view(view)
        cluster = self._cluster_of(jobs)
        utilisations = sums(cluster, jobs.utilisation, jobs.by_execution())
        return tuple(
            Cluster(tuple(names[i] for i in nodes), float(utilisation), float(jobs.period[nodes].min()))
            for nodes, utilisation in zip(members(cluster, jobs.by_execution()), utilisations, strict=True)
        )

    def shares(self, view: FeatureView, workers: Workers) -> tuple[ClusterShare, ...]:
        """The stretch of tracks of each cluster, in the order of ``clusters``."""
        jobs = Jobs.of(view)
        return _shares(jobs, self._cluster_of(jobs), self._handed_out(jobs, len(workers)))

    def _cluster_of(self, jobs: Jobs) -> Ints:
        cluster = np.empty(len(jobs), dtype=np.intp)
        period = jobs.period.tolist()
        if self.compare == "execution":
            compared = jobs.execution.tolist()
        else:  # a period that is not known tells nobody apart
            compared = [p if p < math.inf else 0.0 for p in period]
        current, least_period = 0, math.inf
        for job in jobs.by_execution().tolist():
            if not compared[job] < self.k * least_period:
                current, least_period = current + 1, math.inf
            least_period = min(least_period, period[job])
            cluster[job] = current
        return cluster

    def _handed_out(self, jobs: Jobs, tracks: int) -> int:
        """How many of the tracks there are go to clusters: the paper's M * Utot."""
        total = math.fsum(jobs.utilisation)
        if self.allocate == "all" or total == 0:
            return tracks
        return min(tracks, max(1, math.ceil(total - _ROUNDING)))

    def _lane(self, share: ClusterShare, handed_out: int, tracks: int) -> Lane:
        # a cluster without utilisation can have an empty share above the last track
        lowest = min(math.floor(share.low), handed_out - 1)
        own = range(lowest + 1, math.ceil(share.high))
        return Lane((*own, lowest, *range(handed_out, tracks)), tuple(range(lowest)), self.aggressive)


def _shares(jobs: Jobs, cluster: Ints, handed_out: int) -> tuple[ClusterShare, ...]:
    # tracks are counted from the last cluster back to the first
    needed = np.cumsum(sums(cluster, jobs.utilisation, jobs.by_execution())[::-1])
    if not needed[-1:].any():
        return (ClusterShare(0.0, float(handed_out)),) * len(needed)
    high = handed_out * (needed / needed[-1])
    high = np.where(np.abs(high - np.rint(high)) < _ROUNDING, np.rint(high), high)
    low = np.concatenate(([0.0], high[:-1]))
    return tuple(map(ClusterShare, low[::-1].tolist(), high[::-1].tolist()))
