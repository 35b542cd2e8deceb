"""Sources of streams: files, Delta tables, Kafka, MQTT, PostgreSQL, a generator. ``protocol`` is for others.

Declaring a source imports neither Spark nor Arrow; reading from it does.
"""

from headgate.warehouse.sources.delta.source import Delta
from headgate.warehouse.sources.errors import (
    PackageMissing,
    ServerUnreachable,
    SourceBroken,
    SourceChanged,
    SourceError,
    SourceUnreadable,
)
from headgate.warehouse.sources.files.source import Files
from headgate.warehouse.sources.generator import Generator
from headgate.warehouse.sources.kafka.source import Kafka
from headgate.warehouse.sources.mqtt.source import MqttMessages
from headgate.warehouse.sources.postgres.changes import PostgresChanges
from headgate.warehouse.sources.postgres.source import Postgres
from headgate.warehouse.sources.protocol import DataSource, Limit, Notice, Offset, Pending, Range

__all__ = [
    "DataSource",
    "Delta",
    "Files",
    "Generator",
    "Kafka",
    "Limit",
    "MqttMessages",
    "Notice",
    "Offset",
    "PackageMissing",
    "Pending",
    "Postgres",
    "PostgresChanges",
    "Range",
    "ServerUnreachable",
    "SourceBroken",
    "SourceChanged",
    "SourceError",
    "SourceUnreadable",
]
