"""The features of operators, as policies and placements read them.

Policies made for tables can run here as well, so their features have readings too: data is what waits in the queue, an
update is taking all of it, and how fresh an operator is, is told by the arrival times of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from headgate.core.features import FEATURES, ChangedBy, Feature
from headgate.core.graph import Graph
from headgate.core.operator_grain import operator_features
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.stream.operators import Operator, SourceOperator

Reading = Callable[[Operator], float]


def _cost(operator: Operator) -> float:
    measured = operator.counters.cost
    return (operator.spec.cost or 0.0) if measured is None else measured


def _selectivity(operator: Operator) -> float:
    measured = operator.counters.selectivity
    if measured is None:
        return 1.0 if operator.spec.selectivity is None else operator.spec.selectivity
    return measured


def _freshness_delta(operator: Operator) -> float:
    return max(operator.newest_waiting - operator.newest_taken, 0.0) if operator.pending else 0.0


def _period(operator: Operator) -> float:
    return operator.period if isinstance(operator, SourceOperator) else 0.0


def _next_release(operator: Operator) -> float:
    return operator.last_arrival + operator.period if isinstance(operator, SourceOperator) else math.inf


READINGS: Mapping[str, Reading] = {
    "priority": lambda operator: operator.query.spec.priority,
    "class": lambda operator: float(operator.query.spec.importance_class),
    "layer": lambda operator: 0.0,
    "period": _period,
    "patience": lambda operator: operator.query.spec.patience,
    "max_workers": lambda operator: float(operator.max_workers),
    "cost": _cost,
    "selectivity": _selectivity,
    "setup_time": lambda operator: 0.0,
    "time_per_unit": _cost,
    "pending": lambda operator: float(operator.pending),
    "head_time": lambda operator: operator.head_arrival(),
    "output_pending": lambda operator: float(sum(target.pending for target, _ in operator.targets)),
    "freshness_delta": _freshness_delta,
    "execution_time": lambda operator: operator.pending * _cost(operator),
    "release_time": lambda operator: operator.counters.head_since if operator.pending else math.inf,
    "next_release": _next_release,
}

#: every feature that a policy may ask for in the stream engine
PROVIDED = frozenset(READINGS) | {name for name, f in FEATURES.items() if f.changed_by == ChangedBy.LOOP}


def features_for(policy: Policy, placement: Placement) -> tuple[Feature, ...]:
    """The features that these and the loops read."""
    return operator_features([policy], [placement], PROVIDED)


def graph_of(operators: Iterable[Operator]) -> Graph:
    """The graph that a loop schedules."""
    nodes = list(operators)
    return Graph(
        [node.name for node in nodes],
        [(node.name, target.name) for node in nodes for target in dict.fromkeys(t for t, _ in node.targets)],
        {node.name: node.query.name for node in nodes},
    )
