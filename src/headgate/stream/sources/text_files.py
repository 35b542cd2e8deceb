"""The blocks of text files: some thousand lines at a time, compressed or not, with line numbers for rejected rows."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError
from headgate.stream.sources.block import BLOCK_ROWS, Block
from headgate.stream.sources.errors import InputError
from headgate.stream.sources.fit import Misfit, Row, as_text, written
from headgate.stream.sources.framing import Framer
from headgate.stream.sources.line_formats import CsvLines, JsonLines, LineFormat, ParsedLines

_READ_BYTES = 1 << 18

#: the numbers of some lines, and their texts
NumberedLines = tuple[list[int], list[bytes | Misfit]]


def json_blocks(path: Path, schema: pa.Schema) -> Iterator[Block]:
    with closing(_lines(path)) as parts:
        yield from _blocks(path, JsonLines(schema), parts)


def csv_blocks(path: Path, schema: pa.Schema) -> Iterator[Block]:
    """The first line names the columns."""
    with closing(_lines(path)) as parts:
        numbers, lines = next(parts, ([], []))
        if lines:
            lines_as = CsvLines(schema, _header(path, lines[0], schema))
            yield from _blocks(path, lines_as, itertools.chain([(numbers[1:], lines[1:])], parts))


def parsed_blocks(path: Path, schema: pa.Schema, parse: Callable[[str], Row]) -> Iterator[Block]:
    with closing(_lines(path)) as parts:
        yield from _blocks(path, ParsedLines(schema, parse), parts)


def json_schema(path: Path) -> pa.Schema:
    """The schema as the first lines suggest it."""
    return _suggested(path, pa_json.read_json)


def csv_schema(path: Path) -> pa.Schema:
    """The schema as the header and the first lines suggest it."""
    return _suggested(path, pa_csv.read_csv)


def _blocks(path: Path, lines_as: LineFormat, parts: Iterable[NumberedLines]) -> Iterator[Block]:
    for numbers, lines in parts:
        yield lines_as.block(lines, partial(_place, path, numbers))


def _place(path: Path, numbers: list[int], index: int) -> str:
    return f"{path}, line {numbers[index]}: "


def _lines(path: Path) -> Generator[NumberedLines]:
    framer = Framer()
    try:
        with pa.input_stream(str(path), compression="detect") as file:
            while data := file.read(_READ_BYTES):
                yield from _portions(*framer.feed(data))
        yield from _portions(*framer.end())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}. Check that it is complete and may be read.") from error


def _portions(numbers: list[int], lines: list[bytes | Misfit]) -> Iterator[NumberedLines]:
    for start in range(0, len(lines), BLOCK_ROWS):
        yield numbers[start : start + BLOCK_ROWS], lines[start : start + BLOCK_ROWS]


def _header(path: Path, line: bytes | Misfit, schema: pa.Schema) -> list[str]:
    """The names in the first line."""
    text = line.raw if isinstance(line, Misfit) else as_text(line)
    names = [name.strip() for name in next(csv.reader([text]))]
    unclear = [name for name in schema.names if names.count(name) != 1]
    if unclear:
        raise InputError(
            f"the first line of {path} must name the column {unclear[0]!r} exactly once. Expected: {written(schema)}. "
            f"Got: {', '.join(names)}. Correct the schema or the first line."
        )
    return names


def _suggested(path: Path, read: Callable[[BytesIO], pa.Table]) -> pa.Schema:
    with closing(_lines(path)) as parts:
        _, lines = next(parts, ([], []))
    text = b"\n".join(line for line in lines if isinstance(line, bytes))
    try:
        suggested = read(BytesIO(text)).schema
    except pa.ArrowInvalid as error:
        raise DeclarationError(
            f"the columns of {path} cannot be told from its first lines: {error}. Give the columns and their types as "
            f"schema=pa.schema(...)."
        ) from error
    # A column without a single value has no type; as text it can take whatever comes.
    return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in suggested])
