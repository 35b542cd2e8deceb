"""The Kafka source, with a real broker: every record is loaded once, whatever happens to the topic or the broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

import headgate as hg
from headgate.warehouse.sources import Limit, Offset, Range
from headgate.warehouse.sources.kafka_offsets import KafkaRange
from headgate.warehouse.updates.open_warehouse import open_warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.services, pytest.mark.slow]


def values(numbers: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    """Records with JSON values; each tenth second is an event time."""
    return [
        {"value": json.dumps({"ts": f"2026-01-01T00:00:{n % 60:02d}Z", "n": n}).encode(), **more} for n in numbers
    ]


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

    def brought_up_to_date() -> None:
        with open_warehouse(declared().spec(), spark) as opened:
            for name in ("clicks", "counted"):
                while opened.nodes[name].update(spark) is not None:
                    opened.updated(name)

    kafka.send(topic, [*values(range(2500)), {"value": b"{broken"}])
    brought_up_to_date()
    kafka.send(topic, values(range(2500, 3000)))
    brought_up_to_date()
    brought_up_to_date()
