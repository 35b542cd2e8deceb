"""A warehouse on real Spark and real Delta tables, updated step by step: every table equals the batch query."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.warehouse.declare.analysis import apply_query
from headgate.warehouse.declare.plan_tree import quoted
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)


def city(folder: Path) -> WarehouseSpec:
    """Two streams, an appended table, a recomputed one, and one over both."""
    from pyspark.sql import functions as F

    wh = Warehouse("city", path=str(folder / "warehouse"))
    for name, columns in (("readings", "ts timestamp, sensor string, temp double"), ("cars", "ts timestamp, n int")):
        source = Files(str(folder / name), format="json", schema=columns, settle=0)
        wh.stream(name, source, time="ts", partition="10 minutes")
    wh.sql("alerts", "select ts, sensor, temp from readings where temp > 30", time="ts")

    @wh.table(time="minute", partition="1 hour")
    def minutes(readings: DataFrame) -> DataFrame:
        minute = F.date_trunc("minute", "ts").alias("minute")
        return readings.groupBy(minute, "sensor").agg(F.count("*").alias("n"), F.sum("temp").alias("total"))

    @wh.table(time="minute", partition="1 hour")
    def together(minutes: DataFrame, cars: DataFrame) -> DataFrame:
        per_minute = cars.groupBy(F.date_trunc("minute", "ts").alias("minute")).agg(F.sum("n").alias("cars"))
        return minutes.groupBy("minute").agg(F.sum("n").alias("n")).join(per_minute, "minute", "left")

    return wh.spec()


def reading(minute: float, sensor: str = "a", temp: float = 20.0) -> dict[str, Any]:
    return {"ts": (START + timedelta(minutes=minute)).isoformat(), "sensor": sensor, "temp": temp}


def counted(minute: float, n: int = 1) -> dict[str, Any]:
    return {"ts": (START + timedelta(minutes=minute)).isoformat(), "n": n}


def arrive(folder: Path, stream: str, name: str, lines: Sequence[dict[str, Any] | str]) -> None:
    (folder / stream).mkdir(exist_ok=True)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (folder / stream / f"{name}.json").write_text(text)


def rows_of(store: TableStore) -> list[tuple[Any, ...]]:
    if not store.exists:
        return []
    rows = store.arrow()
    table = rows.select([name for name in rows.column_names if name != "_partition"])
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def batch(warehouse: OpenWarehouse, name: str, spark: SparkSession) -> list[tuple[Any, ...]]:
    """The table's query over all rows of its sources up to its own freshness, computed by Spark in one go."""
    from pyspark.sql import functions as F

    table = next(table for table in warehouse.spec.tables if table.name == name)
    times = {node.name: node.time for node in (*warehouse.spec.streams, *warehouse.spec.tables)}
    edge = warehouse.nodes[name].freshness
    frames = {}
    for source in table.sources:
        rows = warehouse.nodes[source].store.arrow()
        frame = spark.createDataFrame(rows.select([name for name in rows.column_names if name != "_partition"]))
        time = times.get(source)
        in_time = F.lit(True) if time is None else F.unix_micros(F.col(quoted(time))) <= F.lit(edge)
        frames[source] = frame.where(in_time)
    result = apply_query(replace(table, query=table.query), frames, spark).toArrow()
    return sorted((tuple(row.values()) for row in result.to_pylist()), key=repr)


def assert_all_as_batch(warehouse: OpenWarehouse, spark: SparkSession) -> None:
    for table in warehouse.spec.tables:
        if warehouse.nodes[table.name].store.exists:
            assert rows_of(warehouse.nodes[table.name].store) == batch(warehouse, table.name, spark), table.name


def test_tables_follow_their_streams_through_late_data_and_restarts(tmp_path: Path, spark: SparkSession) -> None:
    spec = city(tmp_path)
    arrive(tmp_path, "readings", "1", [reading(0), reading(0.5, "b", 35), reading(70, "a", 36)])
    arrive(tmp_path, "cars", "1", [counted(0, 3), counted(71)])
    warehouse = open_warehouse(spec, spark)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert len(rows_of(warehouse.nodes["alerts"].store)) == 2

    arrive(tmp_path, "readings", "0-late", [reading(0.25, "a", 99)])  # an old partition becomes dirty
    arrive(tmp_path, "readings", "2", [reading(75)])
    warehouse = open_warehouse(spec, spark)  # as after a crash: nothing is known but the logs
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert len(rows_of(warehouse.nodes["alerts"].store)) == 3

    versions = {name: node.store.version for name, node in warehouse.nodes.items()}
    warehouse.bring_up_to_date(spark)
    assert {name: node.store.version for name, node in warehouse.nodes.items()} == versions, (
        "nothing came, nothing runs"
    )


def test_rows_in_are_rows_in_the_table_and_rows_rejected(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "1", [reading(0), '{"ts": "not a time"', '{"sensor": "a", "temp": 1.5}', reading(1)])
    arrive(tmp_path, "cars", "1", [counted(0)])
    warehouse = open_warehouse(city(tmp_path), spark)
    warehouse.bring_up_to_date(spark)
    rejected = TableStore(tmp_path / "warehouse" / "tables" / "readings__rejected").arrow().to_pylist()
    assert len(rows_of(warehouse.nodes["readings"].store)) == 2
    assert [row["raw"] for row in rejected] == ['{"ts": "not a time"', '{"sensor": "a", "temp": 1.5}']
    assert all(row["reason"] and row["file"].endswith("1.json") for row in rejected)


def test_a_table_over_two_sources_uses_each_only_up_to_their_trailing_edge(tmp_path: Path, spark: SparkSession) -> None:
    arrive(tmp_path, "readings", "1", [reading(minute) for minute in range(30)])
    arrive(tmp_path, "cars", "1", [counted(minute) for minute in range(10)])
    warehouse = open_warehouse(city(tmp_path), spark)
    warehouse.bring_up_to_date(spark)
    minutes = [row[0] for row in rows_of(warehouse.nodes["together"].store)]
    assert max(minutes) == START + timedelta(minutes=9)
    arrive(tmp_path, "cars", "2", [counted(25)])
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert max(row[0] for row in rows_of(warehouse.nodes["together"].store)) == START + timedelta(minutes=25)


@pytest.mark.parametrize("seed", range(2))
def test_random_arrivals_in_random_order_end_in_the_batch_result(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    chance = random.Random(seed)
    spec = city(tmp_path)
    warehouse = open_warehouse(spec, spark)
    for step in range(6):
        for stream, make in (("readings", reading), ("cars", counted)):
            if chance.random() < 0.7:
                moments = [chance.uniform(0, 40 * (step + 1)) for _ in range(chance.randint(1, 5))]
                arrive(tmp_path, stream, f"{chance.randint(0, 10**6)}", [make(moment) for moment in moments])
        if chance.random() < 0.3:
            warehouse = open_warehouse(spec, spark)
        for name in chance.sample(list(warehouse.nodes), k=3):
            if warehouse.nodes[name].update(spark, chance.choice([float("inf"), 1800.0])) is not None:
                warehouse.updated(name)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
