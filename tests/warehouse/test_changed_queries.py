"""Queries that change from one run to the next: they are found, and old rows never stand beside new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.core.errors import DeclarationError
from headgate.warehouse.declare.analysis import analyse
from headgate.warehouse.declare.query_fingerprint import has_changed, what_changed
from headgate.warehouse.declare.warehouse import Warehouse
from headgate.warehouse.run.run import SparkOptions, WarehouseRun
from headgate.warehouse.sources import Files
from headgate.warehouse.updates.derived_table import BackfillNode, TableNode
from headgate.warehouse.updates.open_warehouse import OnChange, OpenWarehouse, open_warehouse
from tests.warehouse.test_opened import arrive, assert_all_as_batch, reading, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THEN = {"plan": "a", "code": "b", "by": "1 spark 4.3 python 3.12", "merge": "sum"}
LATER = THEN | {"by": "1 spark 4.4 python 3.12"}


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        pytest.param(THEN, False, id="the same"),
        pytest.param(THEN | {"plan": "x"}, True, id="another plan"),
        pytest.param(THEN | {"code": "x"}, True, id="another function"),
        pytest.param({key: THEN[key] for key in ("plan", "by")}, True, id="no function any more"),
        pytest.param(LATER | {"plan": "x"}, False, id="cannot be compared"),
        pytest.param(LATER | {"merge": "max"}, True, id="other states of groups"),
        pytest.param({key: LATER[key] for key in ("plan", "code", "by")}, False, id="no states any more"),
    ],
)
def test_fingerprints_are_compared_if_the_same_versions_made_them(now: dict[str, str], changed: bool) -> None:
    assert has_changed(THEN, now) is changed


def test_a_table_without_a_fingerprint_was_written_before_there_were_any() -> None:
    assert not has_changed({}, THEN)


OF_A, OF_B = "columns of a", "columns of b"


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        pytest.param({OF_A: "1"}, {OF_A: "1"}, "its query has changed", id="the query"),
        pytest.param({OF_A: "1"}, {OF_A: "2"}, "the columns of its source a have changed", id="a source"),
        pytest.param(
            {OF_A: "1", OF_B: "1"},
            {OF_A: "2", OF_B: "2"},
            "the columns of its sources a, b have changed",
            id="two sources",
        ),
        pytest.param({OF_A: "1"}, {OF_B: "1"}, "its query has changed", id="computed from another source"),
        pytest.param({}, {OF_A: "1"}, "its query has changed, or the columns of its sources", id="not recorded"),
        pytest.param({}, {}, "its query has changed", id="without sources"),
    ],
)
def test_it_is_said_what_has_changed(then: dict[str, str], now: dict[str, str], said: str) -> None:
    assert what_changed(THEN | then, THEN | {"plan": "x"} | now) == said


# ---- fingerprints of queries -----------------------------------------------------------------------------------

pytest.importorskip("pyspark")

Query = str | Callable[..., Any]


def declared(folder: Path, query: Query, *more: tuple[str, str]) -> Warehouse:
    wh = Warehouse("changing", path=str(folder / "warehouse"))
    for name in ("readings", "others"):
        columns = "ts timestamp, sensor string, temp double, marks array<int>"
        source = Files(str(folder / name), schema=columns, settle=0)
        wh.stream(name, source, time="ts", partition="10 minutes")
    if isinstance(query, str):
        wh.sql("made", query, time="ts", partition="10 minutes")
    else:
        wh.table(time="ts", partition="10 minutes", name="made")(query)
    for name, sql in more:
        wh.sql(name, sql, time="ts", partition="10 minutes")
    return wh


def fingerprint(folder: Path, query: Query, spark: SparkSession) -> dict[str, str]:
    return dict(analyse(declared(folder, query).spec(), spark)["made"].fingerprint)


def with_udf(added: int) -> Callable[..., Any]:
    def made(readings: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        warmer = F.udf(lambda temp: temp + added, "double")
        return readings.select("ts", warmer("temp").alias("temp"))

    return made


def as_frame(limit: int) -> Callable[..., Any]:
    def made(readings: DataFrame) -> DataFrame:
        at_least = limit  # a local name does not matter
        return readings.where(readings.temp > at_least).select("ts", "sensor")

    return made


def with_lambda(readings: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return readings.select("ts", F.transform("marks", lambda mark: mark + 1).alias("marks"))


HOT = "select ts, sensor from readings where temp > 30"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        pytest.param(HOT, "SELECT ts,   sensor -- why\n FROM readings\nwhere temp>30", False, id="layout"),
        pytest.param(HOT, "select r.ts, r.sensor from readings as r where r.temp > 30", False, id="an alias"),
        pytest.param(HOT, HOT.replace("30", "31"), True, id="a constant"),
        pytest.param(HOT, HOT.replace("sensor", "sensor as who"), True, id="the name of a column"),
        pytest.param(HOT, HOT.replace("readings", "others"), True, id="another source with the same columns"),
        pytest.param(HOT, "select ts, sensor from (select *, temp as t from readings) where t > 30", True, id="steps"),
        pytest.param(
            "with a as (select ts from readings), b as (select ts from others) select a.ts from a join b using (ts)",
            "with x as (select ts from readings), y as (select ts from others) select x.ts from x join y using (ts)",
            False,
            id="names of common table expressions",
        ),
        pytest.param(
            "select r.ts, o.temp from readings r join others o on r.ts = o.ts",
            "select r.ts, r.temp from readings r join others o on r.ts = o.ts",
            True,
            id="which of two columns of one name",
        ),
        pytest.param("select ts, rand() as r from readings", "select ts, rand() as r from readings", False, id="seeds"),
        pytest.param(with_lambda, with_lambda, False, id="a function of Spark that takes a function"),
        pytest.param(as_frame(30), as_frame(30), False, id="a function"),
        pytest.param(as_frame(30), as_frame(31), True, id="a constant in the closure"),
        pytest.param(with_udf(1), with_udf(1), False, id="a Python function"),
        pytest.param(with_udf(1), with_udf(2), True, id="a Python function that does something else"),
    ],
)
def test_changes_are_found_by_the_plan_and_the_code_and_not_by_the_text(
    tmp_path: Path, spark: SparkSession, before: Query, after: Query, changed: bool
) -> None:
    then = fingerprint(tmp_path, before, spark)
    spark.sql("with unused as (select 1 as one) select one from unused").count()  # ids go on
    now = fingerprint(tmp_path, after, spark.newSession())
    assert has_changed(then, now) is changed
    assert has_changed(now, then) is changed


# ---- tables ----------------------------------------------------------------------------------------------------


def opened(
    folder: Path,
    spark: SparkSession,
    query: Query,
    *more: tuple[str, str],
    on_change: OnChange = "rebuild",
) -> OpenWarehouse:
    return open_warehouse(declared(folder, query, *more).spec(), spark, on_change=on_change)


def landed(folder: Path) -> None:
    arrive(folder, "readings", "1", [reading(minute, temp=minute) for minute in (1, 2, 45, 46, 130)])
    arrive(folder, "others", "1", [reading(minute, temp=-minute) for minute in (1, 46, 131)])


def reason(warehouse: OpenWarehouse, name: str = "made") -> str:
    return warehouse.nodes[name].rebuild_reason


MINUTES = "select date_trunc('minute', ts) as ts, {} as temp from readings group by 1"
BOTH = "select r.ts, r.temp {} o.temp as temp from readings r join others o on r.ts = o.ts"
TEN = "select ts, temp from readings where temp > {}"
TOTALS = "select max(ts) as ts, {}(temp) as temp from readings group by sensor"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(TEN.format(10), TEN.format(40), id="append"),
        pytest.param(MINUTES.format("sum(temp)"), MINUTES.format("max(temp)"), id="blocks"),
        pytest.param(BOTH.format("+"), BOTH.format("-"), id="two sources"),
        pytest.param(TOTALS.format("sum"), TOTALS.format("avg"), id="whole"),
        pytest.param(with_udf(1), with_udf(5), id="a Python function"),
        pytest.param(TEN.format(10), MINUTES.format("sum(temp)"), id="from append to blocks"),
    ],
)
def test_a_changed_query_replaces_all_rows_in_one_commit_and_until_then_the_old_ones_stay(
    tmp_path: Path, spark: SparkSession, before: Query, after: Query
) -> None:
    landed(tmp_path)
    opened(tmp_path, spark, before).bring_up_to_date(spark)
    assert not reason(opened(tmp_path, spark, before)), "the query is the same"
    warehouse = opened(tmp_path, spark, after)
    made = warehouse.nodes["made"]
    assert isinstance(made, TableNode)
    assert reason(warehouse) == "its query has changed"
    old, version = rows_of(made.store), made.store.version
    arrive(tmp_path, "readings", "2", [reading(47, temp=99), reading(140, temp=50)])
    assert warehouse.nodes["readings"].update(spark) is not None
    warehouse.updated("readings")
    assert made.plan() is None, "live updates wait"
    assert rows_of(made.store) == old
    assert BackfillNode(made).update(spark) is not None
    assert made.store.version == version + 1, "one commit"
    assert not reason(warehouse)
    assert_all_as_batch(warehouse, spark)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    assert not reason(opened(tmp_path, spark, after)), "the commit names the new query"


@pytest.mark.spark
def test_the_source_is_named_whose_columns_have_changed(tmp_path: Path, spark: SparkSession) -> None:
    landed(tmp_path)
    above = ("above", "select ts from made")
    opened(tmp_path, spark, TEN.format(10), above).bring_up_to_date(spark)
    warehouse = opened(tmp_path, spark, TEN.format(10).replace("temp from", "temp, sensor from"), above)
    assert reason(warehouse) == "its query has changed"
    assert reason(warehouse, "above") == "the columns of its source made have changed"


@pytest.mark.spark
def test_a_rebuild_that_was_not_finished_is_still_wanted_after_a_restart(tmp_path: Path, spark: SparkSession) -> None:
    landed(tmp_path)
    opened(tmp_path, spark, TEN.format(10)).bring_up_to_date(spark)
    for _ in range(2):
        warehouse = opened(tmp_path, spark, TEN.format(40))
        assert reason(warehouse)
    made = warehouse.nodes["made"]
    assert isinstance(made, TableNode)
    made.backfill(-(1 << 62), 1 << 62)  # a commit without rows, which keeps the fingerprint
    assert reason(opened(tmp_path, spark, TEN.format(40)))
    assert not reason(opened(tmp_path, spark, TEN.format(10))), "changed back, nothing is to be done"


@pytest.mark.spark
def test_keep_goes_on_with_old_rows_and_notes_the_new_query(tmp_path: Path, spark: SparkSession) -> None:
    landed(tmp_path)
    opened(tmp_path, spark, TEN.format(10)).bring_up_to_date(spark)
    kept = opened(tmp_path, spark, TEN.format(48), on_change="keep")
    assert not reason(kept)
    arrive(tmp_path, "readings", "2", [reading(140, temp=47), reading(141, temp=49)])
    kept.bring_up_to_date(spark)
    temps = sorted(row[1] for row in rows_of(kept.nodes["made"].store))
    assert temps == [45.0, 46.0, 49.0, 130.0], "old rows by the old query, 47 is gone by the new one"
    assert not reason(opened(tmp_path, spark, TEN.format(48)))


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        pytest.param(
            "select ts, sensor, temp{} from (select *, row_number() over (partition by sensor order by ts desc, temp) "
            "as place from readings) where place = 1",
            id="keys",
        ),
        pytest.param("select ts, sensor, temp{} from readings order by temp desc, ts limit 2", id="whole"),
    ],
)
def test_keep_rebuilds_a_table_whose_rows_are_replaced_one_by_one_if_it_gains_a_column(
    tmp_path: Path, spark: SparkSession, query: str
) -> None:
    landed(tmp_path)
    opened(tmp_path, spark, query.format("")).bring_up_to_date(spark)
    warehouse = opened(tmp_path, spark, query.format(", temp * 2 as twice"), on_change="keep")
    assert reason(warehouse)
    arrive(tmp_path, "readings", "2", [reading(140, temp=200), reading(141, "b", temp=49)])
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    warehouse = opened(tmp_path, spark, query.format(", temp * 3 as twice"), on_change="keep")
    assert not reason(warehouse), "with the same columns it goes on"


@pytest.mark.spark
def test_refuse_names_the_tables_and_what_to_do(tmp_path: Path, spark: SparkSession) -> None:
    landed(tmp_path)
    above = ("above", "select ts from made")
    opened(tmp_path, spark, TEN.format(10), above).bring_up_to_date(spark)
    with pytest.raises(DeclarationError, match=r"computed: made\. With --on-change rebuild .* with keep"):
        opened(tmp_path, spark, TEN.format(40), above, on_change="refuse")
    assert not reason(opened(tmp_path, spark, TEN.format(10), above, on_change="refuse"))


@pytest.mark.spark
@pytest.mark.parametrize(
    "columns",
    [
        pytest.param("ts, sensor", id="a column is lost"),
        pytest.param("ts, cast(temp as int) as temp, sensor", id="a column changes its type"),
        pytest.param("ts, temp, sensor, 1 as one", id="a column is gained"),
    ],
)
def test_a_rebuild_may_change_the_columns(tmp_path: Path, spark: SparkSession, columns: str) -> None:
    landed(tmp_path)
    above = ("above", "select ts, count(*) as n from made group by ts")
    opened(tmp_path, spark, "select ts, temp, sensor from readings", above).bring_up_to_date(spark)
    warehouse = opened(tmp_path, spark, f"select {columns} from readings", above)
    warehouse.bring_up_to_date(spark)
    assert_all_as_batch(warehouse, spark)
    names = [name for name in warehouse.nodes["made"].store.arrow().column_names if name != "_partition"]
    assert sorted(names) == sorted(name.split(" as ")[-1] for name in columns.split(", "))


@pytest.mark.spark
def test_tables_on_tables_are_rebuilt_one_after_the_other_in_a_run(tmp_path: Path, spark: SparkSession) -> None:
    landed(tmp_path)
    above = ("above", "select ts, temp from made where temp < {}")

    def run(query: str, limit: int, seen: Callable[[WarehouseRun], None]) -> Sequence[str]:
        messages: list[str] = []
        spec = declared(tmp_path, query, (above[0], above[1].format(limit))).spec()
        with WarehouseRun(spec, spark=SparkOptions(session=spark), on_message=messages.append) as running:
            running.wait_until_fresh("10 min")
            seen(running)
            assert_all_as_batch(running.runtime.warehouse, spark)
        return messages

    run(TEN.format(10), 100, lambda running: None)

    def is_rebuilt(running: WarehouseRun) -> None:
        assert [row.state for row in running.statistics()] == ["ok"] * 4
        kinds = {name: node.state.kind for name, node in running.runtime.warehouse.nodes.items()}
        assert kinds["made"] == "backfill"

    messages = run(TEN.format(40), 50, is_rebuilt)
    assert [line.split(", behind")[0] for line in messages if "rebuilt" in line] == [
        "table 'made' is rebuilt",
        "table 'above' is rebuilt",
    ]
