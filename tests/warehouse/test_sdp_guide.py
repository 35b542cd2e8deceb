"""Every construct that Spark's programming guide to declarative pipelines shows: it runs, or it is refused by line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.core import HeadgateError
from headgate.warehouse.declare.pipeline_file import load
from headgate.warehouse.updates.open_warehouse import OpenWarehouse, open_warehouse
from tests.services.kafka import KafkaBroker
from tests.warehouse.test_opened import rows_of
from tests.warehouse.test_sdp_project import PYTHON, spec_of, with_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 15, 10, tzinfo=UTC)
#: where the tables lie that the project does not define
SIDE = """
external:
  samples.city.rides: {path: data/rides}
  calls_west: {path: data/calls/west, format: json, schema: 'at timestamp, who string', settle: 0}
  calls_east: {path: data/calls/east, format: json, schema: 'at timestamp, who string', settle: 0}
  places: {path: data/places.csv, format: csv, options: {header: true}}
"""


@dataclass(frozen=True)
class Construct:
    """What is shown, the external tables that it needs, and the rows of a table before and after more has come."""

    file: str
    code: str
    uses: tuple[str, ...]
    table: str
    before: list[tuple[Any, ...]]
    after: list[tuple[Any, ...]]


RIDES = [("ann", 3), ("bob", 5)]
MORE_RIDES = [*RIDES, ("eve", 7)]
CONSTRUCTS = {
    "a materialized view of a table from elsewhere": Construct(
        "d.py",
        "@dp.materialized_view\ndef all_rides():\n    return spark.table('samples.city.rides').select('who', 'n')\n",
        ("samples.city.rides",),
        *("all_rides", RIDES, MORE_RIDES),
    ),
    "a name of its own": Construct(
        "d.py",
        "@dp.materialized_view(name='named')\ndef f():\n    return spark.table('samples.city.rides').select('who')\n",
        ("samples.city.rides",),
        *("named", [("ann",), ("bob",)], [("ann",), ("bob",), ("eve",)]),
    ),
    "a temporary view": Construct(
        "d.py",
        "@dp.temporary_view\ndef long():\n    return spark.table('samples.city.rides').where('n > 3')\n"
        "@dp.materialized_view\ndef t():\n    return spark.table('long').select('who')\n",
        ("samples.city.rides",),
        *("t", [("bob",)], [("bob",), ("eve",)]),
    ),
    "a streaming table": Construct(
        "d.py",
        "@dp.table\ndef t():\n    return spark.readStream.table('samples.city.rides').select('who', 'n')\n",
        ("samples.city.rides",),
        *("t", RIDES, MORE_RIDES),
    ),
    "files as a batch": Construct(
        "d.py",
        "@dp.materialized_view\ndef t():\n    return spark.read.format('json').load('data/calls/west').select('who')\n",
        (),
        *("t", [("ann",)], [("ann",), ("bob",)]),
    ),
    "tables of the pipeline": Construct(
        "d.py",
        "from pyspark.sql.functions import col\n"
        "@dp.table\ndef calls():\n    return spark.readStream.table('calls_west')\n"
        "@dp.materialized_view\ndef people():\n"
        "    return spark.read.format('csv').option('header', True).load('data/people')\n"
        "@dp.materialized_view\ndef of_people():\n"
        "    return spark.table('calls').join(spark.table('people'), 'who').select('state', col('at').cast('date'))\n"
        "@dp.materialized_view\ndef by_state():\n"
        "    return spark.table('of_people').groupBy('state').count().withColumnRenamed('count', 'calls')\n",
        ("calls_west",),
        *("by_state", [("CA", 1)], [("CA", 1), ("NY", 1)]),
    ),
    "tables made in a loop": Construct(
        "d.py",
        "@dp.temporary_view()\ndef known():\n    return spark.table('places')\n"
        "for place in ('north', 'south'):\n"
        "    @dp.table(name=f'{place}_places')\n    def of_place(wanted=place):\n"
        '        return spark.table("known").filter(f"place = \'{wanted}\'")\n',
        ("places",),
        *("south_places", [("south", "2")], [("south", "3")]),
    ),
    "several flows into one table": Construct(
        "d.py",
        "dp.create_streaming_table('calls')\n"
        "@dp.append_flow(target='calls')\ndef west():\n    return spark.readStream.table('calls_west').select('who')\n"
        "@dp.append_flow(target='calls')\ndef east():\n    return spark.readStream.table('calls_east').select('who')\n",
        ("calls_west", "calls_east"),
        *("calls", [("ann",), ("ann",)], [("ann",), ("ann",), ("bob",), ("bob",)]),
    ),
    "SQL: a materialized view": Construct(
        "d.sql",
        "CREATE MATERIALIZED VIEW t\nAS SELECT who, rides.n FROM samples.city.rides;",
        ("samples.city.rides",),
        *("t", RIDES, MORE_RIDES),
    ),
    "SQL: a temporary view": Construct(
        "d.sql",
        "CREATE TEMPORARY VIEW v\nAS SELECT * FROM samples.city.rides;\nCREATE MATERIALIZED VIEW t AS SELECT n FROM v;",
        ("samples.city.rides",),
        *("t", [(3,), (5,)], [(3,), (5,), (7,)]),
    ),
    "SQL: a streaming table": Construct(
        "d.sql",
        "CREATE STREAMING TABLE t\nAS SELECT who, n FROM STREAM samples.city.rides;",
        ("samples.city.rides",),
        *("t", RIDES, MORE_RIDES),
    ),
    "SQL: tables of the pipeline": Construct(
        "d.sql",
        "CREATE STREAMING TABLE calls\nAS SELECT * FROM STREAM calls_west;\n"
        "CREATE MATERIALIZED VIEW those\nAS SELECT * FROM places;\n"
        "CREATE MATERIALIZED VIEW both\nAS SELECT c.who, p.place FROM calls c\nINNER JOIN those p\nON p.code = '1';\n"
        "CREATE MATERIALIZED VIEW t\nAS SELECT place, count(*) n FROM shop.both\nGROUP BY place;",
        ("calls_west", "places"),
        *("t", [("north", 1)], [("north", 2)]),
    ),
    "SQL: several flows into one table": Construct(
        "d.sql",
        "-- one table\nCREATE STREAMING TABLE calls;\n"
        "CREATE FLOW west\nAS INSERT INTO calls\nSELECT who FROM STREAM(calls_west);\n"
        "CREATE FLOW east\nAS INSERT INTO calls BY NAME\nSELECT who FROM STREAM(calls_east);\n",
        ("calls_west", "calls_east"),
        *("calls", [("ann",), ("ann",)], [("ann",), ("ann",), ("bob",), ("bob",)]),
    ),
}


def side_file(uses: tuple[str, ...]) -> str:
    lines = SIDE.strip().splitlines()
    return (
        "\n".join([lines[0], *(line for line in lines[1:] if line.strip().partition(":")[0] in uses)]) if uses else ""
    )


def arrive(folder: Path, number: int) -> None:
    """What lies outside of the project: first some, then more."""
    rows = [("ann", 3), ("bob", 5)] if number == 0 else [("eve", 7)]
    at = [START + timedelta(minutes=10 * number + each) for each in range(len(rows))]
    columns = {
        "at": pa.array(at, pa.timestamp("us", "UTC")),
        "who": [who for who, _ in rows],
        "n": [n for _, n in rows],
    }
    deltalake.write_deltalake(folder / "rides", pa.table(columns), mode="append")
    for place in ("west", "east"):
        (folder / "calls" / place).mkdir(parents=True, exist_ok=True)
        line = {"at": at[0].isoformat(), "who": ("ann", "bob")[number]}
        (folder / "calls" / place / f"{number}.json").write_text(json.dumps(line) + "\n")
    (folder / "people").mkdir(exist_ok=True)
    (folder / "people" / "1.csv").write_text("who,state\nann,CA\nbob,NY\n")
    (folder / "places.csv").write_text(f"place,code\nnorth,1\nsouth,{2 + number}\n")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_of_the_guide_runs(tmp_path: Path, name: str, spark: SparkSession) -> None:
    construct = CONSTRUCTS[name]
    code = PYTHON + construct.code if construct.file == "d.py" else construct.code
    project = with_code(tmp_path, construct.file, code)
    (project.parent / "headgate.yml").write_text(side_file(construct.uses))
    arrive(project.parent / "data", 0)
    warehouse = open_warehouse(spec_of(project), spark)
    warehouse.bring_up_to_date(spark)
    assert rows_of(warehouse.nodes[construct.table].store) == construct.before
    arrive(project.parent / "data", 1)
    warehouse.bring_up_to_date(spark)
    assert rows_of(warehouse.nodes[construct.table].store) == construct.after


KAFKA = """
@dp.table
def records():
    return (
        spark.readStream
        .format("kafka")
        .option("kafka.bootstrap.servers", "{servers}")
        .option("subscribe", "{topic}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2)
        .load()
    )

@dp.materialized_view
def values():
    return spark.table("records").selectExpr("CAST(key AS STRING) AS key", "hex(value) AS value")
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.services
def test_a_stream_of_kafka_has_the_columns_that_spark_gives(
    tmp_path: Path, spark: SparkSession, kafka: KafkaBroker
) -> None:
    topic = kafka.topic(partitions=1)
    kafka.send(topic, [{"key": "a", "value": b"\xff1"}, {"key": "b", "value": None}])
    project = with_code(tmp_path, "d.py", PYTHON + KAFKA.format(servers=kafka.servers, topic=topic))
    spec = spec_of(project)
    (stream,) = spec.streams
    assert stream.time == "timestamp"
    warehouse = open_warehouse(spec, spark)
    updated(warehouse, spark, stream.source)
    store = warehouse.nodes["records"].store
    key, value, name, partition, offset, _, kind = rows_of(store)[0]
    assert (key, value, name, partition, offset, kind) == (b"a", b"\xff1", topic, 0, 0, 0)
    assert [row[:2] for row in rows_of(store)] == [(b"a", b"\xff1"), (b"b", None)]
    kafka.send(topic, [{"value": "3"}])
    updated(warehouse, spark, stream.source)
    assert sorted(rows_of(warehouse.nodes["values"].store), key=repr)[-1] == (None, "33")


def updated(warehouse: OpenWarehouse, spark: SparkSession, source: Any) -> None:
    source.refresh()
    warehouse.bring_up_to_date(spark)


OPTIONS = ".option('kafka.bootstrap.servers', 'k:9092').option('subscribe', 'orders')"
READ = "@dp.table\ndef t():\n    return spark.readStream.format('kafka'){}.load()\n"
REFUSED = {
    "a loop over rows that Spark collects": (
        "d.py",
        "region = spark.table('samples.region').select('name').collect()\n",
        "d.py:2: spark.table is used while the file is read: use spark inside of functions only",
    ),
    "a table that lies nowhere": (
        "d.py",
        "@dp.table\ndef t():\n    return (\n        spark.readStream\n        .table('samples.city.rides')\n    )\n",
        "d.py:5: 't' reads the table 'samples.city.rides', which is not one of this project; define it here, or say in "
        "headgate.yml where it lies: external: {samples.city.rides: {path: data/rides, format: delta}}",
    ),
    "SQL: a table that lies nowhere": (
        "d.sql",
        "CREATE STREAMING TABLE t\nAS SELECT *\nFROM STREAM samples.city.rides;",
        "d.sql:3: 't' reads the table 'samples.city.rides', which is not one of this project",
    ),
    "SQL: a function of another product": (
        "d.sql",
        "CREATE STREAMING TABLE t\nAS SELECT *\nFROM STREAM read_kafka(bootstrapServers => 'k:9092');",
        "d.sql:3: 't': read_kafka(...) cannot be taken over: it is no function of Spark",
    ),
    "Kafka without a topic": ("d.py", READ.format(OPTIONS[:50]), "d.py:4: 't': a stream of Kafka is taken over with"),
    "Kafka from offsets of partitions": (
        "d.py",
        READ.format(OPTIONS + ".option('startingOffsets', '{}')"),
        "d.py:4: startingOffsets can be taken over as 'earliest' or 'latest'",
    ),
    "Kafka with a truststore": (
        "d.py",
        READ.format(OPTIONS + ".option('kafka.ssl.truststore.location', 'x.jks')"),
        "d.py:4: the option 'kafka.ssl.truststore.location' is one of Java",
    ),
    "Kafka with several topics": (
        "d.py",
        READ.format(OPTIONS.replace("orders", "a,b")),
        "d.py:4: a stream of one topic can be taken over",
    ),
    "Kafka as a batch": (
        "d.py",
        READ.format(OPTIONS).replace("readStream", "read"),
        "d.py:4: 't': what is read here, of the format 'kafka', cannot be watched for changes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_construct_of_the_guide_that_cannot_be_taken_over_is_named_with_its_line(tmp_path: Path, case: str) -> None:
    file, code, message = REFUSED[case]
    project = with_code(tmp_path, file, PYTHON + code if file == "d.py" else code)
    with pytest.raises(HeadgateError) as caught:
        spec_of(project)
    assert message in str(caught.value)


def test_options_of_a_stream_of_kafka_are_those_of_headgate(tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="p; w";'
    options = (
        ".option('kafka.security.protocol', 'SASL_SSL').option('kafka.sasl.mechanism', 'PLAIN')"
        f".option('kafka.sasl.jaas.config', {login!r}).option('kafka.ssl.truststore.location', 'x.jks')"
        ".option('failOnDataLoss', False).option('kafka.group.id', 'g').option('includeHeaders', True)"
    )
    project = with_code(tmp_path, "d.py", PYTHON + READ.format(OPTIONS + options))
    (project.parent / "headgate.yml").write_text(
        "sources:\n  orders: {name: orders, options: {ssl.ca.location: ca.pem}}\n"
    )
    (stream,) = spec_of(project).streams
    source: Any = stream.source
    assert (stream.name, repr(source)) == ("orders", "Kafka('k:9092', 'orders')")
    assert dict(source._clients.options) == {
        **{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        **{"sasl.username": "ann", "sasl.password": "p; w", "ssl.ca.location": "ca.pem"},
    }
    assert (source._clients.isolation, source._missing, source._topic.start) == ("read_uncommitted", "skip", "latest")
    assert "headers" in source.schema


SIDE_CASES = {
    "no path": ("external:\n  places: {format: csv}", "headgate.yml:2: places needs where the table lies"),
    "another format": (
        "external:\n  places: {path: p, format: xls}",
        "headgate.yml:2: places: format takes one of delta, json, csv, parquet, orc, text; got 'xls'",
    ),
    "a table that nobody reads": (
        "external:\n  places: {path: p}\n  other: {path: p}",
        "headgate.yml:3: no query reads the table 'other'",
    ),
    "a table of the project": (
        "external:\n  places: {path: p}\n  t: {path: p}",
        "headgate.yml:3: the table 't' is one of the project",
    ),
    "a stream without a time": (
        "external:\n  places: {path: p, format: json, schema: n int}",
        "d.sql:1: the table 'places' has no column of type timestamp: state its event time, as 'time:' in "
        "headgate.yml, under external, places",
    ),
    "a store that is no mapping": (
        "storage: s3",
        "headgate.yml:1: storage takes options such as 'region: eu'; got 's3'",
    ),
}


@pytest.mark.parametrize("case", SIDE_CASES)
def test_mistakes_of_external_tables_are_named_with_their_line(tmp_path: Path, case: str) -> None:
    side, message = SIDE_CASES[case]
    code = "CREATE STREAMING TABLE t AS SELECT * FROM STREAM places;\nCREATE MATERIALIZED VIEW u AS SELECT * FROM t;"
    project = with_code(tmp_path, "d.sql", code)
    (project.parent / "headgate.yml").write_text(side)
    with pytest.raises(HeadgateError) as caught:
        spec_of(project)
    assert message in str(caught.value)


CONFIGURED = """
@dp.table(spark_conf={"spark.sql.ansi.enabled": "false"})
def t():
    return spark.readStream.schema("ts timestamp, n int").json("in")

@dp.materialized_view
def u():
    return spark.table("t")
"""


def configured(folder: Path) -> Path:
    project = with_code(folder, "d.py", PYTHON + CONFIGURED)
    with project.open("a") as file:
        file.write('\nconfiguration:\n  spark.sql.shuffle.partitions: "1000"\n')
    return project


def test_settings_that_are_not_used_are_named_with_their_line(tmp_path: Path) -> None:
    project = configured(tmp_path)
    done = CliRunner().invoke(app, ["check", str(project), "--no-spark"])
    warnings = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    line = project.read_text().splitlines().index("configuration:") + 1
    conf = "--conf spark.sql.shuffle.partitions=..."
    assert [warning.replace(f"{project.parent}/", "") for warning in warnings] == [
        f"warning: spark-pipeline.yml:{line}: configuration is not used: state it when you run it, by {conf}",
        "warning: transformations/d.py:3: the spark_conf of 't' is not used: all tables have the same settings, which "
        "--conf spark.sql.ansi.enabled=... would change",
    ]


def test_the_side_file_says_where_and_how_the_warehouse_is_kept(tmp_path: Path) -> None:
    project = configured(tmp_path)
    (project.parent / "headgate.yml").write_text(
        "path: s3://bucket/shop\nstorage: {aws_region: eu-west-1}\nlock: postgresql://ann@db/locks\ncatalog: shop\n"
    )
    made = load(project)
    assert (made.path, made.storage) == ("s3://bucket/shop", {"aws_region": "eu-west-1"})
    assert (made.lock, made.catalog) == ("postgresql://ann@db/locks", "shop")
