"""Lines in any layout: what is read, what is refused and why, whatever stands beside them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from workloads.riot import csv_lines, senml
from workloads.riot.city import City
from workloads.riot.schema import LINES

UNITS = {"longitude": "lon", "latitude": "lat", "temperature": "far"} | dict.fromkeys(
    ("humidity", "light", "dust", "airquality_raw"), "per"
)
USUAL = City(seed=1, missing=0.0, unknown=0.0).lines(0, 1).column("line")[0].as_py()


def entries(**values: Any) -> list[dict[str, Any]]:
    numbers = {name: "1.5" for name in UNITS} | {name: value for name, value in values.items() if name != "source"}
    listed = [{"u": "string", "n": "source", "sv": values.get("source", "s1")}]
    return listed + [{"v": value, "u": UNITS[name], "n": name} for name, value in numbers.items()]


def line(e: Any, bt: Any = 1_422_748_800_000, time: str = "1422748800000", tight: bool = True) -> str:
    separators = (",", ":") if tight else (", ", ": ")
    return f"{time},{json.dumps({'e': e, 'bt': bt}, separators=separators, ensure_ascii=False)}"


def parse(*lines: str | None) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]]]:
    batch = pa.record_batch([pa.array(range(len(lines)), pa.int64()), pa.array(lines, pa.string())], schema=LINES)
    output = senml.parse(batch)
    parents = range(len(lines)) if output.parents is None else output.parents.tolist()
    rows = output.batch.to_pylist()
    assert [row["msgid"] for row in rows] == list(parents)
    return rows, [tuple(each) for each in output.rejected]


PLAIN = {"timestamp": 1_422_748_800_000, "source": "s1"} | dict.fromkeys(UNITS, 1.5)

READ = {
    "as usual": (line(entries()), PLAIN),
    "with blanks": (line(entries(), tight=False), PLAIN),
    "entries in another order": (line(entries()[::-1]), PLAIN),
    "base time as text": (line(entries(), bt="1422748800000"), PLAIN),
    "short base time": (line(entries(), bt=12), PLAIN | {"timestamp": 12}),
    "sent later": (line(entries(), time="1422748800005"), PLAIN),
    "sent at a short time": (line(entries(), time="7"), PLAIN),
    "null in quotes": (line(entries(dust="null")), PLAIN | {"dust": None}),
    "null": (line(entries(dust=None)), PLAIN | {"dust": None}),
    "entry left out": (line([e for e in entries() if e["n"] != "light"]), PLAIN | {"light": None}),
    "number without quotes": (line(entries(light=7)), PLAIN | {"light": 7.0}),
    "exponent": (line(entries(light="-2.5e3")), PLAIN | {"light": -2500.0}),
    "unknown entry": (line([*entries(), {"n": "noise", "v": "loud"}]), PLAIN),
    "the last of two": (line([*entries(), {"n": "dust", "v": "9"}]), PLAIN | {"dust": 9.0}),
    "escaped quote": (line(entries(source='a"b')), PLAIN | {"source": 'a"b'}),
    "escaped letter": (line(entries(source="S")).replace('"S"', '"\\u0041"'), PLAIN | {"source": "A"}),
    "not ASCII": (line(entries(source="Zürich")), PLAIN | {"source": "Zürich"}),
    "not ASCII where the usual layout is cut": (line(entries(source="ü" * 9), time="12"), PLAIN | {"source": "ü" * 9}),
    "a source that looks like a layout": (line(entries(source='"},{"v":"')), PLAIN | {"source": '"},{"v":"'}),
}

REFUSED = {
    "empty": ("", "no comma"),
    "missing": (None, "no comma"),
    "no comma": ("1422748800000", "no comma"),
    "time in words": (line(entries(), time="noon"), "whole number, got 'noon'"),
    "time below zero": (line(entries(), time="-1"), "whole number"),
    "cut off": (USUAL[:200], "not JSON"),
    "two objects": (USUAL + "{}", "not JSON"),
    "bare quote in a name": (line(entries(source="QQ")).replace("QQ", 'Q"Q'), "not JSON"),
    "bare control character": (line(entries(source="QQ")).replace("QQ", "Q\tQ"), "not JSON"),
    "base time with a leading zero": (line(entries()).replace(":1422748800000}", ":0422748800000}"), "not JSON"),
    "a list": ("1,[]", "list of entries"),
    "no entries": ('1,{"bt":5}', "list of entries"),
    "entry without a name": (line([*entries(), {"v": "1"}]), "with a name"),
    "entry that is none": (line([*entries(), 5]), "with a name"),
    "no base time": (line(entries(), bt=None), "bt: expected milliseconds"),
    "base time with a fraction": (line(entries(), bt=1.5), "bt: expected milliseconds"),
    "no source": (line(entries()[1:]), "source: expected a name, got None"),
    "empty source": (line(entries(source="")), "source: expected a name, got ''"),
    "source that is a number": (line(entries(source=5)), "source: expected a name, got 5"),
    "half a character": (line(entries(source="Q")).replace('"Q"', '"\\ud800"'), "UTF-8"),
    "word for a number": (line(entries(humidity="damp")), "humidity: expected a number or null, got 'damp'"),
    "no number at all": (line(entries(humidity="")), "humidity: expected a number or null, got ''"),
    "infinite": (line(entries(humidity="inf")), "humidity: expected a number or null, got 'inf'"),
    "not a number": (line(entries(humidity="nan")), "humidity: expected a number or null, got 'nan'"),
    "truth for a number": (line(entries(humidity=True)), "humidity: expected a number or null, got True"),
}


@pytest.mark.parametrize(("text", "reading"), READ.values(), ids=READ)
def test_a_line_is_read(text, reading) -> None:
    assert parse(text) == ([{"msgid": 0} | reading], [])


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_line_is_refused_with_a_reason(text, reason) -> None:
    rows, [(row, why, raw)] = parse(text)
    assert (rows, row, raw) == ([], 0, text or "")
    assert reason in why


def test_lines_are_read_the_same_alone_and_together() -> None:
    lines = [text for text, _ in [*READ.values(), *REFUSED.values()]]
    lines = [*lines[::2], USUAL, *lines[1::2]]
    rows, rejected = parse(*lines)
    alone = [parse(text) for text in lines]
    assert rows == [row | {"msgid": number} for number, (got, _) in enumerate(alone) for row in got]
    assert rejected == [(number, why, raw) for number, (_, bad) in enumerate(alone) for _, why, raw in bad]


def test_numbers_that_arrow_refuses_do_not_hide_their_neighbours() -> None:
    """One word in a column makes Arrow refuse all of it."""
    lines = [line(entries(dust=text)) for text in ("1", "word", "null", "2.5", "inf", "3e2")]
    rows, rejected = parse(*lines)
    assert [row["dust"] for row in rows] == [1.0, None, 2.5, 300.0]
    assert [row for row, *_ in rejected] == [1, 4]


def test_written_readings_are_read_again() -> None:
    readings = City(seed=4, missing=0.2).readings(0, 500)
    lines = pa.record_batch([readings.column("msgid"), senml.write(readings)], schema=LINES)
    assert senml.parse(lines).batch == readings
    lines = pa.record_batch([readings.column("msgid"), csv_lines.write(readings)], schema=LINES)
    assert csv_lines.parse(lines).batch == readings


def test_no_lines_are_no_readings() -> None:
    assert parse() == ([], [])


CSV_REFUSED = {
    "empty": ("", "expected 9 fields"),
    "missing": (None, "expected 9 fields"),
    "one field too many": ("1,s,1,2,3,4,5,6,7,8", "got 10"),
    "time in words": ("noon,s,1,2,3,4,5,6,7", "timestamp: expected milliseconds as a whole number, got 'noon'"),
    "no time": (",s,1,2,3,4,5,6,7", "timestamp: expected milliseconds"),
    "no source": ("1,,1,2,3,4,5,6,7", "source: expected a name"),
    "word for a number": ("1,s,1,2,3,4,5,much,7", "dust: expected a number or null, got 'much'"),
}


@pytest.mark.parametrize(("text", "reason"), CSV_REFUSED.values(), ids=CSV_REFUSED)
def test_a_csv_line_is_refused_with_a_reason_and_its_neighbours_are_not(text, reason) -> None:
    lines = pa.array(["5,s,1,2,3,null,5,6,7", text, "6,t,1,2,3,4,5,6,7"])
    output = csv_lines.parse(pa.record_batch([pa.array([0, 1, 2], pa.int64()), lines], schema=LINES))
    assert [row["source"] for row in output.batch.to_pylist()] == ["s", "t"]
    assert output.batch.column("humidity").to_pylist() == [None, 4.0]
    assert output.parents.tolist() == [0, 2]
    [(row, why, raw)] = output.rejected
    assert (row, raw) == (1, text or "")
    assert reason in why
