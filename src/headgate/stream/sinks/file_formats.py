"""How batches are written into a file of a format, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.stream.sinks.json_text import json_rows

#: rows of a row group of Parquet, at least
ROW_GROUP = 1 << 16


class BatchWriter(Protocol):
    """Writes batches of one schema into an open file. ``close`` completes the format but leaves the file open."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _JsonLines:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._file.write("".join(f"{row}\n" for row in json_rows(batch)).encode())

    def close(self) -> None:
        """A file of lines is complete after every line."""


class _Parquet:
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


def _csv(file: pa.NativeFile, schema: pa.Schema) -> BatchWriter:
    writer: BatchWriter = pa_csv.CSVWriter(file, schema)
    return writer


def _parquet(file: pa.NativeFile, schema: pa.Schema) -> BatchWriter:
    return _Parquet(file, schema)


def _arrow(file: pa.NativeFile, schema: pa.Schema) -> BatchWriter:
    writer: BatchWriter = pa.ipc.new_file(file, schema)
    return writer


def _json(file: pa.NativeFile, schema: pa.Schema) -> BatchWriter:
    return _JsonLines(file)


FORMATS: dict[str, Callable[[pa.NativeFile, pa.Schema], BatchWriter]] = {
    "arrow": _arrow,
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
ENDINGS = {".arrow": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
