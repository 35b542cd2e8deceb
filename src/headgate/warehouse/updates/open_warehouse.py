"""An open warehouse: the tables on disk, and the nodes that update them.

Opening analyses every query on empty data and reads the state of every table from its log; nothing is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from headgate.core import DeclarationError, Graph
from headgate.warehouse.declare.analysis import Analysis, analyse, stored_columns
from headgate.warehouse.declare.modes import TableMode, table_modes
from headgate.warehouse.declare.query_fingerprint import has_changed, what_changed
from headgate.warehouse.declare.spec import REJECTED_SUFFIX, DimensionSpec, StreamSpec, TableSpec, WarehouseSpec
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.publish.owner import warehouse_id
from headgate.warehouse.storage.fence import Fence
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.derive import TableDeriver
from headgate.warehouse.updates.derive_plan import SourceTable
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.maintain import MaintenanceNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.unopened import CannotOpenError, UnopenedTable

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession


#: what becomes of a table whose query has changed: it is computed anew, goes on with its old rows, or is refused
OnChange = Literal["rebuild", "keep", "refuse"]


@dataclass(frozen=True, slots=True)
class OpenWarehouse:
    """The live nodes of a warehouse by table, each after its sources."""

    spec: WarehouseSpec
    graph: Graph
    nodes: Mapping[str, Node]

    @property
    def modes(self) -> dict[str, TableMode]:
        """How each derived table is kept up to date, and why."""
        return {node.table: node.mode for node in self.tables()}

    @property
    def hosts_queries(self) -> bool:
        """Whether there are stream queries in tables, which Python on the executors runs, and which may keep states."""
        return any(node.hosts_queries for node in self.tables())

    def updated(self, name: str) -> None:
        """Tell the nodes of the tables built on a table that it has changed."""
        for dependent in self.graph.downstream[self.graph.index[name]]:
            self.nodes[self.graph.names[dependent]].source_changed(name)

    def bring_up_to_date(self, spark: SparkSession) -> int:
        """Update until nothing is pending, sources before the tables built on them; returns the number of updates."""
        count = 0
        while True:
            updates = sum(self._update(node, spark) for node in self.nodes.values())
            updates += sum(self._update(BackfillNode(node), spark) for node in self.tables())
            if not updates:
                return count
            count += updates

    def tables(self) -> Iterator[TableNode]:
        """The nodes of derived tables."""
        return (node for node in self.nodes.values() if isinstance(node, TableNode))

    def background_nodes(self) -> Iterator[Node]:
        """The nodes that work behind live updates: backfills, maintenance, and publishing."""
        lengths = {node.name: node.partition for node in self.spec.nodes() if not isinstance(node, DimensionSpec)}
        own_id = cache(partial(warehouse_id, self.spec.folder(), self.spec.name))
        for name, node in self.nodes.items():
            if isinstance(node, UnopenedTable):
                continue
            if isinstance(node, TableNode):
                yield BackfillNode(node)
            yield MaintenanceNode(node, lengths.get(name))
            if places := [publication.to for publication in self.spec.publications if publication.table == name]:
                yield PublishNode(node, places, own_id)

    def _update(self, node: Node, spark: SparkSession) -> bool:
        if node.update(spark) is None:
            return False
        self.updated(node.table)
        return True


def open_warehouse(
    spec: WarehouseSpec,
    spark: SparkSession,
    clock: Callable[[], float] = time.time,
    on_change: OnChange = "rebuild",
    fence: Fence | None = None,
    analyses: Mapping[str, Analysis] | None = None,
) -> OpenWarehouse:
    """Open all tables of a warehouse. If any query has a mistake, this raises before any table is opened.

    ``clock`` tells streams which event times lie in the future. ``on_change`` is what becomes of tables whose query is
    not the one that their rows were computed by. ``analyses`` are those of the queries, if there are any already.
    ``fence`` is the right of this process to commit.
    """
    graph = spec.graph()
    analyses = analyses or analyse(spec, spark)
    root = spec.folder() / "tables"
    declared = {node.name: node for node in spec.nodes()}
    opened: dict[str, SourceTable] = {}
    nodes: dict[str, Node] = {}
    modes = table_modes(spec, analyses)
    for name in (graph.names[i] for i in graph.order):
        node, analysis = declared[name], analyses[name]
        is_dimension = isinstance(node, DimensionSpec)
        time_column = None if isinstance(node, DimensionSpec) else node.time
        store = TableStore(root / name, time_column, syncs=spec.sync, fence=fence)
        rejected = TableStore(root / f"{name}{REJECTED_SUFFIX}", syncs=spec.sync, fence=fence)
        source_table = SourceTable(name, store, analysis.schema, time_column, is_dimension)
        open_node: Callable[[], Node]
        if isinstance(node, TableSpec):
            hosted = HostedQueries(node, store, rejected, analysis.hosts, analysis.has_states)
            open_node = partial(_open_table, node, store, opened, hosted, modes[name], analysis)
        elif isinstance(node, StreamSpec):
            open_node = partial(StreamNode, node, store, rejected, clock)
        else:
            open_node = partial(DimensionNode, node, store, rejected)
        try:
            nodes[name] = _try_to_open(store, rejected, open_node)
            opened[name] = source_table
        except Exception:  # it is reported, and tried again, when the table is planned
            sources = node.sources if isinstance(node, TableSpec) else ()
            nodes[name] = UnopenedTable(name, sources, store, partial(_try_to_open, store, rejected, open_node))
    opened_warehouse = OpenWarehouse(spec, graph, nodes)
    for table in changed_tables(opened_warehouse, analyses, on_change):
        nodes[table].rebuild_reason = what_changed(nodes[table].state.query, analyses[table].fingerprint)
    return opened_warehouse


def _open_table(
    spec: TableSpec,
    store: TableStore,
    opened: Mapping[str, SourceTable],
    hosted: HostedQueries,
    mode: TableMode,
    analysis: Analysis,
) -> TableNode:
    if missing := [source for source in spec.sources if source not in opened]:
        raise CannotOpenError(f"its source {missing[0]!r} cannot be opened")
    return TableNode(TableDeriver(spec, store, [opened[name] for name in spec.sources], hosted, mode, analysis))


def _try_to_open(store: TableStore, rejected: TableStore, open_node: Callable[[], Node]) -> Node:
    store.check_readable()
    rejected.check_readable()
    return open_node()


def changed_tables(warehouse: OpenWarehouse, analyses: Mapping[str, Analysis], on_change: OnChange) -> tuple[str, ...]:
    """The tables to be rebuilt because their query, or the columns of a source, have changed since they were computed.

    With ``"refuse"`` this raises if there are any, with ``"keep"`` there are only those that cannot go on.
    """
    changed = tuple(
        node.table
        for node in warehouse.tables()
        if node.table in analyses and has_changed(node.state.query, analyses[node.table].fingerprint)
    )
    if changed and on_change == "refuse":
        names = ", ".join(changed)
        raise DeclarationError(
            "the queries of these tables, or columns of their sources, have changed since their rows were computed: "
            f"{names}. With --on-change "
            "rebuild (on_change='rebuild') they are computed anew; with keep, old rows stay as they are and new rows "
            "follow the new query"
        )
    return tuple(
        node.table
        for node in warehouse.tables()
        if node.table in analyses
        and ((node.table in changed and on_change == "rebuild") or _cannot_go_on(node, analyses[node.table], changed))
    )


def _cannot_go_on(node: TableNode, analysis: Analysis, changed: Collection[str]) -> bool:
    """Whether a table cannot keep the rows it has."""
    if node.mode.name == "merge" and node.table in changed:
        return True  # new rows cannot be merged into the states that another query left
    # Where single rows are replaced, all must have the same columns.
    replaces_rows = node.mode.name in ("keys", "whole", "merge") and node.store.exists
    return replaces_rows and _types(node.store.schema) != _types(stored_columns(analysis.schema))


def _types(columns: pa.Schema) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in columns}
