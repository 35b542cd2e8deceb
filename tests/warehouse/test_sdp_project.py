"""A Spark Declarative Pipelines project is taken over unchanged: every table equals what plain Spark gives."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.core import DeclarationError, HeadgateError
from headgate.warehouse.declare.pipeline_file import files_of, load
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.run.run import resolved
from headgate.warehouse.updates.open_warehouse import open_warehouse
from tests.warehouse.test_opened import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROJECT = Path(__file__).parent / "sdp_project"
START = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)


def made(folder: Path) -> Path:
    """A copy of the project."""
    shutil.copytree(PROJECT, folder / "shop")
    (folder / "shop" / "customers.csv").write_text("id,country\nann,FR\nbob,DE\n")
    return folder / "shop" / "spark-pipeline.yml"


def spec_of(file: Path) -> WarehouseSpec:
    return resolved(load(file).spec())


def arrive(project: Path, kind: str, name: str, rows: list[tuple[float, str, float]]) -> None:
    folder = project.parent / "landing" / kind
    folder.mkdir(parents=True, exist_ok=True)
    time = "ordered_at" if kind == "orders" else "at"
    lines = [
        {time: (START + timedelta(minutes=minute)).isoformat(), "customer": customer, "amount": amount}
        for minute, customer, amount in rows
    ]
    (folder / f"{name}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def by_hand(project: Path, spark: SparkSession) -> dict[str, DataFrame]:
    """What plain Spark gives for each table, from the same files."""
    from pyspark.sql import functions as F

    folder = project.parent
    columns = "{} timestamp, customer string, amount double"
    orders = spark.read.schema(columns.format("ordered_at")).json(str(folder / "landing/orders"))
    refunds = spark.read.schema(columns.format("at")).json(str(folder / "landing/refunds"))
    customers = spark.read.csv(str(folder / "customers.csv"), schema="id string, country string", header=True)
    large = orders.where("amount >= 50").join(customers, F.col("customer") == F.col("id"))
    per_minute = orders.groupBy(F.date_trunc("minute", "ordered_at").alias("minute"))
    return {
        "orders": orders,
        "customers": customers,
        "sales_by_country": large.groupBy("country").agg(F.sum("amount").alias("amount")),
        "movements": orders.withColumnRenamed("ordered_at", "at").unionByName(
            refunds.withColumn("amount", -F.col("amount"))
        ),
        "numbers": spark.range(10),
        "orders_per_minute": per_minute.agg(F.count("*").alias("n"), F.sum("amount").alias("amount")),
        "small_orders": orders.where("amount < 50"),
        "letters": orders.where("amount >= 100").selectExpr("customer", "'order; thanks' as text", "ordered_at as at"),
        "even": spark.range(0, 10, 2),
    }


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in frame.toArrow().to_pylist()), key=repr)


@pytest.mark.spark
@pytest.mark.slow
def test_every_table_of_a_project_equals_what_spark_gives(tmp_path: Path, spark: SparkSession) -> None:
    project = made(tmp_path)
    arrive(project, "orders", "1", [(0, "ann", 10), (1, "bob", 60), (2, "ann", 120)])
    arrive(project, "refunds", "1", [(2, "bob", 5)])
    warehouse = open_warehouse(spec_of(project), spark)
    warehouse.bring_up_to_date(spark)
    for name, frame in by_hand(project, spark).items():
        assert rows_of(warehouse.nodes[name].store) == sorted_rows(frame), name

    arrive(project, "orders", "2", [(0.5, "bob", 70), (7, "eve", 40), (9, "ann", 200)])
    arrive(project, "refunds", "2", [(9, "ann", 20)])
    (project.parent / "customers.csv").write_text("id,country\nann,FR\nbob,DE\neve,IT\n")
    warehouse.bring_up_to_date(spark)
    for name, frame in by_hand(project, spark).items():
        assert rows_of(warehouse.nodes[name].store) == sorted_rows(frame), name


def test_the_side_file_gives_priorities_times_and_lags(tmp_path: Path) -> None:
    spec = spec_of(made(tmp_path))
    tables = {table.name: table for table in spec.tables}
    assert (tables["orders"].priority, tables["orders"].time, tables["orders"].target_lag) == (5, "ordered_at", 5.0)
    assert (tables["orders_per_minute"].priority, tables["letters"].priority, tables["letters"].time) == (20, 1, None)
    assert {stream.name: (stream.time, stream.partition) for stream in spec.streams} == {
        "orders_files": ("ordered_at", 600.0),
        "refunds_files": ("at", 3600.0),
    }
    assert {dimension.name for dimension in spec.dimensions} == {"customers", "numbers", "even"}


def test_who_reads_whom_is_found_in_python_and_in_sql(tmp_path: Path) -> None:
    assert {table.name: set(table.sources) for table in spec_of(made(tmp_path)).tables} == {
        "orders": {"orders_files"},
        "sales_by_country": {"orders", "customers"},
        "movements": {"orders", "refunds_files"},
        "orders_per_minute": {"orders"},
        "small_orders": {"orders"},
        "letters": {"orders"},
    }


def test_a_header_is_read_from_csv_files_only_if_the_reader_says_so(tmp_path: Path) -> None:
    project = made(tmp_path)
    (project.parent / "headgate.yml").unlink()
    code = "@dp.table\ndef {0}():\n    return spark.readStream.schema('ts timestamp, n int'){1}.csv('in/{0}')\n"
    (project.parent / "transformations" / "csv.py").write_text(
        PYTHON + code.format("bare", "") + code.format("headed", ".option('header', True)")
    )
    options = {stream.name: stream.source.options for stream in spec_of(project).streams}  # type: ignore[attr-defined]
    assert (options["bare_files"], options["headed_files"]) == ({"header": "false"}, {"header": "true"})


LOOP = """
from pyspark.sql import functions as F

@F.udf("string")
def shouted(text):
    return text.upper()

def cleaned(name="both"):
    return spark.read.table("both").where("n > 0")

dp.create_streaming_table("both")
for place in ("north", "south"):
    @dp.append_flow(target="both", name=f"from_{place}")
    def flow(place=place):
        return spark.readStream.schema("ts timestamp, who string, n int").json(f"in/{place}")

@dp.materialized_view
def loud():
    rows = cleaned()
    return rows.select(shouted("who").alias("who")).join(spark.sql("with x as (select 1 as a) select * from x, even"))
"""


@pytest.mark.spark
def test_flows_made_in_a_loop_helpers_and_udfs_are_found(tmp_path: Path, spark: SparkSession) -> None:
    project = made(tmp_path)
    (project.parent / "transformations" / "loop.py").write_text(PYTHON + LOOP)
    tables = {table.name: set(table.sources) for table in spec_of(project).tables}
    assert (tables["both"], tables["loud"]) == ({"north_files", "south_files"}, {"both", "even"})


def test_all_files_of_a_project_are_watched(tmp_path: Path) -> None:
    names = [file.name for file in files_of(made(tmp_path))]
    assert names == ["spark-pipeline.yml", "headgate.yml", "orders.py", "reports.sql"]


PYTHON = "from pyspark import pipelines as dp\n"
CASES = {
    "a sink": (PYTHON + "dp.create_sink('out', 'kafka', {})\n", "d.py:2: the sink 'out' cannot be taken over"),
    "a stream of Kafka": (
        PYTHON + "@dp.table\ndef t():\n    return spark.readStream.format('kafka').load()\n",
        "d.py:4: 't': a stream of the format 'kafka' cannot be taken over",
    ),
    "a table from elsewhere": (
        PYTHON + "@dp.table\ndef t():\n    return spark.readStream.table('samples.trips')\n",
        "d.py:2: 't' reads the table 'samples.trips', which is not one of this project",
    ),
    "a name that is not known": (
        PYTHON + "import os\n@dp.table\ndef t():\n    name = os.urandom(3)\n    return spark.table(name)\n",
        "d.py:6: 't': which table is read here is not known before it is called, because of 'name'",
    ),
    "a stream without columns": (
        PYTHON + "@dp.table\ndef t():\n    return spark.readStream.format('json').load('in')\n",
        "d.py:4: the columns of a stream of files must be stated",
    ),
    "a stream without a time": (
        PYTHON + "@dp.table\ndef t():\n    return spark.readStream.schema('a int').json('in')\n",
        "d.py:4: the stream of files 'in' has no column of type timestamp: state its event time",
    ),
    "Spark outside of a function": (PYTHON + "rows = spark.range(3)\n", "use spark inside of functions only"),
    "a flow to nowhere": (
        PYTHON + "@dp.append_flow(target='nowhere')\ndef f():\n    return spark.range(1)\n",
        "d.py:2: the flow 'f' fills 'nowhere', which is defined nowhere",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_taken_over_is_named_with_its_line(tmp_path: Path, case: str) -> None:
    code, message = CASES[case]
    project = made(tmp_path)
    shutil.rmtree(project.parent / "transformations")
    (project.parent / "headgate.yml").unlink()
    (project.parent / "transformations").mkdir()
    (project.parent / "transformations" / "d.py").write_text(code)
    with pytest.raises(HeadgateError) as caught:
        spec_of(project)
    assert message in str(caught.value)


SQL_CASES = {
    "a statement of another kind": ("SET x = 1;", "d.sql:1: the statement 'SET x = 1' ... cannot be taken over"),
    "a table from elsewhere": (
        "\nCREATE MATERIALIZED VIEW t AS SELECT * FROM other.x",
        "d.sql:2: 't' reads the table 'other.x', which is not one of this project",
    ),
    "an open quote": ("CREATE MATERIALIZED VIEW t AS SELECT 'x", "d.sql:1: the quote ' on line 1"),
}


@pytest.mark.parametrize("case", SQL_CASES)
def test_what_cannot_be_taken_over_of_sql_is_named_with_its_line(tmp_path: Path, case: str) -> None:
    code, message = SQL_CASES[case]
    project = made(tmp_path)
    shutil.rmtree(project.parent / "transformations")
    (project.parent / "headgate.yml").unlink()
    (project.parent / "transformations").mkdir()
    (project.parent / "transformations" / "d.sql").write_text(code)
    with pytest.raises(DeclarationError) as caught:
        spec_of(project)
    assert message in str(caught.value)


SIDE_CASES = {
    "an unknown option": (
        "tables:\n  orders: {prio: 3}",
        "headgate.yml:2: orders: option 'prio': did you mean 'priority'?",
    ),
    "an unknown table": (
        "tables:\n  order: {priority: 3}",
        "headgate.yml:2: the table 'order' is not one of the project",
    ),
    "a view": ("tables:\n  small: {priority: 3}", "headgate.yml:2: the table 'small' is a view, which is not kept"),
    "unknown files": ("sources:\n  in: {settle: 0}", "headgate.yml:2: no stream reads the files 'in'"),
    "a bad duration": ("tables:\n  orders: {target_lag: soon}", "target_lag takes a length of time"),
    "no YAML": ("tables: [", "headgate.yml:1: this is not YAML"),
}


@pytest.mark.parametrize("case", SIDE_CASES)
def test_mistakes_of_the_side_file_are_named_with_their_line(tmp_path: Path, case: str) -> None:
    text, message = SIDE_CASES[case]
    project = made(tmp_path)
    (project.parent / "headgate.yml").write_text(text)
    with pytest.raises(DeclarationError) as caught:
        spec_of(project)
    assert message in str(caught.value)
