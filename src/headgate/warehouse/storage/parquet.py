"""Writing rows as Parquet, and describing the Parquet files that Spark wrote, with their statistics.

This module knows nothing of the log. Files written here look like those of Spark: microseconds in UTC, no partition
column inside.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.fs as pa_fs  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath, relative
from headgate.warehouse.storage import HIDDEN_PREFIX, PARTITION_COLUMN
from headgate.warehouse.storage.errors import DamagedFileError, SchemaError, StorageError
from headgate.warehouse.storage.files import DATA_DIRECTORY, DataFile, NewFile
from headgate.warehouse.storage.partitions import format_time, partition_start, split_by_partition
from headgate.warehouse.storage.schemas import is_stored_as_is, storable

_PARTITION_PREFIX = f"{PARTITION_COLUMN}="
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
#: columns with statistics, as in other Delta writers; the time column always has them
DESCRIBED_COLUMNS = 32
_LONGEST_TEXT = 32
_EPOCH_DAY = date(1970, 1, 1)
#: files are compared with their checksums when they are read; those that have none are read as they are
_CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
#: what Arrow raises about a file that is not what was written, or is not there
_DAMAGE = (OSError, pa.ArrowInvalid)
#: several requests to an object store at once take little longer than one
_requests = ThreadPoolExecutor(8, thread_name_prefix="objects")


def write_rows(
    table: AnyPath, directory: AnyPath, rows: pa.Table, time_column: str | None, partition_length: float | None
) -> list[NewFile]:
    """Write ``rows`` into ``directory`` below ``table``: a file for each partition, or one file without event time."""
    # Not `safe`: times finer than microseconds are cut off, as Delta has none; all other casts only widen.
    stored = rows.cast(storable(rows.schema), safe=False)
    if stored.num_rows == 0:
        return []
    parts: list[tuple[str | None, pa.Table]] = [(None, stored)]
    if time_column is not None:
        if partition_length is None:
            raise StorageError(f"table {table.name!r} has event time, so the length of its partitions must be given")
        parts = [*split_by_partition(stored, time_column, partition_length)]
    directory.mkdir(parents=True, exist_ok=True)
    return [write_file(table, _free_path(directory, label), part, label, time_column) for label, part in parts]


def write_file(
    table: AnyPath, path: AnyPath, rows: pa.Table, partition: str | None, time_column: str | None
) -> NewFile:
    """Write ``rows``, whose columns are storable already, as the one file ``path``."""
    footers: list[pq.FileMetaData] = []
    # Without Arrow's own schema in the footer a file reads the same whether Spark or this process wrote it.
    if isinstance(path, Path):
        pq.write_table(rows, path, store_schema=False, metadata_collector=footers, write_page_checksum=True)
        size = path.stat().st_size
    else:
        content = pa.BufferOutputStream()
        pq.write_table(rows, content, store_schema=False, metadata_collector=footers, write_page_checksum=True)
        size = path.write_bytes(content.getvalue())
    return _described(table, path, size, footers[0], visible(rows.schema), partition, time_column)


def adopt_files(table: AnyPath, directory: AnyPath, time_column: str | None) -> list[NewFile]:
    """Describe the files that Spark wrote into ``directory``; delete all others (markers, checksums, empty files).

    Otherwise the directory could not be removed when its data files are deleted.
    """
    if table / DATA_DIRECTORY not in directory.parents:
        raise StorageError(f"{directory} is not below {table / DATA_DIRECTORY}; let Spark write where `stage` says")
    new_files = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        new = _adopted(table, path, directory, time_column) if _is_data(relative(path, directory)) else None
        if new is None:
            path.unlink()
        else:
            new_files.append(new)
    return new_files


def visible(schema: pa.Schema) -> pa.Schema:
    """The columns that the table shows to its readers."""
    return pa.schema([field for field in schema if not field.name.startswith(HIDDEN_PREFIX)])


def hidden_columns(path: AnyPath) -> list[pa.Field]:
    """The columns of a file that its table does not show."""
    with pq.ParquetFile(_opened(path)) as file:
        schema = file.schema_arrow
    return [field for field in schema if field.name.startswith(HIDDEN_PREFIX)]


def read_rows(paths: Iterable[AnyPath], schema: pa.Schema) -> pa.Table:
    """The rows of the files in the order given; columns that a file does not have are null."""
    chosen = list(paths)
    objects = [path for path in chosen if isinstance(path, ObjectPath)]
    try:
        if objects:
            # Requested together: the store serves many at once, and each takes its time.
            contents = _requests.map(lambda path: pa.py_buffer(path.read_buffer()), objects)
            fragments = [_CHECKED.make_fragment(content) for content in contents]
            return ds.FileSystemDataset(fragments, schema, _CHECKED).to_table()
        return ds.dataset([str(path) for path in chosen], schema=schema, format=_CHECKED).to_table()
    except _DAMAGE as error:
        if _is_of_the_store(error):
            raise
        raise DamagedFileError(", ".join(map(str, chosen)), error) from error


def read_batches(paths: Iterable[AnyPath], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """As ``read_rows``, at most ``most`` rows at a time; of an object store, one file is in memory."""
    for path in paths:
        try:
            if isinstance(path, Path):
                fragment = _CHECKED.make_fragment(str(path), pa_fs.LocalFileSystem())
            else:
                fragment = _CHECKED.make_fragment(pa.py_buffer(path.read_buffer()))
            scanned = ds.FileSystemDataset([fragment], schema, _CHECKED)
            # Not ahead of who reads: the place may be slow.
            yield from scanned.to_batches(batch_size=most, batch_readahead=1, fragment_readahead=1)
        except _DAMAGE as error:
            if _is_of_the_store(error):
                raise
            raise DamagedFileError(str(path), error) from error


def read_file(path: AnyPath, columns: list[str] | None = None) -> pa.Table:
    """The rows of one file, with its own columns or those named."""
    try:
        content = path if isinstance(path, Path) else pa.BufferReader(path.read_buffer())
        return pq.read_table(content, columns=columns, partitioning=None, page_checksum_verification=True)
    except _DAMAGE as error:
        if _is_of_the_store(error):
            raise
        raise DamagedFileError(str(path), error) from error


def _is_of_the_store(error: Exception) -> bool:
    """Whether a disk or a store does not answer, or refuses: that says nothing of the file. Arrow has no numbers."""
    return getattr(error, "errno", None) not in (None, errno.ENOENT)


def _opened(path: AnyPath) -> Any:
    """What Arrow reads the end of a file from, without reading all of it."""
    return path if isinstance(path, Path) else path.open_reader()


def _described(
    table: AnyPath,
    path: AnyPath,
    size: int,
    footer: pq.FileMetaData,
    schema: pa.Schema,
    partition: str | None,
    time_column: str | None,
) -> NewFile:
    statistics = file_statistics(footer, schema, time_column)
    if time_column is not None and (statistics.first is None or partition is None):
        raise StorageError(
            f"{path} has no event times: expected a column {time_column!r} with a value in every row, in a directory "
            f"{PARTITION_COLUMN}=<start>; got the columns {schema.names} and the partition {partition!r}"
        )
    file = DataFile(relative(path, table), partition, statistics.rows, size, statistics.first, statistics.last)
    return NewFile(file, statistics.text, schema)


def _is_data(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = (part.startswith(("_", ".")) and not part.startswith(_PARTITION_PREFIX) for part in path.parts)
    return path.suffix == ".parquet" and not any(hidden)


def _adopted(table: AnyPath, path: AnyPath, directory: AnyPath, time_column: str | None) -> NewFile | None:
    with pq.ParquetFile(_opened(path)) as file:
        footer, schema = file.metadata, file.schema_arrow
    if footer.num_rows == 0:
        return None
    stored = storable(schema)
    converted = [field.name for field in schema if not is_stored_as_is(field.type)]
    if converted:
        expected = ", ".join(f"{name!r} as {stored.field(name).type}" for name in converted)
        got = ", ".join(str(schema.field(name).type) for name in converted)
        raise SchemaError(f"{path} must store {expected}; got {got}. Cast the column before it is written.")
    partition = _partition_of(path, directory) if time_column is not None else None
    return _described(table, path, path.stat().st_size, footer, visible(stored), partition, time_column)


def _partition_of(path: AnyPath, directory: AnyPath) -> str | None:
    for part in PurePosixPath(relative(path, directory)).parts[:-1]:
        if part.startswith(_PARTITION_PREFIX):
            label = unquote(part.removeprefix(_PARTITION_PREFIX))
            if label == _HIVE_NULL:
                raise StorageError(f"{path} holds rows without an event time; reject such rows before they are written")
            partition_start(label)
            return label
    return None


def _free_path(directory: AnyPath, label: str | None) -> AnyPath:
    """A file name that contains the partition, without characters that need escaping."""
    name = "all" if label is None else label.replace("-", "").replace(":", "")
    return directory / f"{name}.parquet"


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The statistics of one file, as JSON for the log in ``text``.

    ``first`` and ``last`` are its least and largest event time in microseconds. Readers skip files by these bounds, so
    a bound that is too narrow would hide rows: bounds that are not certain are left out.
    """

    rows: int
    first: int | None
    last: int | None
    text: str


def file_statistics(footer: pq.FileMetaData, schema: pa.Schema, time_column: str | None) -> FileStatistics:
    """The statistics in the Parquet ``footer`` of the top-level columns of ``schema`` that have a simple type."""
    least: dict[str, object] = {}
    largest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    time_bounds: tuple[int, int] | None = None
    for index in _columns_with_statistics(footer, schema, time_column):
        name = footer.schema.column(index).name
        chunks = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if not all(chunk is not None and chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        bounds = _bounds(chunks)
        if bounds is None:
            continue
        if name == time_column:
            time_bounds = bounds
        entries = tuple(_in_log(bound, schema.field(name).type) for bound in bounds)
        if None not in entries:
            least[name], largest[name] = entries
    text = json.dumps(
        {"numRecords": footer.num_rows, "minValues": least, "maxValues": largest, "nullCount": nulls},
        separators=(",", ":"),
    )
    first, last = time_bounds or (None, None)
    return FileStatistics(footer.num_rows, first, last, text)


def _columns_with_statistics(footer: pq.FileMetaData, schema: pa.Schema, time_column: str | None) -> list[int]:
    top_level = [
        index
        for index in range(footer.num_columns)
        if footer.schema.column(index).path == footer.schema.column(index).name
        and footer.schema.column(index).name in schema.names
        and not pa.types.is_nested(schema.field(footer.schema.column(index).name).type)
    ]
    chosen = top_level[:DESCRIBED_COLUMNS]
    return chosen + [i for i in top_level[DESCRIBED_COLUMNS:] if footer.schema.column(i).name == time_column]


def _bounds(chunks: list[Any]) -> tuple[Any, Any] | None:
    """The physical bounds over all row groups; row groups that are entirely null are skipped."""
    bounded = [chunk for chunk in chunks if chunk.has_min_max]
    if not bounded or not all(chunk.has_min_max or chunk.num_values == 0 for chunk in chunks):
        return None
    return min(chunk.min_raw for chunk in bounded), max(chunk.max_raw for chunk in bounded)


def _in_log(bound: Any, kind: pa.DataType) -> object | None:
    """``bound`` as the log writes it; None if it cannot be written so that every reader understands the same.

    No bounds for floats: Parquet leaves NaN out of them, while Spark takes NaN for the largest number.
    """
    try:
        if pa.types.is_integer(kind):
            return int(bound)
        if pa.types.is_timestamp(kind):
            return format_time(bound)
        if pa.types.is_date(kind):
            return (_EPOCH_DAY + timedelta(days=bound)).isoformat()
        if pa.types.is_string(kind):
            text = bound.decode() if isinstance(bound, bytes) else bound
            return text if len(text) <= _LONGEST_TEXT else None
    except (OverflowError, UnicodeDecodeError):
        return None
    return None
