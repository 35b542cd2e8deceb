"""Reading runs of a topic into Arrow, with librdkafka, in the driver.

The end of a run need not have a record: it may have been compacted away, or be the marker of a transaction. So a run
has ended when a record at or after its last offset was seen, or the end of the partition.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka.columns import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
)
from headgate.warehouse.sources.kafka.offsets import Run
from headgate.warehouse.sources.kafka.options import KafkaClients

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

#: the most records in a packet, and how long librdkafka may wait to fill one
_PACKET, _FILLED_WITHIN = 10_000, 0.01
#: nothing has come for so long: brokers do not answer
PATIENCE = 10.0
#: a producer may write any 64 bits as a timestamp, in milliseconds; those farther from 1970 are none in microseconds
_FARTHEST = (2**63 - 1) // 1000

_ARROW_TYPES = {
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    VALUE: pa.binary(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    KEY: pa.binary(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


@dataclass(frozen=True)
class RecordReader:
    """Reads records of one topic with the columns in ``columns``. Consumers are kept open between reads."""

    clients: KafkaClients
    topic: str
    columns: tuple[str, ...]
    _idle: list[Consumer] = field(default_factory=list, init=False, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, _ARROW_TYPES[name]) for name in self.columns])

    def read(self, runs: Collection[Run]) -> Iterator[pa.RecordBatch]:
        """The records of ``runs``, a packet at a time."""
        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = self.clients.consumer(f"headgate-{self.topic}")
        try:
            for part in _one_per_partition(runs):
                yield from _Reading(self, consumer, part).packets()
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            self._idle.append(consumer)

    def close(self) -> None:
        """Close the consumers that are kept open."""
        with self._lock:
            idle, self._idle[:] = list(self._idle), []
        for consumer in idle:
            consumer.close()


class _Reading:
    """One read of at most one run of each partition."""

    def __init__(self, reader: RecordReader, consumer: Consumer, runs: Sequence[Run]) -> None:
        self._reader = reader
        self._consumer = consumer
        self._runs = {run.partition: run for run in runs}
        self._paused: list[TopicPartition] = []
        #: {partition that has not ended: the next offset}
        self._next = {run.partition: run.first for run in runs}
        self._firsts, self._ends = np.zeros((2, max(self._runs) + 1), np.int64)
        for run in runs:
            self._firsts[run.partition], self._ends[run.partition] = run.first, run.end

    def packets(self) -> Iterator[pa.RecordBatch]:
        consumer = self._consumer
        consumer.assign([self._place(run.partition, run.first) for run in self._runs.values()])
        heard = time.monotonic()
        while self._next:
            left = sum(self._runs[partition].end - at for partition, at in self._next.items())
            unfinished = len(self._next)
            records = self._records(consumer.consume(min(_PACKET, max(1, left)), _FILLED_WITHIN))
            if records or len(self._next) < unfinished:
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:  # errors that may pass come again and again
                raise self._unavailable(f"nothing has come for {PATIENCE:.0f} seconds")
            if records and (batch := self._batch(records)).num_rows:
                yield batch
        if self._paused:
            consumer.resume(self._paused)  # or they would stay so when they are assigned again
        consumer.unassign()

    def _records(self, messages: list[Message]) -> list[Message]:
        """The messages without those that are about ends and errors."""
        if not any([message.error() for message in messages]):
            return messages
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.name() == "_PARTITION_EOF":
                self._reached(message.partition() or 0, message.offset() or 0)
            elif not error.retriable() and error.name() not in _PASSING:
                raise self._unavailable(self._reader.clients.hidden(str(error.str())))
        return records

    def _reached(self, partition: int, offset: int) -> None:
        """Everything before ``offset`` has been read."""
        if partition not in self._next:
            return
        if offset < self._runs[partition].end:
            self._next[partition] = max(offset, self._next[partition])
            return
        del self._next[partition]
        if self._next:
            paused = [self._place(partition, offset)]
            self._consumer.pause(paused)
            self._paused += paused

    def _place(self, partition: int, offset: int) -> TopicPartition:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._reader.topic, partition, offset)

    def _batch(self, records: list[Message]) -> pa.RecordBatch:
        partitions = np.array([record.partition() for record in records], np.int32)
        offsets = np.array([record.offset() for record in records], np.int64)
        inside = (offsets >= self._firsts[partitions]) & (offsets < self._ends[partitions])
        for partition in list(self._next):
            here = offsets[partitions == partition]
            if len(here):
                self._reached(partition, int(here[-1]) + 1)
        columns = [self._column(name, records, partitions, offsets) for name in self._reader.columns]
        batch = pa.record_batch(columns, schema=self._reader.schema)
        return batch if inside.all() else batch.filter(pa.array(inside))

    @staticmethod
    def _column(name: str, records: list[Message], partitions: Any, offsets: Any) -> pa.Array:
        kind = _ARROW_TYPES[name]
        if name == PARTITION:
            return pa.array(partitions, kind)
        if name == OFFSET:
            return pa.array(offsets, kind)
        if name == TIMESTAMP:
            return times_of(records)
        return pa.array([_PARTS_OF_RECORDS[name](record) for record in records], kind)

    def _unavailable(self, problem: str) -> ServerUnreachable:
        waiting = "; ".join(str(Run(partition, at, self._ends[partition])) for partition, at in self._next.items())
        return ServerUnreachable(
            f"the topic {self._reader.topic!r} of Kafka at {self._reader.clients.servers} cannot be read: {problem} "
            f"({waiting}). It is tried again"
        )


#: errors after which librdkafka goes on by itself
_PASSING = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})


def times_of(records: Sequence[Message]) -> pa.Array:
    """The timestamps of records; null where there is none, or it is not one of Spark."""
    stamps = [record.timestamp() for record in records]
    moments = [at * 1000 if source and abs(at) <= _FARTHEST else None for source, at in stamps]
    return pa.array(moments, pa.int64()).cast(_ARROW_TYPES[TIMESTAMP])


def _headers(record: Message) -> list[dict[str, Any]] | None:
    headers: Any = record.headers()
    if not headers:
        return None
    return [{"key": key, "value": value.encode() if isinstance(value, str) else value} for key, value in headers]


_PARTS_OF_RECORDS: Mapping[str, Callable[[Message], Any]] = {
    VALUE: lambda record: record.value(),
    KEY: lambda record: record.key(),
    HEADERS: _headers,
    # The client numbers them from 1 on.
    TIMESTAMP_TYPE: lambda record: record.timestamp()[0] - 1,
}


def _one_per_partition(runs: Collection[Run]) -> Iterator[list[Run]]:
    """Runs in groups with at most one of each partition; a consumer reads a partition from one offset on."""
    groups: defaultdict[int, list[Run]] = defaultdict(list)
    seen: defaultdict[int, int] = defaultdict(int)
    for run in runs:
        groups[seen[run.partition]].append(run)
        seen[run.partition] += 1
    yield from groups.values()
