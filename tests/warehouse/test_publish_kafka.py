"""A table published to Kafka: what is committed there, replayed, is the table, whoever is killed at whatever moment."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.core import DeclarationError
from headgate.warehouse import PublishedVersion, PublishError, TableChanges
from headgate.warehouse.publish.kafka_changes import as_json, keyed, keyed_anew, unkeyed
from headgate.warehouse.publish.node import PublishNode
from headgate.warehouse.sources import ServerUnreachable
from headgate.warehouse.sources.kafka.options import KafkaClients
from tests.services.kafka import PASSWORD, PATIENCE, QUIET, USER, KafkaBroker, why_not
from tests.warehouse.written import Row, Written, rows_of

pytestmark = [pytest.mark.services, pytest.mark.slow]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def publish(written: Written, sink: hg.KafkaSink) -> None:
    """Publish all versions that are not published yet."""
    node = PublishNode(written, [sink])
    while node.plan() is not None:
        node.update(None)  # type: ignore[arg-type]


def committed(broker: KafkaBroker, topic: str) -> Iterator[Any]:
    """All records that a reader of what is committed sees, by partition; needs nothing of Headgate."""
    from confluent_kafka import Consumer, TopicPartition

    broker.wait_for_transactions(topic)
    settings = {"bootstrap.servers": broker.servers, "group.id": "oracle", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"}, logger=QUIET)
    try:
        for partition in consumer.list_topics(topic).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (record := consumer.poll(PATIENCE)) is not None:
                if record.error() is not None:
                    break  # the end
                yield record
            assert record is not None, "the broker did not answer"
    finally:
        consumer.close()


def seen(broker: KafkaBroker, topic: str, *, by_key: bool) -> list[Row]:
    """The table as a reader of the topic has it who knows what the documentation says."""
    rows: dict[bytes, bytes] = {}
    counts = Counter[bytes]()
    here: dict[int, Counter[bytes]] = {}
    for record in committed(broker, topic):
        change = dict(record.headers())["change"].decode()
        if by_key and record.value() is None:
            assert change == "delete"
            rows.pop(record.key(), None)
        elif by_key:
            assert rows.get(record.key()) != record.value(), "nothing is sent that did not change"
            rows[record.key()] = record.value()
        elif change == "reset":
            here[record.partition()] = Counter()
        else:
            here.setdefault(record.partition(), Counter())[record.value()] += 1 if change == "insert" else -1
    for count in here.values():
        counts.update(count)
    assert all(count >= 0 for count in counts.values())
    values = rows.values() if by_key else counts.elements()
    return sorted((row["id"], row["city"], row["amount"]) for row in map(json.loads, values))


def sink_for(broker: KafkaBroker, topic: str, *, by_key: bool, **more: Any) -> hg.KafkaSink:
    return hg.KafkaSink(broker.servers, topic, key="id" if by_key else (), **more)


def next_rows(rows: dict[int, Row], chance: random.Random, step: int) -> None:
    for _ in range(chance.randint(1, 4)):
        number = chance.randrange(12)
        rows[number] = (number, chance.choice(["bern", 'a"b\n']), float(step))
    if rows and chance.random() < 0.5:
        del rows[chance.choice(sorted(rows))]


# --- records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [500_000, 2], ids=["at once", "in rounds"])
def test_only_rows_that_changed_become_records(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.warehouse.publish.kafka_changes.MOST_IN_MEMORY", most)
    before, after = rows_of([(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0)]), rows_of([(1, "a", 1.0), (2, "b", 9.0)])
    by_key = [(r.change, r.key, r.value) for r in keyed(after, before, ["id"], as_json) if r]
    assert sorted(by_key) == [("delete", b"3", None), ("update", b"2", b'{"id":2,"city":"b","amount":9.0}')]
    whole = [(r.change, r.key) for r in keyed_anew(after, ["id"], as_json, {b"1", b"7"})]
    assert whole == [("update", b"1"), ("insert", b"2"), ("delete", b"7")]
    without = [(r.change, json.loads(r.value or b"{}")["id"]) for r in unkeyed(after, before, as_json) if r]
    assert sorted(without) == [("delete", 2), ("delete", 3), ("insert", 2)]
    one, two_of_one = rows_of([(1, "a", 1.0)]), rows_of([(1, "a", 1.0), (1, "a", 1.0)])
    assert [r.change for r in unkeyed(two_of_one, one, as_json) if r] == ["insert"]
    assert [(r.change, r.partition) for r in unkeyed(rows_of([]), two_of_one, as_json, [0]) if r] == [
        *[("reset", 0), ("delete", -1), ("delete", -1)]
    ]


def test_values_are_json_that_spark_reads() -> None:
    rows = pa.table(
        {
            "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "x": [math.inf],
            "price": pa.array([Decimal("1.20")]),
            "day": pa.array([date(2026, 1, 2)]),
            "blob": pa.array([b"\xff"]),
            "list": pa.array([[math.nan, None]]),
            "deep": pa.array([{"t": datetime(2026, 1, 2, tzinfo=UTC)}], pa.struct([("t", pa.timestamp("us", "UTC"))])),
        }
    )
    assert [json.loads(value) for value in as_json(rows)] == [
        {
            "at": "2026-01-02T03:04:05.000060Z",
            "x": "Infinity",
            "price": "1.20",
            "day": "2026-01-02",
            "blob": "/w==",
            "list": ["NaN", None],
            "deep": {"t": "2026-01-02T00:00:00Z"},
        }
    ]


def test_keys_are_texts_or_json_and_never_null() -> None:
    rows, none = rows_of([(1, "bern", 1.0)]), rows_of([])
    assert [r.key for r in keyed(rows, none, ["city"], as_json) if r] == [b"bern"]
    assert [r.key for r in keyed(rows, none, ["city", "id"], as_json) if r] == [b'{"city":"bern","id":1}']
    with pytest.raises(PublishError, match="'city' is null"):
        list(keyed(rows_of([(1, None, 1.0)]), none, ["city"], as_json))


def test_a_delivery_that_is_not_known_is_refused() -> None:
    with pytest.raises(DeclarationError, match="delivery takes 'exactly-once' or 'at-least-once'; got 'once'"):
        hg.KafkaSink("localhost:9092", "sums", delivery="once")  # type: ignore[arg-type]


# --- a broker ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("by_key", [True, False], ids=["by key", "without a key"])
def test_what_is_committed_is_the_table_after_any_history(
    kafka: KafkaBroker, written: Written, tmp_path: Path, by_key: bool, delivery: str
) -> None:
    chance, rows = random.Random(7), dict[int, Row]()
    topic = kafka.topic(partitions=3)
    sink = sink_for(kafka, topic, by_key=by_key, delivery=delivery)
    for step in range(15):
        next_rows(rows, chance, step)
        written.becomes(list(rows.values()))
        match chance.choice(["publish", "later", "compact", "restart", "anew"]):
            case "publish":
                publish(written, sink)
            case "compact":
                written.store.compact()
            case "restart":
                sink = sink_for(kafka, topic, by_key=by_key, delivery=delivery)
            case "anew":  # a table of the same name with another history
                written = Written(tmp_path / f"anew-{step}")
                written.becomes(list(rows.values()))
    publish(written, sink)
    if by_key:  # a table that is published anew is sent as a whole
        assert sorted(latest_rows(kafka, topic)) == sorted(rows.values())
    else:
        assert seen(kafka, topic, by_key=False) == sorted(rows.values())


def latest_rows(broker: KafkaBroker, topic: str) -> list[Row]:
    newest = {record.key(): record.value() for record in committed(broker, topic)}
    found = [json.loads(value) for value in newest.values() if value is not None]
    return [(row["id"], row["city"], row["amount"]) for row in found]


def test_records_have_headers_and_the_version_and_freshness_can_be_read(kafka: KafkaBroker, written: Written) -> None:
    topic, versions = f"made-{os.urandom(4).hex()}", f"versions-{os.urandom(4).hex()}"
    sink = hg.KafkaSink(kafka.servers, topic, key="id", versions=versions)
    written.becomes([(1, "bern", 1.0)])
    written.becomes([(1, "rom", 1.0)])
    publish(written, sink)
    written.becomes([])
    publish(written, sink)
    found = [(record.key(), record.value(), record.headers()) for record in committed(kafka, topic)]
    assert [(key, dict(headers)) for key, _, headers in found] == [
        (b"1", {"table": b"sums", "version": version, "change": change})
        for version, change in ((b"1", b"insert"), (b"2", b"delete"))
    ]
    newest = [(json.loads(record.key()), json.loads(record.value())) for record in committed(kafka, versions)][-1]
    assert newest[0] == {"topic": topic, "table": "sums"}
    assert (newest[1]["version"], newest[1]["freshness"]) == (2, 3_000_000)


def test_one_who_published_before_is_fenced_off_and_says_so(kafka: KafkaBroker, written: Written) -> None:
    topic = kafka.topic()
    first, second = (sink_for(kafka, topic, by_key=True) for _ in range(2))
    written.becomes([(1, "bern", 1.0)])
    publish(written, first)
    publish(written, second)
    written.becomes([(2, "rom", 1.0)])
    with pytest.raises(PublishError, match="by somebody else, too"):
        publish(written, first)
    publish(written, first)
    assert seen(kafka, topic, by_key=True) == [(2, "rom", 1.0)]
    nothing = rows_of([])
    changes = TableChanges(PublishedVersion(9, "x"), PublishedVersion(8, "y"), nothing, nothing, None)
    with pytest.raises(PublishError, match="somebody else publishes to it"):
        first.publish("sums", changes)


def test_a_topic_of_another_warehouse_is_refused_and_that_one_is_not_disturbed(
    kafka: KafkaBroker, written: Written, tmp_path: Path
) -> None:
    topic, other = kafka.topic(), Written(tmp_path / "other")
    written.becomes([(1, "bern", 1.0)])
    other.becomes([(7, "rom", 7.0)])
    first = PublishNode(written, [sink_for(kafka, topic, by_key=True)], lambda: "shop-1")
    first.update(None)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(PublishError, match="of another warehouse, 'shop-1'; this one is 'shop-2'"):
            PublishNode(other, [sink_for(kafka, topic, by_key=True)], lambda: "shop-2").update(None)  # type: ignore[arg-type]
        written.becomes([(2, "bern", 2.0)], replace=False)
        first.update(None)  # type: ignore[arg-type]
    taken = sink_for(kafka, topic, by_key=True, take_over=True)
    PublishNode(other, [taken], lambda: "shop-2").update(None)  # type: ignore[arg-type]
    assert latest_rows(kafka, topic) == [(7, "rom", 7.0)]
    with pytest.raises(PublishError, match="of another warehouse, 'shop-2'"):
        PublishNode(written, [sink_for(kafka, topic, by_key=True)], lambda: "shop-1").update(None)  # type: ignore[arg-type]


def last_record(broker: KafkaBroker, versions: str) -> dict[str, Any]:
    record: dict[str, Any] = [json.loads(record.value()) for record in committed(broker, versions)][-1]
    return record


@pytest.mark.parametrize("by_key", [True, False], ids=["by key", "without a key"])
def test_a_large_table_is_sent_in_parts_and_readers_can_tell_that_it_is_not_complete(
    kafka: KafkaBroker, written: Written, by_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.warehouse.publish.kafka.PART_RECORDS", 10)
    topic, versions = kafka.topic(partitions=2), f"versions-{os.urandom(4).hex()}"
    rows: list[Row] = [(number, "bern", 1.0) for number in range(25)]
    written.becomes(rows)

    def encoded(table: pa.Table) -> Iterator[bytes]:
        for number, value in enumerate(as_json(table)):
            if number == 23:
                raise ConnectionError("the encoder is away")
            yield value

    with pytest.raises(ConnectionError):
        publish(written, sink_for(kafka, topic, by_key=by_key, versions=versions, encode=encoded))
    assert (last_record(kafka, versions)["version"], last_record(kafka, versions)["complete"]) == (0, False)
    assert len(list(committed(kafka, topic))) == 20
    written.becomes([(100, "rom", 2.0)], replace=False)
    publish(written, sink_for(kafka, topic, by_key=by_key, versions=versions))
    assert (last_record(kafka, versions)["version"], last_record(kafka, versions)["complete"]) == (1, True)
    expected = sorted([*rows, (100, "rom", 2.0)])
    assert sorted(latest_rows(kafka, topic) if by_key else seen(kafka, topic, by_key=False)) == expected


def test_a_topic_with_too_many_keys_to_hold_is_refused_with_the_figure(
    kafka: KafkaBroker, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    written.becomes([(number, "bern", 1.0) for number in range(5)])
    publish(written, sink_for(kafka, topic, by_key=True))
    monkeypatch.setattr("headgate.warehouse.publish.kafka.MOST_KEYS", 3)
    anew = Written(tmp_path / "anew")
    anew.becomes([(1, "rom", 1.0)])
    with pytest.raises(PublishError, match=r"it has more than 3 keys.*Delete the topic"):
        publish(anew, sink_for(kafka, topic, by_key=True))


def test_a_row_that_is_too_large_is_named_and_leaves_nothing_behind(kafka: KafkaBroker, written: Written) -> None:
    topic = kafka.topic(partitions=1)
    written.becomes([(1, "bern", 1.0), (2, 2_000_000 * "x", 1.0)])
    with pytest.raises(PublishError, match="cannot be published"):
        publish(written, sink_for(kafka, topic, by_key=True))
    assert seen(kafka, topic, by_key=True) == []


@pytest.mark.parametrize("password", [PASSWORD, "wrong-secret"])
def test_a_password_of_a_sink_is_passed_on_and_never_printed(
    kafka: KafkaBroker, written: Written, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.warehouse.publish.kafka.PATIENCE", 2.0)
    topic = kafka.topic()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    sink = hg.KafkaSink(kafka.servers_with_password, topic, options={**login, "sasl.password": password})
    written.becomes([(1, "bern", 1.0)])
    if password == PASSWORD:
        publish(written, sink)
        assert seen(kafka, topic, by_key=False) == [(1, "bern", 1.0)]
    else:
        with pytest.raises(ServerUnreachable) as raised:
            publish(written, sink)
        assert password not in f"{raised.value!r} {raised.value} {sink!r}"


# --- death at any moment ----------------------------------------------------------------------------------------


class Deadly:
    """A producer that kills its process at the n-th call: before it, or a moment after it began."""

    def __init__(self, producer: Any, at: int, after: float | None) -> None:
        self._producer, self._left, self._after = producer, at, after

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._producer, name)

        def call(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                if self._after is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                else:
                    threading.Timer(self._after, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return called(*args, **more)

        return call


def publish_and_die(
    folder: Path, servers: str, topic: str, key: str, delivery: Any, at: int, after: float | None
) -> None:
    """In a process of its own."""
    made = KafkaClients.producer
    KafkaClients.producer = lambda self, settings: Deadly(made(self, settings), at, after)  # type: ignore
    publish(Written(folder), hg.KafkaSink(servers, topic, key=key or (), delivery=delivery))


@pytest.mark.parametrize(
    ("by_key", "delivery"), [(True, "exactly-once"), (False, "exactly-once"), (True, "at-least-once")]
)
def test_a_publisher_that_is_killed_at_any_moment_loses_nothing_and_doubles_nothing(
    kafka: KafkaBroker, written: Written, tmp_path: Path, by_key: bool, delivery: str
) -> None:
    seed = int(os.environ.get("HEADGATE_SEED", "11"))
    print(f"HEADGATE_SEED={seed}")
    chance, rows, killed = random.Random(seed), dict[int, Row](), 0
    topic = kafka.topic(partitions=2)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    for step in range(6):
        for _ in range(chance.randint(1, 3)):
            next_rows(rows, chance, step)
            written.becomes(list(rows.values()))
        # A version takes some twenty calls, the last of which commits it.
        at, after = chance.randint(1, 25), chance.choice([None, 0.0, 0.002, 0.01])
        arguments = (tmp_path, kafka.servers, topic, "id" if by_key else "", delivery, at, after)
        process = processes.Process(target=publish_and_die, args=arguments)
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        killed += process.exitcode != 0
    assert killed, "the test is to kill"
    publish(written, sink_for(kafka, topic, by_key=by_key, delivery=delivery))
    if delivery == "at-least-once":
        assert sorted(latest_rows(kafka, topic)) == sorted(rows.values())
    else:
        assert seen(kafka, topic, by_key=by_key) == sorted(rows.values())


@pytest.mark.long
def test_a_broker_that_is_killed_while_tables_are_published_costs_nothing_and_doubles_nothing(
    tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    monkeypatch.setattr("headgate.warehouse.publish.kafka.PATIENCE", 3.0)
    chance, rows, struck = random.Random(5), dict[int, Row](), 0
    with KafkaBroker(tmp_path / "broker") as broker:
        topic = broker.topic(partitions=2)
        sink = sink_for(broker, topic, by_key=False)
        for step in range(2):
            for _ in range(4):
                next_rows(rows, chance, step)
                written.becomes(list(rows.values()))
            at = chance.randint(1, 30)
            made = KafkaClients.producer

            def striking(self: KafkaClients, settings: Any, at: int = at, made: Any = made) -> Any:
                return Striking(made(self, settings), at, broker.kill)

            with monkeypatch.context() as patched:
                patched.setattr(KafkaClients, "producer", striking)
                sink = sink_for(broker, topic, by_key=False)
                with contextlib.suppress(ServerUnreachable):
                    publish(written, sink)
                    continue
            struck += 1
            broker.start()
        assert struck, "the test is to kill"
        publish(written, sink)
        assert seen(broker, topic, by_key=False) == sorted(rows.values())


class Striking(Deadly):
    """A producer that kills its broker before the n-th call."""

    def __init__(self, producer: Any, at: int, strike: Any) -> None:
        super().__init__(producer, at, None)
        self._strike = strike

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._producer, name)

        def call(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._strike()
            return called(*args, **more)

        return call
