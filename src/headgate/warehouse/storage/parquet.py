"""Data files: writing rows as Parquet, and describing the Parquet files that Spark wrote.

Knows files and columns; knows nothing of the log. Files written here look like those of Spark: microseconds in UTC,
no partition column inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.warehouse.spec import PARTITION_COLUMN
from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.files import DataFile, NewFile
from headgate.warehouse.storage.partitions import partition_start, split_by_partition
from headgate.warehouse.storage.schemas import storable
from headgate.warehouse.storage.statistics import file_statistics

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def write_rows(
    table: Path, directory: Path, rows: pa.Table, time_column: str | None, partition_length: float | None
) -> list[NewFile]:
    """Write ``rows`` into ``directory`` below ``table``: one file for each partition, or one file without event time."""
    stored = rows.cast(storable(rows.schema), safe=True) if rows.schema != storable(rows.schema) else rows
    if stored.num_rows == 0:
        return []
    parts: list[tuple[str | None, pa.Table]] = [(None, stored)]
    if time_column is not None:
        if partition_length is None:
            raise StorageError(f"table {table.name!r} has event time, so the length of its partitions must be given")
        parts = [*split_by_partition(stored, time_column, partition_length)]
    directory.mkdir(parents=True, exist_ok=True)
    return [write_file(table, _free_path(directory, label), part, label, time_column) for label, part in parts]


def write_file(table: Path, path: Path, rows: pa.Table, partition: str | None, time_column: str | None) -> NewFile:
    """Write ``rows``, whose columns are storable already, as the one file ``path``."""
    footers: list[pq.FileMetaData] = []
    # Without Arrow's own schema in the footer a file reads the same whether Spark or this process wrote it.
    pq.write_table(rows, path, store_schema=False, metadata_collector=footers)
    return _described(table, path, footers[0], rows.schema, partition, time_column)


def adopt_files(table: Path, directory: Path, time_column: str | None) -> list[NewFile]:
    """Describe the files that Spark wrote into ``directory``, and delete what is no Parquet file (markers, checksums).

    The markers have to go because vacuuming spares them, so that the directory would never become empty.
    """
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    adopted = []
    for path in found:
        if path.suffix != ".parquet" or path.name.startswith((".", "_")):
            path.unlink()
            continue
        with pq.ParquetFile(path) as file:
            footer, schema = file.metadata, file.schema_arrow
        if footer.num_rows == 0:
            path.unlink()
            continue
        partition = _partition_of(path, directory) if time_column is not None else None
        adopted.append(_described(table, path, footer, storable(schema), partition, time_column))
        _refuse_other_encodings(path, schema)
    return adopted


def read_rows(paths: Iterable[Path], schema: pa.Schema) -> pa.Table:
    """The rows of the files in the order given; columns that a file does not have are null."""
    return ds.dataset([str(path) for path in paths], schema=schema, format="parquet").to_table()


def bins(files: Iterable[DataFile], size: int) -> Iterator[list[DataFile]]:
    """``files`` in the order of event time, cut where the sum of their sizes would exceed ``size``."""
    current: list[DataFile] = []
    total = 0
    for file in sorted(files, key=lambda file: (file.first or 0, file.path)):
        if current and total + file.size > size:
            yield current
            current, total = [], 0
        current.append(file)
        total += file.size
    if current:
        yield current


def _described(
    table: Path, path: Path, footer: pq.FileMetaData, schema: pa.Schema, partition: str | None, time_column: str | None
) -> NewFile:
    statistics = file_statistics(footer, schema, time_column)
    relative = path.relative_to(table).as_posix()
    if time_column is not None and (statistics.first is None or partition is None):
        raise StorageError(
            f"{path} has no event times: expected a column {time_column!r} with a value in every row, in a directory "
            f"{PARTITION_COLUMN}=<start>; got the columns {schema.names} and the partition {partition!r}"
        )
    file = DataFile(relative, partition, statistics.rows, path.stat().st_size, statistics.first, statistics.last)
    return NewFile(file, statistics.text, schema)


def _refuse_other_encodings(path: Path, schema: pa.Schema) -> None:
    """Files of others cannot be converted, so each column must be stored already as it is declared."""
    for stored, declared in zip(schema, storable(schema), strict=True):
        if stored.type != declared.type:
            raise StorageError(
                f"{path}: column {stored.name!r} is stored as {stored.type}; expected {declared.type}. "
                "Cast the column before it is written."
            )


def _partition_of(path: Path, directory: Path) -> str | None:
    prefix = f"{PARTITION_COLUMN}="
    for part in path.relative_to(directory).parts[:-1]:
        if part.startswith(prefix):
            label = unquote(part.removeprefix(prefix))
            if label == _HIVE_NULL:
                raise StorageError(f"{path} holds rows without an event time; reject such rows before they are written")
            partition_start(label)
            return label
    return None


def _free_path(directory: Path, label: str | None) -> Path:
    """A name that says what is in the file, without the characters that need escaping."""
    name = "all" if label is None else label.replace("-", "").replace(":", "")
    return directory / f"{name}.parquet"
