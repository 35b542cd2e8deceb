"""What the simulator can tell a policy about an operator: one reading per feature.

The features of the table grain have their meaning here too, so that policies of one grain run at the other:

* ``freshness_delta``: the newest stimulus that waits minus the newest that was taken, which is by how much fresher the
  operator would be if it took everything.
* ``release_time``: since when what waits has been waiting, counted anew after each turn.
* ``next_release``: of a source, one period after the last arrival.
* ``time_per_unit``: seconds of work per second of data, from the cost and the declared rate of arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from headgate.core.features import FEATURES, ChangedBy, Feature
from headgate.core.matrix import FeatureMatrix
from headgate.core.operator_grain import operator_features
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.scenario import OperatorScenario, ReplacePlacement, ReplacePolicy

Reading = Callable[[SimulatedNode], float]


def _stated(own: float | None, of_query: float) -> float:
    return of_query if own is None else own


def _freshness_delta(node: SimulatedNode) -> float:
    return max(node.queue[-1][1] - node.newest_taken, 0.0) if node.length else 0.0


READINGS: Mapping[str, Reading] = {
    "priority": lambda node: _stated(node.operator.priority, node.tally.priority),
    "class": lambda node: node.tally.importance_class,
    "layer": lambda node: 0.0,
    "period": lambda node: node.period,
    "patience": lambda node: _stated(node.operator.patience, node.tally.patience),
    "max_workers": lambda node: node.max_workers,
    "cost": lambda node: node.seen_cost,
    "selectivity": lambda node: node.seen_selectivity,
    "setup_time": lambda node: 0.0,
    "time_per_unit": lambda node: node.seen_cost * node.declared_rate,
    "pending": lambda node: node.length,
    "head_time": lambda node: node.queue[0][1] if node.length else math.inf,
    "output_pending": lambda node: sum(reader.length for reader in node.downstream),
    "freshness_delta": _freshness_delta,
    "execution_time": lambda node: node.length * node.seen_cost,
    "release_time": lambda node: node.waiting_since,
    "next_release": lambda node: math.inf if node.upstream else node.last_arrival + node.period,
}

#: every feature that a policy may ask for at the operator grain
PROVIDED = frozenset(READINGS) | {name for name, f in FEATURES.items() if f.changed_by == ChangedBy.LOOP}


def matrix_for(scenario: OperatorScenario, policy: Policy, placement: Placement) -> FeatureMatrix:
    """A matrix with what the policies and placements of a whole run read, also those that come with a change."""
    policies = [policy, *(c.policy for c in scenario.changes if isinstance(c, ReplacePolicy))]
    placements = [placement, *(c.placement for c in scenario.changes if isinstance(c, ReplacePlacement))]
    return FeatureMatrix(scenario.graph(), features_for(policies, placements))


def features_for(policies: Iterable[Policy], placements: Iterable[Placement]) -> tuple[Feature, ...]:
    """The features that these policies and placements and the loops read."""
    return operator_features(policies, placements, PROVIDED)
