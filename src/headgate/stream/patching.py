"""Snapshots and the changes since then: apply changes to a snapshot, or merge two steps of changes into one.

Pure functions over Arrow tables. Their arguments may be mapped into memory from files and are never written to. The
cost of ``patched`` is that of copying the columns in which rows were replaced; columns that only grew are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import InvariantError
from headgate.stream.kernel import Changes, Snapshot, TableChange
from headgate.stream.packet import Ints


def patched(snapshot: Snapshot, changes: Changes) -> Snapshot:
    """The snapshot with the changes applied: as if taken when the changes were."""
    if snapshot.tables.keys() != changes.tables.keys():
        raise InvariantError(
            f"changes of the tables {sorted(changes.tables)} do not fit a snapshot of {sorted(snapshot.tables)}"
        )
    tables = {name: _patched_table(name, table, changes.tables[name]) for name, table in snapshot.tables.items()}
    return Snapshot(tables, changes.values)


def merged(older: Changes, newer: Changes) -> Changes:
    """One step of changes that does what both do, one after the other."""
    if older.tables.keys() != newer.tables.keys():
        raise InvariantError(f"changes of {sorted(newer.tables)} cannot follow changes of {sorted(older.tables)}")
    tables = {name: _merged_table(change, newer.tables[name]) for name, change in older.tables.items()}
    return Changes(tables, newer.values)


def laid_over(
    older: Mapping[str, Snapshot | Changes], newer: Mapping[str, Snapshot | Changes]
) -> dict[str, Snapshot | Changes]:
    """The newer snapshots or changes of several states, by name, combined with the older ones.

    States that are only in ``older`` are dropped; those that are only in ``newer`` must be snapshots.
    """
    combined: dict[str, Snapshot | Changes] = {}
    for name, late in newer.items():
        early = older.get(name)
        if isinstance(late, Snapshot):
            combined[name] = late
        elif early is None:
            raise InvariantError(f"there are changes of {name!r}, but no snapshot or changes before them")
        else:
            combined[name] = patched(early, late) if isinstance(early, Snapshot) else merged(early, late)
    return combined


def _patched_table(name: str, table: pa.Table, change: TableChange) -> pa.Table:
    if table.schema != change.rows.schema:
        raise InvariantError(
            f"changes do not fit table {name!r}, whose columns are ({_columns(table)}); they are of "
            f"({_columns(change.rows)})"
        )
    base = table.slice(0, change.length)
    replacements = int(np.searchsorted(change.positions, base.num_rows))
    additions = change.rows.num_rows - replacements
    if base.num_rows + additions != change.length and table.num_columns:
        raise InvariantError(
            f"changes do not fit table {name!r}: with {additions} rows added to {base.num_rows} it should have "
            f"{change.length}"
        )
    places = change.positions[:replacements]
    columns = [
        _patched_column(old, new.slice(0, replacements), places, new.slice(replacements))
        for old, new in zip(base.columns, change.rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _patched_column(
    old: pa.ChunkedArray, replacement: pa.ChunkedArray, places: Ints, addition: pa.ChunkedArray
) -> pa.ChunkedArray:
    begin = _replace(old, replacement, places).chunks if len(places) else old.chunks
    return pa.chunked_array([*begin, *addition.chunks], type=old.type)


def _replace(old: pa.ChunkedArray, replacement: pa.ChunkedArray, places: Ints) -> pa.ChunkedArray:
    if _is_plain(old) and _is_plain(replacement):
        values = old.to_numpy().copy()
        values[places] = replacement.to_numpy()
        return pa.chunked_array([pa.array(values)], type=old.type)
    sources = np.arange(len(old), dtype=np.int64)
    sources[places] = len(old) + np.arange(len(places), dtype=np.int64)
    return pa.chunked_array([*old.chunks, *replacement.chunks], type=old.type).take(pa.array(sources))


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether NumPy holds the very same values."""
    return not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _merged_table(older: TableChange, newer: TableChange) -> TableChange:
    kept = older.positions < newer.length
    # A position that is in both is taken from the newer one: it stands before the older in what is searched.
    positions = np.concatenate((newer.positions, older.positions[kept]))
    sources = np.concatenate((np.arange(len(newer.positions)), len(newer.positions) + np.flatnonzero(kept)))
    positions, first = np.unique(positions, return_index=True)
    rows = pa.concat_tables([newer.rows, older.rows])
    if rows.num_columns:
        rows = rows.take(pa.array(sources[first]))
    return TableChange(positions, rows, newer.length)


def _columns(table: pa.Table) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in table.schema)
