"""All nodes of a warehouse, on the stage of the dispatch loop: which there are, and what was stated of them.

The tables come first, each with its number in the warehouse's own graph; behind them, in layers below, what is done to
them: backfills and upkeep. They have no edges, since they wait for nobody. Knows nothing of what is pending.
"""

from __future__ import annotations

import numpy as np

from headgate.core.features import features_named
from headgate.core.inheritance import Inheritance, derive_periods, inherit_priorities
from headgate.core.matrix import FeatureMatrix
from headgate.core.observe import PATIENCE_PERIODS, TABLE_FEATURES
from headgate.core.policies.classes import BACKFILL, LIVE, MAINTENANCE
from headgate.core.trace import Layer
from headgate.warehouse.declare.spec import DimensionSpec, TableSpec
from headgate.warehouse.schedule.book import Book
from headgate.warehouse.updates.nodes import (
    BackfillNode,
    DimensionNode,
    MaintenanceNode,
    Node,
    StreamNode,
    TableNode,
)
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

#: until arrivals have taught better
UNKNOWN_PERIOD = 10.0
#: a period that is learned counts as changed when it differs by this share
PERIOD_CHANGED = 0.2
#: what stands behind updates waits at most 20 times so many seconds
BACKFILL_PERIOD, MAINTENANCE_PERIOD, DIMENSION_PERIOD = 3.0, 30.0, 40.0

_LAYERS = {"live": LIVE, "backfill": BACKFILL, "maintenance": MAINTENANCE}


class Cast:
    """The nodes by name, their graph and the features that are stated."""

    def __init__(self, warehouse: OpenWarehouse) -> None:
        self._declared = {node.name: node for node in warehouse.spec.nodes()}
        self.nodes: dict[str, Node] = dict(warehouse.nodes)
        #: {node: the table it works on}, {node: live, backfill or maintenance}
        self.table_of = {name: name for name in self.nodes}
        self.layer_of: dict[str, Layer] = dict.fromkeys(self.nodes, "live")
        for name, node in warehouse.nodes.items():
            if isinstance(node, TableNode):
                self._add(BackfillNode(node), name, "backfill")
            declared = self._declared[name]
            length = None if isinstance(declared, DimensionSpec) else declared.partition
            self._add(MaintenanceNode(node, length), name, "maintenance")
        self.graph = warehouse.graph.adding([name for name in self.nodes if name not in warehouse.nodes])
        self.names = self.graph.names
        #: {table: the nodes that work on it}
        self.parts: dict[str, list[int]] = {name: [] for name in warehouse.nodes}
        for index, name in enumerate(self.names):
            self.parts[self.table_of[name]].append(index)
        self.matrix = FeatureMatrix(self.graph, features_named(TABLE_FEATURES))

    def _add(self, node: Node, table: str, layer: Layer) -> None:
        self.nodes[node.name] = node
        self.table_of[node.name] = table
        self.layer_of[node.name] = layer

    def node(self, index: int) -> Node:
        return self.nodes[self.names[index]]

    def groups(self) -> dict[str, tuple[int, ...]]:
        """{table: all tables of its group that have the same sources}."""
        members: dict[tuple[str, frozenset[str]], list[str]] = {}
        for node in self._declared.values():
            if isinstance(node, TableSpec) and node.group is not None:
                members.setdefault((node.group, frozenset(node.sources)), []).append(node.name)
        return {name: tuple(self.graph.index[n] for n in names) for names in members.values() for name in names}

    def period(self, index: int) -> float:
        return float(self.matrix.columns["period"][index])

    # --- features -------------------------------------------------------------------------------------------

    def fill(self, book: Book, inheritance: Inheritance) -> None:
        """Write down everything that was stated."""
        declared = [self._declared[self.table_of[name]] for name in self.names]
        classes = [0 if isinstance(node, DimensionSpec) else node.importance_class for node in declared]
        self.matrix.fill("class", map(float, classes))
        self.matrix.fill("layer", [_LAYERS[self.layer_of[name]] for name in self.names])
        self.fill_priorities(book, inheritance)
        self.fill_periods()

    def fill_priorities(self, book: Book, inheritance: Inheritance) -> None:
        stated = np.array([book.of(name).priority for name in self.names])
        self.matrix.fill("priority", inherit_priorities(self.graph, stated, inheritance))

    def fill_periods(self) -> None:
        """Periods as stated or learned, and how long each may be passed over."""
        stated = np.array([self._stated_period(name) for name in self.names])
        periods = derive_periods(self.graph, stated)
        self.matrix.fill("period", periods)
        patience = []
        for name, period in zip(self.names, periods.tolist(), strict=True):
            node = self._declared.get(name)
            stated_patience = None if node is None or isinstance(node, DimensionSpec) else node.patience
            patience.append(stated_patience or PATIENCE_PERIODS * max(period, 1.0))
        self.matrix.fill("patience", patience)

    def has_learned(self, index: int) -> bool:
        """Whether the period of a stream differs from what the features say."""
        node, known = self.node(index), self.period(index)
        learned = node.period if isinstance(node, StreamNode) else None
        return learned is not None and abs(learned - known) > PERIOD_CHANGED * known

    def _stated_period(self, name: str) -> float:
        node = self.nodes[name]
        if isinstance(node, StreamNode):
            return node.period or UNKNOWN_PERIOD
        if isinstance(node, DimensionNode):
            return DIMENSION_PERIOD
        return {"backfill": BACKFILL_PERIOD, "maintenance": MAINTENANCE_PERIOD}.get(self.layer_of[name], 0.0)
