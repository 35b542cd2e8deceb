"""Files: Arrow, Parquet, comma-separated values and JSON lines, read one after the other in the order of their names.

Which files there are is looked at when a run begins. Whatever their size, only a small part is in memory at a time.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.core import DeclarationError, UnknownNameError
from headgate.stream.errors import InputError
from headgate.stream.sources.blocks import BLOCK_ROWS, Block, BlockReader
from headgate.stream.sources.fit import Misfit, Row, as_text, check_columns, fit_columns, schema_text
from headgate.stream.sources.lines import CsvLines, Framer, JsonLines, LineFormat, ParsedLines
from headgate.stream.sources.source import Wake

_WILDCARDS = frozenset("*?[")
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_READ_BYTES = 1 << 18

#: the numbers of some lines, and their texts
NumberedLines = tuple[list[int], list[bytes | Misfit]]
#: rows that are decoded at once
_ROWS = 1 << 16
#: Arrow's format for files begins with this; its format for streams does not
_FILE_MAGIC = b"ARROW1"


class _FileFormat(NamedTuple):
    endings: tuple[str, ...]
    schema: Callable[[Path], pa.Schema]
    blocks: Callable[[Path, pa.Schema], Iterator[Block]]


class FileSource:
    """A source of rows in files; users call it ``Files``.

    - ``path``: a file, a folder, or a pattern such as ``"logs/*.csv"``. In folders, names that begin with a dot or an
      underscore are skipped: they are unfinished files.
    - ``format``: ``"arrow"``, ``"parquet"``, ``"csv"`` (with a first line that names the columns) or ``"json"`` (one
      object a line). Without it, the ending of the first file decides. Text may be compressed.
    - ``schema``: the columns to read. Without it, they are those of the first file. For text they are guessed
      from its first lines, which is good for trying things out.

    A line of text that does not fit the schema is rejected with its file and line number.
    """

    def __init__(self, path: str | Path, format: str | None = None, schema: pa.Schema | None = None) -> None:
        if format is not None and format not in _FORMATS:
            raise UnknownNameError("file format", format, _FORMATS)
        self._path = Path(path)
        self._format_name = format
        self._declared_schema = schema

    def __repr__(self) -> str:
        return f"Files({str(self._path)!r}, format={self._format_name!r})"

    @cached_property
    def schema(self) -> pa.Schema:
        if self._declared_schema is not None:
            return self._declared_schema
        first = self._files()[0]
        return self._format(first).schema(first)

    def open(self, wake: Wake, now: float) -> BlockReader:
        return BlockReader(self.schema, self._blocks(self._files()))

    def _blocks(self, files: list[Path]) -> Iterator[Block]:
        read = self._format(files[0]).blocks
        for file in files:
            yield from read(file, self.schema)

    def _files(self) -> list[Path]:
        endings = _FORMATS[self._format_name].endings if self._format_name else None
        return find_files(self._path, endings)

    def _format(self, file: Path) -> _FileFormat:
        if self._format_name is not None:
            return _FORMATS[self._format_name]
        for known in _FORMATS.values():
            if _ending(file) in known.endings:
                return known
        endings = ", ".join(ending for known in _FORMATS.values() for ending in known.endings)
        raise DeclarationError(
            f"the format of {file} cannot be told from its name. Expected one of the endings {endings}; "
            f"got {_ending(file)!r}. Say it with format=, one of {', '.join(_FORMATS)}."
        )


class LineSource:
    """A source of text files of any format, by lines: ``parse`` makes a row of each. Users call it ``Lines``.

    A line for which it raises, or whose row does not fit the schema, is rejected with its file and line number.
    """

    def __init__(self, path: str | Path, parse: Callable[[str], Row], schema: pa.Schema) -> None:
        self._path = Path(path)
        self._parse = parse
        self.schema = schema

    def __repr__(self) -> str:
        return f"Lines({str(self._path)!r})"

    def open(self, wake: Wake, now: float) -> BlockReader:
        return BlockReader(self.schema, self._blocks(find_files(self._path, None)))

    def _blocks(self, files: list[Path]) -> Iterator[Block]:
        for file in files:
            yield from parsed_blocks(file, self.schema, self._parse)


# --- which files ---------------------------------------------------------------------------------------------


def find_files(path: Path, endings: tuple[str, ...] | None) -> list[Path]:
    """The files that a path stands for, at least one, in the order of their names. ``endings`` are for folders."""
    if path.is_dir():
        found = [
            file for file in path.iterdir() if _is_finished(file) and (endings is None or _ending(file) in endings)
        ]
        wanted = f"files ending in {' or '.join(endings)}" if endings else "files"
    elif _WILDCARDS & set(str(path)) and not path.exists():
        found = [file for file in _matching(path) if _is_finished(file)]
        wanted = "files of such names"
    else:
        found = [path] if path.is_file() else []
        wanted = "a file, a folder or a pattern such as 'logs/*.csv'"
    if not found:
        raise DeclarationError(
            f"there is nothing to read at {path} (looked at {path.absolute()}). Expected {wanted}; found none. "
            f"Check the path, and that the files are there before the query starts."
        )
    return sorted(found)


def _matching(pattern: Path) -> Iterator[Path]:
    anchor = Path(pattern.anchor)
    return anchor.glob(str(pattern.relative_to(anchor)) if pattern.anchor else str(pattern))


def _is_finished(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))


def _ending(file: Path) -> str:
    """The ending that tells the format, without that of a compression."""
    return (file.with_suffix("") if file.suffix in _COMPRESSED else file).suffix


# --- text: some thousand lines at a time ---------------------------------------------------------------------


def json_blocks(path: Path, schema: pa.Schema) -> Iterator[Block]:
    with closing(_lines(path)) as parts:
        yield from _blocks(path, JsonLines(schema), parts)


def csv_blocks(path: Path, schema: pa.Schema) -> Iterator[Block]:
    """The first line names the columns."""
    with closing(_lines(path)) as parts:
        numbers, lines = next(parts, ([], []))
        if lines:
            line_format = CsvLines(schema, _header(path, lines[0], schema))
            yield from _blocks(path, line_format, itertools.chain([(numbers[1:], lines[1:])], parts))


def parsed_blocks(path: Path, schema: pa.Schema, parse: Callable[[str], Row]) -> Iterator[Block]:
    with closing(_lines(path)) as parts:
        yield from _blocks(path, ParsedLines(schema, parse), parts)


def _blocks(path: Path, line_format: LineFormat, parts: Iterable[NumberedLines]) -> Iterator[Block]:
    for numbers, lines in parts:
        yield line_format.block(lines, partial(_place, path, numbers))


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
            f"the first line of {path} must name the column {unclear[0]!r} exactly once. "
            f"Expected: {schema_text(schema)}. Got: {', '.join(names)}. Correct the schema or the first line."
        )
    return names


def _guess_schema(read: Callable[[BytesIO], pa.Table], path: Path) -> pa.Schema:
    """The schema that ``read`` finds in the first lines."""
    with closing(_lines(path)) as parts:
        _, lines = next(parts, ([], []))
    text = b"\n".join(line for line in lines if isinstance(line, bytes))
    try:
        schema = read(BytesIO(text)).schema
    except pa.ArrowInvalid as error:
        raise DeclarationError(
            f"the columns of {path} cannot be told from its first lines: {error}. Give the columns and their types as "
            f"schema=pa.schema(...)."
        ) from error
    # A column without a single value has no type; as text it can take whatever comes.
    return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in schema])


# --- columns: Arrow's two formats, and Parquet ----------------------------------------------------------------


def parquet_schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path).remove_metadata()
    except pa.ArrowInvalid as error:
        raise _damaged(path, "Parquet", error) from error


def parquet_blocks(path: Path, schema: pa.Schema) -> Iterator[Block]:
    try:
        with pq.ParquetFile(path) as file:
            check_columns(file.schema_arrow, schema, str(path))
            for batch in file.iter_batches(batch_size=_ROWS, columns=schema.names, use_threads=False):
                yield fit_columns(batch, schema, str(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, "Parquet", error) from error


def arrow_schema(path: Path) -> pa.Schema:
    try:
        with pa.memory_map(str(path)) as file:
            return _arrow_reader(file).schema.remove_metadata()
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, "Arrow", error) from error


def arrow_blocks(path: Path, schema: pa.Schema) -> Iterator[Block]:
    try:
        with pa.memory_map(str(path)) as file:
            for batch in _arrow_batches(_arrow_reader(file)):
                yield fit_columns(batch, schema, str(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, "Arrow", error) from error


def _arrow_reader(file: pa.NativeFile) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    file.seek(0)
    return pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)


def _arrow_batches(
    reader: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader


def _damaged(path: Path, what: str, error: Exception) -> InputError:
    return InputError(
        f"{path} cannot be read as {what}: {error}. Expected a complete {what} file. Remove it or write it again; if "
        f"it is of another format, say so with format=."
    )


_FORMATS = {
    "arrow": _FileFormat((".arrow", ".arrows", ".feather"), arrow_schema, arrow_blocks),
    "parquet": _FileFormat((".parquet",), parquet_schema, parquet_blocks),
    "csv": _FileFormat((".csv",), partial(_guess_schema, pa_csv.read_csv), csv_blocks),
    "json": _FileFormat((".json", ".jsonl", ".ndjson"), partial(_guess_schema, pa_json.read_json), json_blocks),
}

#: the names under which users know these sources
Files = FileSource
Lines = LineSource
