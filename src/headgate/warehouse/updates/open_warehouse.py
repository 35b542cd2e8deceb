"""An open warehouse: the tables on disk, and the nodes that update them.

Opening analyses every query on empty data and reads the state of every table from its log; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.core import DeclarationError, Graph
from headgate.warehouse.declare.analysis import Analysis, analyse
from headgate.warehouse.declare.locality import block_length
from headgate.warehouse.declare.spec import REJECTED_SUFFIX, DimensionSpec, StreamSpec, TableSpec, WarehouseSpec
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.derive import SourceTable, TableDeriver
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.hosted import HostedQueries
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.maintain import MaintenanceNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.plan import WHOLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class OpenWarehouse:
    """The live nodes of a warehouse by table, each after its sources.

    ``whole`` are the tables that every update computes as a whole, with the reason.
    """

    spec: WarehouseSpec
    graph: Graph
    nodes: Mapping[str, Node]
    whole: Mapping[str, str] = field(default_factory=dict)

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
        """The nodes that work behind live updates: backfills of derived tables, and maintenance of all tables."""
        lengths = {node.name: node.partition for node in self.spec.nodes() if not isinstance(node, DimensionSpec)}
        for name, node in self.nodes.items():
            if isinstance(node, TableNode):
                yield BackfillNode(node)
            yield MaintenanceNode(node, lengths.get(name))

    def _update(self, node: Node, spark: SparkSession) -> bool:
        if node.update(spark) is None:
            return False
        self.updated(node.table)
        return True


def open_warehouse(spec: WarehouseSpec, spark: SparkSession) -> OpenWarehouse:
    """Open all tables of a warehouse. If any query has a mistake, this raises before any table is opened."""
    graph = spec.graph()
    analyses = analyse(spec, spark)
    root = Path(spec.path) / "tables"
    declared = {node.name: node for node in spec.nodes()}
    opened: dict[str, SourceTable] = {}
    nodes: dict[str, Node] = {}
    whole: dict[str, str] = {}
    appended = {stream.name for stream in spec.streams}
    for name in (graph.names[i] for i in graph.order):
        node = declared[name]
        time = None if isinstance(node, DimensionSpec) else node.time
        store = TableStore(root / name, time)
        rejected = TableStore(root / f"{name}{REJECTED_SUFFIX}")
        opened[name] = SourceTable(name, store, analyses[name].schema, time)
        if isinstance(node, TableSpec):
            append = _appends(node, analyses[name], appended)
            if append:
                appended.add(name)
            sources = [declared[source] for source in node.sources]
            lengths = [source.partition for source in sources if not isinstance(source, DimensionSpec)]
            analysis = analyses[name]
            reason = _why_whole(node, analysis, append)
            if reason is not None:
                whole[name] = reason
            # Times that are moved or rounded may leave their block: then the past of an appended table is one block.
            by_blocks = reason is None and (not append or analysis.not_local is None or node.mode == "append")
            block = block_length((node.partition, *lengths)) if by_blocks else WHOLE
            hosted = HostedQueries(node, store, rejected, analysis.hosts, analysis.has_states)
            deriver = TableDeriver(node, store, [opened[source] for source in node.sources], hosted)
            nodes[name] = TableNode(deriver, block, append)
        elif isinstance(node, StreamSpec):
            nodes[name] = StreamNode(node, store, rejected)
        else:
            nodes[name] = DimensionNode(node, store, rejected)
    return OpenWarehouse(spec, graph, nodes, whole)


def _why_whole(table: TableSpec, analysis: Analysis, append: bool) -> str | None:
    """Why every update computes a table as a whole; None if it does not."""
    if append or table.mode == "recompute":
        return None
    return "its mode is stated" if table.mode == "whole" else analysis.not_local


def _appends(table: TableSpec, analysis: Analysis, appended: set[str]) -> bool:
    """Whether new rows of the table can simply be appended: a row-wise query over one table that only grows."""
    possible = len(table.sources) == 1 and table.sources[0] in appended
    if table.mode == "append" and not possible:
        raise DeclarationError(
            f"{table.place}: table {table.name!r} cannot be kept in mode append: it needs one source, which must "
            "be a stream or itself be appended to; use mode recompute"
        )
    if analysis.has_states and (table.mode == "recompute" or not possible):
        raise DeclarationError(
            f"{table.place}: table {table.name!r} holds a stream query with states, which goes on from row to row: "
            "it needs one source, which must be a stream or itself be appended to, and mode append"
        )
    appends = table.mode == "auto" and possible and (analysis.row_wise or analysis.has_states)
    return table.mode == "append" or appends
