"""``kill -9`` of a running warehouse at any moment: nothing lost, nothing twice, and it goes on by itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.run.run import resolved
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.open_warehouse import open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

#: each takes the time to start Spark, some ten seconds; the second hits a run that goes on after the first.
#: HEADGATE_KILLS=20 makes it a long version, and ``python -m benchmarks faults many`` kills among other faults
KILLS = int(os.environ.get("HEADGATE_KILLS", "2"))
SEED = 7
START = datetime(2026, 11, 15, 10, tzinfo=UTC)
ROWS_PER_FILE = 20
#: a run of some updates has no time for code of Spark's own making
INTERPRETED = ("--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN")

PIPELINE = """
import headgate as hg
from pyspark.sql import functions as F

wh = hg.Warehouse("killed")
wh.stream("readings", hg.Files("landing", format="json", schema="ts timestamp, id long", settle=0), time="ts",
          period="1 second", partition="1 min")
wh.sql("copies", "select ts, id from readings", time="ts", partition="1 min", priority=10)

@wh.table(time="minute", partition="1 min")
def minutes(readings):
    return readings.groupBy(F.date_trunc("minute", "ts").alias("minute")).agg(F.count("*").alias("n"))
"""


class Landing:
    """Files of numbered rows, one after another; every fifth line is malformed, every seventh late."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.files = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            lines = [self._line(self.files * ROWS_PER_FILE + row) for row in range(ROWS_PER_FILE)]
            written = self._folder / f".{self.files}"
            written.write_text("\n".join(lines) + "\n")
            written.rename(self._folder / f"{self.files:05}.json")
            self.files += 1

    def _line(self, number: int) -> str:
        if number % 5 == 4:
            return f'{{"id": {number}, "ts"'
        late = timedelta(minutes=3) if number % 7 == 6 else timedelta(0)
        return json.dumps({"id": number, "ts": (START + timedelta(seconds=number) - late).isoformat()})

    @property
    def good(self) -> set[int]:
        return {number for number in range(self.files * ROWS_PER_FILE) if number % 5 != 4}


def run_and_kill(pipeline: Path, landing: Landing, chance: random.Random) -> int:
    """Let the warehouse make some updates while files come in, then kill it; returns the updates that were seen."""
    options = ("--master", "local[1]", "--for", "1 hour", *INTERPRETED)
    command = [sys.executable, "-m", "headgate.cli", "run", str(pipeline), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as warehouse:
        assert warehouse.stdout is not None
        wanted = chance.randint(1, 6)
        seen = 0
        for _ in warehouse.stdout:
            seen += 1
            landing.add(chance.randint(0, 2))
            if seen == wanted:
                break
        # Somewhere inside the next update: before its job, during it, between files and commit, or right after.
        with contextlib.suppress(subprocess.TimeoutExpired):
            warehouse.wait(timeout=chance.uniform(0.0, 0.6))
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself, with all that it has started
            os.killpg(warehouse.pid, signal.SIGKILL)
    return seen


def test_a_warehouse_that_is_killed_again_and_again_loses_nothing_and_has_nothing_twice(
    tmp_path: Path, spark: SparkSession
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    chance = random.Random(SEED)
    pipeline = tmp_path / "pipeline.py"
    pipeline.write_text(PIPELINE)
    landing = Landing(tmp_path / "landing")
    landing.add(10)
    for _ in range(KILLS):
        assert run_and_kill(pipeline, landing, chance) > 0, "after a kill it goes on by itself"
        landing.add(1)
    warehouse = open_warehouse(resolved(load(pipeline).spec()), spark)
    warehouse.bring_up_to_date(spark)
    for name in ("readings", "copies"):
        ids = warehouse.nodes[name].store.arrow().column("id").to_pylist()
        assert len(ids) == len(set(ids)), f"{name}: rows twice"
        assert set(ids) == landing.good, f"{name}: rows lost"
    assert sum(warehouse.nodes["minutes"].store.arrow().column("n").to_pylist()) == len(landing.good)
    rejected = warehouse.nodes["readings"].store.directory.with_name("readings__rejected")
    raw = TableStore(rejected).arrow().column("raw").to_pylist()
    assert len(raw) == len(set(raw)) == landing.files * ROWS_PER_FILE - len(landing.good)
