"""A policy for tables with target lags: promises first, and priorities as long as no promise is in danger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from headgate.core.errors import ParameterError
from headgate.core.flow import at_least_a_moment
from headgate.core.graph import Floats, Ints
from headgate.core.matrix import FeatureView, in_view
from headgate.core.policies.tables import marginal_benefit
from headgate.core.policy import Policy

Goal = Literal["ratio", "count"]

_FEATURE = {"ratio": "target_lag", "count": "kept_target_lag"}


@dataclass(frozen=True)
class TargetLag(Policy):
    """The update whose target lag is in danger runs first; while none is, Max Benefit decides.
    A target is a promise and a priority a preference, so nobody has to say how much of one makes up for the other.

    Rule: ``(2, p dF / E)`` if E fits into the room, else ``(1, -(since + r T))`` for tables with a target T, else
    ``(0, p dF / E)``. Data has waited since ``since``. The room is the time until the first table with a target must
    begin, if they run by due time on this track and those that are busy, and a ``margin`` of each target is kept free:
    so a table is not updated more often than its target asks for, and the others get the rest. r is the largest ratio
    of lag to target that cannot be avoided any more, at least 1.
    ``goal``: what becomes of targets that cannot all be kept. ``ratio``: all are coarser by one factor, so that the
    largest ratio of lag to target is least. ``count``: those that fit are kept, by priority, the others given up.
    Features: target_lag or kept_target_lag, waiting_since, priority, freshness_delta, execution_time, ready, workers.
    Fails: where targets take all of the tracks, tables without one can wait for ever.
    Paper: none; deadlines stretched by one factor are those of Bender et al. for the maximum stretch.
    """

    name = "target-lag"
    summary = "keeps tables within their target lags; as long as these have room, like max-benefit"
    paper = "our own"
    needs = ("waiting_since", "priority", "freshness_delta", "execution_time", "ready", "workers")
    starves = True

    goal: Goal = "ratio"
    margin: float = 0.15

    def __post_init__(self) -> None:
        if self.goal not in get_args(Goal):
            raise ParameterError(
                f"policy 'target-lag': goal must be one of {', '.join(get_args(Goal))}; got {self.goal!r}"
            )
        if not 0 <= self.margin < 1:
            raise ParameterError(f"policy 'target-lag': margin is a share from 0 up to 1; got {self.margin}")

    def requires(self) -> tuple[str, ...]:
        return (_FEATURE[self.goal], *self.needs)

    def priorities(self, view: FeatureView) -> Floats:
        target, since = view[_FEATURE[self.goal]], view["waiting_since"]
        seconds, benefit = at_least_a_moment(view["execution_time"]), marginal_benefit(view)
        waits = (view["ready"] > 0) & (view["workers"] == 0) & np.isfinite(since)
        held = waits & np.isfinite(target) & (target > 0)
        tracks = 1.0 + view["workers"].sum()  # at least so many: one is free, or nobody would ask
        soon = since + (1 - self.margin) * target
        fits = seconds <= _room(np.flatnonzero(held), soon, seconds, view, tracks)
        ratio = ((view.now + seconds - since)[held] / target[held]).max(initial=1.0)
        in_row = held & ~fits
        due = np.where(in_row, since + ratio * target, 0.0)
        return np.column_stack((2.0 * fits + in_row, np.where(in_row, -due, benefit)))

    def joining(self, view: FeatureView, offered: Ints, others: Ints) -> Ints:
        """Nobody, while a table with a target waits: a promise is not delayed for a saving."""
        target = view[_FEATURE[self.goal]][others]
        return offered[:0] if bool((np.isfinite(target) & (target > 0)).any()) else offered


def _room(held: Ints, due: Floats, seconds: Floats, view: FeatureView, tracks: float) -> float:
    """How many seconds may pass before the first of ``held`` must begin, so that all are done when they are due."""
    order = held[np.lexsort((in_view(view, view.graph.tie)[held], due[held]))]
    before = np.cumsum(seconds[order]) - seconds[order]
    return float((due[order] - view.now - before / tracks - seconds[order]).min(initial=np.inf))
