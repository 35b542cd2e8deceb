"""A placement that partitions only where it pays: lanes where short updates would wait too long behind long ones.

Partitioning keeps tracks free for short updates, and keeps long ones off them. Where all are alike, or the long ones
matter as much, it only forbids them to help each other: Proportional then costs more than it saves, most of all at
overload, where it parts tables that are alike because their updates take longer than a period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import ParameterError
from headgate.core.flow import at_least_a_moment
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.placement import Lanes, Placement, Workers
from headgate.core.placements.loads import JOB_FEATURES, Jobs
from headgate.core.placements.proportional import Proportional
from headgate.core.placements.spread import Anywhere

#: how much more lanes must save while tracks are not always busy
_BELOW_FULL = 4.0
_AT_ONCE = 1e12


@dataclass(frozen=True)
class ByLength(Placement):
    """The lanes of Proportional where they shorten the time that tables wait, weighted by priority; else Anywhere.

    Rule. All tracks being busy, a job waits until the first of those that it may use is free. What runs on a track is a
    mix of the jobs that may use it, each by its share of the track's time, and has half of its E(P) left on average.
    The first of several tracks is free after ``1 / sum of (1 / that)``. So the wait of each job is known with lanes and
    without. Lanes are used if they save at least ``gain`` of the least weighted staleness that is possible, which is
    the sum of p (P / 2 + E(P)); four times as much while the load is below the number of tracks, because then jobs do
    not always have to wait.

    Costs are learned and move a little, so lanes that are in use stay until they save nothing any more.
    """

    gain: float = 0.015

    name = "by-length"
    summary = "like proportional where short jobs would wait too long for long ones, else like anywhere"
    paper = "none; the lanes are those of Golab et al. 3.2.3"
    needs = (*JOB_FEATURES, "priority")

    _ANYWHERE: ClassVar[Placement] = Anywhere()
    _LANES: ClassVar[Placement] = Proportional()

    def __post_init__(self) -> None:
        if not 0 <= self.gain < np.inf:
            raise ParameterError(f"placement {self.name!r}: gain is a share of at least 0; got {self.gain}")

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        lanes = self._LANES.lanes(view, workers)
        saved = saved_by_lanes(view, lanes, len(workers))
        is_full = math.fsum(Jobs.of(view).utilisation) >= len(workers)
        needed = 0.0 if _is_parted(view) else self.gain * (1.0 if is_full else _BELOW_FULL)
        return lanes if saved > 0 and saved >= needed else self._ANYWHERE.lanes(view, workers)


def saved_by_lanes(view: FeatureView, lanes: Lanes, tracks: int) -> float:
    """How much weighted staleness lanes save, as a share of the least that is possible; below 0 if they cost some."""
    jobs, priority = Jobs.of(view), view["priority"]
    # added up by name, because the order of declaration must not tip the balance
    order = np.argsort(jobs.tie)
    priority, lane_of = priority[order], lanes.of[order]
    jobs = Jobs(jobs.period[order], jobs.execution[order], jobs.utilisation[order], jobs.tie[order])
    known = np.isfinite(jobs.period) & (jobs.execution > 0)
    least = float((priority[known] * (jobs.period[known] / 2 + jobs.execution[known])).sum())
    if len(lanes.lanes) < 2 or tracks < 2 or not least > 0:
        return 0.0
    may_use = np.zeros((len(lanes.lanes), tracks), dtype=bool)
    for number, lane in enumerate(lanes.lanes):
        may_use[number, [*lane.home, *lane.spare]] = True
    mine = may_use[lane_of]
    saved = _waits(jobs, np.ones_like(mine)) - _waits(jobs, mine)
    return float((priority[known] * saved[known]).sum()) / least


def _waits(jobs: Jobs, may_use: NDArray[np.bool_]) -> Floats:
    """How long each job waits for a track on average, if all are busy; ``may_use`` has a row for each job."""
    share = may_use * (jobs.utilisation / may_use.sum(axis=1))[:, np.newaxis]
    busy, left = share.sum(axis=0), (share * jobs.execution[:, np.newaxis]).sum(axis=0) / 2
    # how often a track becomes free in a second; one that nobody uses is free at once
    freed = np.where(busy > 0, busy / at_least_a_moment(left), _AT_ONCE)
    waits: Floats = 1 / (may_use * freed).sum(axis=1)
    return waits


def _is_parted(view: FeatureView) -> bool:
    """Whether the nodes in view are in different lanes now; the memory of a placement is what it said last."""
    before = view.memory
    if not isinstance(before, Lanes) or len(before.of) != len(view.graph):
        return False
    of = before.of if view.rows is None else before.of[view.rows]
    return len(np.unique(of[of >= 0])) > 1  # nodes that are new were in none
