"""What is known about the tables before anything runs: their columns, and how updates can compute them.

Every table's function is called once on empty data frames, so Spark analyses the query without computing anything.
Mistakes in users' functions and SQL are found here and reported together.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError
from headgate.stream.spark.hosted_frame import HostedFrame, describing, requests_in
from headgate.warehouse.declare.keys import TableKeys, find_keys
from headgate.warehouse.declare.linear import why_not_linear
from headgate.warehouse.declare.locality import block_length, why_not_local
from headgate.warehouse.declare.merging import MergePlan, plan_merge
from headgate.warehouse.declare.plan_tree import marked, plan_of
from headgate.warehouse.declare.query_fingerprint import QueryFingerprint, query_fingerprint
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
    """The columns of a table, and what is known about its query.

    ``hosts``: there are stream queries in it. ``has_states``: some of them keep states. ``not_linear``: why new rows of
    its one changing source do not just add rows to it; None if they do. ``not_local``: why it is not proved to be local
    to blocks of time; None if it is. ``merge``: how it is kept by merging, or why not. ``keys``: its keys, if there are
    any. ``source_columns``: the columns of each source. ``fingerprint`` tells whether the query has changed.
    """

    schema: StructType
    hosts: bool = False
    has_states: bool = False
    not_linear: str | None = None
    not_local: str | None = None
    merge: MergePlan | str = ""
    keys: TableKeys | None = None
    source_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fingerprint: QueryFingerprint = field(default_factory=dict)


def analyse(spec: WarehouseSpec, spark: SparkSession) -> Mapping[str, Analysis]:
    """Analyse all nodes, by name; raises one DeclarationError that lists every mistake."""
    from pyspark.sql.types import StructType

    known: dict[str, Analysis] = {}
    loaded: tuple[StreamSpec | DimensionSpec, ...] = (*spec.streams, *spec.dimensions)
    for node in loaded:
        schema = StructType.fromDDL(node.source.schema)
        assert isinstance(schema, StructType)  # a list of columns, as the source has checked
        known[node.name] = Analysis(schema)
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
    columns = {name: tuple(known[name].schema.names) for name in table.sources}
    fingerprint = query_fingerprint(table, result, requests)
    if requests:
        # Spark cannot look into them, but those without states compute each row by itself.
        row_by_row = _is_row_wise(result, _ROW_WISE | _HOSTED)
        has_states = any(request.query.stateful for request in requests)
        local = row_by_row or has_states or table.lookback
        not_local = None if local else _why_not_local(table, declared, result)
        not_linear = None if row_by_row else "its stream queries look at many rows at once"
        known[table.name] = Analysis(
            result.schema, True, has_states, not_linear, not_local, "it has stream queries", None, columns, fingerprint
        )
        return
    changing = [name for name in table.sources if not isinstance(declared[name], DimensionSpec)]
    growing = changing[0] if len(changing) == 1 else None
    known[table.name] = Analysis(
        result.schema,
        not_linear="it has several sources" if growing is None else why_not_linear(plan_of(result), growing),
        not_local=None if table.lookback else _why_not_local(table, declared, result),
        merge="it has several sources" if growing is None else plan_merge(result, growing),
        keys=find_keys(result, changing),
        source_columns=columns,
        fingerprint=fingerprint,
    )


def _why_not_local(table: TableSpec, declared: Mapping[str, NodeSpec], result: DataFrame) -> str | None:
    sources = {name: declared[name] for name in table.sources}
    times = {name: None if isinstance(node, DimensionSpec) else node.time for name, node in sources.items()}
    dated = [node for node in sources.values() if not isinstance(node, DimensionSpec)]
    if table.time is None or any(node.time is None for node in dated):
        return "there is no event time in it, or in a table that it is computed from"
    lengths = [node.partition for node in dated]
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
    columns = {each.name: each.dataType.simpleString() for each in result.schema}
    if missing := [name for name in table.key if name not in columns]:
        return f"has no column {missing[0]!r}, which was stated as its key; it has: {', '.join(columns)}"
    if table.time is None:
        return ""
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
