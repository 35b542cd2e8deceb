"""A run on the Spark of a user: neither has its settings changed by the other. And what is said until Spark is up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

#: in a process of its own, because the time zone is one that Spark is started with
SCRIPT = """
import json
import pathlib
import threading

from pyspark.sql import SparkSession, functions as F

import headgate as hg
from headgate.warehouse import SparkOptions, WarehouseRun

settings = []


def hours_of(orders):
    conf = orders.sparkSession.conf
    settings.append((conf.get("spark.sql.session.timeZone"), conf.get("spark.sql.shuffle.partitions")))
    return orders.groupBy(F.date_trunc("hour", "ts").alias("hour")).agg(F.count("*").alias("n"))


def declared():
    wh = hg.Warehouse("shop", pathlib.Path("shop.warehouse").absolute())
    source = hg.Files(pathlib.Path("landing").absolute(), schema="ts timestamp, n int", settle=0)
    wh.stream("orders", source, time="ts")
    wh.table(time="hour", name="hours")(hours_of)
    return wh


def updated(options, number):
    pathlib.Path("landing").mkdir(exist_ok=True)
    pathlib.Path(f"landing/{number}.json").write_text('{"ts": "2026-11-15T12:00:00", "n": 1}')
    done, messages = threading.Event(), []

    def note(update):
        if update.table == "hours":
            done.set()

    with WarehouseRun(declared().spec(), spark=options, observer=note, on_message=messages.append):
        assert done.wait(600)
    return messages


messages = updated(SparkOptions("local[2]"), 1)  # there is no Spark yet
theirs = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.session.timeZone", "America/New_York")
    .config("spark.sql.shuffle.partitions", "200")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
mine = lambda: [theirs.conf.get("spark.sql.session.timeZone"), theirs.conf.get("spark.sql.shuffle.partitions")]
before = mine()
updated(SparkOptions(session=theirs, conf={"spark.sql.shuffle.partitions": "3"}), 2)  # a session that is passed
stated = settings[-1]
updated(SparkOptions(), 3)  # one that is there already
rows = declared().read("orders").column("ts").to_pylist()
print(json.dumps({
    "messages": messages,
    "settings": sorted({*settings} - {stated}),
    "stated": stated,
    "theirs": [before, mine()],
    "views": [table.name for table in theirs.catalog.listTables()],
    "rows": [str(ts) for ts in rows],
    "alive": theirs.range(3).count(),
}))
theirs.stop()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("session")
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_times_without_a_zone_are_in_utc_whatever_the_zone_of_the_users_session(told: dict[str, object]) -> None:
    assert told["rows"] == ["2026-11-15 12:00:00+00:00"] * 3


def test_queries_are_analysed_and_computed_with_the_settings_of_headgate(told: dict[str, object]) -> None:
    assert told["settings"] == [["UTC", "2"]]
    assert told["stated"] == ["UTC", "3"], "unless the user states others for the run"


def test_the_session_of_the_user_stays_as_it_was(told: dict[str, object]) -> None:
    assert told["theirs"] == [["America/New_York", "200"]] * 2
    assert told["views"] == []
    assert told["alive"] == 3


def test_the_first_thing_that_is_said_is_that_spark_is_being_started(told: dict[str, object]) -> None:
    assert told["messages"] == [
        "starting Spark at local[2] ...",
        "opening 1 stream, 1 table ...",
        "keeping the tables fresh",
    ]
