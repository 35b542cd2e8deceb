"""Updates of a stream and a table over it, in a folder or in an object store:
`python -m benchmarks.stream_spark.on_places OPTIONS`.

Spark has no file system for the store, as with ``local[*]`` and nothing installed.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headgate as hg
from benchmarks.stream_spark.process import answer
from headgate.core import Update
from headgate.warehouse import RunOptions, SparkOptions, WarehouseRun
from tests.services.object_store import ObjectStoreServer

PATIENCE = 600
SUMS = "select date_trunc('minute', ts) as minute, key, sum(n) as n from landed group by 1, 2"


def measure_updates(in_store: bool, rows: int, rounds: int, warm_up: int, seed: int) -> list[dict[str, Any]]:
    """The median seconds of an update, of each of the two tables."""
    chance = random.Random(seed)
    made: list[Update] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        landing = folder / "landing"
        landing.mkdir()
        if in_store:
            bucket = stack.enter_context(ObjectStoreServer(folder / "store")).bucket()
            wh = hg.Warehouse("places", f"{bucket}/places", storage=dict(bucket.bucket.options))
        else:
            wh = hg.Warehouse("places", folder / "warehouse")
        source = hg.Files(landing, schema="ts timestamp, key long, n double", settle=0)
        wh.stream("landed", source, time="ts", partition="1 day")
        wh.sql("sums", SUMS, time="minute", partition="1 day")
        where = SparkOptions("local[2]")
        run = stack.enter_context(WarehouseRun(wh.spec(), RunOptions(tracks=2), where, made.append))
        for turn in range(warm_up + rounds):
            if turn == warm_up:
                made.clear()
            text = "".join(_line(chance, turn, number) for number in range(rows))
            (landing / f".{turn}").write_text(text)
            (landing / f".{turn}").rename(landing / f"{turn:05}.json")
            run.wait_until_fresh(PATIENCE)
        seconds = {
            name: [update.seconds for update in made if update.committed and update.name == name]
            for name in ("landed", "sums")
        }
    place = "object store" if in_store else "folder"
    return [
        {"measured": "update", "place": place, "table": name, "seconds": statistics.median(each)}
        for name, each in seconds.items()
    ]


def _line(chance: random.Random, turn: int, number: int) -> str:
    ts = f"2026-11-16 {turn // 60:02}:{turn % 60:02}:{number % 60:02}"
    return json.dumps({"ts": ts, "key": chance.randrange(100), "n": chance.random()}) + "\n"


if __name__ == "__main__":
    answer(measure_updates)
