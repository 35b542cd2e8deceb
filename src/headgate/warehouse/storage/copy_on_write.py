"""Replacing single rows of a table: the files that hold them are written again without them.

The commit says which rows have changed (`RowChanges`), because the files say much more than that. The changed rows are
written by partition, so that tables built on this one see which event times have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.files import DataFile, NewFile, RowChanges
from headgate.warehouse.storage.parquet import read_file, visible, write_file, write_rows
from headgate.warehouse.storage.partitions import split_by_partition
from headgate.warehouse.storage.schemas import storable
from headgate.warehouse.storage.store import TableStore


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """What a commit that replaces rows adds, removes and says about it."""

    files: list[NewFile]
    removed: tuple[DataFile, ...]
    changes: RowChanges | None


def replace_rows(
    store: TableStore,
    number: int,
    positions: Mapping[str, NDArray[np.int64]],
    rows: pa.Table,
    partition_length: float | None,
) -> ReplacedRows:
    """Write what remains if the rows at ``positions`` (by the path of a live file) go and ``rows`` come.

    ``rows`` may have hidden columns, which stay in the files.
    """
    live = {file.path: file for file in store.files()} if positions else {}
    missing = [path for path in positions if path not in live]
    if missing:
        raise StorageError(f"rows of {missing[0]} were to be replaced, but the table has no such file any more")
    stored = rows.cast(storable(rows.schema), safe=False)
    kept: dict[str | None, list[pa.Table]] = {}
    gone: list[pa.Table] = []
    for path, indices in positions.items():
        there = read_file(store.directory / path).select(stored.schema.names)
        there = there.cast(stored.schema, safe=False)
        stays = np.ones(there.num_rows, dtype=bool)
        stays[indices] = False
        gone.append(there.filter(pa.array(~stays)))
        if stays.any():
            kept.setdefault(live[path].partition, []).append(there.filter(pa.array(stays)))
    new: list[tuple[str | None, pa.Table]] = [(None, stored)] if stored.num_rows else []
    if store.time_column is not None:
        assert partition_length is not None
        new = [*split_by_partition(stored, store.time_column, partition_length)]
    for label, part in new:
        kept.setdefault(label, []).append(part)
    directory = store.stage(number)
    files = []
    if kept:
        directory.mkdir(parents=True)
    for place, (label, parts) in enumerate(sorted(kept.items(), key=lambda each: each[0] or "")):
        target = directory / f"rows-{place}.parquet"
        files.append(write_file(store.directory, target, pa.concat_tables(parts), label, store.time_column))
    removed = tuple(live[path] for path in positions)
    exact = sum(file.rows for file in removed) == sum(part.num_rows for part in gone)
    changes = None if exact else _changes(store, number, stored, gone, partition_length)
    return ReplacedRows(files, removed, changes)


def _changes(
    store: TableStore, number: int, added: pa.Table, gone: list[pa.Table], partition_length: float | None
) -> RowChanges:
    def written(rows: pa.Table) -> tuple[DataFile, ...]:
        shown = rows.select(visible(rows.schema).names)
        directory = store.stage(number)
        new = write_rows(store.directory, directory, shown, store.time_column, partition_length)
        return tuple(each.file for each in new)

    return RowChanges(written(added), written(pa.concat_tables(gone)))
