"""An executor that is lost, or hangs, costs no more than its tasks: nothing is lost and nothing is there twice."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.drivers import ended, started, wait_for
from tests.services.cluster import SparkCluster, why_not

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_not()), reason=f"no Spark cluster can be started: {why_not()}"),
]

#: Spark writes the tables of the stream itself, as it does with large ones. Files land one by one; after a third of
#: them the test is told, and after another third the driver waits until it has been told in turn.
SCRIPT = """
import pathlib
import random
import time

import headgate as hg
from headgate.stream import on_spark
from headgate.warehouse import SparkOptions, RunOptions, WarehouseRun
from headgate.warehouse.updates import load

load.LARGE_BYTES = 0
chance = random.Random(GIVEN["seed"])
pathlib.Path("landing").mkdir()
orders = []


def land(numbers):
    for number in numbers:
        rows = [
            {"ts": f"2026-11-16 {number // 60:02}:{number % 60:02}:{second:02}", "key": chance.choice("abcd"),
             "n": chance.randrange(1000)}
            for second in range(chance.randrange(5, 60))
        ]
        text = "".join(json.dumps(row) + "\\n" for row in rows)
        pathlib.Path("landing/.next").write_text(text)
        pathlib.Path("landing/.next").rename(f"landing/{number:04}.json")
        orders.extend(rows)
        time.sleep(0.2)


def wait(condition):
    end = time.monotonic() + 1000
    while not condition():
        assert time.monotonic() < end, "nothing has happened"
        time.sleep(0.1)


def running_sums(rows):
    return rows.key_by("key").running(ts=("max", "ts"), total=("sum", "n"))


wh = hg.Warehouse("shop", "shop.warehouse", shared=True)
source = hg.Files("landing", schema="ts timestamp, key string, n long", settle=0)
wh.stream("orders", source, time="ts", partition="1 day")
wh.sql("totals", "select date_trunc('hour', ts) as hour, key, sum(n) as n from orders group by 1, 2", time="hour")
wh.table(name="running", time="ts", mode="append", partition="1 day")(
    lambda orders: on_spark(orders, running_sums, keys=["key"], time="ts")
)
options = RunOptions(follows_cores=True, time_limit=GIVEN["time_limit"])
failed, tracks = [], []
note = lambda update: failed.append(update.error) if not update.committed else None
with WarehouseRun(wh.spec(), options, SparkOptions(GIVEN["master"], CONF), note) as run:
    wait(lambda: run.runtime.tracks == 2)
    land(range(10))
    pathlib.Path("strike").touch()
    land(range(10, 20))
    if GIVEN["is_lost"]:
        wait(lambda: run.runtime.tracks == 1)
        tracks.append(run.runtime.tracks)
        pathlib.Path("restore").touch()
        wait(lambda: run.runtime.tracks == 2)
        tracks.append(run.runtime.tracks)
    land(range(20, 30))
    run.wait_until_fresh(1000)
    pathlib.Path("fresh").touch()
    held = [row.name for row in run.statistics() if row.state == "held"]
stored = {name: [{**row, "ts": str(row.get("ts") or row.get("hour"))[:19]} for row in table.to_pylist()]
          for name, table in wh.read(["orders", "totals", "running"]).items()}
for row in stored["totals"]:
    del row["hour"]
print(json.dumps({"orders": orders, "stored": stored, "tracks": tracks, "held": held, "failed": failed}))
"""


def check(told: dict[str, Any]) -> None:
    """Every table is what its query gives for the rows that have landed."""
    orders, stored = told["orders"], told["stored"]
    assert Counter(map(str, map(sorted, map(dict.items, stored["orders"])))) == Counter(
        map(str, map(sorted, map(dict.items, orders)))
    )
    totals: dict[tuple[str, str], int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    running = []
    for row in orders:
        totals[f"{row['ts'][:13]}:00:00", row["key"]] += row["n"]
        sums[row["key"]] += row["n"]
        running.append((row["ts"], row["key"], sums[row["key"]]))
    assert sorted((row["ts"], row["key"], row["n"]) for row in stored["totals"]) == sorted(
        (*where, n) for where, n in totals.items()
    )
    assert sorted((row["ts"], row["key"], row["total"]) for row in stored["running"]) == sorted(running)
    assert told["held"] == []


@pytest.mark.parametrize("seed", [14])
def test_a_worker_that_is_killed_and_brought_back(cluster: SparkCluster, tmp_path: Path, seed: int) -> None:
    given = {"master": cluster.master, "seed": seed, "time_limit": None, "is_lost": True}
    driver = started(SCRIPT, tmp_path, given)
    wait_for(tmp_path / "strike", driver)
    cluster.workers.pop().kill()
    wait_for(tmp_path / "restore", driver)
    cluster.add_worker()
    told = ended(driver)
    check(told)
    assert told["tracks"] == [1, 2], "tracks follow the cores that are there"


@pytest.mark.skipif(not os.environ.get("HEADGATE_HANGS"), reason="takes minutes: try it with HEADGATE_HANGS=1")
@pytest.mark.parametrize("seed", [41])
def test_an_executor_that_hangs_is_left_by_the_time_limit(cluster: SparkCluster, tmp_path: Path, seed: int) -> None:
    given = {"master": cluster.master, "seed": seed, "time_limit": 60.0, "is_lost": False}
    driver = started(SCRIPT, tmp_path, given)
    wait_for(tmp_path / "strike", driver)
    hanging = cluster.workers[-1]
    hanging.pause()
    try:
        wait_for(tmp_path / "fresh", driver)
    finally:
        hanging.resume()
    check(ended(driver))
