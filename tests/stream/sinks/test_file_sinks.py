"""Files written by a query: complete or not there, rotated, and read back as they were."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.core.errors import DeclarationError, ParameterError, UnknownNameError
from headgate.stream import Files, OutputError, to_files
from tests.stream.sources.reading import read_all

SCHEMA = pa.schema(
    {"n": pa.int64(), "name": pa.string(), "x": pa.float64(), "at": pa.timestamp("ms", "UTC"), "on": pa.date32()}
)
MORNING = datetime(2026, 3, 1, 6, tzinfo=UTC)
BATCH = pa.RecordBatch.from_pylist(
    [
        {"n": n, "name": f'"{n}", ü', "x": n / 8, "at": MORNING + timedelta(n), "on": date(2026, 3, n + 1)}
        for n in range(10)
    ],
    schema=SCHEMA,
)
NESTED = pa.RecordBatch.from_pydict({"x": [[1]]})
UNWRITABLE = pa.RecordBatch.from_arrays([pa.array([bytes(16)], pa.uuid())], names=["x"])
FORMATS = ["parquet", "arrow", "csv", "json"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_read_back_as_they_were(tmp_path: Path, format: str) -> None:
    writer = to_files(tmp_path / "out", format, rows_per_file=4).open()
    writer.write(BATCH.slice(0, 3))
    writer.write(BATCH.slice(3))
    writer.close()
    writer.close()
    assert names(tmp_path / "out") == [f"part-0000{n}.{format}" for n in range(3)]
    everything = read_all(Files(tmp_path / "out", format, SCHEMA))
    assert everything.rows == BATCH.to_pylist()
    assert everything.rejected == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_is_visible_only_when_it_is_complete(tmp_path: Path, format: str) -> None:
    writer = to_files(tmp_path, format, rows_per_file=4).open()
    writer.write(BATCH.slice(0, 5))
    assert names(tmp_path) == [f".part-00001.{format}.unfinished", f"part-00000.{format}"]
    assert read_all(Files(tmp_path, format, SCHEMA)).rows == BATCH.slice(0, 4).to_pylist()
    writer.close()
    assert names(tmp_path) == [f"part-00000.{format}", f"part-00001.{format}"]


def test_a_further_run_goes_on_after_the_files_that_are_there(tmp_path: Path) -> None:
    for _ in range(2):
        writer = to_files(tmp_path, "csv").open()
        writer.write(BATCH)
        writer.close()
    assert names(tmp_path) == ["part-00000.csv", "part-00001.csv"]


def test_one_file_is_replaced_when_the_run_ends(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "out.jsonl"
    for rows in (BATCH, BATCH.slice(0, 1)):
        writer = to_files(path).open()
        writer.write(rows)
        writer.close()
    assert names(path.parent) == ["out.jsonl"]
    assert read_all(Files(path, schema=SCHEMA)).rows == BATCH.slice(0, 1).to_pylist()


def test_a_run_without_rows_writes_nothing(tmp_path: Path) -> None:
    to_files(tmp_path, "parquet").open().close()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("format", "batches"),
    [
        pytest.param("csv", [NESTED], id="columns without a form in CSV"),
        pytest.param("arrow", [BATCH, NESTED], id="columns change within the file"),
        pytest.param("json", [BATCH, UNWRITABLE], id="a value without a form in JSON"),
    ],
)
def test_a_file_that_cannot_be_written_is_thrown_away_and_complete_ones_stay(
    tmp_path: Path, format: str, batches: list[pa.RecordBatch]
) -> None:
    good = to_files(tmp_path, format).open()
    good.write(BATCH)
    good.close()
    writer = to_files(tmp_path, format).open()
    with pytest.raises(OutputError, match=rf"part-00001\.{format} cannot be written: .*Files that are complete stay"):
        for batch in batches:
            writer.write(batch)
    writer.close()
    assert names(tmp_path) == [f"part-00000.{format}"]


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot make the folder .*file/out.*Choose a folder"):
        to_files(tmp_path / "file" / "out", "csv").open()


def test_what_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"the format cannot be told from .*Say it with format="):
        to_files(tmp_path / "out")
    with pytest.raises(UnknownNameError, match=r"no file format called 'parket'. Did you mean 'parquet'"):
        to_files(tmp_path / "out", "parket")
    with pytest.raises(ParameterError, match="rows_per_file must be at least 1; got 0"):
        to_files(tmp_path / "out", "csv", rows_per_file=0)
