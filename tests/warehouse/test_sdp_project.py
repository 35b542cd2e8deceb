"""A Spark Declarative Pipelines project is taken over unchanged: every table equals what plain Spark gives."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.core import DeclarationError, HeadgateError
from headgate.warehouse.declare.pipeline_file import files_of, load
from headgate.warehouse.declare.spec import WarehouseSpec
from headgate.warehouse.pipelines.file_names import file_names
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


def with_code(folder: Path, name: str, code: str) -> Path:
    """A project of one file."""
    project = made(folder)
    shutil.rmtree(project.parent / "transformations")
    (project.parent / "headgate.yml").unlink()
    (project.parent / "transformations").mkdir()
    (project.parent / "transformations" / name).write_text(code)
    return project


READ = "read_files('{0}', format => 'json', schema => 'ts timestamp, n int')"
TWO_FOLDERS = f"""
CREATE STREAMING TABLE both AS
SELECT * FROM STREAM {READ.format("in/eu/orders")} UNION ALL SELECT * FROM STREAM {READ.format("in/us/orders")};
CREATE STREAMING TABLE asia AS SELECT * FROM STREAM {READ.format("in/asia/orders")};
CREATE MATERIALIZED VIEW paid AS SELECT n FROM {READ.format("paid/eu/orders")};
"""


def test_folders_with_the_same_last_name_have_names_of_their_own(tmp_path: Path) -> None:
    spec = spec_of(with_code(tmp_path, "d.sql", TWO_FOLDERS))
    streams = {stream.name: Path(stream.source.path) for stream in spec.streams}  # type: ignore[attr-defined]
    regions = {"in_eu_orders_files": "eu", "us_orders_files": "us", "asia_orders_files": "asia"}
    folder = tmp_path / "shop" / "in"
    assert streams == {name: folder / region / "orders" for name, region in regions.items()}
    assert {table.name: set(table.sources) for table in spec.tables} == {
        "both": {"in_eu_orders_files", "us_orders_files"},
        "asia": {"asia_orders_files"},
    }


def test_the_names_of_files_do_not_depend_on_the_order_in_which_they_are_found() -> None:
    reads = [("eu/orders", True), ("us/orders", True), ("a-b", False), ("a_b", False), ("*.csv", True), ("9", False)]
    reads += [("eu/orders", False), ("x/*.json", True)]
    for seed in range(20):
        random.Random(seed).shuffle(reads)
        assert file_names(reads, {("9", False): "nine"}, {"x_files"}) == {
            ("eu/orders", True): "eu_orders_files",
            ("us/orders", True): "us_orders_files",
            ("eu/orders", False): "eu_orders_files_now",
            ("a-b", False): "a_b_files_d44362d6",
            ("a_b", False): "a_b_files_648fa9b3",
            ("*.csv", True): "source_files",
            ("x/*.json", True): "x_files_files",
            ("9", False): "nine",
        }, seed


def test_a_name_of_files_that_the_side_file_gives_twice_is_refused(tmp_path: Path) -> None:
    project = with_code(tmp_path, "d.sql", TWO_FOLDERS)
    (project.parent / "headgate.yml").write_text(
        "sources:\n  in/eu/orders: {name: orders}\n  in/us/orders: {name: Orders}\n"
    )
    with pytest.raises(DeclarationError, match="the name 'Orders' of the files 'in/us/orders' is taken"):
        spec_of(project)


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_reads_the_files_of_its_own_folders_by_the_names_that_the_side_file_gives(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = with_code(tmp_path, "d.sql", TWO_FOLDERS)
    (project.parent / "headgate.yml").write_text("sources:\n  in/eu/orders: {name: europe, settle: 0}\n")
    for number, folder in enumerate(("in/eu", "in/us", "in/asia", "paid/eu")):
        (project.parent / folder / "orders").mkdir(parents=True)
        line = json.dumps({"ts": START.isoformat(), "n": number}) + "\n"
        (project.parent / folder / "orders" / "1.json").write_text(line)
    before = [table.name for table in spark.catalog.listTables()]
    warehouse = open_warehouse(spec_of(project), spark)
    warehouse.bring_up_to_date(spark)
    assert [row[1] for row in rows_of(warehouse.nodes["both"].store)] == [0, 1]
    assert [row[1] for row in rows_of(warehouse.nodes["asia"].store)] == [2]
    assert rows_of(warehouse.nodes["paid"].store) == [(3,)]
    assert [table.name for table in spark.catalog.listTables()] == before, "no view is left in the session"


DELTA = """
@dp.materialized_view
def countries():
    return spark.read.format("delta").load("countries")

@dp.materialized_view
def plain():
    return spark.read.load("plain")

@dp.table
def orders():
    stream = spark.readStream.schema("ts timestamp, who string").json("in")
    return stream.join(spark.read.format("delta").load("countries"), "who")
"""


@pytest.mark.spark
@pytest.mark.slow
def test_delta_tables_that_are_read_by_path_are_watched(tmp_path: Path, spark: SparkSession) -> None:
    project = with_code(tmp_path, "d.py", PYTHON + DELTA)
    (project.parent / "headgate.yml").write_text("sources:\n  in: {settle: 0}\n")
    folder = project.parent
    (folder / "in").mkdir()
    (folder / "in" / "1.json").write_text(json.dumps({"ts": START.isoformat(), "who": "ann"}) + "\n")
    (folder / "plain").mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "plain" / "1.parquet")
    table = pa.table({"who": ["ann"], "country": ["FR"]})
    deltalake.write_deltalake(folder / "countries", table)
    spec = spec_of(project)
    sources = {dimension.name: type(dimension.source).__name__ for dimension in spec.dimensions}
    assert sources == {"countries": "Computed", "plain": "Computed", "countries_files": "Delta"}
    warehouse = open_warehouse(spec, spark)
    warehouse.bring_up_to_date(spark)
    assert rows_of(warehouse.nodes["countries"].store) == [("ann", "FR")]
    assert [row[-1] for row in rows_of(warehouse.nodes["orders"].store)] == ["FR"]
    assert rows_of(warehouse.nodes["plain"].store) == [(1,)]
    deltalake.write_deltalake(folder / "countries", pa.table({"who": ["ann"], "country": ["DE"]}), mode="overwrite")
    warehouse.bring_up_to_date(spark)
    assert rows_of(warehouse.nodes["countries"].store) == [("ann", "DE")]
    assert [row[-1] for row in rows_of(warehouse.nodes["orders"].store)] == ["DE"]
    deltalake.DeltaTable(folder / "countries").delete()
    warehouse.bring_up_to_date(spark)
    assert rows_of(warehouse.nodes["countries"].store) == []


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
    "a stream of another kind": (
        PYTHON + "@dp.table\ndef t():\n    return spark.readStream.format('kinesis').load()\n",
        "d.py:4: 't': a stream of the format 'kinesis' cannot be taken over",
    ),
    "a batch of a database": (
        PYTHON + "@dp.table\ndef t():\n    return spark.read.format('jdbc').option('url', 'u').load()\n",
        "d.py:4: 't': what is read here, of the format 'jdbc', cannot be watched for changes",
    ),
    "a batch by jdbc": (
        PYTHON + "@dp.table\ndef t():\n    return spark.read.jdbc('u', 't')\n",
        "d.py:4: 't': what is read here, of the format 'jdbc', cannot be watched for changes",
    ),
    "an old version of a Delta table": (
        PYTHON + "@dp.table\ndef t():\n    return spark.read.format('delta').option('versionAsOf', 1).load('d')\n",
        "d.py:4: 't': the option 'versionAsOf' of a read of a Delta table cannot be taken over",
    ),
    "a path in an option": (
        PYTHON + "@dp.table\ndef t():\n    return spark.read.format('json').option('path', 'in').load()\n",
        "d.py:4: 't': the path of files is taken over from load(...), not from an option",
    ),
    "files elsewhere": (
        PYTHON + "@dp.table\ndef t():\n    return spark.read.json('s3a://b/in')\n",
        "d.py:4: the files 's3a://b/in' cannot be watched for changes",
    ),
    "a table from elsewhere": (
        PYTHON + "@dp.table\ndef t():\n    return spark.readStream.table('samples.trips')\n",
        "d.py:4: 't' reads the table 'samples.trips', which is not one of this project; define it here, or say in",
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
    project = with_code(tmp_path, "d.py", code)
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
    project = with_code(tmp_path, "d.sql", code)
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


@pytest.mark.parametrize("file", ["transformations/latin.sql", "headgate.yml"])
def test_a_file_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path, file: str) -> None:
    project = made(tmp_path)
    (project.parent / file).write_bytes(b"-- one\nCREATE MATERIALIZED VIEW m AS SELECT '\xe4' AS x;\n")
    with pytest.raises(DeclarationError, match=rf"{file}:2: the file must be UTF-8; got the byte 0xe4"):
        spec_of(project)


@pytest.mark.parametrize(
    ("libraries", "said"),
    [
        ('[{glob: {include: "/etc/**"}}]', "below the folder of the project.*absolute"),
        ('[{glob: "a/**"}]', "takes a list of entries"),
        ("{glob: {include: a}}", "takes a list of entries"),
    ],
)
def test_libraries_that_are_not_patterns_below_the_project_are_refused(
    tmp_path: Path, libraries: str, said: str
) -> None:
    file = tmp_path / "spark-pipeline.yml"
    file.write_text(f"name: shop\nlibraries: {libraries}\n")
    with pytest.raises(DeclarationError, match=said):
        spec_of(file)
