"""How the stream engine finds what policies and placements read about an operator."""

from __future__ import annotations

import math
from collections.abc import Iterable

from headgate.core import Feature, Graph, OperatorFacts, Placement, Policy, operator_features, operator_readings
from headgate.stream.operators import Operator, SourceOperator


def cost(operator: Operator) -> float:
    """Seconds for one row, measured or else as declared."""
    measured = operator.counters.cost
    return (operator.spec.cost or 0.0) if measured is None else measured


def _selectivity(operator: Operator) -> float:
    measured = operator.counters.selectivity
    if measured is None:
        return 1.0 if operator.spec.selectivity is None else operator.spec.selectivity
    return measured


def output_pending(operator: Operator) -> float:
    """Rows that wait for the readers of an operator."""
    return float(sum(target.pending for target, _ in operator.targets))


READINGS = operator_readings(
    OperatorFacts[Operator](
        priority=lambda operator: operator.query.spec.priority,
        importance_class=lambda operator: float(operator.query.spec.importance_class),
        patience=lambda operator: operator.query.spec.patience,
        max_workers=lambda operator: float(operator.max_workers),
        cost=cost,
        selectivity=_selectivity,
        time_per_unit=cost,
        pending=lambda operator: float(operator.pending),
        head_time=lambda operator: operator.head_arrival(),
        waiting_since=lambda operator: operator.counters.head_since if operator.pending else math.inf,
        newest_waiting=lambda operator: operator.newest_waiting,
        newest_taken=lambda operator: operator.newest_taken,
        output_pending=output_pending,
        period=lambda operator: operator.period if isinstance(operator, SourceOperator) else 0.0,
        next_arrival=lambda operator: (
            operator.last_arrival + operator.period if isinstance(operator, SourceOperator) else math.inf
        ),
    )
)


def features_for(policy: Policy, placement: Placement) -> tuple[Feature, ...]:
    """The features that these and the loops read."""
    return operator_features([policy], [placement])


def graph_of(operators: Iterable[Operator]) -> Graph:
    """The graph that a loop schedules."""
    nodes = list(operators)
    return Graph(
        [node.name for node in nodes],
        [(node.name, target.name) for node in nodes for target in dict.fromkeys(t for t, _ in node.targets)],
        {node.name: node.query.name for node in nodes},
    )
