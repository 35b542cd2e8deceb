"""A source of records from a Kafka topic.

Which records have been loaded is kept in the commits of the stream's table, by partition, and nowhere else: the offsets
that Kafka itself keeps for groups of consumers are not used. So every record is loaded exactly once, also if the process
or a broker dies in between.

A chunk is a block of some offsets of a partition. How large records are is not known before they are read: the size of
those that were read last is taken for that of the next.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.sources.errors import SourceChanged, SourceUnavailable
from headgate.warehouse.sources.file_batch import ddl
from headgate.warehouse.sources.kafka_columns import RecordColumns
from headgate.warehouse.sources.kafka_formats import JsonValues, RawValues, ValueFormat
from headgate.warehouse.sources.kafka_offsets import KafkaOffset, KafkaRange, Run, chunks_in, cut, merged
from headgate.warehouse.sources.kafka_options import Isolation, KafkaClients
from headgate.warehouse.sources.kafka_topics import TopicLook, WatchedTopic
from headgate.warehouse.sources.protocol import Limit, Notice, Offset, Pending, Range, expect_kind, within
from headgate.warehouse.sources.schema import parse_schema

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from headgate.warehouse.sources.kafka_records import RecordReader

#: the size of a record before one was read, in bytes
_FIRST_RECORD_BYTES = 1_000
#: how many records are read to learn their size, if the first range is not read in the driver
_SAMPLE = 1_000
#: the weight of the last read in the size of a record
_LEARNING = 0.3
#: larger ranges are read by executors: so many offsets, or bytes
DRIVER_OFFSETS, DRIVER_BYTES = 200_000, 64 << 20
#: how many missing runs a message names
_NAMED = 10

_FORMATS = ("json", "raw")


@dataclass(frozen=True)
class Kafka:
    """The records of a topic.

    - ``servers``: some brokers of the cluster, as in ``"kafka-1:9092,kafka-2:9092"``.
    - ``format``: what is in values: ``json`` (one object) or ``raw`` (one column of the type string or binary).
    - ``schema``: the columns of a value as Spark writes them. Not needed for ``raw``: ``value string``.
    - ``record``: columns from other parts of a record, by name: ``{"sent": "timestamp", "customer": "key"}``. The parts
      are key, key_bytes, timestamp, partition, offset, headers and tombstone. A list of parts has columns of the same
      names. Without ``tombstone`` records without a value go to the table of rejected rows.
    - ``start``: where to begin when nothing has been loaded yet: ``earliest``, ``latest``, or a moment as in
      ``"2026-11-15T10:00:00Z"``. Partitions that are added later are loaded from their beginning.
    - ``missing``: what to do if records were removed from the topic before they were loaded, by its retention or with
      the topic itself: ``stop``, and say which, or ``skip`` them.
    - ``isolation``: ``read_committed``, or ``read_uncommitted`` to load records of transactions that are aborted later.
    - ``options``: settings of librdkafka, such as ``security.protocol`` and ``sasl.password``. They are never printed.
    - ``parsing``: options for Spark's parser of JSON, such as ``{"timestampFormat": "dd.MM.yyyy HH:mm"}``.
    - ``records_per_chunk``: the smallest number of records of a partition by which the size of an update changes.
    """

    servers: str
    topic: str
    _: KW_ONLY
    format: str = "json"
    schema: str = ""
    record: Mapping[str, str] | Iterable[str] = field(default_factory=dict)
    start_at: str | float = field(default="earliest")
    missing: Literal["stop", "skip"] = "stop"
    isolation: Isolation = "read_committed"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    parsing: Mapping[str, str] = field(default_factory=dict)
    records_per_chunk: int = 1_000
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    _clients: KafkaClients = field(init=False, repr=False, compare=False)
    _columns: RecordColumns = field(init=False, repr=False, compare=False)
    _format: ValueFormat = field(init=False, repr=False, compare=False)
    _topic: WatchedTopic = field(init=False, repr=False, compare=False)
    _memory: _Memory = field(init=False, repr=False, compare=False)
