"""A query that makes more rows than the driver may have: they are written by Spark, and never pass through it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

#: in a process of its own, because how much a driver may have is set when Spark starts
SCRIPT = """
import json
import pathlib

import headgate as hg
from headgate.warehouse import SparkOptions, WarehouseRun

pathlib.Path("landing").mkdir()
pathlib.Path("landing/1.json").write_text('{"ts": "2026-11-16 12:00:00", "n": 1}')
wh = hg.Warehouse("shop", pathlib.Path("shop.warehouse").absolute())
wh.stream("orders", hg.Files(pathlib.Path("landing").absolute(), schema="ts timestamp, n long", settle=0), time="ts")
wh.sql("many", "select ts, n, id, uuid() as text from orders, (select explode(sequence(1, 50000)) as id)", time="ts")
failed = []
note = lambda update: failed.append(update.error) if not update.committed else None
conf = {"spark.driver.maxResultSize": "1m"}
with WarehouseRun(wh.spec(), spark=SparkOptions("local[2]", conf), observer=note) as run:
    run.wait_until_fresh(1800)
rows = wh.read("many")
print(json.dumps({"rows": rows.num_rows, "ids": len(set(rows.column("id").to_pylist())), "failed": failed}))
"""


def test_a_result_that_is_too_large_for_the_driver_is_written_by_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 50_000, "ids": 50_000, "failed": []}
