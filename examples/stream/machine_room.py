"""Two queries on one stream of sensor readings, one of them urgent: python examples/stream/machine_room.py

*alarms* must be quick; *profile* is a heavy statistic that may wait. Both share two workers. The policy `multi-class`
puts the urgent class first; compare the latencies with `--policy fcfs`, which knows no classes, or `--loop threads`,
where the operating system decides.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import stream as hs

ROWS_PER_BLOCK = 20_000


def readings(block: int) -> pa.RecordBatch:
    """A block of readings, the same whenever it is asked for."""
    chance = np.random.default_rng(block)
    moments = (block * ROWS_PER_BLOCK + np.arange(ROWS_PER_BLOCK)) // 100
    return pa.RecordBatch.from_pydict(
        {
            "ts": pa.array(moments),
            "sensor": pa.array(chance.integers(0, 500, ROWS_PER_BLOCK)),
            "temp": pa.array(chance.normal(60, 10, ROWS_PER_BLOCK)),
        }
    )


def alarms(source: hs.Paced, sink: hs.Collect) -> hs.Query:
    query = hs.Query("alarms", importance_class=1)
    return query.source(source).filter(pc.field("temp") > 95).key_by("sensor").dedupe(within=60, time="ts").to(sink)


def profile(source: hs.Paced, sink: hs.Collect) -> hs.Query:
    query = hs.Query("profile", importance_class=0)
    rows = query.source(source).map(heavy)
    return rows.key_by("sensor").tumbling("ts", 60).aggregate(n="count", mean=("mean", "score")).to(sink)


def heavy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Stands for a model: some milliseconds for every thousand rows."""
    score = batch.column("temp").to_numpy()
    for _ in range(60):
        score = np.sqrt(score * score + 1.0)
    return batch.append_column("score", pa.array(score))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="multi-class")
    parser.add_argument("--loop", default="dispatch", choices=hs.LOOPS)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=100_000, help="readings per second (default: 100000)")
    options = parser.parse_args()
    found, profiles = hs.Collect(), hs.Collect()
    with hs.Engine(workers=2, loop=options.loop, policy=options.policy) as engine:
        runs = [
            engine.add(make(hs.Paced(readings, options.rate, seconds=options.seconds), sink))
            for make, sink in ((alarms, found), (profile, profiles))
        ]
        for run in runs:
            run.result()
        statistics = engine.statistics()
    print(f"{'query':10} {'rows in':>10} {'rows out':>10} {'mean ms':>10} {'p99 ms':>10} {'max ms':>10}")
    for query in statistics.queries:
        times = (query.latency.mean, query.latency.p99, query.latency.max)
        shown = " ".join(f"{1000 * seconds:10.1f}" for seconds in times)
        print(f"{query.name:10} {query.rows_in:10} {query.rows_out:10} {shown}")


if __name__ == "__main__":
    main()
