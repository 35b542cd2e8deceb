"""The example ``examples/shop``: its tables are what its batch SQL says, and one command shows it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.shop import check
from examples.shop.feed import STREAMS, Feed, land
from tests.warehouse.random_trial import interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "shop"
#: two hours each: the second lot brings the third day, and with it two days that are over
FILES = (14, 13)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The example in a repository of its own, in which it can write."""
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    folder = tmp_path / "examples" / "shop"
    folder.mkdir(parents=True)
    for file in SHOP.glob("*.py"):
        shutil.copy(file, folder)
    return folder


def test_after_some_updates_every_table_is_what_the_batch_sql_says(shop: Path, spark: SparkSession) -> None:
    spark = interpreted(spark)
    feed = Feed(seed=1, customers=150, clicks_per_day=3_000, lines_per_hour=40)
    landed = 0
    for count in FILES:
        for number in range(landed, landed + count):
            for stream in STREAMS:
                land(feed.rows(stream, number), shop, stream, f"{number:06}")
        landed += count
        check.bring_up_to_date(shop, spark)
    for question in check.QUESTIONS:
        compared = check.compare(question, shop, spark)
        assert compared.equal and compared.rows and not compared.rejected, compared

    for stream in STREAMS:
        land(feed.rows(stream, landed), shop, stream, f"{landed:06}")
    assert not check.compare(check.QUESTIONS[0], shop, spark).equal, "rows that are in no table are noticed"


def test_one_command_opens_the_shop_and_checks_its_tables(shop: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(shop / "run.py"), "--for", "3 seconds"],
        cwd=shop,
        check=False,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  ok\n") == len(check.QUESTIONS)
    assert "derived from TPCx-BB, unofficial, not comparable" in done.stdout
