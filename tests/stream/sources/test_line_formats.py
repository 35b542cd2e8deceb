"""Whether a line is well-formed depends on that line alone: not on its neighbours, nor on where blocks are cut."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.stream.sources.fit import Misfit
from headgate.stream.sources.lines import CsvLines, Framer, JsonLines, LineFormat

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
JSON_PARTS = ["{", "}", '"n":', "1", '"s":"x"', ",", '"', "null", " ", "1.5", "[", "]", '{"n":1}', '{"n":2,"s":"y"}']
CSV_PARTS = ["1", ",", '"', "x", "\r", " ", ",x", "2,y", '1,"a"', '""', "1e3", "null"]


def lines_of(parts: list[str]) -> st.SearchStrategy[list[bytes]]:
    line = st.lists(st.sampled_from(parts), min_size=1, max_size=5).map("".join)
    return st.lists(line.filter(lambda text: text.strip()).map(str.encode), min_size=1, max_size=8)


def assert_lines_stand_alone(lines_as: LineFormat, lines: list[bytes]) -> None:
    together = lines_as.block(list(lines), lambda index: f"{index}: ")
    rows, rejected = [], []
    for index, line in enumerate(lines):
        alone = lines_as.block([line], lambda _, index=index: f"{index}: ")  # type: ignore[misc]
        rejected += [each._replace(row=len(rows)) for each in alone.rejected]
        rows += alone.batch.to_pylist()
    assert together.batch.to_pylist() == rows
    assert list(together.rejected) == rejected
    assert len(rows) + len(rejected) == len(lines)


@pytest.mark.slow
@given(lines_of(JSON_PARTS))
def test_json_lines_do_not_depend_on_their_neighbours(lines: list[bytes]) -> None:
    assert_lines_stand_alone(JsonLines(SCHEMA), lines)


@pytest.mark.slow
@given(lines_of(CSV_PARTS))
def test_csv_lines_do_not_depend_on_their_neighbours(lines: list[bytes]) -> None:
    assert_lines_stand_alone(CsvLines(SCHEMA), lines)


@given(st.binary(max_size=200).map(lambda text: text.replace(b"a", b"\n")), st.lists(st.integers(1, 50), max_size=8))
def test_lines_do_not_depend_on_how_the_bytes_come(text: bytes, cuts: list[int]) -> None:
    whole = framed([text])
    pieces, rest = [], text
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    assert framed([*pieces, rest]) == whole


def framed(pieces: list[bytes]) -> list[tuple[int, str | bytes]]:
    framer = Framer(longest=20)
    found = [framer.feed(piece) for piece in pieces] + [framer.end()]
    return [
        (number, str(line) if isinstance(line, Misfit) else line)
        for numbers, lines in found
        for number, line in zip(numbers, lines, strict=True)
    ]


def test_empty_lines_are_counted_but_left_out_and_ends_of_lines_are_cut_off() -> None:
    assert framed([b"\xef\xbb\xbfa\r\n\n  \nb \n\nc"]) == [(1, b"a"), (4, b"b "), (6, b"c")]


def test_a_line_without_end_is_not_held_in_memory() -> None:
    framer = Framer(longest=100)
    for _ in range(1000):
        framer.feed(b"x" * 1000)
    [[number], [line]] = framer.feed(b"\n")
    assert number == 1
    assert isinstance(line, Misfit)
    assert str(line) == "the line has 1000000 bytes; the longest that is taken has 100"
    assert line.raw == "x" * 100
