"""What an open warehouse consists of: a node for each table, for its backfill and for its upkeep."""

from headgate.warehouse.nodes.node import Job, Node, Outcome, PendingUpdate
from headgate.warehouse.nodes.stream_node import DimensionNode, StreamNode
from headgate.warehouse.nodes.table_node import BackfillNode, TableNode, backfill_name
from headgate.warehouse.nodes.upkeep import MaintenanceNode, maintenance_name

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
