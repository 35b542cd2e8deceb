"""Rows written to files. A file has its name only when it is complete; before, its name begins with a dot."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError, ParameterError, UnknownNameError
from headgate.stream.sinks.errors import OutputError
from headgate.stream.sinks.file_formats import ENDINGS, FORMATS, BatchWriter

ROWS_PER_FILE = 1_000_000
_PART = re.compile(r"part-(\d+)\.")


class ToFiles:
    """A sink that writes files.

    - ``path``: a folder, for files ``part-00000.parquet`` and so on, beginning after those that are there already; or
      one file, if it ends as files of a format do: it is replaced when the run ends.
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
    """One run. After a failed write, the file that was being written is thrown away."""

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
            raise self._trouble(error) from error
        try:
            self._writer: BatchWriter = FORMATS[format](self._file, schema)
        except pa.ArrowException as error:
            self._remove()
            raise self._trouble(error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except (OSError, TypeError, pa.ArrowException) as error:
            raise self._trouble(error) from error
        self.rows += batch.num_rows

    def complete(self) -> None:
        try:
            self._writer.close()
            self._file.close()
            os.replace(self._hidden, self._path)
        except (OSError, pa.ArrowException) as error:
            self._remove()
            raise self._trouble(error) from error

    def discard(self) -> None:
        # It is thrown away in any case, and the error that led here is on its way.
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._remove()

    def _remove(self) -> None:
        self._file.close()
        self._hidden.unlink(missing_ok=True)

    def _trouble(self, error: Exception) -> OutputError:
        return OutputError(
            f"{self._path} cannot be written: {error}. Check that there is room, that the folder may be written to, "
            f"and that the format has a form for the columns' types. Files that are complete stay."
        )


def _parts(folder: Path, format: str) -> Iterator[Path]:
    """The names of new files, after those that are there."""
    there = [int(found[1]) for file in folder.iterdir() if (found := _PART.match(file.name))]
    number = max(there, default=-1) + 1
    while True:
        yield folder / f"part-{number:05d}.{format}"
        number += 1


def to_files(path: str | Path, format: str | None = None, rows_per_file: int = ROWS_PER_FILE) -> ToFiles:
    """Write rows to one file or to a folder of files."""
    return ToFiles(path, format, rows_per_file)
