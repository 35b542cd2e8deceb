"""A long backlog, by the driver in pieces and on executors: `python -m benchmarks.spark.kafka_catch_up --records N`.

Prints JSON. Both load the same topic, each into a warehouse of its own, from the first record on; the time is that of
all updates. What they have loaded is compared. Executors are used here although two cores are too few for them.
``driver``: the most memory that this process has used by then, in MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headgate as hg
from benchmarks.spark.kafka_loads import SCHEMA, send, stream, took
from headgate.warehouse.session import open_session
from headgate.warehouse.sources.kafka import on_executors, source
from headgate.warehouse.sources.kafka.on_executors import Executors
from tests.services.kafka import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: so few records are loaded before, so that Spark and Python workers have started
WARM_UP = 20_000


class NoExecutors(Executors):
    """None of them is asked: the driver reads."""

    def find_out(self, spark: SparkSession) -> None:
        self.cores = 0


def catch_up(folder: Path, servers: str, topic: str, spark: SparkSession, *, spread: bool, records: int) -> Any:
    records_of = hg.Kafka(servers, topic, schema=SCHEMA)
    if not spread:
        records_of._executors = NoExecutors(())
    records_of.refresh()
    node = stream(folder, records_of, spark)
    updates, loaded, started = 0, 0, time.perf_counter()
    while loaded < records:
        _, count = took(node, spark)
        updates, loaded = updates + 1, loaded + count
    seconds = time.perf_counter() - started
    rows = node.store.arrow().select(["value"])
    return {
        "by": "executors" if spread else "the driver",
        "records": loaded,
        "seconds": seconds,
        "updates": updates,
        "sum": float(rows.column("value").to_numpy().sum()),
        "driver": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--most", type=int, default=0, help="records that the driver reads at once, if not the usual")
    options = parser.parse_args()
    on_executors.LEAST_CORES = 2
    if options.most:
        source.MOST_OFFSETS = options.most
        on_executors.PIECE_OFFSETS = max(1, options.most // 4)
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder, "broker")) as broker:
        spark = open_session("kafka", master="local[2]")
        try:
            small, large = broker.topic(partitions=4), broker.topic(partitions=4)
            send(broker, small, 0, WARM_UP)
            send(broker, large, 0, options.records)
            found = []
            for number in range(options.repeats):
                for spread in (True, False) if number % 2 == 0 else (False, True):
                    name = f"{number}-{spread}"
                    more: dict[str, Any] = {"spread": spread}
                    catch_up(Path(folder, f"small-{name}"), broker.servers, small, spark, records=WARM_UP, **more)
                    where = Path(folder, f"large-{name}")
                    found.append(catch_up(where, broker.servers, large, spark, records=options.records, **more))
        finally:
            spark.stop()
    assert len({row.pop("sum") for row in found}) == 1, "both must load the same"
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
