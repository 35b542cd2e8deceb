"""Text by lines: bytes cut into lines, and lines made into rows as JSON, as CSV, or by a function of the user's.

A format gets many lines at once and makes exactly one row of each, or raises: ``fit.sift`` then finds the line at
fault. Whether a line is well-formed must not depend on the lines around it. Arrow's parsers do not see lines but text
in which a row may span several of them; hence the checks before and after parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]

from headgate.core import DeclarationError, UnknownNameError
from headgate.stream.sources.blocks import Block
from headgate.stream.sources.fit import Misfit, Row, as_text, checked_batch, sift, sift_rows

LINE_FORMATS = ("csv", "json")
#: bytes of the longest line that is kept: without a limit, input without newlines would fill the memory
LONGEST_LINE = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: how much of a line that is too long is shown
_SHOWN = 200


class Framer:
    """Takes bytes and gives lines without their ends, each with its number from 1.

    Empty lines are counted but left out. A line that is too long becomes a misfit; never more than
    ``longest`` bytes of a line are held, however long it is.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        #: the line that has begun and not ended
        self._partial = b""
        #: of a line that has become too long: how many bytes of it have been dropped
        self._dropped = 0
        self._number = 0

    def feed(self, data: bytes) -> tuple[list[int], list[bytes | Misfit]]:
        """The numbers and the texts of the lines that these bytes complete."""
        numbers: list[int] = []
        lines: list[bytes | Misfit] = []
        first, *others = data.split(b"\n")
        self._hold(first)
        if others:
            self._finish(numbers, lines)
            *complete, rest = others
            if self._are_plain(complete, data):
                numbers.extend(range(self._number + 1, self._number + 1 + len(complete)))
                lines.extend(complete)
                self._number += len(complete)
            else:
                for text in complete:
                    self._hold(text)
                    self._finish(numbers, lines)
            self._hold(rest)
        return numbers, lines

    def end(self) -> tuple[list[int], list[bytes | Misfit]]:
        """The last line, if it was not ended by a newline."""
        numbers: list[int] = []
        lines: list[bytes | Misfit] = []
        self._finish(numbers, lines)
        return numbers, lines

    def _are_plain(self, complete: list[bytes], data: bytes) -> bool:
        """Whether lines need not be looked at one by one: nearly always."""
        longest = max(map(len, complete), default=0)
        blank = b"" in complete or any(map(bytes.isspace, complete))
        return longest <= self._longest and not blank and b"\r" not in data

    def _hold(self, text: bytes) -> None:
        line = self._partial + text if self._partial else text
        if len(line) > self._longest:
            self._dropped += len(line) - self._longest
            line = line[: self._longest]
        self._partial = line

    def _finish(self, numbers: list[int], lines: list[bytes | Misfit]) -> None:
        text = self._partial
        self._number += 1
        if self._number == 1:
            text = text.removeprefix(_BYTE_ORDER_MARK)
        if text.endswith(b"\r"):
            text = text[:-1]
        if self._dropped:
            numbers.append(self._number)
            lines.append(self._too_long(text))
        elif text and not text.isspace():
            numbers.append(self._number)
            lines.append(text)
        self._partial, self._dropped = b"", 0

    def _too_long(self, text: bytes) -> Misfit:
        reason = f"the line has {self._longest + self._dropped} bytes; the longest that is taken has {self._longest}"
        return Misfit(reason, raw=as_text(text[:_SHOWN]))


class LineFormat(Protocol):
    """Turns lines into rows of one schema."""

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        """The rows of these lines; ``place(i)`` says where line i comes from."""


class JsonLines:
    """One JSON object a line. Members that the schema does not have are ignored, and missing ones are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # Nulls are checked here, for better messages. Dates are read as text, since Arrow would take numbers for them.
        parsed = pa.schema([pa.field(f.name, pa.string() if _is_date_or_time(f.type) else f.type) for f in schema])
        self._options = pa_json.ParseOptions(explicit_schema=parsed, unexpected_field_behavior="ignore")
        _check_types(lambda: self._table(b"{}"), schema, "JSON")

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        return sift(lines, self._batch, self._schema, place)

    def _batch(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        lines = [line.strip() for line in lines]
        # With this, no object can begin on one line and go on in the next.
        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            raise Misfit("expected a JSON object, {...}, on one line")
        return _checked(self._table(_utf8_text(lines)), lines, self._schema)

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
        _check_types(lambda: self._table(",".join('""' for _ in self._columns).encode()), schema, "CSV")

    def block(self, lines: Sequence[bytes | Misfit], place: Callable[[int], str]) -> Block:
        return sift(lines, self._batch, self._schema, place)

    def _batch(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        text = _utf8_text(lines)
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
            line if isinstance(line, Misfit) else parse_row(self._parse, text)
            for line, text in zip(lines, texts, strict=True)
        ]
        return sift_rows(rows, self._schema, place, texts.__getitem__)


def parse_row(parse: Callable[..., Row], *arguments: str | bytes) -> Row | Misfit:
    """The row that a user's function makes of its arguments; a misfit if it fails."""
    try:
        return parse(*arguments)
    except Exception as error:  # whatever it is, it is about this row
        return Misfit(f"the parse function raised {type(error).__name__}: {error}")


def line_format(name: str, schema: pa.Schema) -> LineFormat:
    """The format of that name, for lines without a header."""
    if name == "json":
        return JsonLines(schema)
    if name == "csv":
        return CsvLines(schema)
    raise UnknownNameError("format for lines", name, LINE_FORMATS)


def _utf8_text(lines: Sequence[bytes]) -> bytes:
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
    return checked_batch([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema)


def _is_date_or_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind))


def _check_types(parse_one: Callable[[], object], schema: pa.Schema, what: str) -> None:
    """Raise at once if Arrow can never read these types, instead of rejecting every row."""
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
