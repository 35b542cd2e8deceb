"""What the simulated world says about its tables is what the real Spark says about the same queries in SQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.warehouse.declare.analysis import analyse
from headgate.warehouse.declare.modes import table_modes
from tests.world.tables import (
    DERIVED,
    KINDS,
    ORDERS,
    SHOPS,
    Declaration,
    analyses,
    declared_spec,
    expected,
    struct,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000_000
ROWS = [(i * HOUR // 3, "abc"[i % 3], i * 7 % 100, i) for i in range(100)]
SHOP_ROWS = [("a", "north"), ("b", "south"), ("b", "north")]


@pytest.mark.spark
def test_the_modes_of_the_tables_are_those_that_spark_proves(spark: SparkSession, tmp_path: Path) -> None:
    declared = Declaration(DERIVED)
    fake = declared_spec(declared, tmp_path, lambda: 0.0, lambda: 0.0)
    real = replace(
        fake,
        tables=tuple(
            replace(table, function=None, query=KINDS[table.name].sql.format(least=50)) for table in fake.tables
        ),
    )
    said, proved = analyses(fake, declared), analyse(real, spark)
    ours, theirs = table_modes(fake, said), table_modes(real, proved)
    assert {name: mode.name for name, mode in ours.items()} == {name: mode.name for name, mode in theirs.items()}
    for name in DERIVED:
        assert ours[name].block == theirs[name].block, name
        assert ours[name].keys == theirs[name].keys, name
        assert said[name].schema.simpleString() == proved[name].schema.simpleString(), name
        one, other = ours[name].merge, theirs[name].merge
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.shown_keys, one.shown_states) == (other.shown_keys, other.shown_states), name
            assert [s.merged_as for s in one.states] == [s.merged_as for s in other.states], name


@pytest.mark.spark
def test_the_expected_rows_of_the_tables_are_those_of_spark(spark: SparkSession) -> None:
    tables = {"orders": (ROWS, ORDERS), "shops": (SHOP_ROWS, SHOPS)}
    for name, (rows, columns) in tables.items():
        plain = struct({column: "bigint" if kind == "timestamp" else kind for column, kind in columns.items()})
        frame = spark.createDataFrame(rows, plain)
        if "ts" in columns:
            frame = frame.selectExpr("timestamp_micros(ts) as ts", "shop", "amount", "id")
        frame.createOrReplaceTempView(name)
    wanted = expected(Declaration(DERIVED), ROWS, SHOP_ROWS)
    for name in DERIVED:
        kind = KINDS[name]
        result = spark.sql(kind.sql.format(least=50))
        result.createOrReplaceTempView(name)
        plain_columns = [f"unix_micros({c})" if t == "timestamp" else c for c, t in kind.columns.items()]
        found: list[tuple[Any, ...]] = sorted(tuple(row) for row in result.selectExpr(*plain_columns).collect())
        assert found == wanted[name], name
