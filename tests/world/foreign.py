"""Another program that writes to a table of the warehouse."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.world.delta import LOG_DIRECTORY, WorldDelta, removal, write_entry

#: of the names of files without a row that was deleted
_SUFFIX = "-foreign.parquet"


def delete_rows(table: Path, rng: random.Random, real_log: bool) -> set[int]:
    """Delete a row of the stream, as any user of the Delta library does it; returns its number."""
    try:
        return _delete_really(table, rng) if real_log else _delete(table, rng)
    except DeltaError:  # its log is torn, for others as well
        return set()


def erased_by(file: Path) -> int | None:
    """The number of the row that is gone in a file of `delete_rows`; None for other files."""
    return int(file.name.split("-")[1]) if file.name.endswith(_SUFFIX) else None


def _delete_really(table: Path, rng: random.Random) -> set[int]:
    if not DeltaTable.is_deltatable(str(table)):
        return set()
    delta = DeltaTable(str(table))
    ids = [number for uri in delta.file_uris() for number in _numbers(uri)]
    if not ids:
        return set()
    number = rng.choice(sorted(ids))
    delta.delete(f"id = {number}")
    return {number}


def _delete(table: Path, rng: random.Random) -> set[int]:
    if not WorldDelta.is_deltatable(str(table)):
        return set()
    delta = WorldDelta(table)
    if not delta.adds:
        return set()
    old = delta.adds[rng.choice(sorted(delta.adds))]
    rows = pq.read_table(table / old["path"], partitioning=None)
    number = rng.choice(sorted(rows.column("id").to_pylist()))
    left = rows.filter(pc.not_equal(rows.column("id"), number))
    actions = [removal(old)]
    if left.num_rows:
        path = f"part-{number}{_SUFFIX}"
        pq.write_table(left, table / path)
        stats = json.loads(old["stats"]) | {"numRecords": left.num_rows}
        size = (table / path).stat().st_size
        actions.append({"add": {**old, "path": path, "size": size, "stats": json.dumps(stats), "dataChange": True}})
    write_entry(table / LOG_DIRECTORY, delta.version() + 1, actions)
    return {number}


def _numbers(path: str) -> list[int]:
    numbers: list[int] = pq.read_table(path, columns=["id"], partitioning=None).column("id").to_pylist()
    return numbers
