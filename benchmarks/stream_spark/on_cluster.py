"""Updates of streams whose files land together, on a cluster of loopback workers or on ``local[2]``:
`python -m benchmarks.stream_spark.on_cluster OPTIONS`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headgate as hg
from benchmarks.stream_spark.process import answer
from headgate.core import Update
from headgate.warehouse import RunOptions, SparkOptions, WarehouseRun
from tests.services.cluster import SparkCluster, executor_settings


def measure(workers: int, streams: int, rows: int, rounds: int, warm_up: int, seed: int) -> dict[str, Any]:
    """Updates per second, and the mean seconds of an update; without workers on ``local[2]``."""
    chance = random.Random(seed)
    made: list[Update] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        where = SparkOptions("local[2]")
        if workers:
            cluster = stack.enter_context(SparkCluster(folder / "cluster"))
            for _ in range(workers):
                cluster.add_worker()
            where = SparkOptions(cluster.master, executor_settings(sys.executable))
        wh = hg.Warehouse("land", folder / "warehouse", shared=True)
        for number in range(streams):
            (folder / f"s{number}").mkdir()
            source = hg.Files(folder / f"s{number}", schema="ts timestamp, key long, n double", settle=0)
            wh.stream(f"s{number}", source, time="ts", partition="1 day")
        options = RunOptions(tracks=workers or 2)
        run = stack.enter_context(WarehouseRun(wh.spec(), options, where, made.append))
        elapsed = 0.0
        for turn in range(warm_up + rounds):
            texts = [_lines(chance, rows) for _ in range(streams)]
            if turn == warm_up:
                made.clear()
            started = time.perf_counter()
            for number, text in enumerate(texts):
                (folder / f"s{number}" / f".{turn}").write_text(text)
                (folder / f"s{number}" / f".{turn}").rename(folder / f"s{number}" / f"{turn:05}.json")
            run.wait_until_fresh(600)
            elapsed += time.perf_counter() - started if turn >= warm_up else 0.0
        updates = [update for update in made if update.committed and update.layer == "live"]
    return {
        "where": f"{workers} workers" if workers else "local[2]",
        "workers": workers,
        "rows_in_file": rows,
        "updates": len(updates),
        "per_second": len(updates) / elapsed,
        "seconds": sum(update.seconds for update in updates) / len(updates),
    }


def _lines(chance: random.Random, rows: int) -> str:
    return "".join(
        json.dumps({"ts": f"2026-11-16 12:00:{n % 60:02}", "key": chance.randrange(100), "n": chance.random()}) + "\n"
        for n in range(rows)
    )


if __name__ == "__main__":
    answer(measure)
