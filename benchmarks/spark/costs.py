"""What updates cost in the long run: `python -m benchmarks.spark.costs --updates N --partitions N`, prints JSON.

*history*: how long an update takes of a table, and of a source, with many old partitions, against new ones.
*memory*: what the driver holds, in Python and in the JVM after a collection, as updates go by.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headgate as hg
from headgate.warehouse.session import open_session
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, key string, value double"
ROWS = 500
#: event times begin here, in seconds since the epoch
BEGIN = 1_790_000_000 // 60 * 60


class Counted:
    """A warehouse with one stream of numbered files and two tables, brought up to date step by step."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._landing = folder / "landing"
        self._landing.mkdir(parents=True)
        self._spark = spark
        self._files = 0
        warehouse = hg.Warehouse("costs", folder / "warehouse")
        source = hg.Files(str(self._landing), format="json", schema=SCHEMA, settle=0)
        warehouse.stream("rows", source, time="ts", partition="1 minute", period=2.0, max_future=None)
        by_minute = "select date_trunc('minute', ts) as minute, key, sum(value) as total from rows group by 1, 2"
        warehouse.sql("minutes", by_minute, time="minute", partition="1 minute")
        warehouse.sql("large", "select ts, key, value from rows where value > 0.5", time="ts", partition="1 minute")
        self.opened: OpenWarehouse = open_warehouse(warehouse.spec(), spark)

    def land(self, seconds: float, rows: int = ROWS) -> None:
        """A file that tells of two seconds, ``seconds`` after the beginning."""
        lines = []
        for row in range(rows):
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(BEGIN + seconds + 2 * row / rows))
            lines.append(f'{{"ts": "{moment}Z", "key": "k{row % 20}", "value": {row % 100 / 100}}}\n')
        hidden = self._landing / f".{self._files:06d}.json"
        hidden.write_text("".join(lines), encoding="utf-8")
        hidden.rename(self._landing / f"{self._files:06d}.json")
        self._files += 1

    def step(self) -> dict[str, float]:
        """Visible everything that is pending; the seconds that each table took."""
        took = {}
        for name, node in self.opened.nodes.items():
            started = time.perf_counter()
            while node.update(self._spark) is None:
                assert name == "rows", f"{name} has nothing to do"
            took[name] = time.perf_counter() - started
            self.opened.updated(name)
        return took

    def fill(self, partitions: int) -> None:
        """Give every table so many old partitions, without Spark."""
        for minute in range(partitions):
            self.land(60.0 * minute, rows=10)
        self.step()


def history(folder: Path, spark: SparkSession, partitions: int, warm_up: int, updates: int) -> dict[str, Any]:
    """Medians of updates, after the first ones, of a fresh warehouse and of one with old partitions, in turn, so that
    noise hits both."""
    fresh, old = Counted(folder / "fresh", spark), Counted(folder / "old", spark)
    old.fill(partitions)
    later = 60.0 * (partitions + 10)
    times: dict[str, dict[str, list[float]]] = {"fresh": {}, "old": {}}
    for number in range(warm_up + updates):
        for label, counted in (("fresh", fresh), ("old", old)):
            counted.land(later + 2.0 * number)
            for name, seconds in counted.step().items():
                if number >= warm_up:
                    times[label].setdefault(name, []).append(seconds)
    medians = {label: {n: statistics.median(t) for n, t in of.items()} for label, of in times.items()}
    return {"partitions": partitions, "updates": updates, **medians}


def memory(folder: Path, spark: SparkSession, updates: int) -> list[dict[str, float]]:
    """What is held after every tenth of so many updates."""
    counted = Counted(folder / "memory", spark)
    held = []
    for number in range(updates // 3 + 1):
        counted.land(2.0 * number)
        counted.step()
        if number % max(1, updates // 30) == 0:
            held.append({"updates": 3.0 * (number + 1), **_held(spark)})
    return held


def _held(spark: SparkSession) -> dict[str, float]:
    jvm = spark._jvm
    assert jvm is not None
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    with open("/proc/self/statm", encoding="utf-8") as file:
        pages = int(file.read().split()[1])
    return {"heap": heap, "python": pages * resource.getpagesize() / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.costs")
    parser.add_argument("--updates", type=int, default=2_000, help="updates to make while memory is watched")
    parser.add_argument("--partitions", type=int, default=1_000, help="old partitions")
    parser.add_argument("--warm-up", type=int, default=30, help="updates before those")
    parser.add_argument("--compared", type=int, default=40, help="updates to compare")
    options = parser.parse_args()
    spark = open_session("costs", "local[2]")
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            found = {
                "history": history(folder, spark, options.partitions, options.warm_up, options.compared),
                "memory": memory(folder, spark, options.updates),
            }
    finally:
        spark.stop()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
