"""The blocks of files that hold columns: Arrow's two formats, and Parquet. Only a part is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.stream.sources.block import Block
from headgate.stream.sources.errors import InputError
from headgate.stream.sources.fit import check_columns, fit_columns

#: rows that are decoded at once
_ROWS = 1 << 16
#: Arrow's format for files begins with this; its format for streams does not
_FILE_MAGIC = b"ARROW1"


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
