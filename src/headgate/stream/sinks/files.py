"""Rows written to files. A file gets its name only when it is complete; before, its name begins with a dot."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.core import DeclarationError, ParameterError, UnknownNameError
from headgate.stream.errors import OutputError

ROWS_PER_FILE = 1_000_000
_PART = re.compile(r"part-(\d+)\.")
#: rows of a row group of Parquet, at least
ROW_GROUP = 1 << 16


class ToFiles:
    """A sink that writes files.

    - ``path``: a folder, for files ``part-00000.parquet`` and so on, numbered after those that are there already; or
      one file, if it has the ending of a format: it is replaced when the run ends.
    - ``format``: ``"parquet"``, ``"arrow"``, ``"csv"`` with a first line of names, or ``"json"`` with an object a line.
    - ``rows_per_file``: a file of a folder is complete after so many rows.

    A run without rows writes no file: only rows say what the columns are.
    """

    def __init__(self, path: str | Path, format: str | None = None, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._path = Path(path)
        ending = ENDINGS.get(self._path.suffix)
        self._single = ending is not None and not self._path.is_dir()
        self._format = format or ending or ""
        self._rows_per_file = rows_per_file
        if not self._format:
            raise DeclarationError(
                f"to_files: the format cannot be told from {self._path}. Say it with format=, one of "
                f"{', '.join(FORMATS)}, or name a file that ends in one of {', '.join(ENDINGS)}."
            )
        if self._format not in FORMATS:
            raise UnknownNameError("file format", self._format, FORMATS)
        if rows_per_file < 1:
            raise ParameterError(f"to_files: rows_per_file must be at least 1; got {rows_per_file!r}")

    def __repr__(self) -> str:
        return f"to_files({str(self._path)!r}, format={self._format!r})"

    def open(self) -> FileWriter:
        folder = self._path.parent if self._single else self._path
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self!r} cannot make the folder {folder}: {error}. Choose a folder that may be written to."
            ) from error
        if self._single:
            return FileWriter(iter([self._path]), self._format, None)
        return FileWriter(_parts(self._path, self._format), self._format, self._rows_per_file)


class FileWriter:
    """One run. After a failed write, the file that was being written is deleted."""

    def __init__(self, paths: Iterator[Path], format: str, rows_per_file: int | None) -> None:
        self._paths = paths
        self._format = format
        self._rows_per_file = rows_per_file
        self._file: _UnfinishedFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            if self._file is None:
                self._file = _UnfinishedFile(next(self._paths), self._format, batch.schema)
            room = batch.num_rows if self._rows_per_file is None else self._rows_per_file - self._file.rows
            self._write(self._file, batch.slice(0, room))
            batch = batch.slice(room)
            if self._rows_per_file is not None and self._file.rows >= self._rows_per_file:
                self.close()

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.complete()

    def _write(self, file: _UnfinishedFile, batch: pa.RecordBatch) -> None:
        try:
            file.write(batch)
        except BaseException:
            self._file = None
            file.discard()
            raise


class _UnfinishedFile:
    """A file under a hidden name, until it is complete."""

    def __init__(self, path: Path, format: str, schema: pa.Schema) -> None:
        self._path = path
        self._hidden = path.with_name(f".{path.name}.unfinished")
        self.rows = 0
        try:
            self._file = pa.OSFile(str(self._hidden), "wb")
        except OSError as error:
            raise self._output_error(error) from error
        try:
            self._writer: BatchWriter = FORMATS[format](self._file, schema)
        except pa.ArrowException as error:
            self._remove()
            raise self._output_error(error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except (OSError, TypeError, pa.ArrowException) as error:
            raise self._output_error(error) from error
        self.rows += batch.num_rows

    def complete(self) -> None:
        try:
            self._writer.close()
            self._file.close()
            os.replace(self._hidden, self._path)
        except (OSError, pa.ArrowException) as error:
            self._remove()
            raise self._output_error(error) from error

    def discard(self) -> None:
        # It is deleted in any case, and the error that led here is being raised.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._remove()

    def _remove(self) -> None:
        self._file.close()
        self._hidden.unlink(missing_ok=True)

    def _output_error(self, error: Exception) -> OutputError:
        return OutputError(
            f"{self._path} cannot be written: {error}. Check that there is room, that the folder may be written to, "
            f"and that the format has a form for the columns' types. Files that are complete stay."
        )


def _parts(folder: Path, format: str) -> Iterator[Path]:
    """The names of new files, after those that are there."""
    numbers = [int(found[1]) for file in folder.iterdir() if (found := _PART.match(file.name))]
    number = max(numbers, default=-1) + 1
    while True:
        yield folder / f"part-{number:05d}.{format}"
        number += 1


# --- formats -------------------------------------------------------------------------------------------------


class BatchWriter(Protocol):
    """Writes batches of one schema into an open file. ``close`` completes the format but leaves the file open."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _JsonWriter:
    def __init__(self, file: pa.NativeFile, schema: pa.Schema) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._file.write("".join(f"{row}\n" for row in json_rows(batch)).encode())

    def close(self) -> None:
        """A file of lines is complete after every line."""


class _ParquetWriter:
    """Collects batches: each write makes a row group, and many small ones make a file large and slow."""

    def __init__(self, file: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
        self._batches, self._rows = [], 0


FORMATS: dict[str, Callable[[pa.NativeFile, pa.Schema], BatchWriter]] = {
    "arrow": pa.ipc.new_file,
    "csv": pa_csv.CSVWriter,
    "json": _JsonWriter,
    "parquet": _ParquetWriter,
}
ENDINGS = {".arrow": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """Each row as a JSON object without newlines, such that the JSON source reads the same values.

    JSON has no NaN and no infinity: they become null. It has no bytes, which are written as base64, and no lengths of
    time, which are written as seconds.
    """
    columns = [_finite(column) for column in batch.columns]
    rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return [json.dumps(row, default=_plain, ensure_ascii=False, separators=(",", ":")) for row in rows]


def _finite(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _plain(value: Any) -> str | float:
    """Values of types that JSON does not have."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON; convert the column in the query")


#: the name under which users know this sink
to_files = ToFiles
