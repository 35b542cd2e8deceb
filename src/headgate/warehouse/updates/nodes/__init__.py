"""What an open warehouse consists of: a node for each table, for its backfill and for its upkeep."""

from headgate.warehouse.updates.nodes.node import Job, Node, Outcome, PendingUpdate
from headgate.warehouse.updates.nodes.stream_node import DimensionNode, StreamNode
from headgate.warehouse.updates.nodes.table_node import BackfillNode, TableNode, backfill_name
from headgate.warehouse.updates.nodes.upkeep import MaintenanceNode, maintenance_name

__all__ = [
    "BackfillNode",
    "DimensionNode",
    "Job",
    "MaintenanceNode",
    "Node",
    "Outcome",
    "PendingUpdate",
    "StreamNode",
    "TableNode",
    "backfill_name",
    "maintenance_name",
]
