"""Operators at work, by kind."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.stream.operators.operator import Operator
from headgate.stream.operators.partitioned import PartitionedOperator
from headgate.stream.operators.sink import SinkOperator
from headgate.stream.operators.source import SourceOperator
from headgate.stream.operators.stateful import StatefulOperator
from headgate.stream.operators.stateless import MergeOperator, StatelessOperator
from headgate.stream.operators.union import UnionOperator
from headgate.stream.spec import Kind

__all__ = ["OPERATORS", "Operator", "PartitionedOperator", "SinkOperator", "SourceOperator"]

OPERATORS: Mapping[Kind, type[Operator]] = {
    Kind.SOURCE: SourceOperator,
    Kind.STATELESS: StatelessOperator,
    Kind.PARTITIONED: PartitionedOperator,
    Kind.STATEFUL: StatefulOperator,
    Kind.MERGE: MergeOperator,
    Kind.UNION: UnionOperator,
    Kind.SINK: SinkOperator,
}
