"""Layers: work that stands behind other work whatever the policy says.

A backfill must never delay live updates, and maintenance must delay neither. Both are nodes like any other, in lower
layers; that they are not starved by what stands before them is the guard's business, as for every node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy, as_table

#: what somebody has asked for now, updates, repairs of the past, upkeep
URGENT, LIVE, BACKFILL, MAINTENANCE = 1.0, 0.0, -1.0, -2.0


@dataclass(frozen=True)
class Layered(Policy):
    """Whoever is in the higher layer goes first; inside a layer, ``inner`` decides.

    Rule: ``(layer, *inner)``. Features: layer, and those of ``inner``. Fails: as long as a higher layer never runs
    dry, a lower one gets only what the guard gives it.
    """

    inner: Policy

    name = "layered"
    summary = "the highest layer; inside it, another policy"
    paper = "none"
    needs = ("layer",)
    starves = True

    @property
    def local(self) -> bool:  # type: ignore[override]
        return self.inner.local

    def requires(self) -> tuple[str, ...]:
        return (*self.needs, *self.inner.requires())

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((view["layer"], as_table(self.inner.priorities(view))))

    def remember(self, view: FeatureView, node: int) -> object:
        return self.inner.remember(view, node)

    def __str__(self) -> str:
        return str(self.inner)
