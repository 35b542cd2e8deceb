"""What is known about the tables before anything runs: their columns, and how updates can compute them.

Every table's function is called once on empty data frames, so Spark analyses the query without computing anything.
Mistakes in users' functions and SQL are found here and reported together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.core import DeclarationError, said_by
from headgate.stream.spark.hosted_frame import HostedFrame, describing, requests_in
from headgate.warehouse.declare.keys import TableKeys, find_keys
from headgate.warehouse.declare.linear import why_not_linear
from headgate.warehouse.declare.locality import block_of, why_not_local
from headgate.warehouse.declare.merging import NO_AGGREGATE, MergePlan, has_aggregate, plan_merge
from headgate.warehouse.declare.plan_tree import (
    CONSTANT,
    PASSING,
    PlanNodes,
    PlanTree,
    has_subquery,
    marked,
    plan_nodes,
    plan_of,
    source_of,
    words_for,
)
from headgate.warehouse.declare.query_fingerprint import QueryFingerprint, query_fingerprint
from headgate.warehouse.declare.spec import DimensionSpec, NodeSpec, StreamSpec, TableSpec, WarehouseSpec
from headgate.warehouse.storage import HIDDEN_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: {Spark's expression or step that gives another value each time: what people call it}
_UNREPEATABLE = {
    "CurrentDate": "current_date()",
    "CurrentTime": "current_time()",
    "CurrentTimestamp": "current_timestamp()",
    "LocalTimestamp": "localtimestamp()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "Now": "now()",
    "Rand": "rand()",
    "RandStr": "randstr()",
    "Randn": "randn()",
    "Sample": "a sample",
    "Shuffle": "shuffle()",
    "SparkPartitionID": "spark_partition_id()",
    "Uniform": "uniform()",
    "Uuid": "uuid()",
}
#: steps that compute each row from one row, if the stream queries among them (MapInArrow) have no states
_ROW_BY_ROW = PASSING | CONSTANT | {"Project", "Filter", "Generate", "MapInArrow", "RepartitionById"}


@dataclass(frozen=True, slots=True)
class Analysis:
    """The columns of a table, and what is known about its query.

    ``hosts``: there are stream queries in it. ``has_states``: some of them keep states. ``not_linear``: why new rows of
    its one changing source do not just add rows to it; None if they do. ``not_local``: why it is not proved to be local
    to blocks of time; None if it is. ``merge``: how it is kept by merging, or why not. ``keys``: its keys, if there are
    any. ``source_columns``: the columns of each source. ``fingerprint`` tells whether the query has changed.
    ``unrepeatable`` is what its query calls that gives another value each time, such as ``rand()``.
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
    unrepeatable: tuple[str, ...] = ()


def analyse(spec: WarehouseSpec, spark: SparkSession) -> Mapping[str, Analysis]:
    """Analyse all nodes, by name; raises one DeclarationError that lists every mistake."""
    from pyspark.sql.types import StructType

    known: dict[str, Analysis] = {}
    loaded: tuple[StreamSpec | DimensionSpec, ...] = (*spec.streams, *spec.dimensions)
    mistakes: list[str] = []
    for node in loaded:
        schema = StructType.fromDDL(node.source.schema)
        assert isinstance(schema, StructType)  # a list of columns, as the source has checked
        known[node.name] = Analysis(schema)
        if complaint := _unfit_columns(schema):
            mistakes.append(f"{node.place}: {node.name!r} {complaint}")
    declared = {node.name: node for node in spec.nodes()}
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
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's function may also call sys.exit
        said = f"{type(error).__name__}: {said_by(error)}"
        mistakes.append(f"{table.place}: table {table.name!r} failed on empty sources: {said}")
        return
    complaint = _complaint(table, result)
    if complaint:
        mistakes.append(f"{table.place}: table {table.name!r} {complaint}")
        return
    nodes = plan_nodes(result)
    plan = plan_of(result, nodes)
    schemas = {name: known[name].schema for name in table.sources}
    columns = {name: tuple(schema.names) for name, schema in schemas.items()}
    fingerprint = query_fingerprint(table, result, nodes, schemas, requests)
    if requests:
        # Spark cannot look into them, but those without states compute each row by itself.
        not_row_by_row = _why_not_row_by_row(plan)
        has_states = any(request.query.stateful for request in requests)
        is_local = not_row_by_row is None or has_states or table.lookback
        known[table.name] = Analysis(
            result.schema,
            hosts=True,
            has_states=has_states,
            not_linear=not_row_by_row,
            not_local=None if is_local else _why_not_local(table, declared, plan),
            merge="it has stream queries",
            source_columns=columns,
            fingerprint=fingerprint,
            unrepeatable=_unrepeatable(nodes),
        )
        return
    changing = [name for name in table.sources if not isinstance(declared[name], DimensionSpec)]
    growing = changing[0] if len(changing) == 1 else None
    if growing is None:
        merge: MergePlan | str = "it has several sources" if has_aggregate(plan) else NO_AGGREGATE
    else:
        merge = plan_merge(result, plan, growing)
    known[table.name] = Analysis(
        result.schema,
        not_linear="it has several sources" if growing is None else why_not_linear(plan, growing),
        not_local=None if table.lookback else _why_not_local(table, declared, plan),
        merge=merge,
        keys=find_keys(plan, result, changing, schemas),
        source_columns=columns,
        fingerprint=fingerprint if isinstance(merge, str) else {**fingerprint, "merge": merge.text},
        unrepeatable=_unrepeatable(nodes),
    )


def _why_not_local(table: TableSpec, declared: Mapping[str, NodeSpec], plan: PlanTree) -> str | None:
    sources = {name: declared[name] for name in table.sources}
    times = {name: None if isinstance(node, DimensionSpec) else node.time for name, node in sources.items()}
    dated = [node for node in sources.values() if not isinstance(node, DimensionSpec)]
    if table.time is None or any(node.time is None for node in dated):
        return "there is no event time in it, or in a table that it is computed from"
    return why_not_local(plan, table.time, times, block_of(table, declared))


def _why_not_row_by_row(step: PlanTree) -> str | None:
    """Why rows are not computed each from one row; None if they are."""
    if source_of(step) is not None:
        return None
    if has_subquery(step):
        return "it has a subquery"
    if step.name not in _ROW_BY_ROW:
        return f"beside its stream queries there is {words_for(step)}"
    return next(filter(None, map(_why_not_row_by_row, step.children)), None)


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
    if table.time is not None and table.time not in columns:
        return f"has no column {table.time!r}, which was stated as its time; it has: {', '.join(columns)}"
    if table.time is not None and columns[table.time] != "timestamp":
        return f"needs a timestamp in its time column {table.time!r}; got {columns[table.time]}: cast it"
    return _unfit_columns(result.schema)


def stored_columns(schema: StructType) -> pa.Schema:
    """The columns of a table as they are stored; SchemaError if they cannot be."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from headgate.warehouse.storage.schemas import storable

    return storable(to_arrow_schema(schema, timezone="UTC"))


def _unfit_columns(schema: StructType) -> str:
    """What is wrong with the columns of a table, as none that can be stored and read by name."""
    from pyspark.errors import PySparkException

    from headgate.warehouse.storage.errors import SchemaError

    hidden = [name for name in schema.names if name.lower().startswith(HIDDEN_PREFIX)]
    if hidden:
        return f"has a column {hidden[0]!r}, a name that Headgate uses itself: give it another name"
    for place, name in enumerate(schema.names):
        twice = [other for other in schema.names[:place] if other.lower() == name.lower()]
        if twice:
            return f"has two columns called {twice[0]!r} and {name!r} (case does not count): give one another name"
    try:
        stored_columns(schema)
    except (SchemaError, PySparkException) as error:
        return f"has columns that cannot be stored: {error}"
    return ""


def _unrepeatable(nodes: PlanNodes) -> tuple[str, ...]:
    """What a query calls that gives another value each time."""
    text = json.dumps(nodes)
    found = [words for name, words in _UNREPEATABLE.items() if f'.{name}"' in text]
    return (*found, "a Python function that is not deterministic") if '"udfDeterministic": false' in text else (*found,)
