"""What is in a table: its columns, partitions and versions, and some of its rows, as text for people.

It is read beside the run, from the table's own log and files, and never all of a large table. Rows are shown only if
previews are switched on; the text of rejected rows is part of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

from headgate.core import HeadgateError
from headgate.monitor.record import Json
from headgate.places.place import AnyPath, delta_table
from headgate.warehouse.run.opened_table import OpenedTable
from headgate.warehouse.storage.errors import HistoryLostError
from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.history import History
from headgate.warehouse.storage.store import TableStore
from headgate.warehouse.updates.commit_state import CommitState

#: how much is shown
ROWS, REJECTED_ROWS, PARTITIONS, VERSIONS = 20, 20, 200, 20
#: the longest text of one cell
LONGEST_CELL = 300
#: of each file so many rows are read, from its beginning
ROWS_READ = 1_000
#: in an object store a file is fetched whole to read its beginning: of larger ones no rows are shown
MOST_FETCHED = 32 * 1024 * 1024


def opened_at(tables: AnyPath, name: str) -> OpenedTable | None:
    """A table of a warehouse that is not running, by the folder of its tables; None if it is not there."""
    directory = tables / name
    if Path(name).name != name or not directory.is_dir():
        return None
    place, options = delta_table(directory)
    if not DeltaTable.is_deltatable(str(place), **options):
        return None
    version = DeltaTable(place, **options).version()
    time = CommitState.from_json(History(directory, None).state(version), name).time
    rejected = tables / f"{name}__rejected"
    return OpenedTable(
        TableStore(directory, time, syncs=False), TableStore(rejected, syncs=False) if rejected.is_dir() else None
    )


def contents_of(opened: OpenedTable, previews: bool) -> Json:
    """Everything that can be told of what is in a table."""
    store, code = opened.store, opened.code
    told: Json = {
        "code": None
        if code is None
        else {"language": code.language, "text": code.text, "place": code.place, "mode": code.mode},
        "previews": previews,
        "exists": store.exists,
    }
    if not store.exists:
        return told
    files = store.files()
    told |= {
        "version": store.version,
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.size for file in files),
        "files": len(files),
        "columns": [{"name": field.name, "type": str(field.type)} for field in store.schema],
        "time": store.time_column,
        "partitions": _partitions(files),
        "versions": _versions(store),
    }
    if previews:
        told["preview"] = _newest_rows(store, files)
        told["rejected"] = _rejected(opened.rejected)
    return told


def _partitions(files: Iterable[DataFile]) -> list[Json]:
    """The latest partitions, the newest first."""
    found: dict[str, Json] = {}
    for file in files:
        label = file.partition or ""
        at = found.setdefault(label, {"name": label, "files": 0, "rows": 0, "bytes": 0, "last": None, "written": 0})
        at["files"] += 1
        at["rows"] += file.rows
        at["bytes"] += file.size
        at["written"] = max(at["written"], file.arrived / 1000)
        if file.last is not None:
            at["last"] = max(at["last"] or file.last / 1e6, file.last / 1e6)
    return [found[label] for label in sorted(found, reverse=True)[:PARTITIONS]]


def _versions(store: TableStore) -> list[Json]:
    """The latest versions, the newest first, as far back as the log goes."""
    history, newest = History(store.directory, store.time_column), store.version
    told: list[Json] = []
    for version in range(newest, max(-1, newest - VERSIONS), -1):
        try:
            entry = history.entry(version)
        except HistoryLostError:
            break
        state = entry.state or {}
        told.append(
            {
                "version": version,
                "update": entry.update,
                "kind": "another program" if entry.state is None else str(state.get("kind", "")),
                "at": max((file.arrived for file in entry.added), default=0) / 1000 or None,
                "added": sum(file.rows for file in entry.added),
                "removed": sum(file.rows for file in entry.removed),
            }
        )
    return told


def _newest_rows(store: TableStore, files: Iterable[DataFile]) -> Json:
    """Some rows of the files that were written last."""
    last = sorted(files, key=lambda file: (file.arrived, file.last or 0), reverse=True)
    rows = store.schema.empty_table()
    for file in islice((file for file in last if file.rows and _is_readable(store, file)), ROWS):
        rows = pa.concat_tables([rows, _some(store, file)])
        if rows.num_rows >= ROWS:
            break
    if store.time_column in rows.column_names:
        rows = rows.sort_by([(store.time_column, "descending")])
    return _as_text(rows.slice(0, ROWS))


def _is_readable(store: TableStore, file: DataFile) -> bool:
    return isinstance(store.path_of(file), Path) or file.size <= MOST_FETCHED


def _some(store: TableStore, file: DataFile) -> pa.Table:
    """The first rows: a small file may hold millions if they are all alike."""
    batches = islice(store.batches([file], store.schema, ROWS_READ), 1)
    return pa.Table.from_batches(list(batches), store.schema)


def _rejected(store: TableStore | None) -> Json | None:
    if store is None or not store.exists:
        return None
    try:
        return _newest_rows(store, store.files())
    except HeadgateError as error:
        return {"columns": ["trouble"], "rows": [[str(error)]]}


def _as_text(rows: pa.Table) -> Json:
    cells = [[_cell(value) for value in row.values()] for row in rows.to_pylist()]
    return {"columns": rows.column_names, "rows": cells}


def _cell(value: object) -> str | None:
    if value is None:
        return None
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]} … ({len(text):,} characters)"
