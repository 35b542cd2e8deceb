"""`headgate run --once` as a user calls it: a process that catches up, exits, and says whether all is fresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.warehouse import reading

pytestmark = [pytest.mark.spark, pytest.mark.long]

PIPELINE = """
import headgate as hg

wh = hg.Warehouse("small")
wh.stream("readings", hg.Files("landing", schema="ts timestamp, temp double", settle=0), time="ts")
wh.sql("hot", "select ts, temp from readings where temp > 30", time="ts")
"""
FAILING = """
from pyspark.sql import functions as F

@wh.table(time="ts")
def broken(readings):
    return readings.where(F.raise_error("never right").isNull() & (F.col("temp") > 0))
"""


def run_once(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headgate.cli", "run", str(file), "--once", "--master", "local[1]"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=1800)


def test_a_run_catches_up_and_its_exit_status_says_whether_all_is_fresh(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"ts": "2026-01-01T00:00:00Z", "temp": 31.5}\n', encoding="utf-8")
    file = tmp_path / "small.py"
    file.write_text(PIPELINE, encoding="utf-8")
    done = run_once(file)
    assert done.returncode == 0, done.stderr
    rows = reading.read(tmp_path / "small.warehouse", ["readings", "hot"])
    assert [table.num_rows for table in rows.values()] == [1, 1]
    file.write_text(PIPELINE + FAILING, encoding="utf-8")
    done = run_once(file)
    assert done.returncode == 3, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("broken is not fresh: held after 5 failures in a row")
