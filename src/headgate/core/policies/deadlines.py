"""Policies of hard real-time systems, for tables whose data come at regular times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy


@dataclass(frozen=True)
class EarliestDeadline(Policy):
    """The update whose deadline is nearest runs first; the deadline is when the next data are expected.
    Meets most deadlines if jobs could be interrupted, which updates cannot.

    Rule: ``-(release_time + period)``.
    Features: release_time, period.
    Fails: knows no priorities; under overload everything is late, and an update with a long period waits that long.
    Paper: Golab et al., section 3.1.
    """

    name = "edf"
    summary = "the update with the nearest deadline"
    paper = "Golab 3.1"
    needs = ("release_time", "period")
    local = True

    def priorities(self, view: FeatureView) -> Floats:
        return -(view["release_time"] + view["period"])


@dataclass(frozen=True)
class PriorityDeadline(Policy):
    """The table with the highest priority runs first, the nearest deadline between equals.
    Simple, and as good as ``max-benefit`` as long as tables differ little in speed.

    Rule: ``(priority, -(release_time + period))``.
    Features: priority, release_time, period.
    Fails: a little staleness of an important table outweighs any staleness of others, which can wait for ever.
    Paper: Golab et al., section 3.1 (EDF-P).
    """

    name = "edf-p"
    summary = "the update with the highest priority, then the nearest deadline"
    paper = "Golab 3.1"
    needs = ("priority", "release_time", "period")
    local = True
    starves = True

    def priorities(self, view: FeatureView) -> Floats:
        return np.column_stack((view["priority"], -(view["release_time"] + view["period"])))
