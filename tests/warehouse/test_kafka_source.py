"""The Kafka source, with a real broker: every record is loaded once, whatever happens to the topic or the broker."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import headgate as hg
from headgate.warehouse.sources import Limit, Offset, Range
from headgate.warehouse.sources.kafka_columns import OFFSET, PARTITION, VALUE
from headgate.warehouse.sources.kafka_offsets import KafkaRange, Run
from headgate.warehouse.sources.kafka_options import KafkaClients
from headgate.warehouse.sources.kafka_records import RecordReader
from headgate.warehouse.updates.open_warehouse import open_warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.services, pytest.mark.slow]


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
