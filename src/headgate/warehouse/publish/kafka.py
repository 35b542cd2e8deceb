"""Publishing a table to Kafka: every version is one transaction of the records of its changes and of its number.

A version that is too large for one transaction is several. All but the last of them say that the version is not
complete, so that readers can tell, and so that after a failure the whole table is sent.

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.publish.errors import PublishError
from headgate.warehouse.publish.kafka_changes import ChangeRecord, as_json, keyed, keyed_anew, unkeyed
from headgate.warehouse.publish.owner import refuse_others, refuse_unexpected
from headgate.warehouse.publish.protocol import PublishedVersion, TableChanges
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka.options import KafkaClients, shown_servers
from headgate.warehouse.sources.kafka.topics import TopicEnds, code_of, text_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from confluent_kafka import Producer

#: the topic that names the version of each published table
VERSIONS = "headgate_published"
#: brokers have taken nothing for so long, in seconds: they do not answer
PATIENCE = 10.0
#: how long a transaction may stay open that nobody ends, in milliseconds: readers of what is committed wait for it
LONGEST_TRANSACTION = 120_000
#: a transaction ends after so many records, bytes or seconds, and the version goes on with another one; the seconds are
#: a fraction of the longest, because brokers may be slow
PART_RECORDS, PART_BYTES, PART_SECONDS = 200_000, 64 << 20, 20.0
#: the most keys of a topic that are held in memory, to find out which of them are not in the table any more
MOST_KEYS = 20_000_000
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
    - ``take_over``: publish also where another warehouse has published this table; its rows are replaced. Leave it out
      again afterwards: two warehouses that both take over replace each other's rows.

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
        take_over: bool = False,
    ) -> None:
        where = f"KafkaSink({shown_servers(servers)}, {topic!r})"
        if delivery not in ("exactly-once", "at-least-once"):
            raise DeclarationError(f"{where}: delivery takes 'exactly-once' or 'at-least-once'; got {delivery!r}")
        self._key = (key,) if isinstance(key, str) else tuple(key)
        if not all(isinstance(name, str) and name for name in self._key):
            raise DeclarationError(f"{where}: key names the columns that tell rows apart; got {key!r}")
        self._clients = KafkaClients(servers, {} if options is None else options)
        self._clients.check(where)
        self._topic, self._versions = topic, versions
        self._delivery, self._encode = delivery, encode
        self.take_over = take_over
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

    def peek(self, table: str) -> PublishedVersion | None:
        """What the topic has as far as is known without fencing off whoever publishes to it."""
        topic = self._topic or table
        with self._explained(table):
            if not TopicEnds(self._clients).is_there(self._versions):
                return None
            # Also what is not committed: it would be waited for if its publisher had died.
            return self._last_version(topic, table, replace(self._clients, isolation="read_uncommitted"))

    def publish(self, table: str, changes: TableChanges) -> None:
        missing = [name for name in self._key if name not in changes.added.column_names]
        if missing:
            raise PublishError(
                f"{table!r} cannot be published by its key: it has no column {missing[0]!r}. It has "
                f"{', '.join(changes.added.column_names)}"
            )
        there = self.last(table)
        refuse_others(there, changes.published.warehouse, self.take_over, table, repr(self))
        refuse_unexpected(there, changes, f"the topic {self._topic or table!r}", "topic")
        publication = self._open.pop(table)  # to be opened again, unless all goes well
        try:
            with self._explained(table):
                publication.send(self._records(table, changes), changes)
        except BaseException:
            publication.give_up()
            raise
        publication.last = changes.published
        self._open[table] = publication

    def _records(self, table: str, changes: TableChanges) -> Iterator[ChangeRecord | None]:
        topic, is_whole = self._topic or table, changes.before is None
        if self._key:
            if is_whole:
                return keyed_anew(changes.added, self._key, self._encode, self._keys_there(topic, table))
            return keyed(changes.added, changes.removed, self._key, self._encode)
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
        last = self._last_version(topic, table, self._clients)
        return _Publication(producer, table, topic, self._versions, self._delivery == "exactly-once", last)

    def _last_version(self, topic: str, table: str, clients: KafkaClients) -> PublishedVersion | None:
        found, key = None, position_key(topic, table)
        for record_key, value, _ in self._committed(self._versions, clients):
            if record_key == key and value is not None:
                found = json.loads(value)
        if found is None:
            return None
        # Earlier versions did not say which warehouse it was.
        whose, is_complete = str(found.get("warehouse", "")), bool(found.get("complete", True))
        return PublishedVersion(int(found["version"]), str(found["version_id"]), whose, is_complete)

    def _keys_there(self, topic: str, table: str) -> set[bytes]:
        """The keys of which a topic has a row of this table."""
        there: set[bytes] = set()
        for key, value, headers in self._committed(topic, self._clients):
            if key is not None and headers.get("table") == table.encode():
                there.discard(key) if value is None else there.add(key)
                if len(there) > MOST_KEYS:
                    raise PublishError(
                        f"{table!r} cannot be published to the topic {topic!r} again as a whole: it has more than "
                        f"{MOST_KEYS:,} keys, too many to find out which of them are not in the table any more. Delete "
                        "the topic, or publish to a new one; then it is sent from the beginning"
                    )
        return there

    def _committed(
        self, topic: str, clients: KafkaClients
    ) -> Iterator[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
        """Key, value and headers of all that is committed in a topic; waits for transactions that are open."""
        from headgate.warehouse.sources.kafka.columns import HEADERS, KEY, OFFSET, PARTITION, VALUE
        from headgate.warehouse.sources.kafka.offsets import Run
        from headgate.warehouse.sources.kafka.records import RecordReader

        ends = TopicEnds(clients).of(topic)
        runs = [Run(partition, first, end) for partition, (first, end) in ends.items() if end > first]
        reader = RecordReader(clients, topic, (PARTITION, OFFSET, VALUE, KEY, HEADERS))
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
class _SentPart:
    """What was sent in one transaction."""

    records: int = 0
    bytes: int = 0
    begun: float = field(default_factory=time.monotonic)

    def add(self, record: ChangeRecord) -> None:
        if not self.records:  # brokers count from the first record
            self.begun = time.monotonic()
        self.records += 1
        self.bytes += len(record.key or b"") + len(record.value or b"")

    @property
    def is_full(self) -> bool:
        is_late = time.monotonic() - self.begun > PART_SECONDS
        return self.records >= PART_RECORDS or self.bytes >= PART_BYTES or is_late


@dataclass
class _Publication:
    """One table and one topic, to which nobody else writes this table."""

    producer: Producer
    table: str
    topic: str
    versions: str
    in_transactions: bool
    last: PublishedVersion | None

    def send(self, records: Iterable[ChangeRecord | None], changes: TableChanges) -> None:
        """Send records and the number of their version: in one transaction, if there are any, or marked in several."""
        part = _SentPart()
        if self.in_transactions:
            self.producer.begin_transaction()
        table, number = self.table.encode(), str(changes.published.version).encode()
        for record in records:
            if self.in_transactions and part.records and (record is None or part.is_full):
                self._commit(changes, is_complete=False)
                self.producer.begin_transaction()
                part = _SentPart()
            if record is None:
                continue
            headers: Headers = [
                ("table", table),
                ("version", number),
                ("change", record.change.encode()),
            ]
            self._produce(self.topic, record.key, record.value, headers, record.partition)
            part.add(record)
        self._commit(changes, is_complete=True)

    def _commit(self, changes: TableChanges, *, is_complete: bool) -> None:
        """Send the number of the version, behind its records, and commit both."""
        self._flush()
        version = changes.published
        said = {
            "version": version.version,
            "version_id": version.version_id,
            "warehouse": version.warehouse,
            "complete": is_complete,
            "freshness": changes.freshness,
            "published": time.time(),
        }
        self._produce(self.versions, position_key(self.topic, self.table), json.dumps(said).encode(), [], -1)
        self._flush()
        if self.in_transactions:
            self.producer.commit_transaction(PATIENCE)

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
