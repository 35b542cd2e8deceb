"""An open warehouse: the tables on disk, with a node for each that can bring it up to date.

Opening analyses every query on empty data and reads the state of every table from its log; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.core.errors import DeclarationError
from headgate.core.graph import Graph
from headgate.warehouse.analysis import Analysis, analyse
from headgate.warehouse.deriving import SourceTable
from headgate.warehouse.loading import StreamLoader
from headgate.warehouse.nodes import Node, StreamNode, TableNode
from headgate.warehouse.spec import REJECTED_SUFFIX, StreamSpec, TableSpec, WarehouseSpec
from headgate.warehouse.storage.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class OpenWarehouse:
    """The nodes of a warehouse by name, each after those it is built on."""

    spec: WarehouseSpec
    graph: Graph
    nodes: Mapping[str, Node]

    def updated(self, name: str) -> None:
        """Tell those built on a table that it has changed."""
        for dependent in self.graph.downstream[self.graph.index[name]]:
            self.nodes[self.graph.names[dependent]].source_changed(name)

    def bring_up_to_date(self, spark: SparkSession) -> int:
        """Update until nothing is pending, in the order of dependence; returns how many updates that took."""
        count = 0
        while any([self._update(name, spark) for name in self.nodes]):
            count += 1
        return count

    def _update(self, name: str, spark: SparkSession) -> bool:
        if self.nodes[name].update(spark) is None:
            return False
        self.updated(name)
        return True


def open_warehouse(spec: WarehouseSpec, spark: SparkSession) -> OpenWarehouse:
    """Open all tables of a warehouse; a mistake in any query is told before anything is touched."""
    if spec.dimensions:
        names = ", ".join(dimension.name for dimension in spec.dimensions)
        raise DeclarationError(f"dimensions cannot be kept up to date yet; declared: {names}")
    graph = spec.graph()
    order = tuple(graph.names[i] for i in graph.order)
    analyses = analyse(spec, order, spark)
    root = Path(spec.path) / "tables"
    streams = {stream.name: stream for stream in spec.streams}
    tables = {table.name: table for table in spec.tables}
    opened: dict[str, SourceTable] = {}
    nodes: dict[str, Node] = {}
    appended = set(streams)
    for name in order:
        declared: StreamSpec | TableSpec = streams[name] if name in streams else tables[name]
        store = TableStore(root / name, declared.time)
        opened[name] = SourceTable(name, store, analyses[name].schema, declared.time)
        if isinstance(declared, StreamSpec):
            rejected = TableStore(root / f"{name}{REJECTED_SUFFIX}")
            nodes[name] = StreamNode(StreamLoader(declared, store, rejected))
            continue
        append = _appends(declared, analyses[name], appended)
        appended |= {name} if append else set()
        lengths = [(streams.get(s) or tables[s]).partition for s in declared.sources]
        nodes[name] = TableNode(declared, store, [opened[s] for s in declared.sources], lengths, append)
    return OpenWarehouse(spec, graph, nodes)


def _appends(table: TableSpec, analysis: Analysis, appended: set[str]) -> bool:
    """Whether new rows of the table can simply be appended: a row-wise query over one table that only grows."""
    possible = len(table.sources) == 1 and table.sources[0] in appended
    if table.mode == "append" and not possible:
        raise DeclarationError(
            f"{table.place}: table {table.name!r} cannot be kept in mode append: it needs one source, which must "
            "be a stream or itself be appended to; use mode recompute"
        )
    return table.mode == "append" or (table.mode == "auto" and possible and analysis.row_wise)
