"""Files as sources: which are read, in which order, and what becomes of those and of lines that are malformed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.stream import Files, InputError, Lines
from tests.stream.sources.reading import nobody, read_all

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("name", pa.string())])
NUMBERS = pa.schema([("n", pa.int64())])


def numbers(source: Files | Lines) -> list[int]:
    return [row["n"] for row in read_all(source).rows]


def test_a_folder_is_read_in_the_order_of_names_without_unfinished_and_other_files(tmp_path: Path) -> None:
    for n, name in enumerate(["b.json", "a.jsonl", ".c.json", "_d.json", "e.csv", "c.json"]):
        (tmp_path / name).write_text(f'{{"n": {n}}}\n')
    assert numbers(Files(tmp_path, "json")) == [1, 0, 5]


def test_a_pattern_may_reach_into_folders(tmp_path: Path) -> None:
    for n, day in enumerate(["tue", "mon"]):
        (tmp_path / day).mkdir()
        (tmp_path / day / "x.csv").write_text(f"n\n{n}\n")
    assert numbers(Files(tmp_path / "*" / "*.csv")) == [1, 0]


def test_a_pattern_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text("n\n7\n")
    monkeypatch.chdir(tmp_path)
    assert numbers(Files("*.csv")) == [7]


def test_compressed_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(b'{"n": 7}\n'))
    assert numbers(Files(tmp_path / "x.json.gz")) == [7]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("x.json", '{"n": 1, "name": null, "more": 2.5}\n', id="JSON"),
        pytest.param("x.csv", "n,name,more\n1,,2.5\n", id="CSV"),
    ],
)
def test_without_a_schema_the_first_lines_suggest_it(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    schema = Files(tmp_path / name).schema
    assert schema == pa.schema([("n", pa.int64()), ("name", pa.string()), ("more", pa.float64())])


def test_csv_columns_are_found_by_their_names_in_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfname,more,n\r\na,?,1\r\n\r\n")
    assert read_all(Files(tmp_path / "x.csv", schema=SCHEMA)).rows == [{"n": 1, "name": "a"}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b'{"n": 1', "expected a JSON object", id="cut off"),
        pytest.param(b'{"n": 1]}', "JSON parse error", id="not JSON"),
        pytest.param(b"[1]", "expected a JSON object", id="another JSON value"),
        pytest.param(b'{"n": 1}{"n": 2}', "expected one row, got 2", id="two objects"),
        pytest.param(b'{"n": "1"}', "JSON", id="another type"),
        pytest.param(b'{"name": "a"}', "column 'n' is null", id="a column that may not be missing"),
        pytest.param(b'{"n": 1, "name": "\xff"}', "not UTF-8", id="not UTF-8"),
        pytest.param(b'{"n": 1, "name": "' + b"x" * 2**20 + b'"}', "the line has 1048596 bytes", id="too long"),
    ],
)
def test_a_malformed_json_line_is_rejected_with_file_line_number_and_text(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"n": 1}\n\n' + line + b'\n {"n": 2} \n')
    everything = read_all(Files(path, schema=SCHEMA))
    assert [row["n"] for row in everything.rows] == [1, 2]
    [(position, why, raw)] = everything.rejected
    assert position == 1
    assert why.startswith(f"{path}, line 3: {reason}")
    assert raw == line.decode("utf-8", "replace")[: len(raw)]
    assert len(raw) >= min(len(line), 200)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"1", "CSV parse error: Expected 2 columns, got 1", id="too few values"),
        pytest.param(b"1,a,b", "CSV parse error: Expected 2 columns, got 3", id="too many values"),
        pytest.param(b"one,a", "In CSV column #0", id="another type"),
        pytest.param(b",a", "column 'n' is null", id="a value that may not be missing"),
        pytest.param(b"1,a\r2,b", "expected one row, got 2", id="a carriage return between two rows"),
        pytest.param(b"1,\xff", "not UTF-8", id="not UTF-8"),
    ],
)
def test_a_malformed_csv_line_is_rejected_with_file_line_number_and_text(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'n,name\n1,"a, b"\n' + line + b"\n2,\n")
    everything = read_all(Files(path, schema=SCHEMA))
    assert everything.rows == [{"n": 1, "name": "a, b"}, {"n": 2, "name": ""}]
    [(position, why, raw)] = everything.rejected
    assert (position, raw) == (1, line.decode("utf-8", "replace"))
    assert why.startswith(f"{path}, line 3: {reason}")


@pytest.mark.parametrize("most", [1000, 2048, 5000])
def test_malformed_lines_keep_their_places_in_a_file_that_is_read_in_parts(tmp_path: Path, most: int) -> None:
    broken = (0, 2047, 2048, 4095, 4998)
    path = tmp_path / "x.json"
    path.write_text("".join("?\n" if n in broken else f'{{"n": {n}}}\n' for n in range(5000)))
    everything = read_all(Files(path, schema=NUMBERS), most)
    assert [row["n"] for row in everything.rows] == [n for n in range(5000) if n not in broken]
    assert [position for position, _, _ in everything.rejected] == [n - i for i, n in enumerate(broken)]
    assert [reason.split(":")[0] for reason in everything.reasons] == [f"{path}, line {n + 1}" for n in broken]


def test_malformed_lines_without_any_good_one_are_all_rejected_and_never_pile_up(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("?\n" * 5000)
    everything = read_all(Files(tmp_path / "x.json", schema=NUMBERS))
    assert everything.rows == []
    assert len(everything.rejected) == 5000
    assert max(len(chunk.rejected) for chunk in everything.chunks) <= 4096


def test_a_line_that_the_users_function_fails_on_is_rejected_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("1\ntwo\n3\n")
    everything = read_all(Lines(tmp_path / "x.log", lambda line: (int(line),), NUMBERS))
    assert [row["n"] for row in everything.rows] == [1, 3]
    [(position, why, raw)] = everything.rejected
    assert (position, raw) == (1, "two")
    assert "x.log, line 2: the parse function raised ValueError: invalid literal" in why


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(lambda folder: Files(folder / "no.csv"), r"nothing to read at .*no\.csv", id="no such file"),
        pytest.param(lambda folder: Files(folder / "*.csv"), "Expected files of such names; found none", id="no match"),
        pytest.param(lambda folder: Files(folder, "json"), r"files ending in \.json or", id="nothing in the folder"),
        pytest.param(lambda folder: Files(folder / "x.xml"), r"one of the endings .*got '\.xml'", id="unknown ending"),
        pytest.param(lambda folder: Lines(folder / "no", str.split, NUMBERS), "nothing to read", id="no lines"),
        pytest.param(lambda folder: Files(folder / "bad.json"), "cannot be told from its first lines", id="no schema"),
    ],
)
def test_what_cannot_be_read_is_said_when_the_source_is_opened(tmp_path: Path, source, message: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "x.xml").write_text("<n/>")
    (tmp_path / "bad.json").write_text("?")
    bad = tmp_path / "empty" if message.startswith("files ending") else tmp_path
    bad.mkdir(exist_ok=True)
    with pytest.raises(DeclarationError, match=message):
        source(bad).open(nobody, 0.0)


def test_an_unknown_format_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"no file format called 'parket'. Did you mean 'parquet'"):
        Files("x", "parket")


def test_a_type_that_text_cannot_be_read_as_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n\n1\n")
    with pytest.raises(DeclarationError, match="CSV cannot be read as n struct"):
        read_all(Files(tmp_path / "x.csv", schema=pa.schema([("n", pa.struct([("a", pa.int64())]))])))


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_a_file_of_another_schema_is_named_with_what_was_expected_and_what_came(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    table = pa.table({"m": [1]})
    if ending == "parquet":
        pq.write_table(table, path)
    elif ending == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        path.write_text("m\n1\n")
    with pytest.raises(InputError, match=rf"x\.{ending}.*column 'n'.*Expected: n int64\. Got: m"):
        read_all(Files(path, schema=NUMBERS))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    path.write_bytes(b"this is no such file")
    with pytest.raises(InputError, match=rf"x\.{ending} cannot be read as .*say so with format="):
        read_all(Files(path, schema=NUMBERS))
