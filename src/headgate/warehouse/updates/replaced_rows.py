"""Replacing the rows of a table that have changed: finding the old ones, and leaving those alone that stay the same."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import HeadgateError
from headgate.warehouse.storage.copy_on_write import replace_rows
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.parquet import read_file, visible
from headgate.warehouse.storage.schemas import storable
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.key_lookup import codes_of, look_up
from headgate.warehouse.updates.merge import GroupMerger
from headgate.warehouse.updates.spark_files import WrittenFiles

#: {path of a file: the places of rows in it}
Positions = dict[str, NDArray[np.int64]]


def merge_groups(
    store: TableStore, files: Iterable[DataFile], merger: GroupMerger, new: pa.Table
) -> tuple[Positions, pa.Table]:
    """Merge the states kept in ``files`` into those of ``new`` rows; returns where they were kept, and the states."""
    new = new.cast(storable(new.schema), safe=False)
    positions: Positions = {}
    kept: list[pa.Table] = []
    places: list[NDArray[np.int64]] = []
    for file in files:
        rows = read_file(store.path_of(file), merger.kept)
        found = merger.find(new, rows)
        hits = np.flatnonzero(found >= 0)
        if len(hits):
            positions[file.path] = hits
            kept.append(rows.take(pa.array(hits)))
            places.append(found[hits])
    if not kept:
        return positions, new
    return positions, merger.merged(new, pa.concat_tables(kept), np.concatenate(places))


def rows_with_keys(
    store: TableStore, files: Iterable[DataFile], columns: tuple[str, ...], keys: pa.Table
) -> tuple[Positions, list[pa.Table]]:
    """The rows of ``files`` whose ``columns`` are one of ``keys``: where they are, and the rows."""
    positions: Positions = {}
    rows: list[pa.Table] = []
    for file in files:
        there = store.rows([file])
        hits = np.flatnonzero(look_up(keys, there.select(columns)) >= 0)
        if len(hits):
            positions[file.path] = hits
            rows.append(there.take(pa.array(hits)))
    return positions, rows


def all_rows(store: TableStore) -> tuple[Positions, list[pa.Table]]:
    """All rows of a table: where they are, and the rows."""
    files = store.files()
    rows = [store.rows([file]) for file in files]
    return {file.path: np.arange(there.num_rows) for file, there in zip(files, rows, strict=True)}, rows


def replaced(
    store: TableStore,
    number: int,
    positions: Positions,
    old: list[pa.Table] | None,
    new: pa.Table,
    length: float | None,
) -> WrittenFiles:
    """Write the table without the rows at ``positions`` and with ``new`` ones.

    ``old`` are the rows at ``positions``, if they are known: those that are among the new ones stay where they are.
    """
    stored = new.cast(storable(new.schema), safe=False)
    columns = visible(stored.schema).names
    if store.exists and set(columns) != set(store.schema.names):
        raise HeadgateError(
            f"single rows of table {store.directory.name!r} cannot be replaced by rows with other columns: it has "
            f"{', '.join(store.schema.names)}, they have {', '.join(columns)}; it must be rebuilt"
        )
    if old:
        positions, stored = _without_common(positions, old, stored)
    written = replace_rows(store, number, positions, stored, length)
    return WrittenFiles(written.files, stored.num_rows, visible(stored.schema), written.removed, written.changes)


def _without_common(positions: Positions, old: list[pa.Table], new: pa.Table) -> tuple[Positions, pa.Table]:
    """Leave out rows that are old and new, each as often as it is both."""
    before = pa.concat_tables(old).select(new.column_names).cast(new.schema)
    codes = codes_of([before, new])
    if codes is None:
        return positions, new
    before_codes, new_codes = codes[: before.num_rows], codes[before.num_rows :]
    size = int(codes.max()) + 1 if len(codes) else 0
    common = np.minimum(np.bincount(before_codes, minlength=size), np.bincount(new_codes, minlength=size))
    goes = _rank(before_codes) >= common[before_codes]
    comes = _rank(new_codes) >= common[new_codes]
    left: Positions = {}
    start = 0
    for path, places in positions.items():
        chosen = places[goes[start : start + len(places)]]
        start += len(places)
        if len(chosen):
            left[path] = chosen
    return left, new.filter(pa.array(comes))


def _rank(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each value, how many equal values come before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.r_[0, np.flatnonzero(np.diff(ordered)) + 1] if len(codes) else np.zeros(0, dtype=np.int64)
    lengths = np.diff(np.r_[starts, len(codes)])
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return ranks
