"""What happened before: changed dimensions, backfills, the newest first after an outage, large results."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.partitions import partition_label
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates import spark_files
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.warehouse.test_opened import START, arrive, assert_all_as_batch, reading, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000_000


def micros(minute: float) -> int:
    return round((START + timedelta(minutes=minute)).timestamp() * 1_000_000)


def declared(folder: Path, catch_up: str = "oldest") -> Warehouse:
    wh = Warehouse("past", path=str(folder / "warehouse"))
    columns = "ts timestamp, sensor string, temp double"
    source = Files(str(folder / "readings"), format="json", schema=columns, settle=0)
    wh.stream("readings", source, time="ts", partition="10 minutes")
    wh.sql("hot", "select ts, sensor, temp from readings where temp > 30", time="ts", partition="10 minutes")

    @wh.table(time="minute", partition="10 minutes", catch_up=catch_up, mode="blocks")  # type: ignore[arg-type]
    def minutes(readings: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return readings.groupBy(F.date_trunc("minute", "ts").alias("minute")).agg(F.sum("temp").alias("total"))

    return wh


def opened(folder: Path, spark: SparkSession, catch_up: str = "oldest") -> OpenWarehouse:
    return open_warehouse(declared(folder, catch_up).spec(), spark)


def table(warehouse: OpenWarehouse, name: str) -> TableNode:
    node = warehouse.nodes[name]
    assert isinstance(node, TableNode)
    return node


def test_when_a_dimension_changes_everything_built_on_it_is_computed_again(tmp_path: Path, spark: SparkSession) -> None:
    wh = declared(tmp_path)
    places = Files(str(tmp_path / "places"), format="json", schema="sensor string, street string", settle=0)
    wh.dimension("places", places)
    wh.sql(
        "by_street",
        "select ts, street, temp from readings join places using (sensor)",
        time="ts",
        partition="10 minutes",
    )
    for hour in range(3):
        arrive(tmp_path, "readings", f"{hour}", [reading(60 * hour), reading(60 * hour + 1, "b")])
    warehouse = open_warehouse(wh.spec(), spark)
    warehouse.bring_up_to_date(spark)
    assert not warehouse.nodes["by_street"].store.exists, "nothing is computed without the dimension"

    arrive(tmp_path, "places", "1", [{"sensor": "a", "street": "Elm"}, '{"sensor"'])
    warehouse.bring_up_to_date(spark)
    assert [row[1] for row in rows_of(warehouse.nodes["by_street"].store)] == ["Elm"] * 3
    rejected = TableStore(tmp_path / "warehouse" / "tables" / "places__rejected").arrow().to_pylist()
    assert [row["raw"] for row in rejected] == ['{"sensor"']

    arrive(tmp_path, "places", "1", [{"sensor": "a", "street": "Oak"}, {"sensor": "b", "street": "Ash"}])
    warehouse = open_warehouse(wh.spec(), spark)
    live = warehouse.nodes["places"].update(spark)
    assert live is not None
    warehouse.updated("places")
    warehouse = open_warehouse(wh.spec(), spark)  # killed before anybody has taken notice
    warehouse.bring_up_to_date(spark)
    assert sorted(row[1] for row in rows_of(warehouse.nodes["by_street"].store)) == ["Ash"] * 3 + ["Oak"] * 3
    versions = {name: node.store.version for name, node in warehouse.nodes.items()}
    warehouse.bring_up_to_date(spark)
    assert {name: node.store.version for name, node in warehouse.nodes.items()} == versions


def test_a_backfill_goes_on_after_a_restart_and_ends_in_the_same_rows(tmp_path: Path, spark: SparkSession) -> None:
    for hour in range(3):
        arrive(tmp_path, "readings", f"{hour}", [reading(60 * hour, temp=35), reading(60 * hour + 1)])
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    before = {name: rows_of(warehouse.nodes[name].store) for name in ("hot", "minutes")}
    for name in ("hot", "minutes"):
        table(warehouse, name).backfill(micros(-100), micros(120))
        assert BackfillNode(table(warehouse, name)).update(spark, most_seconds=600) is not None
    warehouse = opened(tmp_path, spark)
    for name in ("hot", "minutes"):
        assert table(warehouse, name).state.dirty, "the rest is remembered"
    arrive(tmp_path, "readings", "late", [reading(30, temp=99)])
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    for name, rows in before.items():
        assert len(rows_of(warehouse.nodes[name].store)) == len(rows) + 1
        assert not table(warehouse, name).state.dirty


def test_after_an_outage_the_newest_comes_first_and_the_rest_is_filled_in_behind(
    tmp_path: Path, spark: SparkSession
) -> None:
    arrive(tmp_path, "readings", "1", [reading(minute) for minute in range(0, 300, 5)])
    warehouse = opened(tmp_path, spark, catch_up="newest")
    warehouse.nodes["readings"].update(spark)
    warehouse.updated("readings")
    minutes = table(warehouse, "minutes")
    assert minutes.update(spark, most_seconds=1200) is not None
    assert minutes.freshness == micros(295)
    assert len(rows_of(minutes.store)) == 4
    assert minutes.plan() is None, "what is older is no live update"
    backfill = BackfillNode(minutes)
    assert backfill.update(spark, most_seconds=1200) is not None
    assert len(rows_of(minutes.store)) == 8
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert minutes.freshness == micros(295)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])
def test_partitions_have_the_same_names_whoever_writes_them_and_whatever_the_time_zone(
    spark: SparkSession, zone: str
) -> None:
    from pyspark.sql import functions as F

    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    moments = [
        *(-1, 0, 59_999_999, -86_400_000_001, -62_000_000_000_000_001, 253_402_300_799_999_999),
        *(1_794_737_400_123_456, 1_774_746_000_000_000, 1_774_749_599_999_999, 9_007_199_254_740_993),
    ]
    frame = session.createDataFrame([(micros,) for micros in moments], "micros long")
    for length in (1, 60, 420, 3600, 86_400, 7 * 86_400):
        label = spark_files._label(F.timestamp_micros("micros"), length)
        found = {row.micros: row.label for row in frame.select("micros", label.alias("label")).collect()}
        assert found == {micros: partition_label(micros, length) for micros in moments}, length


def test_results_too_large_for_the_driver_are_written_by_spark_and_are_the_same(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("load", "derive"):
        monkeypatch.setattr(f"headgate.warehouse.updates.{module}.LARGE_BYTES", 0)
    assert spark_files.LARGE_BYTES > 0
    arrive(tmp_path, "readings", "1", [*(reading(m, temp=m) for m in range(60)), '{"ts": 5', '{"temp": 1.0}'])
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    rejected = TableStore(tmp_path / "warehouse" / "tables" / "readings__rejected").arrow().num_rows
    assert (warehouse.nodes["readings"].store.arrow().num_rows, rejected) == (60, 2)
    assert len(warehouse.nodes["minutes"].store.partitions()) == 6
    arrive(tmp_path, "readings", "2", [reading(7.5), reading(61)])
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)


def test_tables_are_the_same_when_their_sources_and_they_themselves_are_rolled_up(
    tmp_path: Path, spark: SparkSession
) -> None:
    arrive(tmp_path, "readings", "1", [reading(minute) for minute in range(0, 300, 5)])
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    for name in ("readings", "minutes"):
        assert warehouse.nodes[name].store.roll_up(micros(240), 3600) is not None
    arrive(tmp_path, "readings", "2", [reading(31), reading(200), reading(300)])
    warehouse = opened(tmp_path, spark)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    table(warehouse, "minutes").backfill(micros(60), micros(100))
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert table(warehouse, "minutes").plan() is None
