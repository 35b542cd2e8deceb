"""Entries of tables in a catalog: another Spark finds the tables by name, and no table ever waits for a catalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.core import DeclarationError, Update, placement_from, policy_from
from headgate.errors import CatalogError
from headgate.warehouse.publish.catalog import register
from headgate.warehouse.run import catalog_keeper
from headgate.warehouse.run.catalog_keeper import CatalogKeeper
from headgate.warehouse.run.run import SparkOptions, WarehouseRun
from headgate.warehouse.schedule.run_options import RunOptions
from headgate.warehouse.session import another_session, own_session
from tests.services.delta_spark import SETTINGS, DeltaSpark

#: runs two generations of a warehouse on one Spark: a table grows, one is removed, one is renamed, one is added
GENERATIONS = """
import json, sys
import headgate as hg
from headgate.warehouse import open_session

folder, settings = sys.argv[1], json.loads(sys.argv[2])
spark = open_session("city", "local[1]", settings)

def run(**queries):
    wh = hg.Warehouse("city", folder + "/city.warehouse", sync=False, catalog="city")
    wh.stream("readings", hg.Files(folder + "/landing", schema="ts timestamp, temp double"), time="ts")
    for name, query in queries.items():
        wh.sql(name, query, time="ts")
    with wh.start(spark=spark, tracks=1) as run:
        run.wait_until_fresh()

run(alerts="SELECT ts FROM readings WHERE temp > 30", old="SELECT ts FROM readings", gone="SELECT ts FROM readings")
run(alerts="SELECT ts, temp FROM readings WHERE temp > 30", new="SELECT ts FROM readings")
spark.stop()
"""


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.long
def test_another_spark_finds_tables_in_hives_metastore_by_their_names(tmp_path: Path) -> None:
    if reason := DeltaSpark.missing():
        pytest.skip(reason)
    (tmp_path / "landing").mkdir()
    lines = [{"ts": f"2026-11-16T10:00:{second:02}Z", "temp": 28.0 + second} for second in range(6)]
    (tmp_path / "landing" / "rows.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    hive = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
        "spark.sql.warehouse.dir": f"{tmp_path}/spark-warehouse",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    command = [sys.executable, "-c", GENERATIONS, str(tmp_path), json.dumps({**SETTINGS, **hive})]
    ran = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    with DeltaSpark(hive) as other:
        names = {name for _, name, _ in other.sql("SHOW TABLES IN city")}
        # What is not declared any more keeps its entry, as it keeps its files.
        assert names == {"readings", "alerts", "old", "gone", "new"}
        assert other.sql("SELECT temp FROM city.alerts ORDER BY ts") == [(31.0,), (32.0,), (33.0,)]
        assert other.sql("SELECT count(*) FROM city.new") == [(6,)]


def a_warehouse(folder: Path, catalog: str) -> hg.Warehouse:
    wh = hg.Warehouse("city", folder / "wh", sync=False, catalog=catalog)
    rows = hg.Generator("ts timestamp, temp double", rows_per_chunk=5, every="1 day", start="2026-11-01T00:00:00Z")
    wh.stream("readings", rows, time="ts")
    return wh


@pytest.mark.spark
@pytest.mark.slow
def test_without_delta_in_spark_tables_go_on_and_say_what_is_missing(spark: Any, tmp_path: Path) -> None:
    options = RunOptions(tracks=1, policy=policy_from("max-benefit"), placement=placement_from("proportional"))
    told: list[str] = []
    spec = a_warehouse(tmp_path, "city_without_delta").spec()
    with WarehouseRun(spec, options, SparkOptions("local[2]", {}, spark), on_message=told.append) as run:
        run.wait_until_fresh()
    [status] = run.runtime.statistics()
    assert status.state == "ok" and status.rows
    assert "Spark cannot make Delta tables" in status.note and "spark.sql.extensions" in status.note
    assert [line for line in told if "city_without_delta.readings is not in the catalog" in line]


@pytest.mark.spark
@pytest.mark.slow
def test_an_entry_of_another_table_is_named_and_not_changed(spark: Any, tmp_path: Path) -> None:
    here, there = tmp_path / "here it is", tmp_path / "there"
    spark.sql("CREATE SCHEMA IF NOT EXISTS city_of_others")
    try:
        # Whose it is does not depend on the format, which this Spark has only one of.
        spark.sql(f"CREATE TABLE city_of_others.alerts (a INT) USING parquet LOCATION 'file://{here}'")
        register(spark, "city_of_others", "alerts", here)
        with pytest.raises(CatalogError, match=r"another table as city_of_others\.alerts.*DROP TABLE"):
            register(spark, "city_of_others", "alerts", there)
    finally:
        spark.sql("DROP SCHEMA city_of_others CASCADE")


def test_a_catalog_that_does_not_answer_is_reported_and_neither_holds_up_updates_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_keeper, "ANSWER_SECONDS", 0.05)
    answers, told = threading.Event(), threading.Event()
    remarks: list[tuple[str, str]] = []

    def never() -> Any:
        answers.wait()
        raise OSError("away")

    def remark(table: str, text: str) -> None:
        remarks.append((table, text))
        told.set()

    update = Update("readings", "live")
    update.commits(0.1)
    with CatalogKeeper(never, remark) as keeper:
        keeper.declare(a_warehouse(tmp_path, "city").spec(), [])
        keeper.note(update)
        assert told.wait(600)
    assert remarks == [("readings", "the catalog 'city' does not answer")]
    answers.set()


@pytest.mark.parametrize("catalog", ["a.b.c", "city`; DROP", 7])
def test_the_name_of_a_catalog_is_checked(catalog: Any, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"such as 'unity\.city'"):
        a_warehouse(tmp_path, catalog).spec()


@pytest.mark.spark
@pytest.mark.slow
def test_the_catalogs_of_a_users_session_are_those_of_the_run(spark: Any) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.catalog.elsewhere", "org.example.Catalog")
    ours = another_session(own_session(theirs))
    assert ours.conf.get("spark.sql.catalog.elsewhere") == "org.example.Catalog"
