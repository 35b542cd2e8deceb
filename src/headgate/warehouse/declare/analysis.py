"""What is known about the tables before anything runs: their columns, and how updates can compute them.

Every table's function is called once on empty data frames, so Spark analyses the query without computing anything.
Mistakes in users' functions and SQL are found here and reported together.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.stream.spark.hosted_frame import HostedFrame, describing, requests_in
from headgate.warehouse.declare.locality import block_length, marked, why_not_local
from headgate.warehouse.declare.spec import DimensionSpec, NodeSpec, StreamSpec, TableSpec, WarehouseSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: steps of a plan that compute each output row from one input row, so that new rows can simply be appended
_ROW_WISE = {"Project", "Filter", "SubqueryAlias", "LocalRelation", "LogicalRelation", "LogicalRDD", "Generate", "View"}

#: steps that stream queries on Spark add to a plan; a query without states is row-wise
_HOSTED = {"MapInArrow", "Sort", "RepartitionByExpression", "RepartitionById"}


@dataclass(frozen=True, slots=True)
class Analysis:
    """The columns of a table, and whether its query is row-wise: each output row comes from one input row.

    ``hosts``: there are stream queries in it. ``has_states``: some of them keep states. ``not_local``: why it is not
    proved to be local to blocks of time; None if it is.
    """

    schema: StructType
    row_wise: bool
    hosts: bool = False
    has_states: bool = False
    not_local: str | None = None


def analyse(spec: WarehouseSpec, spark: SparkSession) -> Mapping[str, Analysis]:
    """Analyse all nodes, by name; raises one DeclarationError that lists every mistake."""
    from pyspark.sql.types import StructType

    known: dict[str, Analysis] = {}
    loaded: tuple[StreamSpec | DimensionSpec, ...] = (*spec.streams, *spec.dimensions)
    for node in loaded:
        schema = StructType.fromDDL(node.source.schema)
        assert isinstance(schema, StructType)  # a list of columns, as the source has checked
        known[node.name] = Analysis(schema, row_wise=True)
    declared = {node.name: node for node in spec.nodes()}
    mistakes: list[str] = []
    graph = spec.graph()
    for name in (graph.names[i] for i in graph.order):
        table = declared[name]
        if isinstance(table, TableSpec):
            _analyse_table(table, declared, known, spark, mistakes)
    if mistakes:
        raise DeclarationError("\n".join(mistakes))
    return known


def _analyse_table(
    table: TableSpec,
    declared: Mapping[str, NodeSpec],
    known: dict[str, Analysis],
    spark: SparkSession,
    mistakes: list[str],
) -> None:
    if not all(source in known for source in table.sources):
        return  # a source has a mistake, which is reported already
    frames = {name: marked(spark.createDataFrame([], known[name].schema), name) for name in table.sources}
    try:
        result = apply_query(table, frames, spark)
        requests = requests_in(result)
        result = result.plain() if isinstance(result, HostedFrame) else result
    except Exception as error:
        mistakes.append(f"{table.place}: table {table.name!r} failed on empty sources: {type(error).__name__}: {error}")
        return
    complaint = _complaint(table, result)
    if complaint:
        mistakes.append(f"{table.place}: table {table.name!r} {complaint}")
        return
    row_wise = _is_row_wise(result, _ROW_WISE | _HOSTED if requests else _ROW_WISE)
    has_states = any(request.query.stateful for request in requests)
    stated = table.lookback or has_states or (row_wise and requests)
    not_local = None if stated else _why_not_local(table, declared, result)
    known[table.name] = Analysis(result.schema, row_wise, bool(requests), has_states, not_local)


def _why_not_local(table: TableSpec, declared: Mapping[str, NodeSpec], result: DataFrame) -> str | None:
    sources = {name: declared[name] for name in table.sources}
    times = {name: None if isinstance(node, DimensionSpec) else node.time for name, node in sources.items()}
    lengths = [node.partition for node in sources.values() if not isinstance(node, DimensionSpec)]
    return why_not_local(result, table.time, times, block_length((table.partition, *lengths)))


def apply_query(table: TableSpec, frames: Mapping[str, DataFrame], spark: SparkSession) -> DataFrame | HostedFrame:
    """The table's function or SQL over data frames, by the names of its sources.

    SQL finds its sources as temporary views of ``spark``, so a session must serve one update at a time.
    """
    if table.function is not None:
        with describing(table.name):
            return table.function(**frames)  # type: ignore[no-any-return]
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    assert table.query is not None
    return spark.sql(table.query)


def _complaint(table: TableSpec, result: Any) -> str:
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        return f"must return a Spark DataFrame; got {type(result).__name__}"
    columns = {field.name: field.dataType.simpleString() for field in result.schema}
    if table.time not in columns:
        return f"has no column {table.time!r}, which was stated as its time; it has: {', '.join(columns)}"
    if columns[table.time] != "timestamp":
        return f"needs a timestamp in its time column {table.time!r}; got {columns[table.time]}: cast it"
    return ""


def _is_row_wise(result: DataFrame, steps: Container[str]) -> bool:
    todo = [result._jdf.queryExecution().analyzed()]
    while todo:
        step = todo.pop()
        if step.nodeName() not in steps or step.subqueries().size():
            return False
        children = step.children()
        todo.extend(children.apply(i) for i in range(children.size()))
    return True
