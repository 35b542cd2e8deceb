"""What loads from Kafka take: `python -m benchmarks.spark.kafka_loads --records N --updates N --small N`, prints JSON.

*large*: the records per second of updates that catch up with a topic, as many records at once as they take.
*small*: how long an update of 1,000 records takes, and one of a file of the same rows, in turn: noise hits both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headgate as hg
from headgate.warehouse.session import open_session
from headgate.warehouse.updates.node import Node
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.services.kafka import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, key string, value double"
SMALL = 1_000
WARM_UP = 10
#: event times begin here, in seconds since the epoch
BEGIN = 1_790_000_000


def lines(first: int, count: int) -> Iterator[bytes]:
    """Rows as JSON, a thousand for each second of event time."""
    for number in range(first, first + count):
        if number == first or number % 1_000 == 0:
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN + number // 1_000))
        yield b'{"ts": "%s", "key": "k%d", "value": %d.25}' % (moment.encode(), number % 50, number % 100)


def send(broker: KafkaBroker, topic: str, first: int, count: int) -> None:
    producer = broker.producer(**{"linger.ms": 20, "queue.buffering.max.messages": 10_000_000})
    for line in lines(first, count):
        producer.produce(topic, line)
    assert producer.flush(300) == 0


def stream(folder: Path, source: hg.Kafka | hg.Files, spark: SparkSession) -> Node:
    """A stream of a warehouse of its own."""
    warehouse = hg.Warehouse("loads", folder)
    warehouse.stream("rows", source, time="ts", partition="1 hour", max_future=None)
    return open_warehouse(warehouse.spec(), spark).nodes["rows"]


def took(node: Node, spark: SparkSession) -> tuple[float, int]:
    """The seconds and the rows of the next update."""
    started = time.perf_counter()
    while (update := node.update(spark)) is None:
        pass
    return time.perf_counter() - started, update.rows


def large(folder: Path, broker: KafkaBroker, spark: SparkSession, records: int, updates: int) -> list[dict[str, Any]]:
    topic = broker.topic(partitions=4)
    send(broker, topic, 0, records * updates + SMALL)
    source = hg.Kafka(broker.servers, topic, schema=SCHEMA)
    source.refresh()
    node = stream(folder, source, spark)
    rows: list[dict[str, Any]] = []
    loaded = 0
    while loaded < records * updates + SMALL:
        seconds, count = took(node, spark)
        loaded += count
        rows.append({"records": count, "seconds": seconds})
    return rows


def small(folder: Path, broker: KafkaBroker, spark: SparkSession, updates: int) -> dict[str, float]:
    """Medians of both."""
    topic, landing = broker.topic(partitions=4), folder / "landing"
    landing.mkdir(parents=True)
    source = hg.Kafka(broker.servers, topic, schema=SCHEMA)
    source.refresh()
    from_kafka = stream(folder / "kafka", source, spark)
    from_files = stream(folder / "files", hg.Files(str(landing), schema=SCHEMA, settle=0), spark)
    seconds: dict[str, list[float]] = {"kafka": [], "file": []}
    for number in range(WARM_UP + updates):
        send(broker, topic, number * SMALL, SMALL)
        source.refresh()
        hidden = landing / f".{number:06d}.json"
        hidden.write_bytes(b"".join(line + b"\n" for line in lines(number * SMALL, SMALL)))
        hidden.rename(landing / f"{number:06d}.json")
        for name, node in (("kafka", from_kafka), ("file", from_files)):
            duration, count = took(node, spark)
            assert count == SMALL, (name, count)
            seconds[name].append(duration)
    return {name: statistics.median(found[WARM_UP:]) for name, found in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("records", "updates", "small"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder, "broker")) as broker:
        spark = open_session("kafka", master="local[2]")
        try:
            found = {
                "small": small(Path(folder, "small"), broker, spark, options.small),
                "large": large(Path(folder, "large"), broker, spark, options.records, options.updates),
            }
        finally:
            spark.stop()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
