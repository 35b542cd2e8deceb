"""Rows of the same time in the order in which they arrived: by commit, file and place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from headgate.stream.spark.arrival import Arrival
from headgate.stream.spark.ordering import in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], Arrival("row")),
        ([("data/u1-a/x.parquet", 5)], Arrival("row")),
        ([("data/u1-a/x.parquet", 5), ("data/u1-a/y.parquet", 6)], Arrival("file")),
        ([("data/u1-a/p=1/x.parquet", 5), ("data/u1-a/p=2/x.parquet", 6)], Arrival("file")),
        ([("data/u10-a/x.parquet", 5), ("data/u9-b/x.parquet", 6)], Arrival("commit", (6, 5))),
        ([("data/u1-a/x.parquet", 5), ("data/m-b/x.parquet", 6)], Arrival("commit", (6, 5))),
        ([("data/u1-a/x.parquet", 5), ("data/u2-b/x.parquet", 5)], Arrival("commit")),
        ([(f"data/u{n}-a/x.parquet", n) for n in range(500)], Arrival("commit")),
    ],
    ids=[
        "no file",
        "one file",
        "files of one commit",
        "partitions of one commit",
        "two commits",
        "one that maintenance has made",
        "two of one size",
        "very many",
    ],
)
def test_what_tells_the_order_of_arrival_depends_on_the_files(files: list[tuple[str, int]], expected: Arrival) -> None:
    assert Arrival.of(files) == expected


#: the number of a commit counts, not how its folder's name compares; what maintenance has made came before
FOLDERS = ("u7-of-the-parent/data/m-5eadc0de", "u7-of-the-parent/data/u2-bb/p=1", "u7-of-the-parent/data/u10-aa")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("told_by", ["size", "path", "size of others"])
def test_rows_of_one_time_stand_in_the_order_of_commits_and_places(
    spark: SparkSession, tmp_path: Path, told_by: str
) -> None:
    files = []
    for number, folder in enumerate(FOLDERS):
        (tmp_path / folder).mkdir(parents=True)
        path = tmp_path / folder / "rows.parquet"
        rows = pa.table({"ts": [7] * 5, "arrived": [10 * number + place for place in range(5)]})
        pq.write_table(rows.append_column(f"{'long' * number}", rows.column("ts")), path)
        files.append((str(path.relative_to(tmp_path / "u7-of-the-parent")), path.stat().st_size))
    by_size = Arrival.of(files)
    assert len(by_size.sizes) == len(files), "sizes tell these files apart"
    arrival = {"size": by_size, "path": Arrival(), "size of others": Arrival("commit", (1, 2, 3))}[told_by]
    paths = [str(tmp_path / folder / "rows.parquet") for folder in reversed(FOLDERS)]
    found = in_order(spark.read.schema("ts long, arrived long").parquet(*paths), [], "ts", 1, arrival).toArrow()
    assert found.column_names == ["ts", "arrived"]
    assert found.column("arrived").to_pylist() == [10 * number + place for number in range(3) for place in range(5)]


@pytest.mark.spark
@pytest.mark.slow
def test_rows_that_are_of_no_file_any_more_are_sorted_by_time_alone(spark: SparkSession) -> None:
    frame = spark.range(20).selectExpr("20 - id AS ts")
    assert in_order(frame, [], "ts", 1, Arrival()).toArrow().column("ts").to_pylist() == list(range(1, 21))
