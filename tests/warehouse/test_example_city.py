"""The example ``examples/city``: one command runs it, and over updates and restarts its tables are those of one run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from examples.city.sensors import SensorLines
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.reading import read
from headgate.warehouse.updates.open_warehouse import open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.warehouse.declare.spec import WarehouseSpec

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
CITY = ROOT / "examples" / "city"
TABLES = ("lines", "readings", "stats", "models", "predictions")
#: so long that every sensor has had the eleven values after which its regression speaks, and that models are trained
SECONDS_OF_LINES = (14, 10)


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """The example in a repository of its own, in which it can write."""
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    folder = tmp_path / "examples" / "city"
    folder.mkdir(parents=True)
    for file in CITY.glob("*.py"):
        shutil.copy(file, folder)
    return folder


def declared(city: Path, now: float) -> WarehouseSpec:
    """The example as it is, at a moment of the test's choice."""
    spec = load(city / "city.py").spec()
    (lines,) = spec.streams
    source = SensorLines(lines.source.city, every=2, clock=lambda: now)
    return replace(spec, streams=(replace(lines, source=source),))


def checked(city: Path, warehouse: Path) -> subprocess.CompletedProcess[str]:
    return in_another_folder([sys.executable, str(city / "check.py"), str(warehouse)], city, timeout=600)


def in_another_folder(command: list[str], city: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """What a command does where neither this process nor Spark's workers find the repository by accident."""
    return subprocess.run(command, cwd=city, check=False, capture_output=True, text=True, timeout=timeout)


def test_after_some_updates_and_restarts_every_table_is_what_the_check_computes(
    city: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    now = 1_790_000_000.0
    for seconds in SECONDS_OF_LINES:
        open_warehouse(declared(city, now), spark).bring_up_to_date(spark)
        now += seconds
    open_warehouse(declared(city, now), spark).bring_up_to_date(spark)

    warehouse = city / "city.warehouse"
    answer = checked(city, warehouse)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert [line.split()[0] for line in answer.stdout.splitlines()] == list(TABLES)

    # It was a stream with everything in it that can come.
    tables = read(warehouse, TABLES)
    assert set(pc.unique(tables["stats"].column("analysis")).to_pylist()) == {
        "sliding_regression",
        "second_order_moment",
        "distinct_count",
    }
    assert tables["models"].num_rows >= 2
    assert len(pc.unique(tables["predictions"].column("model"))) >= 2
    assert tables["readings"].column("source").null_count, "sensors that nobody has registered"
    assert tables["readings"].num_rows < tables["lines"].num_rows, "damaged lines"

    # A check that could not fail would be none.
    repository = tmp_path_factory.mktemp("other")
    (repository / "workloads").symlink_to(ROOT / "workloads")
    other = repository / "examples" / "city"
    shutil.copytree(city, other, ignore=shutil.ignore_patterns("*.warehouse"))
    text = (other / "city.py").read_text(encoding="utf-8")
    (other / "city.py").write_text(text.replace("City(seed=7", "City(seed=8"), encoding="utf-8")
    answer = checked(other, warehouse)
    assert answer.returncode == 1
    assert "line differs first in row 0" in answer.stdout


def test_one_command_runs_the_city(city: Path) -> None:
    command = [sys.executable, "-m", "headgate.cli", "run", str(city / "city.py"), "--for", "6 seconds"]
    done = in_another_folder(command, city, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout + done.stderr
    answer = checked(city, city / "city.warehouse")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.startswith("lines")
