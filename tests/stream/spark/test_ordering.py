"""Rows of the same time in the order in which they arrived: by commit, file and place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from headgate.stream.spark.ordering import ArrivalOrder, ArrivedFile, in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def file(path: str, size: int, commit: int) -> ArrivedFile:
    return ArrivedFile(path, size, commit)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], ArrivalOrder("row")),
        ([file("x", 5, 1)], ArrivalOrder("row")),
        ([file("x", 5, 1), file("y", 6, 1)], ArrivalOrder("file")),
        ([file("x", 5, 10), file("y", 6, 9)], ArrivalOrder("commit", (6, 5))),
        ([file("x", 5, 2), file("y", 5, 1)], ArrivalOrder("commit", paths={"y": 1, "x": 2})),
        (
            [file(f"{n:03}", n, n) for n in range(500)],
            ArrivalOrder("commit", paths={f"{n:03}": n + 1 for n in range(500)}),
        ),
    ],
    ids=["no file", "one file", "files of one commit", "two commits", "two of one size", "very many"],
)
def test_what_tells_the_order_of_arrival_depends_on_the_files(files: list[ArrivedFile], expected: ArrivalOrder) -> None:
    assert ArrivalOrder.of(files) == expected


#: the order of commits counts, not how folders and files are called
FOLDERS = ("m-5eadc0de", "u2 b%b/p=a+b:%3A", "u10-aa")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("told_by", ["size", "path"])
def test_rows_of_one_time_stand_in_the_order_of_commits_and_places(
    spark: SparkSession, tmp_path: Path, told_by: str
) -> None:
    files = []
    for number, folder in enumerate(FOLDERS):
        (tmp_path / folder).mkdir(parents=True)
        path = tmp_path / folder / "rows.parquet"
        rows = pa.table({"ts": [7] * 5, "arrived": [10 * number + place for place in range(5)]})
        pq.write_table(rows.append_column(f"{'long' * number}", rows.column("ts")), path)
        files.append(ArrivedFile(str(path), path.stat().st_size if told_by == "size" else 1, number))
    arrival = ArrivalOrder.of(files)
    assert bool(arrival.sizes) == (told_by == "size")
    paths = [str(tmp_path / folder / "rows.parquet") for folder in reversed(FOLDERS)]
    found = in_order(spark.read.schema("ts long, arrived long").parquet(*paths), [], "ts", 1, arrival).toArrow()
    assert found.column_names == ["ts", "arrived"]
    assert found.column("arrived").to_pylist() == [10 * number + place for number in range(3) for place in range(5)]


@pytest.mark.spark
@pytest.mark.slow
def test_rows_of_files_that_nobody_named_stand_in_the_order_of_their_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"ts": [7] * 5, "arrived": list(range(5))}), path)
    frame = spark.read.schema("ts long, arrived long").parquet(str(path))
    for arrival in (ArrivalOrder("commit", (1, 2, 3)), ArrivalOrder("commit", paths={"/elsewhere": 1})):
        assert in_order(frame, [], "ts", 1, arrival).toArrow().column("arrived").to_pylist() == list(range(5))


@pytest.mark.spark
@pytest.mark.slow
def test_rows_that_are_of_no_file_any_more_are_sorted_by_time_alone(spark: SparkSession) -> None:
    frame = spark.range(20).selectExpr("20 - id AS ts")
    assert in_order(frame, [], "ts", 1, ArrivalOrder()).toArrow().column("ts").to_pylist() == list(range(1, 21))
