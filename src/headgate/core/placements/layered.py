"""Work below the live layer is placed apart, so that it takes no share of the tracks from live nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.matrix import FeatureView
from headgate.core.placement import Lane, Lanes, Placement, Workers, lanes_of
from headgate.core.policies.classes import LIVE
from headgate.core.policy import vet


@dataclass(frozen=True)
class LayeredPlacement(Placement):
    """``inner`` places the live nodes as if there were no others. Backfills and maintenance may run on every track.

    They have no period of their own, only one by which the guard is patient with them. A placement that took it for
    the period of a job would keep a live table of a minute away from most tracks, because one of its updates takes
    longer than the "period" of a backfill.

    Rule. Nodes below the live layer are at home on the last track only, which ``Proportional`` lends to nobody; all
    others are spare. So a live node that may use a track is never passed over there in favour of a backfill. Features:
    layer, and those of ``inner``.
    """

    inner: Placement

    summary = "live nodes by another placement; backfills and maintenance on every track"
    paper = "none"

    def __post_init__(self) -> None:
        vet(self.inner)  # here, before its needs are made part of those of this one

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("layer", *self.inner.needs)

    def lanes(self, view: FeatureView, workers: Workers) -> Lanes:
        is_live = view["layer"] >= LIVE
        if is_live.all():
            return self.inner.lanes(view, workers)
        rows = np.flatnonzero(is_live)
        shown = rows if view.rows is None else view.rows[rows]
        placed = lanes_of(self.inner, view.only(shown), workers)
        last = len(workers) - 1
        of = np.full(len(view), len(placed.lanes), dtype=np.intp)
        of[rows] = placed.of
        return Lanes((*placed.lanes, Lane((last,), tuple(range(last)))), of)

    def __str__(self) -> str:
        return str(self.inner)
