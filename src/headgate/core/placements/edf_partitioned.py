"""EDF-partitioned (Golab et al., 3.2.1 and 3.2.2): jobs on tracks that earliest-deadline-first could keep.

A worker is a track. Which policy then ranks the nodes is open; that no deadline is missed holds for ``edf``
only, and only while jobs take as long as their model says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headgate.core.errors import ParameterError
from headgate.core.graph import Ints
from headgate.core.matrix import FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers, check_choice
from headgate.core.placements.loads import JOB_FEATURES, Jobs, fill, members, names_in_view, sums

Own = Literal["counted", "printed"]
Overflow = Literal["share", "refuse"]

#: sums of utilisations are rounded; a track that is exactly full must not look overfull
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Track:
    """The jobs at home on one track and the three numbers that schedulability depends on."""

    #: never empty; in the order in which they were put here
    nodes: tuple[str, ...]
    #: U, the sum of E(P) / P
    utilisation: float
    #: Emax, the longest E(P)
    longest_execution: float
    #: Pmin
    shortest_period: float

    @property
    def schedulable(self) -> bool:
        """U <= 1 - Emax / Pmin: non-preemptive earliest-deadline-first keeps all deadlines of the track."""
        return self.utilisation <= 1 - self.longest_execution / self.shortest_period + _ROUNDING


@dataclass(frozen=True)
class EdfPartitioned(Placement):
    """Short jobs apart from long ones, on as many tracks as schedulability asks for; idle tracks lent to short jobs.

    Rule. Jobs by increasing period are put on the current track while U <= 1 - Emax / Pmin holds there, else on a new
    one. That is next-fit: the paper's example opens a second track for J3 and leaves J4 on it, although J4
    would fit on the first. A job alone on its track is blocked by nobody, so it gets one even if the condition,
    which is sufficient but not necessary, does not hold. A node's home is its track and after it the tracks left
    over; spare are the tracks r it may be promoted to: U_r <= 1 - max(Emax_r, E) / min(Pmin_r, P).

    ``aggressive``  take a spare track even if a job at home there could run.
    ``own``         ``counted``: U_r in that condition includes the promoted job. Only so does the paper's example come
                    out (J4 alone may be promoted), and the remark of 3.2.3 that promotion asks the same as
                    packing. ``printed``: the formula to the letter, without it.
    ``overflow``    jobs beyond the tracks there are: ``share`` puts each on the track with the least
                    utilisation, at the price of the guarantee; ``refuse`` raises and says how many tracks are needed.

    Fails with many alike jobs: they are cut into tracks that cannot help each other.
    """

    aggressive: bool = False
    own: Own = "counted"
    overflow: Overflow = "share"

    name = "edf-partitioned"
    summary = "jobs on tracks that can meet every deadline; short ones may use idle tracks of long ones"
    paper = "Golab et al. 3.2.1, 3.2.2"
    needs = JOB_FEATURES

    def __post_init__(self) -> None:
        check_choice(self.name, "own", self.own, get_args(Own))
        check_choice(self.name, "overflow", self.overflow, get_args(Overflow))

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        jobs = Jobs.of(view)
        home = self._homes(jobs, len(workers))
        tracks = _tracks(jobs, home, names_in_view(view))
        promotable = self._promotable(jobs, home, tracks)
        left_over = tuple(range(len(tracks), len(workers)))
        return Lanes.of_nodes(
            Lane((track, *left_over), tuple(np.flatnonzero(spare).tolist()), self.aggressive)
            for track, spare in zip(home.tolist(), promotable, strict=True)
        )

    def tracks(self, view: FeatureView, workers: Workers | None = None) -> tuple[Track, ...]:
        """The tracks that jobs are at home on: those there are, or without ``workers`` as many as are needed."""
        jobs = Jobs.of(view)
        home = _next_fit(jobs) if workers is None else self._homes(jobs, len(workers))
        return _tracks(jobs, home, names_in_view(view))

    def _homes(self, jobs: Jobs, tracks: int) -> Ints:
        home = _next_fit(jobs)
        needed = int(home.max(initial=-1)) + 1
        if needed <= tracks:
            return home
        if self.overflow == "refuse":
            raise ParameterError(
                f"placement {self.name!r} needs {needed} tracks to keep every deadline of {len(jobs)} jobs; "
                f"there are {tracks}. Start {needed} workers, or say overflow=share to fill the tracks there are."
            )
        order = jobs.by_period()
        fits = home[order] < tracks
        utilisation = sums(home, jobs.utilisation, order[fits], tracks)
        fill(home, order[~fits], jobs.utilisation, utilisation, np.ones(tracks))
        return home

    def _promotable(self, jobs: Jobs, home: Ints, tracks: tuple[Track, ...]) -> NDArray[np.bool_]:
        """promotable[i, r]: job i may run on track r, where it is not at home."""
        promoted = jobs.utilisation if self.own == "counted" else np.zeros(len(jobs))
        utilisation = np.add.outer(promoted, [track.utilisation for track in tracks])
        longest = np.maximum.outer(jobs.execution, [track.longest_execution for track in tracks])
        shortest = np.minimum.outer(jobs.period, [track.shortest_period for track in tracks])
        promotable: NDArray[np.bool_] = utilisation <= 1 - longest / shortest + _ROUNDING
        promotable[np.arange(len(jobs)), home] = False
        return promotable


def _next_fit(jobs: Jobs) -> Ints:
    """The home track of every job, tracks opened as needed."""
    home = np.empty(len(jobs), dtype=np.intp)
    utilisation, longest, shortest = jobs.utilisation.tolist(), jobs.execution.tolist(), jobs.period.tolist()
    track, used, emax, pmin = -1, np.inf, 0.0, np.inf  # no track is open yet, so nothing fits
    for job in jobs.by_period().tolist():
        used, emax, pmin = used + utilisation[job], max(emax, longest[job]), min(pmin, shortest[job])
        if used > 1 - emax / pmin + _ROUNDING:
            track, used, emax, pmin = track + 1, utilisation[job], longest[job], shortest[job]
        home[job] = track
    return home


def _tracks(jobs: Jobs, home: Ints, names: tuple[str, ...]) -> tuple[Track, ...]:
    order = jobs.by_period()
    utilisation = sums(home, jobs.utilisation, order).tolist()
    return tuple(
        Track(
            nodes=tuple(names[i] for i in nodes),
            utilisation=utilisation[track],
            longest_execution=float(jobs.execution[nodes].max()),
            shortest_period=float(jobs.period[nodes].min()),
        )
        for track, nodes in enumerate(members(home, order))
    )
