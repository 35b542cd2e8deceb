"""All nodes of a warehouse for the dispatch loop: their numbers, their graph, and the features that are declared.

First the live nodes of the tables, with the same numbers as in the warehouse's graph; then, in lower layers, backfills,
publishing and maintenance. These have no edges, because they wait for no other node. What is pending is not known here.
"""

from __future__ import annotations

import numpy as np

from headgate.core import (
    BACKFILL,
    LIVE,
    MAINTENANCE,
    PATIENCE_PERIODS,
    TABLE_FEATURES,
    FeatureMatrix,
    InheritanceRule,
    TableColumns,
    derive_periods,
    features_named,
    inherit_priorities,
    work_per_second,
)
from headgate.warehouse.declare.spec import DimensionSpec, TableSpec
from headgate.warehouse.schedule.ledger import Ledger
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.load import DimensionNode, StreamNode
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import OpenWarehouse

#: the period of a stream, in seconds, until it has been learned from arrivals
UNKNOWN_PERIOD = 10.0
#: a learned period is used when it differs by this share from the one in use
PERIOD_CHANGED = 0.2
#: the periods of other nodes, in seconds: after 20 periods of waiting a node runs first
BACKFILL_PERIOD, MAINTENANCE_PERIOD, DIMENSION_PERIOD, PUBLISH_PERIOD = 3.0, 30.0, 40.0, 1.0

_LAYERS = {"live": LIVE, "backfill": BACKFILL, "maintenance": MAINTENANCE, "publish": BACKFILL}


class ScheduledNodes:
    """The nodes by name and by number, their graph, and the features that are declared."""

    def __init__(self, warehouse: OpenWarehouse) -> None:
        self._declared = {node.name: node for node in warehouse.spec.nodes()}
        others = {node.name: node for node in warehouse.background_nodes()}
        self.by_name: dict[str, Node] = {**warehouse.nodes, **others}
        self.graph = warehouse.graph.adding(list(others))
        self.names = self.graph.names
        self._nodes = [self.by_name[name] for name in self.names]
        #: {table: the numbers of the nodes that work on it}
        self.of_table: dict[str, list[int]] = {name: [] for name in warehouse.nodes}
        for index, node in enumerate(self._nodes):
            self.of_table[node.table].append(index)
        self.matrix = FeatureMatrix(self.graph, features_named(TABLE_FEATURES))

    def __getitem__(self, index: int) -> Node:
        return self._nodes[index]

    def __len__(self) -> int:
        return len(self._nodes)

    def has_source(self, index: int) -> bool:
        """Whether a node is loaded from a source, which has to be polled."""
        return isinstance(self._nodes[index], StreamNode | DimensionNode)

    def groups(self) -> dict[str, tuple[int, ...]]:
        """{table: all tables of its group that have the same sources}."""
        members: dict[tuple[str, frozenset[str]], list[str]] = {}
        for node in self._declared.values():
            if isinstance(node, TableSpec) and node.group is not None:
                members.setdefault((node.group, frozenset(node.sources)), []).append(node.name)
        return {name: tuple(self.graph.index[n] for n in names) for names in members.values() for name in names}

    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """The tables that could share a job: with the same sources, computed from what is new in them.

        Not those that are computed as a whole, which would keep all of their sources in memory, nor those with stream
        queries inside, which would all have to wait for the slowest one.
        """
        same: dict[frozenset[str], list[int]] = {}
        for index, node in enumerate(self._nodes):
            declared = self._declared.get(node.name)
            is_apart = isinstance(node, TableNode) and (node.mode.name in ("keys", "whole") or node.hosts_queries)
            if isinstance(declared, TableSpec) and declared.sources and not is_apart:
                same.setdefault(frozenset(declared.sources), []).append(index)
        return tuple(tuple(nodes) for nodes in same.values() if len(nodes) > 1)

    def period(self, index: int) -> float:
        return float(self.matrix.columns["period"][index])

    # --- features -------------------------------------------------------------------------------------------

    def fill(self, ledger: Ledger, inheritance: InheritanceRule) -> None:
        """Fill the features that are declared."""
        declared = [self._declared[node.table] for node in self._nodes]
        classes = [0 if isinstance(node, DimensionSpec) else node.importance_class for node in declared]
        self.matrix.fill("class", map(float, classes))
        self.matrix.fill("layer", [_LAYERS[node.layer] for node in self._nodes])
        self.fill_periods()
        self._fill_costs(ledger)
        self.fill_priorities(ledger, inheritance)

    def _fill_costs(self, ledger: Ledger) -> None:
        """What is known of costs already, by which tables are placed before any of them is planned."""
        columns = TableColumns(self.matrix)
        for index, name in enumerate(self.names):
            entry = ledger.of(name)
            if entry.cost.observed:
                setup, slope = entry.cost.setup_and_slope
                columns.set_cost(index, setup, slope * entry.per_second)

    def fill_priorities(self, ledger: Ledger, inheritance: InheritanceRule) -> None:
        """Priorities after inheritance; with ``density`` by what is known of costs now."""
        entries = [ledger.of(name) for name in self.names]
        stated = np.array([entry.priority for entry in entries])
        costs = [entry.cost.setup_and_slope for entry in entries]
        setup = np.array([alpha for alpha, _ in costs])
        slope = np.array([beta * entry.per_second for (_, beta), entry in zip(costs, entries, strict=True)])
        work = work_per_second(setup, slope, self.matrix.columns["period"])
        self.matrix.fill("priority", inherit_priorities(self.graph, stated, inheritance.mode, inheritance.k, work))

    def fill_periods(self) -> None:
        """Periods as declared or learned, and the patience of each node."""
        stated = np.array([self._stated_period(node) for node in self._nodes])
        periods = derive_periods(self.graph, stated)
        self.matrix.fill("period", periods)
        patience = []
        for name, period in zip(self.names, periods.tolist(), strict=True):
            node = self._declared.get(name)
            stated_patience = None if node is None or isinstance(node, DimensionSpec) else node.patience
            patience.append(stated_patience or PATIENCE_PERIODS * max(period, 1.0))
        self.matrix.fill("patience", patience)

    def has_learned(self, index: int) -> bool:
        """Whether the learned period of a stream differs from the one in use."""
        node, known = self._nodes[index], self.period(index)
        learned = node.period if isinstance(node, StreamNode) else None
        return learned is not None and abs(learned - known) > PERIOD_CHANGED * known

    @staticmethod
    def _stated_period(node: Node) -> float:
        if isinstance(node, StreamNode):
            return node.period or UNKNOWN_PERIOD
        if isinstance(node, DimensionNode):
            return DIMENSION_PERIOD
        periods = {"backfill": BACKFILL_PERIOD, "maintenance": MAINTENANCE_PERIOD, "publish": PUBLISH_PERIOD}
        return periods.get(node.layer, 0.0)
