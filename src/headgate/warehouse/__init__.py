"""Streams and tables on Spark: declare them, keep them fresh, read them.

What is imported from here is public. The modules below this package are internal: they may change at any time.

    declaring   Warehouse, Files, Delta, Postgres, PostgresChanges, Kafka, MqttMessages, Generator; a source of your own
                follows DataSource
    publishing  KafkaSink, PostgresSink; a place of your own follows Publisher and takes TableChanges
    running     RunOptions, SparkOptions, WarehouseRun, NodeStatistics
    control     RunningWarehouse and COMMANDS, for a warehouse that another process runs
    reading     tables, read, query, trailing_edge: from the directory of a warehouse, without Spark
    traces      Update, TraceHeader, TraceTable, TraceWriter, read_trace, newest_trace, measured, write_report,
                CostModel

Importing this package imports neither Spark nor Arrow: names are looked up when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.core import CostModel as CostModel
    from headgate.core import Update as Update
    from headgate.core.trace import TraceHeader as TraceHeader
    from headgate.core.trace import TraceTable as TraceTable
    from headgate.core.trace import measured as measured
    from headgate.warehouse.declare.checks import DeclarationErrors as DeclarationErrors
    from headgate.warehouse.declare.durations import seconds as seconds
    from headgate.warehouse.declare.warehouse import Warehouse as Warehouse
    from headgate.warehouse.publish.errors import PublishError as PublishError
    from headgate.warehouse.publish.kafka import KafkaSink as KafkaSink
    from headgate.warehouse.publish.postgres import PostgresSink as PostgresSink
    from headgate.warehouse.publish.protocol import PublishedVersion as PublishedVersion
    from headgate.warehouse.publish.protocol import Publisher as Publisher
    from headgate.warehouse.publish.protocol import TableChanges as TableChanges
    from headgate.warehouse.publish.protocol import TableRows as TableRows
    from headgate.warehouse.reading import BeyondTheEdgeError as BeyondTheEdgeError
    from headgate.warehouse.reading import NoCommonEdgeError as NoCommonEdgeError
    from headgate.warehouse.reading import NotAWarehouseError as NotAWarehouseError
    from headgate.warehouse.reading import QueryResult as QueryResult
    from headgate.warehouse.reading import SqlError as SqlError
    from headgate.warehouse.reading import TableStatus as TableStatus
    from headgate.warehouse.reading import query as query
    from headgate.warehouse.reading import read as read
    from headgate.warehouse.reading import tables as tables
    from headgate.warehouse.reading import trailing_edge as trailing_edge
    from headgate.warehouse.report.report import write_report as write_report
    from headgate.warehouse.run.control_client import ControlError as ControlError
    from headgate.warehouse.run.control_client import NotRunningError as NotRunningError
    from headgate.warehouse.run.control_client import RefusedError as RefusedError
    from headgate.warehouse.run.control_client import RunningWarehouse as RunningWarehouse
    from headgate.warehouse.run.control_commands import COMMANDS as COMMANDS
    from headgate.warehouse.run.run import SparkOptions as SparkOptions
    from headgate.warehouse.run.run import WarehouseRun as WarehouseRun
    from headgate.warehouse.run.trace import TraceWriter as TraceWriter
    from headgate.warehouse.run.trace import newest_trace as newest_trace
    from headgate.warehouse.run.trace import read_trace as read_trace
    from headgate.warehouse.schedule.catching_up import NotFreshError as NotFreshError
    from headgate.warehouse.schedule.ledger import NodeStatistics as NodeStatistics
    from headgate.warehouse.schedule.run_options import RunOptions as RunOptions
    from headgate.warehouse.session import open_session as open_session
    from headgate.warehouse.sources.delta.source import Delta as Delta
    from headgate.warehouse.sources.errors import PackageMissing as PackageMissing
    from headgate.warehouse.sources.errors import ServerUnreachable as ServerUnreachable
    from headgate.warehouse.sources.errors import SourceBroken as SourceBroken
    from headgate.warehouse.sources.errors import SourceChanged as SourceChanged
    from headgate.warehouse.sources.errors import SourceError as SourceError
    from headgate.warehouse.sources.errors import SourceUnreadable as SourceUnreadable
    from headgate.warehouse.sources.files.source import Files as Files
    from headgate.warehouse.sources.generator import Generator as Generator
    from headgate.warehouse.sources.generator import GeneratorRange as GeneratorRange
    from headgate.warehouse.sources.kafka.source import Kafka as Kafka
    from headgate.warehouse.sources.mqtt.source import MqttMessages as MqttMessages
    from headgate.warehouse.sources.postgres.changes import PostgresChanges as PostgresChanges
    from headgate.warehouse.sources.postgres.source import Postgres as Postgres
    from headgate.warehouse.sources.protocol import ERROR_COLUMN as ERROR_COLUMN
    from headgate.warehouse.sources.protocol import FILE_COLUMN as FILE_COLUMN
    from headgate.warehouse.sources.protocol import RAW_COLUMN as RAW_COLUMN
    from headgate.warehouse.sources.protocol import DataSource as DataSource
    from headgate.warehouse.sources.protocol import Limit as Limit
    from headgate.warehouse.sources.protocol import Notice as Notice
    from headgate.warehouse.sources.protocol import Offset as Offset
    from headgate.warehouse.sources.protocol import Pending as Pending
    from headgate.warehouse.sources.protocol import Range as Range
    from headgate.warehouse.sources.protocol import expect_kind as expect_kind
    from headgate.warehouse.updates.repairs import Repairs as Repairs

#: {module: the public names that it holds}; the imports above tell type checkers the same
_PUBLIC = {
    "headgate.warehouse.declare.checks": ("DeclarationErrors",),
    "headgate.warehouse.declare.durations": ("seconds",),
    "headgate.warehouse.declare.warehouse": ("Warehouse",),
    "headgate.warehouse.publish.errors": ("PublishError",),
    "headgate.warehouse.publish.kafka": ("KafkaSink",),
    "headgate.warehouse.publish.postgres": ("PostgresSink",),
    "headgate.warehouse.publish.protocol": ("PublishedVersion", "Publisher", "TableChanges", "TableRows"),
    "headgate.warehouse.reading": (
        *("BeyondTheEdgeError", "NoCommonEdgeError", "NotAWarehouseError", "QueryResult", "SqlError", "TableStatus"),
        *("query", "read", "tables", "trailing_edge"),
    ),
    "headgate.warehouse.report.report": ("write_report",),
    "headgate.warehouse.run.control_client": ("ControlError", "NotRunningError", "RefusedError", "RunningWarehouse"),
    "headgate.warehouse.run.control_commands": ("COMMANDS",),
    "headgate.warehouse.run.run": ("SparkOptions", "WarehouseRun"),
    "headgate.warehouse.schedule.run_options": ("RunOptions",),
    "headgate.warehouse.session": ("open_session",),
    "headgate.warehouse.run.trace": ("TraceWriter", "newest_trace", "read_trace"),
    "headgate.warehouse.schedule.catching_up": ("NotFreshError",),
    "headgate.warehouse.schedule.ledger": ("NodeStatistics",),
    "headgate.warehouse.updates.repairs": ("Repairs",),
    "headgate.core": ("CostModel", "Update"),
    "headgate.core.trace": ("TraceHeader", "TraceTable", "measured"),
    "headgate.warehouse.sources.delta.source": ("Delta",),
    "headgate.warehouse.sources.errors": (
        *("PackageMissing", "ServerUnreachable", "SourceBroken", "SourceChanged", "SourceError", "SourceUnreadable"),
    ),
    "headgate.warehouse.sources.files.source": ("Files",),
    "headgate.warehouse.sources.generator": ("Generator", "GeneratorRange"),
    "headgate.warehouse.sources.kafka.source": ("Kafka",),
    "headgate.warehouse.sources.mqtt.source": ("MqttMessages",),
    "headgate.warehouse.sources.postgres.source": ("Postgres",),
    "headgate.warehouse.sources.postgres.changes": ("PostgresChanges",),
    "headgate.warehouse.sources.protocol": (
        *("ERROR_COLUMN", "FILE_COLUMN", "RAW_COLUMN"),
        *("DataSource", "Limit", "Notice", "Offset", "Pending", "Range", "expect_kind"),
    ),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - made from the list above, so that they cannot differ


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'headgate.warehouse' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
