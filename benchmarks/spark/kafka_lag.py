"""How late a table over a topic is while others want to run: `python -m benchmarks.spark.kafka_lag`, prints JSON.

A topic gets ``--rate`` records a second. The most important table counts them by second and key; twelve other tables,
six streams and a table over each, have something to do every second. The lag of the important table is read four times
a second, after a time to warm up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import headgate as hg
from tests.services.kafka import KafkaBroker

SCHEMA = "ts timestamp, key string, value double"
OTHERS = 6
#: a second of the run in which records are sent, in this many parts
PARTS = 20


def produce(servers: str, topic: str, rate: int, seconds: float) -> None:
    """Send ``rate`` records a second with the time of now; in a process of its own."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 10_000_000})
    started, sent = time.monotonic(), 0
    while (passed := time.monotonic() - started) < seconds:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode()
        for number in range(sent, int(passed * rate)):
            producer.produce(topic, b'{"ts": "%s", "key": "k%d", "value": %d.25}' % (moment, number % 50, number % 100))
            sent += 1
        producer.poll(0)
        time.sleep(1 / PARTS)
    assert producer.flush(60) == 0


def declared(folder: Path, servers: str, topic: str) -> hg.Warehouse:
    warehouse = hg.Warehouse("lag", folder)
    warehouse.stream("events", hg.Kafka(servers, topic, schema=SCHEMA), time="ts", priority=100, partition="1 hour")
    counted = "select date_trunc('second', ts) as ts, key, count(*) as n, sum(value) as total from events group by 1, 2"
    warehouse.sql("counted", counted, time="ts", priority=100, partition="1 hour", target_lag="2 s")
    for number in range(OTHERS):
        rows = hg.Generator(SCHEMA, every="1 second", rows_per_chunk=500)
        warehouse.stream(f"other{number}", rows, time="ts", partition="1 hour")
        query = f"select date_trunc('minute', ts) as ts, count(*) as n from other{number} group by 1"
        warehouse.sql(f"table{number}", query, time="ts", partition="1 hour")
    return warehouse


def measured(folder: Path, rate: int, warm_up: float, seconds: float) -> dict[str, object]:
    with KafkaBroker(folder / "broker") as broker:
        topic = broker.topic(partitions=4)
        command = [sys.executable, "-m", "benchmarks.spark.kafka_lag", "--rate", str(rate)]
        command += ["--servers", broker.servers, "--topic", topic, "--seconds", str(warm_up + seconds + 60)]
        lags: list[float] = []
        with declared(folder / "warehouse", broker.servers, topic).start(master="local[2]") as run:
            producer = subprocess.Popen(command)
            try:
                begin = time.monotonic() + warm_up
                while time.monotonic() < begin + seconds:
                    rows = {row.name: row for row in run.statistics()}
                    if time.monotonic() >= begin:
                        lags.append(rows["counted"].lag)
                    time.sleep(0.25)
            finally:
                producer.kill()
                producer.wait()
        others = sum(row.updates for name, row in rows.items() if name not in ("events", "counted"))
        lags.sort()
        return {
            "rate": rate,
            "seconds": seconds,
            "rows": rows["events"].rows,
            "updates": rows["counted"].updates,
            "updates of others": others,
            "median lag": lags[len(lags) // 2],
            "95 % lag": lags[int(0.95 * len(lags))],
            "worst lag": lags[-1],
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--warm-up", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--servers")
    parser.add_argument("--topic")
    options = parser.parse_args()
    if options.servers:
        produce(options.servers, options.topic, options.rate, options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        json.dump(measured(Path(folder), options.rate, options.warm_up, options.seconds), sys.stdout)


if __name__ == "__main__":
    main()
