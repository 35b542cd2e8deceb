"""The operators of running queries, by kind."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.stream.operators.merging import MergeOperator, UnionOperator
from headgate.stream.operators.operator import Operator
from headgate.stream.operators.partitioned import PartitionedOperator
from headgate.stream.operators.sink import SinkOperator
from headgate.stream.operators.source import SourceOperator
from headgate.stream.operators.unpartitioned import StatefulOperator, StatelessOperator
from headgate.stream.spec import Kind

__all__ = ["OPERATORS", "Operator", "SourceOperator"]

OPERATORS: Mapping[Kind, type[Operator]] = {
    Kind.SOURCE: SourceOperator,
    Kind.STATELESS: StatelessOperator,
    Kind.PARTITIONED: PartitionedOperator,
    Kind.STATEFUL: StatefulOperator,
    Kind.MERGE: MergeOperator,
    Kind.UNION: UnionOperator,
    Kind.SINK: SinkOperator,
}
