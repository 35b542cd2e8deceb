"""What Spark makes of files: good rows, bad rows with their reasons and texts, and no row lost or made up.

Each table of lines is one file and a few reads, because a Spark job costs more than a thousand rows.
"""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.warehouse.sources import Files, Limit, SourceChanged, SourceError
from headgate.warehouse.sources.files.source import FileRange

pytestmark = [pytest.mark.spark, pytest.mark.slow]

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA = "ts timestamp, sensor string, temp double"
TEN = dt.datetime(2026, 11, 15, 10)


def everything(files: Files) -> FileRange:
    found = files.next_range(files.start(), Limit())
    assert found is not None
    return found


def source(folder: Path, **changed: Any) -> Files:
    return Files(folder, **({"schema": SCHEMA, "settle": 0} | changed))


def read(spark: Any, files: Files) -> list[Any]:
    rows: list[Any] = files.read(spark, everything(files)).collect()
    return rows


JSON_LINES: list[tuple[str, str | None]] = [
    ('{"ts": "2026-11-15T10:00:00Z", "sensor": "a", "temp": 1.5}', None),
    ('{"temp": 2, "extra": {"x": [1, 2]}, "sensor": "it\'s \\"b\\" }{"}', None),
    ('\ufeff{"sensor": "after a byte order mark"}', None),
    ('  {"sensor": "between spaces"}\t ', None),
    ("{}", None),
    ('{"sensor": {"nested": true}}', None),
    ('{"sensor": "c", "temp": "warm"}', "temp: 'warm' is not of the type double"),
    (
        '{"ts": "yesterday", "temp": [1]}',
        "ts: 'yesterday' is not of the type timestamp; temp: '[1]' is not of the type double",
    ),
    ("not json", "not one JSON object on one line"),
    ('{"sensor": "cut', "not one JSON object on one line"),
    ('{"sensor": "d"}{"sensor": "e"}', "not one JSON object on one line"),
    ('{"sensor": "d"},{"sensor": "e"}', "not one JSON object on one line"),
    ('{"sensor": "d"},', "not one JSON object on one line"),
    ('{"sensor": "d"} // note', "not one JSON object on one line"),
    ('{"sensor": "d"}]}', "not one JSON object on one line"),
    ('[{"sensor": "d"}]', "not one JSON object on one line"),
    ("[", "not one JSON object on one line"),
    ("null", "not one JSON object on one line"),
    ("42", "not one JSON object on one line"),
    ('"text"', "not one JSON object on one line"),
]


def test_json_lines_are_good_or_bad_for_a_reason_and_keep_their_text(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("\n\n \t\n".join(line for line, _ in JSON_LINES), encoding="utf-8")
    rows = read(spark, source(tmp_path))
    assert [(row._raw, row._error) for row in rows] == [(line.lstrip("\ufeff"), why) for line, why in JSON_LINES]
    assert {row._file for row in rows} == {"a.json"}
    assert (rows[0].ts, rows[0].sensor, rows[0].temp) == (TEN, "a", 1.5)
    assert [row.sensor for row in rows[1:4]] == ['it\'s "b" }{', "after a byte order mark", "between spaces"]


CSV_LINES: list[tuple[str, str | None]] = [
    ("2026-11-15T10:00:00Z,a,x,1.5", None),
    (',"b, ""quoted""",x,', None),
    (",,,", None),
    ("2026-11-15T10:00:00Z,c,x,warm", "temp: 'warm' is not of the type double"),
    (
        "yesterday,c,x,warm",
        "ts: 'yesterday' is not of the type timestamp; temp: 'warm' is not of the type double",
    ),
    ("2026-11-15T10:00:00Z,d", "not 4 fields"),
    ("2026-11-15T10:00:00Z,e,x,1,2", "not 4 fields"),
    ('2026-11-15T10:00:00Z,f,1,"2', "a quote is not closed on the line"),
]


def test_csv_lines_are_good_or_bad_for_a_reason_and_keep_their_text(spark: Any, tmp_path: Path) -> None:
    lines = ["ts,sensor,extra,temp", *(line for line, _ in CSV_LINES)]
    (tmp_path / "a.csv").write_text("\r\n\r\n".join(lines))
    rows = read(spark, source(tmp_path, format="csv"))
    assert [(row._raw, row._error) for row in rows] == CSV_LINES
    assert [(row.ts, row.sensor, row.temp) for row in rows[:3]] == [
        (TEN, "a", 1.5),
        (None, 'b, "quoted"', None),
        (None, None, None),
    ]


@pytest.mark.parametrize(
    ("format_", "lines"),
    [("json", JSON_LINES), ("csv", [("ts,sensor,extra,temp", None), *CSV_LINES])],
    ids=["json", "csv"],
)
def test_which_rows_are_bad_does_not_depend_on_the_columns_that_are_used(
    spark: Any, tmp_path: Path, format_: str, lines: list[tuple[str, str | None]]
) -> None:
    (tmp_path / "a").write_text("\n".join(line for line, _ in lines), encoding="utf-8")
    files = source(tmp_path, format=format_)
    frame = files.read(spark, everything(files))
    bad = sum(why is not None for _, why in lines)
    total = len(lines) - (format_ == "csv")
    counts = {
        "all": frame.count(),
        "bad": frame.where("_error IS NOT NULL").count(),
        "good": frame.where("_error IS NULL").count(),
        "bad, one column": len(frame.where("_error IS NOT NULL").select("sensor").collect()),
        "good, other columns": len(frame.where("_error IS NULL AND temp IS NULL").select("_file").collect())
        + len(frame.where("_error IS NULL AND temp IS NOT NULL").select("_file").collect()),
    }
    assert counts == {
        "all": total,
        "bad": bad,
        "good": total - bad,
        "bad, one column": bad,
        "good, other columns": total - bad,
    }


def test_a_filter_on_the_error_does_not_parse_again(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}\n")
    files = source(tmp_path)
    shown = spark.conf.get("spark.sql.maxPlanStringLength")
    spark.conf.set("spark.sql.maxPlanStringLength", "1000000")
    try:
        frame = files.read(spark, everything(files)).where("_error IS NULL AND ts IS NOT NULL").select("ts", "temp")
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
    finally:
        spark.conf.set("spark.sql.maxPlanStringLength", shown)
    # one for the values, one for the reasons of bad rows
    assert plan.count("from_json(") == 2


def test_text_that_is_not_utf8_is_bad_and_readable(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"sensor": "caf\xe9"}\n{"sensor": "caf\xc3\xa9"}\n')
    for format_, schema in (("json", SCHEMA), ("text", "value string")):
        bad, good = read(spark, source(tmp_path, format=format_, schema=schema))
        assert (bad._error, bad._raw) == ("not valid UTF-8", '{"sensor": "caf\ufffd"}')
        assert (good._error, good._raw) == (None, '{"sensor": "café"}')


def test_text_files_have_one_column_and_keep_blank_lines(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n  two\n")
    rows = read(spark, Files(tmp_path, format="text", settle=0))
    assert [tuple(row) for row in rows] == [(text, "a.txt", text, None) for text in ("one", "", "  two")]


# --- csv headers ------------------------------------------------------------------------------------------------


def test_csv_columns_are_found_by_the_name_in_the_header_of_each_file(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,sensor,temp\n2026-11-15T10:00:00Z,a,1\n")
    (tmp_path / "b.csv").write_text('\ufeff"Temp", SENSOR ,ts\n2,b,2026-11-15T10:00:00Z\n', encoding="utf-8")
    (tmp_path / "c.csv").write_text("other,sensor\nx,c\n")
    (tmp_path / "just-a-header.csv").write_text("ts,sensor,temp\n")
    (tmp_path / "blank.csv").write_text("\n\n")
    rows = sorted(read(spark, source(tmp_path, format="csv")), key=lambda row: str(row._file))
    assert [(row._file, row.ts, row.sensor, row.temp, row._error) for row in rows] == [
        ("a.csv", TEN, "a", 1.0, None),
        ("b.csv", TEN, "b", 2.0, None),
        ("c.csv", None, "c", None, None),
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"sep": ";"}, "sensor;temp\na,b;1\n", id="semicolons"),
        pytest.param({"delimiter": "\t"}, "sensor\ttemp\na,b\t1\n", id="tabs"),
        pytest.param({"sep": "||"}, "sensor||temp\na,b||1\n", id="two characters"),
        pytest.param({"quote": "'"}, "sensor,temp\n'a,b',1\n", id="other quotes"),
        pytest.param({"header": False}, ',"a,b",1\n', id="no header"),
        pytest.param({"escape": "\\"}, 'sensor,temp\n"a,b",1\n', id="backslashes"),
    ],
)
def test_csv_options_are_those_of_spark(spark: Any, tmp_path: Path, options: dict[str, object], text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    (row,) = read(spark, source(tmp_path, format="csv", options=options))
    assert (row.sensor, row.temp, row._error) == ("a,b", 1.0, None)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param("a.csv.zst", b"x", "compress CSV files as .gz or .bz2", id="compressed otherwise"),
        pytest.param("a.csv.gz", b"not gzip", "a.csv.gz cannot be loaded: it is damaged: Not a gzipped", id="not gzip"),
        pytest.param("a.csv", b"\xff\xfe\n", "a.csv cannot be loaded: its header .*decode", id="not text"),
    ],
)
def test_a_csv_file_without_a_header_that_can_be_used_is_named(
    spark: Any, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=said):
        read(spark, source(tmp_path, format="csv"))


def test_every_line_of_a_csv_file_with_other_columns_is_rejected_and_other_files_are_read(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("1,2\n\n3,4\n")
    (tmp_path / "b.csv").write_text("ts,sensor,temp\n2026-11-15T10:00:00Z,s1,1.5\n")
    rows = sorted(read(spark, source(tmp_path, format="csv")), key=lambda row: (row._file, row._raw))
    assert [(row._file, row._raw, row.sensor) for row in rows] == [
        ("a.csv", "1,2", None),  # also the first line: the file may have no header
        ("a.csv", "3,4", None),
        ("b.csv", "2026-11-15T10:00:00Z,s1,1.5", "s1"),
    ]
    assert re.search("none of the columns ts, sensor, temp: '1,2'.*'header': False", rows[0]._error)
    assert [row._error is None for row in rows] == [False, False, True]


# --- formats with types of their own -----------------------------------------------------------------------------


def write_parquet(path: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path)


def test_parquet_columns_are_found_by_name_and_times_in_any_unit_are_read(spark: Any, tmp_path: Path) -> None:
    micros = int(TEN.replace(tzinfo=dt.UTC).timestamp() * 1_000_000) + 123_456
    temp = pa.array([1.5])
    for unit, factor in (("ms", 1 / 1000), ("us", 1), ("ns", 1000)):
        moment = pa.array([int(micros * factor)], pa.timestamp(unit, tz="UTC"))
        write_parquet(tmp_path / f"{unit}.parquet", temp=temp, ts=moment, extra=pa.array(["x"]))
    write_parquet(tmp_path / "none.parquet", temp=temp)
    write_parquet(tmp_path / "old.parquet", ts=pa.array([-1], pa.timestamp("ns")))
    files = source(tmp_path, format="parquet")
    frame = files.read(spark, everything(files))
    rows = frame.selectExpr("_file", "unix_micros(ts)", "sensor", "temp", "_error").collect()
    assert sorted(tuple(row) for row in rows) == [
        ("ms.parquet", micros - 456, None, 1.5, None),
        ("none.parquet", None, None, 1.5, None),
        ("ns.parquet", micros, None, 1.5, None),
        ("old.parquet", -1, None, None, None),
        ("us.parquet", micros, None, 1.5, None),
    ]
    raw = {row._file: json.loads(row._raw) for row in frame.select("_file", "_raw").collect()}
    assert raw["ns.parquet"] == {"ts": "2026-11-15T10:00:00.123456Z", "sensor": None, "temp": 1.5}
    assert raw["none.parquet"] == {"ts": None, "sensor": None, "temp": 1.5}


def test_a_broken_parquet_file_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\xff" * 8 + (8).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(SourceError, match=r"a\.parquet cannot be loaded: it is not a readable Parquet file"):
        read(spark, source(tmp_path, format="parquet"))


def test_orc_files_of_spark_are_whole_and_columns_are_found_by_name(spark: Any, tmp_path: Path) -> None:
    written = spark.sql("SELECT 1.5D AS temp, 'x' AS extra, TIMESTAMP '2026-11-15 10:00:00' AS ts")
    written.coalesce(1).write.orc(str(tmp_path / "out"))
    (row,) = read(spark, source(tmp_path, format="orc", recursive=True))
    assert (row.ts, row.sensor, row.temp, row._error) == (TEN, None, 1.5, None)
    assert row._file.startswith("out/part-")


def test_parquet_files_of_spark_are_whole(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "out"))
    assert len(read(spark, source(tmp_path, format="parquet", schema="id long", recursive=True))) == 3


# --- files --------------------------------------------------------------------------------------------------------

NASTY = [
    *(
        "a b.json",
        "2026-11-15T10:00:00.json",
        "x[1].json",
        "{y,z}.json",
        "q*?.json",
        "p%20q.json",
        "u+v.json",
        "ü.json",
    ),
    *("back\\slash.json", "h#h.json", "date=2026-11-15/a.json", 'quote\'s "x".json'),
]


def test_any_name_of_a_file_is_read_and_comes_back(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "la nding+%20[1]"
    for name in NASTY:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"sensor": name}))
    rows = read(spark, source(folder, recursive=True))
    assert sorted((row._file, row.sensor) for row in rows) == sorted((name, name) for name in NASTY)


@pytest.mark.parametrize("format_", ["json", "csv", "text"])
def test_compressed_files_are_read(spark: Any, tmp_path: Path, format_: str) -> None:
    text = {"json": '{"value": "x"}', "csv": "value\nx", "text": "x"}[format_]
    openers: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".bz2": bz2.open}
    for suffix, opener in openers.items():
        with opener(tmp_path / f"a.{format_}{suffix}", "wt") as file:
            file.write(text)
    rows = read(spark, source(tmp_path, format=format_, schema="value string"))
    assert sorted((row._file, row.value) for row in rows) == [
        (f"a.{format_}{suffix}", "x") for suffix in sorted(openers)
    ]


@pytest.mark.parametrize("format_", ["json", "csv", "text"])
def test_empty_files_have_no_rows_alone_and_among_others(spark: Any, tmp_path: Path, format_: str) -> None:
    (tmp_path / "empty").touch()
    files = source(tmp_path, format=format_, schema="value string")
    alone = files.read(spark, everything(files))
    assert (alone.count(), alone.columns) == (0, ["value", "_file", "_raw", "_error"])
    (tmp_path / "full").write_text({"json": '{"value": "x"}', "csv": "value\nx", "text": "x"}[format_])
    assert [row.value for row in read(spark, files)] == ["x"]


@pytest.mark.parametrize(
    "meanwhile", [os.unlink, lambda path: Path(path).write_text("{}\n{}\n")], ids=["removed", "changed"]
)
def test_a_file_that_changes_while_it_is_read_is_never_silently_fewer_rows(
    spark: Any, tmp_path: Path, meanwhile: Callable[[Path], object]
) -> None:
    (tmp_path / "a.json").write_text("{}\n")
    (tmp_path / "b.json").write_text("{}\n")
    files = source(tmp_path)
    found = everything(files)
    frame = files.read(spark, found)
    meanwhile(tmp_path / "a.json")
    try:
        frame.collect()
    except Exception as error:  # whatever Spark calls it
        assert "a.json" in str(error)
    with pytest.raises(SourceChanged, match=r"a\.json"):
        files.verify(found)


def test_nested_columns_fit_or_are_bad(spark: Any, tmp_path: Path) -> None:
    lines = ['{"n": {"a": 1, "b": ["x"]}}', '{"n": {"a": "one"}}', '{"n": 3}']
    (tmp_path / "a.json").write_text("\n".join(lines))
    rows = read(spark, source(tmp_path, schema="n struct<a: int, b: array<string>>"))
    assert [row._error for row in rows] == [
        None,
        "does not fit the schema",
        "n: '3' is not of the type struct<a: int, b: array<string>>",
    ]
    assert (rows[0].n.a, rows[0].n.b) == (1, ["x"])


def test_names_of_columns_may_hold_anything(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a.b": 1, "it\'s": "x", "back`tick": "y"}\n{"a.b": "one"}\n')
    good, bad = read(spark, source(tmp_path, schema="`a.b` int, `it's` string, `back``tick` string"))
    assert (good["a.b"], good["it's"], good["back`tick"], good._error) == (1, "x", "y", None)
    assert bad._error == "a.b: 'one' is not of the type int"


def test_options_of_the_json_parser_are_passed_on(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"ts": "15.11.2026 10:00"}\n')
    (row,) = read(spark, source(tmp_path, options={"timestampFormat": "dd.MM.yyyy HH:mm"}))
    assert (row.ts, row._error) == (TEN, None)
