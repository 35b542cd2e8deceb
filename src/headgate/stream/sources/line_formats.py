"""How a line of text becomes a row: JSON, comma-separated values, or a function of the user's.

A format is given many lines at once and makes exactly one row of each, or raises: ``fit.sift`` finds the line at fault.
Whether a line is well-formed must not depend on the lines around it, and Arrow's parsers do not see lines but text in
which a row may span several of them. Hence the checks before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.stream.sources.block import Block
from headgate.stream.sources.fit import Misfit, Row, as_text, checked, sift, sift_rows

LINE_FORMATS = ("csv", "json")


class LineFormat(Protocol):
    """Turns lines into rows of one schema."""

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        """The rows of these lines; ``place(i)`` says where line i comes from."""


class JsonLines:
    """One JSON object a line. Members that the schema does not have are ignored, and missing ones are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # What may not be null is checked here, in words of our own; and Arrow takes numbers for dates.
        written = pa.schema([pa.field(f.name, pa.string() if _is_date_or_time(f.type) else f.type) for f in schema])
        self._options = pa_json.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore")
        _try_types(lambda: self._table(b"{}"), schema, "JSON")

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        return sift(lines, self._batch, self._schema, place)

    def _batch(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        lines = [line.strip() for line in lines]
        # With this, no object can begin on one line and go on in the next.
        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            raise Misfit("expected a JSON object, {...}, on one line")
        return _checked(self._table(_text(lines)), lines, self._schema)

    def _table(self, text: bytes) -> pa.Table:
        options = pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        return pa_json.read_json(pa.BufferReader(text), options, self._options)


class CsvLines:
    """Values with commas between them. ``columns`` are the names in the order of the text; of them only the
    schema's are taken. A quoted value cannot contain a newline."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str] = ()) -> None:
        self._schema = schema
        self._columns = list(columns or schema.names)
        self._parse = pa_csv.ParseOptions(newlines_in_values=False)
        types = {field.name: field.type for field in schema}
        self._convert = pa_csv.ConvertOptions(column_types=types, include_columns=schema.names)
        _try_types(lambda: self._table(",".join('""' for _ in self._columns).encode()), schema, "CSV")

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        return sift(lines, self._batch, self._schema, place)

    def _batch(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        text = _text(lines)
        # Arrow takes a carriage return for the end of a row; such lines are looked at one by one.
        if len(lines) > 1 and b"\r" in text:
            raise Misfit("carriage return inside a line")
        return _checked(self._table(text), lines, self._schema)

    def _table(self, text: bytes) -> pa.Table:
        options = pa_csv.ReadOptions(use_threads=False, column_names=self._columns, block_size=len(text) + 1)
        return pa_csv.read_csv(pa.BufferReader(text), options, self._parse, self._convert)


class ParsedLines:
    """A function that makes a row of a line. A line that it raises for is rejected, with the error as the reason."""

    def __init__(self, schema: pa.Schema, parse: Callable[[str], Row]) -> None:
        self._schema = schema
        self._parse = parse

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        texts = [line.raw if isinstance(line, Misfit) else as_text(line) for line in lines]
        rows = [
            line if isinstance(line, Misfit) else parsed(self._parse, text)
            for line, text in zip(lines, texts, strict=True)
        ]
        return sift_rows(rows, self._schema, place, texts.__getitem__)


def parsed(parse: Callable[..., Row], *given: str | bytes) -> Row | Misfit:
    """What a user's function makes of its arguments; a misfit if it fails."""
    try:
        return parse(*given)
    except Exception as error:  # whatever it is, it is about this row
        return Misfit(f"the parse function raised {type(error).__name__}: {error}")


def line_format(name: str, schema: pa.Schema) -> LineFormat:
    """The format for lines without a header."""
    if name == "json":
        return JsonLines(schema)
    if name == "csv":
        return CsvLines(schema)
    raise UnknownNameError("format for lines", name, LINE_FORMATS)


def _text(lines: Sequence[bytes]) -> bytes:
    text = b"\n".join(lines)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8: {error.reason} at byte {error.start}") from error
    return text


def _checked(table: pa.Table, lines: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    if table.num_rows != len(lines):
        raise Misfit(f"expected one row, got {table.num_rows}")
    columns = [table.column(field.name).combine_chunks() for field in schema]
    arrays = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return checked([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema)


def _is_date_or_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind))


def _try_types(parse_one: Callable[[], object], schema: pa.Schema, what: str) -> None:
    """Say at once if Arrow can never read these types, instead of rejecting every row."""
    try:
        parse_one()
    except (NotImplementedError, KeyError) as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DeclarationError(
            f"{what} cannot be read as {types}: {error}. Choose types that text can be read as, such as string, and "
            f"convert them in the query."
        ) from error
    except pa.ArrowInvalid:
        return
