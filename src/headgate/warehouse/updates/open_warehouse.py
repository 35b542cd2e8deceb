"""An open warehouse: the tables on disk, with a node for each that can bring it up to date.

Opening analyses every query on empty data and reads the state of every table from its log; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    """The nodes of a warehouse by name, each after those it is built on.

    ``whole`` are the tables that every update computes as a whole, with the reason.
    """

    spec: WarehouseSpec
    graph: Graph
    nodes: Mapping[str, Node]
    whole: Mapping[str, str]

    def updated(self, name: str) -> None:
        """Tell those built on a table that it has changed."""
        for dependent in self.graph.downstream[self.graph.index[name]]:
            self.nodes[self.graph.names[dependent]].source_changed(name)

    def bring_up_to_date(self, spark: SparkSession) -> int:
        """Update until nothing is pending, in the order of dependence; returns how many updates that took."""
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

    def behind_live_updates(self) -> Iterator[Node]:
        """What else is done to the tables: repairing the past of derived ones, and the maintenance of all."""
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
    """Open all tables of a warehouse; a mistake in any query is told before anything is touched."""
    graph = spec.graph()
    order = tuple(graph.names[i] for i in graph.order)
    analyses = analyse(spec, order, spark)
    root = Path(spec.path) / "tables"
    declared = {node.name: node for node in spec.nodes()}
    opened: dict[str, SourceTable] = {}
    nodes: dict[str, Node] = {}
    whole: dict[str, str] = {}
    appended = {stream.name for stream in spec.streams}
    for name in order:
        node = declared[name]
        time = None if isinstance(node, DimensionSpec) else node.time
        store = TableStore(root / name, time)
        opened[name] = SourceTable(name, store, analyses[name].schema, time)
        if isinstance(node, TableSpec):
            append = _appends(node, analyses[name], appended)
            appended |= {name} if append else set()
            sources = [declared[source] for source in node.sources]
            lengths = [source.partition for source in sources if not isinstance(source, DimensionSpec)]
            reason = _why_whole(node, analyses[name], append)
            if reason is not None:
                whole[name] = reason
            block = block_length((node.partition, *lengths)) if reason is None else WHOLE
            hosted = _hosted_queries(node, store, analyses[name])
            deriver = TableDeriver(node, store, [opened[source] for source in node.sources], hosted)
            nodes[name] = TableNode(deriver, block, append)
        else:
            rejected = TableStore(root / f"{name}{REJECTED_SUFFIX}")
            kind = StreamNode if isinstance(node, StreamSpec) else DimensionNode
            nodes[name] = kind(node, store, rejected)  # type: ignore[arg-type] # each takes its own kind of spec
    return OpenWarehouse(spec, graph, nodes, whole)


def _why_whole(table: TableSpec, analysis: Analysis, append: bool) -> str | None:
    """Why every update computes a table as a whole; None if it does not."""
    if append or table.mode == "recompute":
        return None
    return "its mode is stated" if table.mode == "whole" else analysis.not_local


def _hosted_queries(table: TableSpec, store: TableStore, analysis: Analysis) -> HostedQueries:
    rejected = TableStore(store.directory.with_name(f"{table.name}{REJECTED_SUFFIX}"))
    return HostedQueries(table, store, rejected, analysis.hosts, analysis.has_states)


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
