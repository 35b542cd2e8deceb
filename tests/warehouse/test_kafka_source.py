"""The Kafka source, with a real broker: every record is loaded once, whatever happens to the topic or the broker."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.warehouse import NotFreshError, SparkOptions, WarehouseRun
from headgate.warehouse.sources import Limit, Offset, Range, SourceChanged, SourceError
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka.columns import OFFSET, PARTITION, VALUE
from headgate.warehouse.sources.kafka.offsets import KafkaOffset, KafkaRange, Run
from headgate.warehouse.sources.kafka.options import KafkaClients
from headgate.warehouse.sources.kafka.records import RecordReader
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.services.kafka import PASSWORD, USER, KafkaBroker, why_not
from tests.services.schema_registry import AVRO_COLUMNS, READING, SchemaRegistryServer, encoded, reading

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.services, pytest.mark.slow]

#: how long a test waits for something that should happen at once on an idle machine
PATIENCE = 300.0


@pytest.fixture(autouse=True)
def slow_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of a busy machine may take its time; tests in which one is away change this back."""
    monkeypatch.setattr("headgate.warehouse.sources.kafka.topics.LONGEST_ANSWER", PATIENCE)
    monkeypatch.setattr("headgate.warehouse.sources.kafka.records.PATIENCE", PATIENCE)


def is_away(patch: pytest.MonkeyPatch) -> None:
    """Nobody answers: that is found out soon."""
    patch.setattr("headgate.warehouse.sources.kafka.topics.LONGEST_ANSWER", 5.0)
    patch.setattr("headgate.warehouse.sources.kafka.records.PATIENCE", 1.0)


def values(numbers: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    """Records with JSON values: numbers, and event times within a minute."""
    return [{"value": json.dumps({"ts": f"2026-01-01T00:00:{n % 60:02d}Z", "n": n}).encode(), **more} for n in numbers]


def source_of(kafka: KafkaBroker, topic: str, **more: Any) -> hg.Kafka:
    source = hg.Kafka(kafka.servers, topic, **{"schema": "ts timestamp, n long", **more})
    source.refresh()
    return source


def taken(source: hg.Kafka, offset: Offset, limit: Limit | None = None) -> tuple[KafkaRange, Offset]:
    """The next range and the offset after it, both as after a restart."""
    found = source.next_range(offset, limit or Limit())
    assert found is not None
    again = Range.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    return found, Offset.from_json(json.loads(json.dumps(source.advance(offset, again).to_json())))


def rows_of(spark: SparkSession, source: hg.Kafka, offset: Offset | None = None) -> list[Any]:
    """All rows that are not loaded yet."""
    rows, here = [], offset or source.start()
    while source.latest(here).chunks:
        found, here = taken(source, here)
        rows += source.read(spark, found).collect()
        source.verify(found)
    return rows


def test_a_consumer_that_stays_open_reads_partitions_of_unequal_length_again_and_again(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, [{"value": str(n), "partition": p} for p in (0, 1) for n in range(300)])
    reader = RecordReader(KafkaClients(kafka.servers), topic, (PARTITION, OFFSET, VALUE))
    for runs in 15 * (
        [Run(0, 0, 1), Run(1, 0, 300)],
        [Run(0, 1, 2)],
        [Run(1, 299, 300), Run(0, 5, 200), Run(0, 250, 251), Run(1, 0, 2)],
    ):
        packets = pa.Table.from_batches(list(reader.read(runs)))
        found = zip(packets[PARTITION].to_pylist(), packets[OFFSET].to_pylist(), strict=True)
        assert sorted(found) == sorted((run.partition, offset) for run in runs for offset in range(run.first, run.end))
    assert len(reader._idle) == 1
    reader.close()


@pytest.mark.spark
def test_a_stream_is_loaded_from_a_topic_and_goes_on_after_a_restart(
    kafka: KafkaBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.topic(partitions=3)

    def declared() -> hg.Warehouse:
        wh = hg.Warehouse("shop", tmp_path / "warehouse")
        wh.stream("clicks", source_of(kafka, topic), time="ts", partition="1 hour")

        @wh.table(time="ts", partition="1 hour")
        def counted(clicks: DataFrame) -> DataFrame:
            return clicks.groupBy("ts").agg({"n": "sum"}).withColumnRenamed("sum(n)", "n")

        return wh

    def brought_up_to_date() -> dict[str, list[dict[str, Any]]]:
        opened = open_warehouse(declared().spec(), spark)
        for name in ("clicks", "counted"):
            while opened.nodes[name].update(spark) is not None:
                opened.updated(name)
        clicks, counted = opened.nodes["clicks"], opened.nodes["counted"]
        stores = {"clicks": clicks.store, "counted": counted.store, "rejected": clicks.rejected}
        return {name: store.rows(store.files()).to_pylist() for name, store in stores.items()}

    kafka.send(topic, [*values(range(2500)), {"value": b"{broken"}])
    first = brought_up_to_date()
    assert sorted(row["n"] for row in first["clicks"]) == list(range(2500))
    assert [(row["raw"], row["reason"]) for row in first["rejected"]] == [("{broken", "not one JSON object")]
    kafka.send(topic, values(range(2500, 3000)))
    for _ in range(2):
        again = brought_up_to_date()
        assert sorted(row["n"] for row in again["clicks"]) == list(range(3000))
        assert sum(row["n"] for row in again["counted"]) == sum(range(3000))
        assert len(again["rejected"]) == 1


# --- topics that are not just a growing row of records ----------------------------------------------------------


def offsets_of(source: hg.Kafka, offset: Offset | None = None) -> list[tuple[int, int]]:
    """Where the records lie that are not loaded yet; reads them without Spark."""
    found, here = [], offset or source.start()
    while source.latest(here).chunks:
        wanted, here = taken(source, here)
        for packet in source._packets(wanted):
            found += _places(packet)
        source.verify(wanted)
    return found


def all_loaded(source: hg.Kafka, offset: Offset | None = None) -> Offset:
    here = offset or source.start()
    while source.latest(here).chunks:
        _, here = taken(source, here)
    return here


def test_a_range_is_as_large_as_its_limit_says(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, [{"value": b"{}", "partition": n % 2} for n in range(100)])
    source = source_of(kafka, topic, records_per_chunk=10)
    found, after = taken(source, source.start(), Limit(chunks=3))
    assert (found.chunks, found.offsets) == (3, 30)
    assert source.latest(after).chunks == 7
    said = source.latest(source.start())
    assert said.note == "records that are not loaded: 50 in partition 0, 50 in partition 1"
    assert said.behind == {"partition 0": 50, "partition 1": 50}
    assert sum(source.latest(after).behind.values()) == 70
    newest, _ = taken(source, source.start(), Limit(chunks=1, first="newest"))
    assert {(run.first, run.end) for run in newest.runs} == {(40, 50)}


def test_records_that_are_larger_than_expected_make_smaller_ranges(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.warehouse.sources.kafka.source.MOST_BYTES", 100_000)
    topic = kafka.topic(partitions=1)
    kafka.send(topic, [{"value": b"x" * 10_000} for _ in range(100)])
    source = source_of(kafka, topic, format="raw", schema="")
    found, _ = taken(source, source.start())
    with pytest.raises(SourceError, match="Fewer are read the next time"):
        list(source._packets(found))
    offset: Offset = source.start()
    seen = []
    while source.latest(offset).chunks:
        found, offset = taken(source, offset)
        seen += [packet.num_rows for packet in source._packets(found)]
        assert found.offsets <= 10
    assert sum(seen) == 100


def test_aborted_records_are_not_loaded_and_the_markers_of_transactions_end_no_read(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions()
    for kept in (True, False, True, False):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"{}")
        producer.flush()
        producer.commit_transaction() if kept else producer.abort_transaction()
    kafka.wait_for_transactions(topic)
    source = source_of(kafka, topic)
    assert source.latest(source.start()).chunks == 1
    assert offsets_of(source) == [(0, n) for n in (0, 1, 2, 8, 9, 10)]
    uncommitted = source_of(kafka, topic, isolation="read_uncommitted")
    assert len(offsets_of(uncommitted)) == 12


def test_records_of_an_open_transaction_wait_until_it_is_committed(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"{}")
    producer.flush()
    source = source_of(kafka, topic)
    assert source.latest(source.start()).chunks == 0
    producer.commit_transaction()
    kafka.wait_for_transactions(topic)
    source.refresh()
    assert offsets_of(source) == [(0, 0)]


def test_the_gaps_of_a_compacted_topic_are_no_missing_records(kafka: KafkaBroker) -> None:
    often = {"segment_ms": "50", "min_cleanable_dirty_ratio": "0.001", "max_compaction_lag_ms": "50"}
    topic = kafka.topic(partitions=1, cleanup_policy="compact", **often)
    sent = 0
    while True:
        # Segments are closed when a record comes; the last one is never compacted.
        sent += len(kafka.send(topic, [{"value": b"{}", "key": b"same"}] * 20))
        found = offsets_of(source_of(kafka, topic))
        assert found[-1] == (0, sent - 1)
        if len(found) < sent:
            break
        assert sent < 100_000, "the topic was never compacted"
    source = source_of(kafka, topic)
    here = all_loaded(source)
    kafka.send(topic, [{"value": b"{}", "key": b"same"}])
    source.refresh()
    assert offsets_of(source, here) == [(0, sent)]


def test_partitions_that_are_added_are_loaded_from_their_beginning(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, values(range(5)))
    source = source_of(kafka, topic, start="latest")
    assert source.latest(source.start()).chunks == 0
    kafka.send(topic, values(range(2)))
    source.refresh()
    here = all_loaded(source)
    kafka.add_partitions(topic, 3)
    kafka.send(topic, values(range(4), partition=2))
    restarted = source_of(kafka, topic, start="latest")
    assert offsets_of(restarted, here) == [(2, n) for n in range(4)]


def test_partitions_that_are_added_while_a_source_is_used_are_found(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, values(range(5)))
    source = source_of(kafka, topic)
    here = all_loaded(source)
    kafka.add_partitions(topic, 3)
    kafka.send(topic, values(range(4), partition=2))
    kafka.send(topic, values(range(2), partition=0))
    _refreshed(source, lambda: source.latest(here).behind == {"partition 0": 2, "partition 2": 4})
    assert sorted(offsets_of(source, here)) == [(0, 5), (0, 6), *((2, n) for n in range(4))]
    assert source.latest(all_loaded(source, here)).behind == {}


@pytest.mark.spark
@pytest.mark.long
def test_a_run_loads_partitions_that_are_added_to_its_topic(
    kafka: KafkaBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.topic(partitions=1)
    wh = hg.Warehouse("shop", tmp_path / "warehouse")
    # The event time is that of the record, not of its value.
    source = hg.Kafka(kafka.servers, topic, schema="n long", record={"sent": "timestamp"})
    wh.stream("clicks", source, time="sent")
    kafka.send(topic, values(range(10)))
    with WarehouseRun(wh.spec(), spark=SparkOptions(session=spark)) as run:
        run.wait_until_fresh("10 min")
        kafka.add_partitions(topic, 2)
        kafka.send(topic, values(range(10, 20), partition=1))
        source.refresh()
        _fresh_at_last(run)
        store = run.runtime.warehouse.nodes["clicks"].store
        deadline = time.monotonic() + PATIENCE
        while store.arrow().num_rows < 20 and time.monotonic() < deadline:
            _fresh_at_last(run)
        rows = store.arrow()
        assert sorted(rows["n"].to_pylist()) == list(range(20))
        assert all(abs(moment.timestamp() - time.time()) < 3600 for moment in rows["sent"].to_pylist())


def test_what_comes_after_a_stream_was_opened_is_loaded_also_if_a_restart_is_before_it(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, values(range(5), partition=0))
    source = source_of(kafka, topic, start="latest")
    kept = source.fixed_start(source.start())
    assert kept is not None
    kafka.send(topic, values(range(3), partition=0))
    kafka.send(topic, values(range(2), partition=1))
    restarted = source_of(kafka, topic, start="latest")
    here = Offset.from_json(json.loads(json.dumps(kept.to_json())))
    assert sorted(offsets_of(restarted, here)) == [(0, 5), (0, 6), (0, 7), (1, 0), (1, 1)]
    assert source_of(kafka, topic).fixed_start(source.start()) is None, "the beginning of a topic does not move"


def test_loading_begins_at_a_moment(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    moment = 1_750_000_000
    for second in range(10):
        kafka.send(topic, values([second], timestamp=(moment + second) * 1000))
    assert offsets_of(source_of(kafka, topic, start="2025-06-15T15:06:47Z")) == [(0, 7), (0, 8), (0, 9)]
    assert offsets_of(source_of(kafka, topic, start=moment + 100)) == []


def test_records_of_any_age_are_older_than_the_first_look_at_them(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, values(range(5), timestamp=1_000, partition=0))
    kafka.send(topic, values(range(5), partition=1))
    before = time.time()
    source = source_of(kafka, topic)
    said = source.latest(source.start())
    assert said.oldest is not None and said.earliest is not None and said.looked_at is not None
    assert said.oldest < before <= said.looked_at
    assert said.earliest < before
    here = all_loaded(source)
    kafka.send(topic, values(range(1)))
    sent = time.time()
    source.refresh()
    one = source.latest(here)
    assert one.chunks == 1 and one.earliest is not None and one.earliest <= sent


# --- partitions advance together --------------------------------------------------------------------------------


def in_turn(count: int, begin: float, every: float, partitions: int = 3) -> list[dict[str, Any]]:
    """Records to each partition in turn, with event times that are their timestamps."""
    moments = [begin + every * n for n in range(count)]
    return [
        {
            "value": json.dumps({"ts": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "n": n}).encode(),
            "timestamp": round(at * 1000),
            "partition": n % partitions,
        }
        for n, at in enumerate(moments)
    ]


def test_a_range_that_is_cut_takes_the_same_time_of_all_partitions(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=3)
    begin = time.time() - 1_000
    kafka.send(topic, in_turn(3_000, begin, 0.01))
    # Then more of them, all in one partition.
    kafka.send(topic, [{**each, "partition": 1} for each in in_turn(4_000, begin + 30, 0.005)])
    source = source_of(kafka, topic)
    offset: Offset = source.start()
    while True:
        found, offset = taken(source, offset, Limit(bytes=1_000_000))
        if not found.left:
            break
        assert isinstance(offset, KafkaOffset)
        reached = [0.03 * offset.position[0], 0.0, 0.03 * offset.position[2]]
        first, rest = min(1_000, offset.position[1]), max(0, offset.position[1] - 1_000)
        reached[1] = 0.03 * first + 0.005 * rest
        behind = min(reached[partition] for partition in found.left)
        assert behind > max(reached) - 5, f"of 50 seconds, partitions are at {reached}"
        assert set(source.parts_left(found)) == {f"{topic}/{partition}" for partition in found.left}
        assert 300 < found.offsets <= 1_000
    assert source.latest(offset).chunks == 0


def test_what_waits_has_waited_since_its_records_were_written(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=3)
    begin = time.time() - 1_080
    kafka.send(topic, in_turn(3_000, begin, 0.02))
    source = source_of(kafka, topic)
    said = source.latest(source.start())
    assert said.oldest == pytest.approx(begin, abs=2.0)
    assert said.newest == pytest.approx(begin + 60, abs=10.0)
    offset: Offset = source.start()
    before = begin
    while source.latest(offset).chunks:
        found, offset = taken(source, offset, Limit(bytes=500_000))
        assert before - 10 <= found.oldest <= found.newest <= begin + 70
        before = found.newest
    assert before > begin + 50


@pytest.mark.spark
@pytest.mark.parametrize("parsing", [{}, {"mode": "PERMISSIVE"}], ids=["without Spark", "by Spark"])
def test_a_stream_of_a_topic_is_complete_up_to_its_freshness(
    kafka: KafkaBroker, spark: SparkSession, tmp_path: Path, parsing: dict[str, str]
) -> None:
    topic = kafka.topic(partitions=3)
    begin = math.floor(time.time()) - 100.0
    sent = in_turn(3_000, begin, 0.01)
    kafka.send(topic, sent)
    wh = hg.Warehouse("shop", tmp_path / "warehouse")
    wh.stream("clicks", source_of(kafka, topic, parsing=parsing), time="ts", partition="1 hour")
    node = open_warehouse(wh.spec(), spark).nodes["clicks"]
    first = node.plan()
    assert first is not None and first.arrived is not None
    assert first.gained == pytest.approx(30, abs=10), "about as much event time waits as the records took to come"
    cut = 0
    while True:
        update = node.plan()
        if update is None:
            break
        update.most = 500_000.0
        assert node.begin(update)
        node.run(update, spark)
        update.commits(1.0)
        node.end(update)
        assert node.freshness is not None
        seen = {n for n, ts in _rows(node.store.arrow()) if ts <= node.freshness}
        assert seen == set(range(len(seen))), "nothing is missing before the freshness"
        cut += len(seen) < node.store.arrow().num_rows
    assert len(seen) == 3_000 and cut


def _rows(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows["n"].to_pylist(), rows["ts"].cast(pa.int64()).to_pylist(), strict=True))


def test_records_that_were_removed_before_they_were_loaded_stop_the_stream_and_are_named(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, [{"value": b"{}", "partition": n % 2} for n in range(20)])
    source = source_of(kafka, topic, records_per_chunk=2)
    _, here = taken(source, source.start(), Limit(chunks=1))
    planned, _ = taken(source, here)
    kafka.delete_before(topic, {0: 5, 1: 7})
    with pytest.raises(ServerUnreachable, match="cannot be read"):
        list(source._packets(planned))
    source.refresh()
    said = source.latest(here)
    assert said.missing and said.chunks == 0
    assert source.next_range(here, Limit()) is None
    assert "partition 0, offset 2 to 4; partition 1, offset 0 to 6" in said.note
    assert "missing='skip'" in said.note

    skipping = source_of(kafka, topic, missing="skip")
    notices = skipping.latest(here).notices
    assert ["partition 0, offset 2 to 4" in notice.problem for notice in notices] == [True]
    assert skipping.latest(here).notices == ()
    assert sorted(offsets_of(skipping, here)) == [*((0, n) for n in range(5, 10)), *((1, n) for n in range(7, 10))]
    after = all_loaded(skipping, here)
    assert (source.latest(after).chunks, source.latest(after).note) == (0, "")


def test_a_topic_that_was_deleted_and_created_again_stops_the_stream_or_is_loaded_anew(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, values(range(5)))
    source = source_of(kafka, topic)
    here = all_loaded(source)
    planned, _ = taken(source, source.start())
    kafka.delete_topic(topic)
    _refreshed(source, lambda: "does not exist" in source.latest(here).note)
    kafka.topic(partitions=1, name=topic)
    kafka.send(topic, values(range(8)))
    _refreshed(source, lambda: "deleted and created again" in source.latest(here).note)
    assert source.latest(here).missing
    with pytest.raises(SourceChanged, match="was deleted and created again"):
        source.verify(planned)
    skipping = source_of(kafka, topic, missing="skip", start="latest")
    assert offsets_of(skipping, here) == [(0, n) for n in range(8)]
    assert skipping.latest(all_loaded(skipping, here)).chunks == 0


def _refreshed(source: hg.Kafka, reached: Callable[[], bool]) -> None:
    """Ask until brokers have told each other."""
    end = time.monotonic() + PATIENCE
    source.refresh()
    while not reached():
        assert time.monotonic() < end, "brokers did not get there"
        source.refresh()


def test_a_topic_that_does_not_exist_is_waited_for_with_the_name_that_may_be_meant(kafka: KafkaBroker) -> None:
    topic = kafka.topic(partitions=1)
    source = source_of(kafka, f"{topic}x")
    said = source.latest(source.start())
    assert said.missing and f"did you mean '{topic}'?" in said.note


# --- rows -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_parts_of_a_record_become_columns_and_what_cannot_be_parsed_is_rejected_with_its_text(
    kafka: KafkaBroker, spark: SparkSession
) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(
        topic,
        [
            {"value": b'{"n": 1}', "key": b"k", "headers": [("h", b"1")], "timestamp": 1_750_000_000_000},
            {"value": None, "key": b"gone"},
            {"value": b'{"n": "x"}', "key": b"\xff"},
            {"value": b"\xff\xfe"},
            {"value": b'{"n": 1} {"n": 2}'},
        ],
    )
    parts = {
        "at": "timestamp",
        "id": "key",
        "headers": "headers",
        "p": "partition",
        "o": "offset",
        "deleted": "tombstone",
    }
    first, gone, *bad = rows_of(spark, source_of(kafka, topic, schema="n long", record=parts))
    assert (first.n, first.id, first.p, first.o, first.deleted, first._error) == (1, "k", 0, 0, False, None)
    assert first.at.timestamp() == 1_750_000_000
    assert [(header.key, bytes(header.value)) for header in first.headers] == [("h", b"1")]
    assert (gone.n, gone.id, gone.deleted, gone._error) == (None, "gone", True, None)
    assert [row._error for row in bad] == ["the key is not valid UTF-8", "not valid UTF-8", "not one JSON object"]
    assert bad[2]._raw == '{"n": 1} {"n": 2}'
    assert bad[2]._file == f"{topic}/0@4"
    rejected = rows_of(spark, source_of(kafka, topic, schema="n long"))[1]
    assert "tombstone" in rejected._error
    texts = rows_of(spark, source_of(kafka, topic, format="raw", schema=""))
    assert [row.value for row in texts if row._error is None] == ['{"n": 1}', '{"n": "x"}', '{"n": 1} {"n": 2}']
    bytes_ = rows_of(spark, source_of(kafka, topic, format="raw", schema="b binary", record=["tombstone"]))
    assert [row.b for row in bytes_][3] == b"\xff\xfe"
    assert all(row._error is None for row in bytes_)


@pytest.mark.spark
def test_avro_becomes_rows_of_the_declared_types(kafka: KafkaBroker, spark: SparkSession) -> None:
    topic = kafka.topic(partitions=1)
    with SchemaRegistryServer() as registry:
        registry.by_number = {7: {"schema": json.dumps(READING)}}
        kafka.send(topic, [{"value": encoded(7, READING, reading(1, math.inf))}, {"value": b"poison"}, {"value": None}])
        source = source_of(
            kafka,
            topic,
            format="avro",
            registry=f"http://{registry.address}",
            schema=AVRO_COLUMNS,
            record=["tombstone"],
        )
        good, bad, gone = rows_of(spark, source)
    assert (good.n, good.price, good.tags, good.ratio) == (1, Decimal("12.34"), {"a": "b"}, math.inf)
    assert good.ts.timestamp() == datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    assert (good._error, good.tombstone) == (None, False)
    assert (bad._error, bad._raw) == ("not Avro with the number of a schema before it", "cG9pc29u")
    assert (gone._error, gone.tombstone, gone.n) == (None, True, None)


# --- brokers that are not there -----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_broker_that_is_killed_and_started_again_costs_no_record_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with KafkaBroker(tmp_path) as broker:
        topic = broker.topic(partitions=2)
        broker.send(topic, values(range(3000)))
        source = source_of(broker, topic)
        wanted, here = taken(source, source.start(), Limit(chunks=1))
        loaded = [place for packet in source._packets(wanted) for place in _places(packet)]
        broken, _ = taken(source, here)
        broker.kill()
        with monkeypatch.context() as patch:
            is_away(patch)
            with contextlib.suppress(ServerUnreachable):  # unless all of it was read ahead
                list(source._packets(broken))
            source.refresh()
            said = source.latest(here)
            assert said.chunks == 0 and said.missing
            assert "does not answer" in said.note and broker.servers in said.note
            assert source.next_range(here, Limit()) is None
            with pytest.raises(ServerUnreachable, match="does not answer"):
                source.verify(wanted)
        broker.start()
        broker.send(topic, values(range(500)))
        _refreshed(source, lambda: source.latest(here).chunks > 0)
        loaded += offsets_of(source, here)
        assert len(loaded) == len(set(loaded)) == 3500


@pytest.mark.spark
@pytest.mark.long
def test_a_run_goes_on_by_itself_after_its_broker_was_killed_and_started_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away(monkeypatch)  # what it takes for an answer that is late is asked for again
    if reason := why_not():
        pytest.skip(reason)
    with KafkaBroker(tmp_path / "broker") as broker:
        topic = broker.topic(partitions=2)
        wh = hg.Warehouse("shop", tmp_path / "warehouse")
        wh.stream("clicks", hg.Kafka(broker.servers, topic, schema="ts timestamp, n long"), time="ts")
        broker.send(topic, values(range(1500)))
        with WarehouseRun(wh.spec(), spark=SparkOptions(session=spark)) as run:
            _fresh_at_last(run)
            store = run.runtime.warehouse.nodes["clicks"].store
            assert sorted(store.arrow()["n"].to_pylist()) == list(range(1500))
            broker.send(topic, values(range(1500, 2500)))
            broker.kill()
            with pytest.raises(NotFreshError, match="Kafka at"):
                run.wait_until_fresh("10 min")
            broker.start()
            broker.send(topic, values(range(2500, 3000)))
            _fresh_at_last(run)
            assert sorted(store.arrow()["n"].to_pylist()) == list(range(3000))
            assert run.statistics()[0].state in ("ok", "updating")


def _fresh_at_last(run: WarehouseRun) -> None:
    """Wait until the broker that was started again is asked again, and all is loaded."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return run.wait_until_fresh(PATIENCE)
        except NotFreshError:
            if time.monotonic() > end:
                raise
        threading.Event().wait(0.1)


@pytest.mark.parametrize("password", [PASSWORD, "wrong-secret"])
def test_a_password_is_passed_on_and_never_printed(
    kafka: KafkaBroker, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if password != PASSWORD:
        is_away(monkeypatch)  # as far as one can tell who is refused
    topic = kafka.topic(partitions=1)
    kafka.send(topic, values(range(3)))
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    options = {**login, "sasl.password": password}
    source = hg.Kafka(kafka.servers_with_password, topic, schema="n long", options=options)
    source.refresh()
    said = source.latest(source.start())
    if password == PASSWORD:
        assert offsets_of(source) == [(0, n) for n in range(3)]
    else:
        assert said.missing and "uthentication" in said.note
    assert password not in repr(said) + repr(source)


def _places(packet: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(packet[PARTITION].to_pylist(), packet[OFFSET].to_pylist(), strict=True))
