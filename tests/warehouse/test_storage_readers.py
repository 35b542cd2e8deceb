"""Others can read the tables: SQL over the Delta log, and Spark over the files that a version lists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.warehouse.storage.errors import SchemaError
from headgate.warehouse.storage.store import TableStore
from tests.warehouse.storage_helpers import CLICKS, HOUR, SECOND, clicks, hours, load, rows_of, seen_by_delta, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "with space" / "clicks", "ts")


def test_sql_over_the_log_sees_the_rows_of_the_newest_commit(store: TableStore) -> None:
    load(store, 1, clicks(1, 2, HOUR))
    load(store, 2, clicks(3), hours(0))
    sql = "select _partition as p, count(*) as n, max(ts) as newest from clicks group by _partition order by 1"
    found = pa.table(QueryBuilder().register("clicks", DeltaTable(store.directory)).execute(sql).read_all())
    assert found.column("p").to_pylist() == hours(0, 1)
    assert found.column("n").to_pylist() == [1, 1]
    assert found.column("newest").cast(pa.int64()).to_pylist() == [3 * SECOND, HOUR * SECOND]


def test_the_change_data_feed_leads_from_every_version_to_the_newest(store: TableStore) -> None:
    load(store, 1, clicks(1, 2, HOUR))
    load(store, 2, clicks(3))
    store.compact()
    load(store, 3, clicks(2, 3, 4), hours(0))
    load(store, 4, clicks(5, HOUR + 1))
    newest = Counter(seen_by_delta(store))
    for version in range(store.version):
        changed = Counter(seen_by_delta(store, version))
        feed = pa.table(DeltaTable(store.directory).load_cdf(starting_version=version + 1).read_all())
        for value, kind in zip(feed["v"].to_pylist(), feed["_change_type"].to_pylist(), strict=True):
            changed[value] += {"insert": 1, "delete": -1}[kind]
        assert +changed == newest, version


def partitioned(frame: DataFrame) -> DataFrame:
    """``frame`` with the name of each row's hourly partition, worked out by Spark."""
    from pyspark.sql import functions as F

    start = F.timestamp_seconds(F.floor(F.unix_micros("ts") / (HOUR * SECOND)) * HOUR)
    return frame.withColumn("_partition", F.date_format(start, "yyyy-MM-dd'T'HH:mm:ss'Z'"))


@pytest.mark.spark
@pytest.mark.slow
def test_spark_writes_what_is_committed_and_reads_what_is_listed(store: TableStore, spark: SparkSession) -> None:
    query = """select timestamp_micros((id - 1) * 1800000000) as ts, id as v, cast(id as decimal(10, 2)) as price,
        array(id, null) as some, array('full') as full, named_struct('deep', id) as place, map('k', id) as counts,
        cast(id as short) as small, date'2026-11-15' as day, cast(null as string) as nothing from range(5)"""
    directory = store.stage(1)
    partitioned(spark.sql(query)).write.partitionBy("_partition").parquet(str(directory))
    files = store.adopt(directory)
    assert {new.file.partition for new in files} == set(hours(-1, 0, 1))
    assert sum(new.file.rows for new in files) == 5
    store.commit(1, files, state={}, schema=files[0].schema)
    assert seen_by_delta(store) == dict.fromkeys(range(5), 1)

    driver = DeltaTable(store.directory).to_pyarrow_table().drop_columns("_partition")
    store.commit(2, store.write_arrow(2, driver, HOUR), state={}, schema=driver.schema)
    store.compact()
    assert len(store.files()) == 3
    assert rows_of(store, store.files()) == dict.fromkeys(range(5), 2)

    paths = [str(store.path_of(file)) for file in store.files_in(hours(-1, 0))]
    seen = spark.read.parquet(*paths)
    assert "_partition" not in seen.columns
    expected = spark.sql(query).where("v < 3").orderBy("v").collect()
    assert seen.orderBy("v").collect() == [row for row in expected for _ in range(2)]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_files_below_the_directories_that_it_names_itself(store: TableStore, spark: SparkSession) -> None:
    directory = store.stage(1)
    frame = spark.createDataFrame(clicks(1, HOUR, 2 * HOUR))
    partitioned(frame).write.partitionBy("_partition").parquet(str(directory))
    store.commit(1, store.adopt(directory), state={}, schema=CLICKS)
    assert all("%3A" in file.path for file in store.files())
    paths = [str(store.path_of(file)) for file in store.files_in(hours(1, 2))]
    seen = spark.read.schema(frame.schema).parquet(*paths)
    assert seen.columns == ["ts", "v"]
    assert values(seen.toArrow()) == values(clicks(HOUR, 2 * HOUR))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "options"),
    [
        pytest.param("cast(timestamp_micros(1) as timestamp_ntz)", {}, id="a time without zone"),
        pytest.param("timestamp_micros(1)", {"spark.sql.parquet.outputTimestampType": "INT96"}, id="INT96"),
    ],
)
def test_times_that_not_every_reader_understands_are_not_adopted(
    store: TableStore, spark: SparkSession, column: str, options: dict[str, str]
) -> None:
    before = {key: spark.conf.get(key) for key in options}
    directory = store.stage(1)
    try:
        for key, value in options.items():
            spark.conf.set(key, value)
        spark.sql(f"select timestamp_micros(1) as ts, {column} as other").write.parquet(
            str(directory / f"_partition={hours(0)[0].replace(':', '%3A')}")
        )
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
    with pytest.raises(SchemaError, match="TIMESTAMP_MICROS"):
        store.adopt(directory)
