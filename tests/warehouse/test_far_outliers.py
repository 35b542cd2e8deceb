"""A row dated 9999, where every time is taken: its tables and all others go on, and equal their queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.sources import Files
from headgate.warehouse.updates.derived_table import TableNode
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from headgate.warehouse.updates.plan import FEW
from tests.warehouse.test_opened import arrive, assert_all_as_batch, counted, reading, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAR = "9999-12-31T23:30:00+00:00"
SUMS = """select ts, sensor, sum(temp) over
          (partition by sensor order by ts range between interval 30 minutes preceding and current row) as temp
          from readings"""
MINUTES = "select date_trunc('minute', ts) as minute, sum(temp) as temp from readings group by 1"
TOGETHER = "select minute, temp, n from minutes join cars on minute = date_trunc('minute', cars.ts)"
STREETS = """select date_trunc('minute', ts) as minute, street, sum(temp) as temp
             from readings join places using (sensor) group by 1, 2"""


def declared(folder: Path, catch_up: str) -> WarehouseSpec:
    """A table with lookback, one over two sources, one over a dimension, all by blocks; and one appended to."""
    wh = Warehouse("far", path=str(folder / "warehouse"))
    for name, columns in (("readings", "ts timestamp, sensor string, temp double"), ("cars", "ts timestamp, n int")):
        source = Files(str(folder / name), format="json", schema=columns, settle=0)
        wh.stream(name, source, time="ts", partition="10 minutes", max_future=None)
    places = Files(str(folder / "places"), format="json", schema="sensor string, street string", settle=0)
    wh.dimension("places", places)
    by_minute: dict[str, Any] = {"time": "minute", "partition": "10 minutes", "mode": "blocks", "catch_up": catch_up}
    wh.sql("hot", "select ts, sensor, temp from readings where temp > 30", time="ts", partition="10 minutes")
    wh.sql("sums", SUMS, time="ts", partition="10 minutes", lookback="30 minutes")
    wh.sql("minutes", MINUTES, **by_minute)
    wh.sql("together", TOGETHER, **by_minute)
    wh.sql("streets", STREETS, **by_minute)
    return wh.spec()


def assert_settled(warehouse: OpenWarehouse, spark: SparkSession) -> None:
    """All tables equal their queries, nothing is left to do, and a commit names only a few spans."""
    assert_all_as_batch(warehouse, spark)
    for node in warehouse.tables():
        assert node.plan() is None
        assert not node.can_backfill()
        assert len(node.state.dirty) <= 1, "what lies beyond the freshness comes with it"


@pytest.mark.parametrize("catch_up", ["oldest", "newest"])
def test_tables_with_lookback_or_several_sources_or_dimensions_go_on_after_a_row_dated_9999(
    tmp_path: Path, spark: SparkSession, catch_up: str
) -> None:
    arrive(tmp_path, "places", "1", [{"sensor": "a", "street": "Elm"}])
    arrive(tmp_path, "readings", "1", [reading(0), reading(20, temp=31.0), reading(45)])
    arrive(tmp_path, "cars", "1", [counted(0), counted(20), counted(45)])
    spec = declared(tmp_path, catch_up)
    warehouse = open_warehouse(spec, spark)
    warehouse.bring_up_to_date(spark)

    arrive(tmp_path, "readings", "2", [{**reading(0, temp=32.0), "ts": FAR}, reading(50)])
    warehouse.bring_up_to_date(spark)
    assert_settled(warehouse, spark)
    assert len(rows_of(warehouse.nodes["sums"].store)) == 5
    assert len(rows_of(warehouse.nodes["together"].store)) == 3, "the other source is at minute 45"

    arrive(tmp_path, "cars", "2", [{**counted(0), "ts": FAR}, counted(50)])
    warehouse.bring_up_to_date(spark)
    assert len(rows_of(warehouse.nodes["together"].store)) == 5

    arrive(tmp_path, "readings", "3", [reading(70), reading(90, temp=33.0)])
    arrive(tmp_path, "cars", "3", [counted(70), counted(90)])
    warehouse = open_warehouse(spec, spark)  # as after a crash: nothing is known but the logs
    warehouse.bring_up_to_date(spark)
    assert_settled(warehouse, spark)
    assert len(rows_of(warehouse.nodes["together"].store)) == 7
    assert len(rows_of(warehouse.nodes["hot"].store)) == 3

    for name in ("readings", "cars", "sums", "minutes", "together", "streets"):  # as maintenance does
        assert warehouse.nodes[name].store.roll_up(1 << 60, 3600) is not None
    arrive(tmp_path, "places", "1", [{"sensor": "a", "street": "Oak"}])
    arrive(tmp_path, "readings", "4", [reading(21), reading(150)])
    warehouse.bring_up_to_date(spark)
    assert_settled(warehouse, spark)
    assert {row[1] for row in rows_of(warehouse.nodes["streets"].store)} == {"Oak"}


def test_what_is_to_be_recomputed_after_an_outlier_is_the_time_that_has_rows(
    tmp_path: Path, spark: SparkSession
) -> None:
    arrive(tmp_path, "readings", "1", [{**reading(0), "ts": FAR}, *(reading(20 * n) for n in range(6))])
    spec = declared(tmp_path, "oldest")
    warehouse = open_warehouse(spec, spark)
    for name in ("readings", "minutes"):
        assert warehouse.nodes[name].update(spark) is not None
        warehouse.updated(name)
    minutes = warehouse.nodes["minutes"]
    assert isinstance(minutes, TableNode)
    minutes.backfill(0, 1 << 60)
    assert minutes.repairs is not None
    assert minutes.repairs.seconds < 7 * 600
    assert len(minutes.state.dirty) < FEW
    warehouse.bring_up_to_date(spark)
    assert minutes.repairs is None
    assert_all_as_batch(warehouse, spark)
