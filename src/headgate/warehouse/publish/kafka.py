"""Publishing a table to Kafka: every version is one transaction of the records of its changes and of its number.

The cluster has, beside the published topics, a topic ``headgate_published`` with compaction. Its records say which
version of a table was published last, and how fresh it was. A version's number is sent in the transaction of its
records, so that both are there or none. Who publishes first asks for the last number, after it has made sure that no
earlier publisher, which may have died at any moment, can still write: that is what transactional ids are for.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.kafka_changes import ChangeRecord, as_json, keyed, unkeyed
from headgate.warehouse.publish.protocol import PublishedVersion, TableChanges
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka_options import KafkaClients
from headgate.warehouse.sources.kafka_topics import TopicEnds, code_of, text_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from confluent_kafka import Producer

#: the topic that names the version of each published table
VERSIONS = "headgate_published"
#: brokers have taken nothing for so long, in seconds: they do not answer
PATIENCE = 10.0
#: how long a transaction may stay open that nobody ends, in milliseconds: readers of what is committed wait for it
LONGEST_TRANSACTION = 120_000
#: small segments, so that compaction leaves little to read
_VERSIONS_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20), "segment.ms": "3600000"}

Headers = list[tuple[str, str | bytes | None]]
Delivery = Literal["exactly-once", "at-least-once"]


class KafkaSink:
    """A topic with the changes of a table; needs the extra ``kafka``.

    - ``servers``: some brokers of the cluster, as in ``"kafka-1:9092,kafka-2:9092"``.
    - ``topic``: by default it has the name of the table. It is made if it is not there; with a key, with compaction.
    - ``key``: the columns that tell rows apart. A record has the row that its key has now; one without a value says
      that the row has gone. Without a key, the header ``change`` says whether a row came or went.
    - ``delivery``: ``exactly-once``, for readers of what is committed; or ``at-least-once``, without transactions.
    - ``encode``: a function that makes the values of a table's rows, as bytes; by default JSON objects.
    - ``options``: settings of librdkafka, such as ``security.protocol`` and ``sasl.password``. They are never printed.
    - ``versions``: the topic that names the last version of each table.

    Every record has the headers ``table``, ``version`` and ``change`` (``insert``, ``update`` or ``delete``; ``reset``
    voids all that came before it to its partition).
    """

    @noting_a_mistake()
    def __init__(
        self,
        servers: str,
        topic: str = "",
        *,
        key: str | Sequence[str] = (),
        delivery: Delivery = "exactly-once",
        encode: Callable[[pa.Table], Iterable[bytes]] = as_json,
        options: Mapping[str, Any] | None = None,
        versions: str = VERSIONS,
    ) -> None:
        where = f"KafkaSink({servers!r}, {topic!r})"
        if delivery not in ("exactly-once", "at-least-once"):
            raise DeclarationError(f"{where}: delivery takes 'exactly-once' or 'at-least-once'; got {delivery!r}")
        self._key = (key,) if isinstance(key, str) else tuple(key)
        if not all(isinstance(name, str) and name for name in self._key):
            raise DeclarationError(f"{where}: key names the columns that tell rows apart; got {key!r}")
        self._clients = KafkaClients(servers, {} if options is None else options)
        self._clients.check(where)
        self._topic, self._versions = topic, versions
        self._delivery, self._encode = delivery, encode
        self._open: dict[str, _Publication] = {}

    def __repr__(self) -> str:
        return f"KafkaSink({self._clients.servers!r}, {self._topic!r}, key={list(self._key)!r})"

    def resolve(self, base: Path) -> KafkaSink:
        return self

    def last(self, table: str) -> PublishedVersion | None:
        if table not in self._open:
            with self._explained(table):
                self._open[table] = self._opened(table)
        return self._open[table].last

    def publish(self, table: str, changes: TableChanges) -> None:
        missing = [name for name in self._key if name not in changes.added.column_names]
        if missing:
            raise PublishError(
                f"{table!r} cannot be published by its key: it has no column {missing[0]!r}. It has "
                f"{', '.join(changes.added.column_names)}"
            )
        there = self.last(table)
        if changes.before is not None and there != changes.before:
            raise PublishError(
                f"the topic {self._topic or table!r} was to be brought from version {changes.before.version} to "
                f"{changes.published.version}, but it has {'none' if there is None else there.version}: somebody "
                "else publishes to it. Give each warehouse a topic of its own"
            )
        publication = self._open.pop(table)  # to be opened again, unless all goes well
        try:
            with self._explained(table):
                publication.send(self._records(table, changes), changes)
        except BaseException:
            publication.give_up()
            raise
        publication.last = changes.published
        self._open[table] = publication

    def _records(self, table: str, changes: TableChanges) -> Iterator[ChangeRecord]:
        topic, is_whole = self._topic or table, changes.before is None
        if self._key:
            there = self._keys_there(topic, table) if is_whole else None
            return keyed(changes.added, changes.removed, self._key, self._encode, there)
        ends = TopicEnds(self._clients).of(topic) if is_whole else {}
        reset = [partition for partition, (first, end) in ends.items() if end > first]
        return unkeyed(changes.added, changes.removed, self._encode, reset)

    def _opened(self, table: str) -> _Publication:
        topic, ends = self._topic or table, TopicEnds(self._clients)
        ends.make_sure_of(topic, {"cleanup.policy": "compact"} if self._key else {})
        ends.make_sure_of(self._versions, _VERSIONS_SETTINGS, partitions=1)
        settings: dict[str, Any] = {"enable.idempotence": True}
        if self._delivery == "exactly-once":
            name = f"headgate-{topic}-{table}"
            settings = {"transactional.id": name, "transaction.timeout.ms": LONGEST_TRANSACTION}
        producer = self._clients.producer(settings)
        if self._delivery == "exactly-once":
            producer.init_transactions(PATIENCE)  # from now on, no earlier publisher can write
        found = self._last_record(topic, table)
        last = None if found is None else PublishedVersion(int(found["version"]), str(found["version_id"]))
        return _Publication(producer, table, topic, self._versions, self._delivery == "exactly-once", last)

    def _last_record(self, topic: str, table: str) -> Mapping[str, Any] | None:
        found, key = None, position_key(topic, table)
        for record_key, value, _ in self._committed(self._versions):
            if record_key == key and value is not None:
                found = json.loads(value)
        return found

    def _keys_there(self, topic: str, table: str) -> set[bytes]:
        """The keys of which a topic has a row of this table."""
        there: set[bytes] = set()
        for key, value, headers in self._committed(topic):
            if key is not None and headers.get("table") == table.encode():
                there.discard(key) if value is None else there.add(key)
        return there

    def _committed(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
        """Key, value and headers of all that is committed in a topic; waits for transactions that are open."""
        from headgate.warehouse.sources.kafka_columns import HEADERS, KEY, OFFSET, PARTITION, VALUE
        from headgate.warehouse.sources.kafka_offsets import Run
        from headgate.warehouse.sources.kafka_records import RecordReader

        ends = TopicEnds(self._clients).of(topic)
        runs = [Run(partition, first, end) for partition, (first, end) in ends.items() if end > first]
        reader = RecordReader(self._clients, topic, (PARTITION, OFFSET, VALUE, KEY, HEADERS))
        try:
            for packet in reader.read(runs) if runs else ():
                for record in packet.to_pylist():
                    headers = {header["key"]: header["value"] for header in record[HEADERS] or ()}
                    yield record[KEY], record[VALUE], headers
        finally:
            reader.close()

    @contextlib.contextmanager
    def _explained(self, table: str) -> Iterator[None]:
        """Errors of Kafka as errors for people, without secrets."""
        try:
            yield
            return
        except Exception as error:
            code = code_of(error)
            if not code:
                raise
            text = self._clients.hidden(text_of(error))
        what = f"the topic {self._topic or table!r} of Kafka at {self._clients.servers}"
        if code in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            raise PublishError(
                f"{table!r} is published to {what} by somebody else, too, who has taken over. Let only one do it"
            )
        if code in _LASTING:
            raise PublishError(f"{table!r} cannot be published to {what}: {text}")
        raise ServerUnreachable(f"{what} does not take {table!r} now: {text}. It is tried again")


#: errors that do not pass by themselves
_LASTING = frozenset(
    {
        *("MSG_SIZE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        *("CLUSTER_AUTHORIZATION_FAILED", "POLICY_VIOLATION", "INVALID_CONFIG", "TOPIC_EXCEPTION"),
    }
)


def position_key(topic: str, table: str) -> bytes:
    """The key of the record that says which version of a table a topic has."""
    return json.dumps({"topic": topic, "table": table}).encode()


@dataclass
class _Publication:
    """One table and one topic, to which nobody else writes this table."""

    producer: Producer
    table: str
    topic: str
    versions: str
    in_transactions: bool
    last: PublishedVersion | None

    def send(self, records: Iterable[ChangeRecord], changes: TableChanges) -> None:
        """Send records and the number of their version, both or nothing if there are transactions."""
        producer = self.producer
        if self.in_transactions:
            producer.begin_transaction()
        version = changes.published
        table, number = self.table.encode(), str(version.version).encode()
        for record in records:
            headers: Headers = [
                ("table", table),
                ("version", number),
                ("change", record.change.encode()),
            ]
            self._produce(self.topic, record.key, record.value, headers, record.partition)
        self._flush()
        said = {
            "version": version.version,
            "version_id": version.version_id,
            "freshness": changes.freshness,
            "published": time.time(),
        }
        self._produce(self.versions, position_key(self.topic, self.table), json.dumps(said).encode(), [], -1)
        self._flush()
        if self.in_transactions:
            producer.commit_transaction(PATIENCE)

    def give_up(self) -> None:
        """Void what was sent of a version that is not committed, as far as brokers can be reached."""
        with contextlib.suppress(Exception):
            self.producer.purge()
            if self.in_transactions:
                self.producer.abort_transaction(PATIENCE / 2)

    def _produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, str | bytes | None]],
        partition: int,
    ) -> None:
        # What goes wrong in a transaction is said by its commit.
        told = None if self.in_transactions else _raise_if_failed
        waited = 0.0
        while True:
            try:
                self.producer.produce(topic, value, key, partition=partition, headers=headers, on_delivery=told)
                self.producer.poll(0)
                return
            except BufferError:  # as much is on its way as librdkafka holds
                before = len(self.producer)
                self.producer.poll(0.1)
                waited = 0.0 if len(self.producer) < before else waited + 0.1
                if waited > PATIENCE:
                    raise self._silent() from None

    def _flush(self) -> None:
        left, heard = len(self.producer), time.monotonic()
        while left:
            still = self.producer.flush(0.5)
            if still < left:
                left, heard = still, time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                raise self._silent()

    def _silent(self) -> ServerUnreachable:
        return ServerUnreachable(
            f"brokers have taken no record of {self.table!r} for {PATIENCE:.0f} seconds (the topic {self.topic!r}). "
            "It is tried again"
        )


def _raise_if_failed(error: Any, message: Any) -> None:
    if error is not None:
        from confluent_kafka import KafkaException

        raise KafkaException(error)  # comes out of the call that polls
