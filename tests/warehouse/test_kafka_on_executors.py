"""Large ranges of a topic are read on executors: the rows that the driver would read, and none of them in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.warehouse.sources import Limit, SourceError
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka import on_executors
from headgate.warehouse.sources.kafka import source as kafka_source
from headgate.warehouse.sources.kafka.offsets import KafkaRange, Run
from headgate.warehouse.sources.kafka.on_executors import Executors
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.services.kafka import KafkaBroker
from tests.services.schema_registry import AVRO_COLUMNS, READING, SchemaRegistryServer, encoded, reading

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headgate.warehouse.updates.node import Node

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are large from a hundred records on, and read in pieces of fifty, on two cores."""
    monkeypatch.setattr(on_executors, "LEAST_CORES", 2)
    monkeypatch.setattr(kafka_source, "MOST_OFFSETS", 100)
    monkeypatch.setattr(kafka_source, "_SAMPLE", 20)
    monkeypatch.setattr(on_executors, "PIECE_OFFSETS", 50)


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        server.by_number = {7: {"schema": json.dumps(READING)}}
        yield server


#: values that are good JSON for Arrow, good for Spark alone, or bad in every way that there is
VALUES: list[bytes | None] = [
    b'{"ts": "2026-01-01T00:00:01Z", "n": 1, "t": "a"}',
    b'{"ts": "2026-01-01 00:00:02", "n": 2, "t": "\\u00fc"}',
    b'{"ts": "2026-01-01T00:00:03.5Z", "n": null, "more": [1]}',
    b'{"ts": "2026-01-01T00:00:04Z", "n": "four"}',
    b'{"n": 5}',
    b"{broken",
    b'{"n": 1} {"n": 2}',
    b"[1, 2]",
    b"",
    b"\xff\xfe",
    None,
]


def filled(kafka: KafkaBroker, topic: str, values: list[bytes | None], count: int = 40) -> None:
    """Values again and again, in transactions of which every third is aborted, with keys that are not all texts."""
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions()
    for number in range(count):
        producer.begin_transaction()
        for place, value in enumerate(values):
            key = b"\xfe" if place == 3 and number % 7 == 0 else b"k%d" % (number % 5)
            headers = [("number", b"%d" % number)]
            moment = 1_767_225_600_000 + number
            producer.produce(topic, value, key, partition=number % 2, headers=headers, timestamp=moment)
        producer.flush()
        producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction()
    kafka.wait_for_transactions(topic)


def source_of(kafka: KafkaBroker, topic: str, **more: Any) -> hg.Kafka:
    source = hg.Kafka(kafka.servers, topic, **{"schema": "ts timestamp, n long, t string", **more})
    source.refresh()
    return source


def whole(source: hg.Kafka) -> KafkaRange:
    """All that a topic has, as one range that is too large for the driver."""
    look = source._topic.look_now()
    runs = tuple(Run(partition, look.begins[partition], end) for partition, end in look.ends.items())
    return KafkaRange(look.id, runs, per_chunk=1000, record_bytes=100, oldest=0.0, newest=0.0)


def by_both(spark: SparkSession, source: hg.Kafka) -> tuple[list[str], list[str]]:
    """The rows of a topic as the driver reads them, and as executors do, in an order that both have."""
    wanted = whole(source)
    assert not source.is_spread(wanted)
    in_driver = source.read(spark, wanted).collect()
    source._backlog = wanted.offsets
    source._look_at_executors(spark, wanted)
    assert source.is_spread(wanted) and source.read_arrow(spark, wanted) is None
    on_them = source.read(spark, wanted).collect()
    return sorted(map(repr, in_driver)), sorted(map(repr, on_them))


FORMATS: dict[str, dict[str, Any]] = {
    "JSON that Arrow parses": {"record": {"id": "key", "at": "timestamp", "p": "partition", "o": "offset"}},
    "JSON with tombstones": {"record": {"gone": "tombstone", "bytes": "key_bytes"}},
    "JSON that Spark parses": {"record": ["headers", "key"], "parsing": {"timestampFormat": "yyyy-MM-dd HH:mm:ss"}},
    "JSON of transactions that may be aborted": {"isolation": "read_uncommitted"},
    "texts": {"format": "raw", "schema": "", "record": ["tombstone"]},
    "bytes": {"format": "raw", "schema": "b binary"},
}


@pytest.fixture(scope="module")
def topic(kafka: KafkaBroker) -> str:
    name = kafka.topic(partitions=2)
    filled(kafka, name, VALUES)
    return name


@pytest.mark.parametrize("options", FORMATS.values(), ids=FORMATS)
def test_executors_read_the_rows_that_the_driver_reads(
    kafka: KafkaBroker, spark: SparkSession, topic: str, options: dict[str, Any]
) -> None:
    in_driver, on_executors_ = by_both(spark, source_of(kafka, topic, **options))
    assert on_executors_ == in_driver
    transactions = 40 if "isolation" in options else 27
    assert len(in_driver) == transactions * len(VALUES)


def test_executors_read_avro_as_the_driver_does(
    kafka: KafkaBroker, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    topic = kafka.topic(partitions=2)
    good = [encoded(7, READING, reading(n)) for n in range(5)]
    filled(kafka, topic, [*good, encoded(9, READING, reading(6)), b"poison", good[0][:-1], None])
    options = {"format": "avro", "registry": f"http://{registry.address}", "schema": AVRO_COLUMNS}
    in_driver, on_executors_ = by_both(spark, source_of(kafka, topic, **options))
    assert on_executors_ == in_driver and len(in_driver) == 27 * 9
    assert sum("no schema 9" in row for row in in_driver) == 27


def test_executors_read_the_gaps_of_a_compacted_topic_as_the_driver_does(
    kafka: KafkaBroker, spark: SparkSession
) -> None:
    often = {"segment_ms": "50", "min_cleanable_dirty_ratio": "0.001", "max_compaction_lag_ms": "50"}
    topic = kafka.topic(partitions=1, cleanup_policy="compact", **often)
    sent = 0
    while True:
        # Segments are closed when a record comes; the last one is never compacted.
        sent += len(kafka.send(topic, [{"value": b'{"n": %d}' % n, "key": b"k%d" % (n % 90)} for n in range(150)]))
        source = source_of(kafka, topic, schema="n long", record=["offset"])
        if sum(packet.num_rows for packet in source._packets(whole(source))) < sent:
            break
        assert sent < 100_000, "the topic was never compacted"
    in_driver, on_executors_ = by_both(spark, source)
    # What is compacted away between the two reads is not in the second one; nothing else differs.
    assert set(on_executors_) <= set(in_driver) and len(on_executors_) == len(set(on_executors_))
    assert any(f"offset={sent - 1}," in row for row in on_executors_)
    keys = {int(row.removeprefix("Row(n=").partition(",")[0]) % 90 for row in on_executors_}
    assert keys == set(range(90)), "the newest record of a key stays"


def tables_of(node: Node) -> dict[str, list[str]]:
    """The rows of a stream and its rejected ones, in an order that does not depend on who wrote them."""
    stores = {"good": node.store, "bad": node.rejected}  # type: ignore[attr-defined]
    return {name: sorted(map(repr, store.rows(store.files()).to_pylist())) for name, store in stores.items()}


def test_a_catch_up_on_executors_leaves_the_same_tables_and_no_row_of_it_in_the_driver(
    kafka: KafkaBroker, spark: SparkSession, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(name: str, *, spread: bool) -> tuple[dict[str, list[str]], int]:
        wh = hg.Warehouse(name, tmp_path / name)
        source = source_of(kafka, topic, records_per_chunk=20)
        wh.stream("rows", source, time="ts", partition="1 hour", max_future=None)
        node = open_warehouse(wh.spec(), spark).nodes["rows"]
        assert node.update(spark) is not None  # a few records, to learn their size
        with monkeypatch.context() as patch:
            if spread:
                patch.setattr(hg.Kafka, "_packets", _not_here)
                patch.setattr("pyspark.sql.classic.dataframe.DataFrame.toArrow", _not_here)
            else:
                patch.setattr(source._executors, "cores", 0)
                patch.setattr(Executors, "find_out", lambda *_: None)
            updates = 0
            while node.update(spark) is not None:
                updates += 1
        return tables_of(node), updates

    before = {*spark.sparkContext._jsc.getPersistentRDDs()}
    on_them, one = loaded("executors", spread=True)
    assert {*spark.sparkContext._jsc.getPersistentRDDs()} <= before, "rows on the disks of executors are removed"
    in_driver, several = loaded("driver", spread=False)
    assert on_them == in_driver
    assert (one, several) == (1, 5)
    assert len(on_them["good"]) + len(on_them["bad"]) == 27 * len(VALUES)


def _not_here(*_: Any, **__: Any) -> Any:
    raise AssertionError("rows of a large range came to the driver")


def test_records_that_are_gone_are_said_to_be_and_nothing_is_committed(kafka: KafkaBroker, spark: SparkSession) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, [{"value": b"{}"}] * 200)
    source = source_of(kafka, topic, schema="n long")
    wanted = whole(source)
    source._executors.find_out(spark)
    kafka.delete_before(topic, {0: 10})
    with pytest.raises(ServerUnreachable, match=f"the topic '{topic}' .* cannot be read"):
        source.read(spark, wanted)


def test_options_that_cannot_be_sent_leave_it_to_the_driver(kafka: KafkaBroker, spark: SparkSession) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, [{"value": b"{}"}] * 200)
    lock = threading.Lock()
    source = source_of(kafka, topic, schema="n long", options={"stats_cb": lambda text: lock.locked()})
    wanted = whole(source)
    source._executors.find_out(spark)
    assert source.is_spread(wanted)
    with pytest.raises(SourceError, match="cannot be sent to executors"):
        source.read(spark, wanted)
    assert not source.is_spread(wanted)
    assert len(source.read(spark, wanted).collect()) == 200


def test_executors_without_the_package_leave_it_to_the_driver_and_a_user_is_told(
    kafka: KafkaBroker, spark: SparkSession
) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, [{"value": b"{}"}] * 500)
    source = source_of(kafka, topic, schema="n long", records_per_chunk=20)
    source._executors = Executors(["headgate_has_no_such_package"])
    here, rows = source.start(), 0
    while (wanted := source.next_range(here, Limit())) is not None:
        found = source.read_arrow(spark, wanted)
        assert isinstance(found, pa.Table) and found.num_rows <= 100
        here, rows = source.advance(here, wanted), rows + found.num_rows
        if rows == 20:
            (notice,) = source.latest(here).notices
            assert (
                "the driver reads it in small parts: No module named 'headgate_has_no_such_package'" in notice.problem
            )
            assert "pip install 'headgate[kafka]'" in notice.problem
    assert rows == 500 and source.latest(here).notices == ()
