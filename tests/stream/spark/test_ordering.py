"""Rows of the same time in the order in which they arrived: by commit, file and place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from headgate.stream.spark.ordering import Arrival, in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], Arrival.ROW),
        (["data/u1-a/x.parquet"], Arrival.ROW),
        (["data/u1-a/x.parquet", "data/u1-a/y.parquet"], Arrival.FILE),
        (["data/u1-a/x.parquet", "data/u2-b/x.parquet"], Arrival.COMMIT),
        (["data/u1-a/x.parquet", "data/m-b/x.parquet"], Arrival.COMMIT),
    ],
    ids=["no file", "one file", "files of one commit", "two commits", "one that maintenance has made"],
)
def test_what_tells_the_order_of_arrival_depends_on_the_files(paths: list[str], expected: Arrival) -> None:
    assert Arrival.of(paths) is expected


@pytest.mark.spark
@pytest.mark.slow
def test_rows_of_one_time_stand_in_the_order_of_commits_and_places(spark: SparkSession, tmp_path: Path) -> None:
    # the number of a commit counts, not how its folder's name compares; what maintenance has made came before
    folders = ["m-5eadc0de", "u2-bb", "u10-aa"]
    paths = []
    for number, folder in enumerate(folders):
        (tmp_path / folder).mkdir()
        rows = pa.table({"ts": [7] * 5, "arrived": [10 * number + place for place in range(5)]})
        pq.write_table(rows, tmp_path / folder / "rows.parquet")
        paths.append(str(tmp_path / folder / "rows.parquet"))
    frame = spark.read.schema("ts long, arrived long").parquet(*reversed(paths))
    found = in_order(frame, [], "ts", 1, Arrival.of(paths)).toArrow()
    assert found.column_names == ["ts", "arrived"]
    assert found.column("arrived").to_pylist() == [10 * number + place for number in range(3) for place in range(5)]


@pytest.mark.spark
@pytest.mark.slow
def test_rows_that_are_of_no_file_any_more_are_sorted_by_time_alone(spark: SparkSession) -> None:
    frame = spark.range(20).selectExpr("20 - id AS ts")
    assert in_order(frame, [], "ts", 1).toArrow().column("ts").to_pylist() == list(range(1, 21))
