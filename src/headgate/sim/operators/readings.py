"""How the simulator finds what policies read about an operator."""

from __future__ import annotations

import math
from collections.abc import Callable

from headgate.core import FeatureMatrix, OperatorFacts, Placement, Policy, operator_features, operator_readings
from headgate.sim.operators.node import SimulatedNode
from headgate.sim.operators.scenario import OperatorScenario, ReplacePlacement, ReplacePolicy

Reading = Callable[[SimulatedNode], float]


def _stated(own: float | None, of_query: float) -> float:
    return of_query if own is None else own


READINGS = operator_readings(
    OperatorFacts[SimulatedNode](
        priority=lambda node: _stated(node.operator.priority, node.tally.priority),
        importance_class=lambda node: node.tally.importance_class,
        patience=lambda node: _stated(node.operator.patience, node.tally.patience),
        max_workers=lambda node: node.max_workers,
        cost=lambda node: node.seen_cost,
        selectivity=lambda node: node.seen_selectivity,
        time_per_unit=lambda node: node.seen_cost * node.declared_rate,
        pending=lambda node: node.length,
        head_time=lambda node: node.queue[0][1] if node.length else math.inf,
        waiting_since=lambda node: node.waiting_since,
        newest_waiting=lambda node: node.queue[-1][1],
        newest_taken=lambda node: node.newest_taken,
        output_pending=lambda node: sum(reader.length for reader in node.downstream),
        period=lambda node: node.period,
        next_arrival=lambda node: math.inf if node.upstream else node.last_arrival + node.period,
    )
)


def matrix_for(scenario: OperatorScenario, policy: Policy, placement: Placement) -> FeatureMatrix:
    """A matrix with what the policies and placements of a whole run read, also those that come with a change."""
    policies = [policy, *(c.policy for c in scenario.changes if isinstance(c, ReplacePolicy))]
    placements = [placement, *(c.placement for c in scenario.changes if isinstance(c, ReplacePlacement))]
    return FeatureMatrix(scenario.graph(), operator_features(policies, placements))
