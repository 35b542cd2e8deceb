"""Snapshots and changes put together: what was kept, with what has become of it since.

Pure functions over Arrow tables. What they are given may be mapped into memory from files and is never written to. The
cost of ``patched`` is that of copying the columns in which rows were replaced; columns that only grew are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import InvariantError
from headgate.stream.kernel import Changes, Snapshot, TableChange
from headgate.stream.packet import Ints


def patched(snapshot: Snapshot, changes: Changes) -> Snapshot:
    """The snapshot that would have been taken when the changes were."""
    if snapshot.tables.keys() != changes.tables.keys():
        raise InvariantError(
            f"changes of the tables {sorted(changes.tables)} do not fit a snapshot of {sorted(snapshot.tables)}"
        )
    tables = {name: _patched_table(name, table, changes.tables[name]) for name, table in snapshot.tables.items()}
    return Snapshot(tables, changes.values)


def merged(older: Changes, newer: Changes) -> Changes:
    """One step instead of two: changes that make of a snapshot what both, one after the other, do."""
    if older.tables.keys() != newer.tables.keys():
        raise InvariantError(f"changes of {sorted(newer.tables)} cannot follow changes of {sorted(older.tables)}")
    tables = {name: _merged_table(change, newer.tables[name]) for name, change in older.tables.items()}
    return Changes(tables, newer.values)


def laid_over(
    older: Mapping[str, Snapshot | Changes], newer: Mapping[str, Snapshot | Changes]
) -> dict[str, Snapshot | Changes]:
    """What is known of several states, by name, after a later word on them: of states that are in ``newer`` only, a
    whole snapshot is all that can be known."""
    made: dict[str, Snapshot | Changes] = {}
    for name, late in newer.items():
        early = older.get(name)
        if isinstance(late, Snapshot):
            made[name] = late
        elif early is None:
            raise InvariantError(f"there are changes of {name!r}, but nothing that they could be changes to")
        else:
            made[name] = patched(early, late) if isinstance(early, Snapshot) else merged(early, late)
    return made


def _patched_table(name: str, table: pa.Table, change: TableChange) -> pa.Table:
    if table.schema != change.rows.schema:
        raise InvariantError(
            f"changes do not fit table {name!r}, whose columns are ({_columns(table)}); they are of "
            f"({_columns(change.rows)})"
        )
    base = table.slice(0, change.length)
    replaced = int(np.searchsorted(change.positions, base.num_rows))
    added = change.rows.num_rows - replaced
    if base.num_rows + added != change.length and table.num_columns:
        raise InvariantError(
            f"changes do not fit table {name!r}: with {added} rows added to {base.num_rows} it should have "
            f"{change.length}"
        )
    places = change.positions[:replaced]
    columns = [
        _patched_column(old, new.slice(0, replaced), places, new.slice(replaced))
        for old, new in zip(base.columns, change.rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _patched_column(
    old: pa.ChunkedArray, replacing: pa.ChunkedArray, places: Ints, added: pa.ChunkedArray
) -> pa.ChunkedArray:
    begin = _replaced(old, replacing, places).chunks if len(places) else old.chunks
    return pa.chunked_array([*begin, *added.chunks], type=old.type)


def _replaced(old: pa.ChunkedArray, replacing: pa.ChunkedArray, places: Ints) -> pa.ChunkedArray:
    if _is_plain(old) and _is_plain(replacing):
        values = old.to_numpy().copy()
        values[places] = replacing.to_numpy()
        return pa.chunked_array([pa.array(values)], type=old.type)
    sources = np.arange(len(old), dtype=np.int64)
    sources[places] = len(old) + np.arange(len(places), dtype=np.int64)
    return pa.chunked_array([*old.chunks, *replacing.chunks], type=old.type).take(pa.array(sources))


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
