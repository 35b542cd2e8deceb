"""How the tables of a running scheduler stand: what it tells users, and those who wait until tables have caught up.

Nothing here changes the scheduler. What a table's log does not tell at the moment is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from headgate.core import DispatchExplanation, Explanation, TableColumns, Update, node_name
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.schedule.catching_up import Behind, CatchUp, PublicationStanding
from headgate.warehouse.schedule.explaining import Standing, explained
from headgate.warehouse.schedule.ledger import Ledger, NodeStatistics
from headgate.warehouse.schedule.limits import UpdateLimits
from headgate.warehouse.schedule.running import RunningUpdates
from headgate.warehouse.schedule.scheduled_nodes import ScheduledNodes
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.node import known
from headgate.warehouse.updates.open_warehouse import OpenWarehouse


class Standings:
    """Reads what a scheduler knows: its nodes, ledger and limits, and the updates that are planned or run."""

    def __init__(
        self,
        warehouse: OpenWarehouse,
        nodes: ScheduledNodes,
        ledger: Ledger,
        limits: UpdateLimits,
        planned: Mapping[int, Update],
        running: RunningUpdates,
    ) -> None:
        self._warehouse = warehouse
        self._nodes = nodes
        self._ledger = ledger
        self._limits = limits
        self._planned = planned
        self._running = running
        self._columns = TableColumns(nodes.matrix)

    def statistics(self, now: float) -> tuple[NodeStatistics, ...]:
        periods = dict(zip(self._nodes.names, self._nodes.matrix.columns["period"].tolist(), strict=True))
        return self._ledger.statistics(now, self._running.names, periods)

    def explain(self, told: DispatchExplanation, now: float, together: str = "", refresh: str = "") -> Explanation:
        """Why a table is or is not being updated: what the loop has told of it, and what the table waits for.

        ``together`` says why its updates share jobs with others, or do not; ``refresh`` that a refresh is in force.
        """
        graph, table = self._nodes.graph, told.node
        above = [graph.names[i] for i in graph.ancestors(graph.index[table])]
        standings = {name: self.of(name, now) for name in above}
        own = self.of(table, now, told.portion)
        standings[table] = replace(own, together=together, refresh=refresh)
        return explained(told, standings)

    def behind(self, catch_up: CatchUp, now: float) -> Behind:
        """The tables that have not caught up yet."""
        standings = {name: self.of(name, now) for name in self._warehouse.nodes}
        return catch_up.behind(self._warehouse, standings, self._published())

    def _published(self) -> dict[str, PublicationStanding]:
        """How the publications of tables stand."""
        found = {}
        for node in self._nodes.by_name.values():
            if isinstance(node, PublishNode):
                found[node.table] = PublicationStanding(node.version, node.failures, node.problem)
        return found

    def of(self, table: str, now: float, portion: float = math.inf) -> Standing:
        """How one table stands; ``portion`` is how much the policy lets its next update take in, in seconds of data."""
        node, index = self._nodes.by_name[table], self._nodes.graph.index[table]
        entry, backfill = self._ledger.of(table), node_name(table, "backfill")
        failed = entry
        if not entry.retries.failures and backfill in self._nodes.by_name:
            failed = self._ledger.of(backfill)
        running = self._running.names
        return Standing(
            name=table,
            sources=node.sources,
            freshness=known(lambda: node.freshness),
            has_data=bool(known(lambda: node.store.exists)),
            updating=table in running,
            job=next((update.together for update in self._running if update.name == table), ()),
            recomputing=backfill in running,
            ready=index in self._planned,
            pending=float(self._columns.pending[index]),
            most=self._most(index, portion),
            paused=entry.paused,
            failures=failed.retries.failures,
            held=failed.retries.held,
            error=failed.error,
            next_try=failed.retries.next_try() - now,
            note=entry.note if entry.waiting else "",
            remark="" if entry.waiting else entry.note,
            catalog=entry.remark,
            target="; it would help: ".join(filter(None, (entry.target_note, entry.target_help))),
            repairs=known(lambda: node.repairs),
            rebuild=node.rebuild_reason,
            idle=None if entry.last_update is None else now - entry.last_update,
            mode=str(node.mode) if isinstance(node, TableNode) else "",
        )

    def _most(self, index: int, portion: float) -> float:
        """How many seconds of data the planned update of a node takes in; none if there is none."""
        update = self._planned.get(index)
        if update is None:
            return 0.0
        limit = self._limits.of(self._nodes[index], update, self._nodes.period(index), portion=portion)
        return limit.part_of(update) * float(self._columns.pending[index])
