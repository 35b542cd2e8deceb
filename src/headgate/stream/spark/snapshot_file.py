"""The states of one bucket in one file: Arrow tables and JSON, safe to read and quick to take up.

    8 bytes that say what it is | Arrow streams, each at a multiple of 64 bytes | JSON that says where | its length | 8
    bytes

Tables are mapped into memory, not read: a worker that takes up a bucket touches only what it needs. A file is written
under another name and renamed when it is whole, so nobody sees half of one; it is never changed afterwards.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import HeadgateError
from headgate.stream.kernel import Snapshot

MAGIC = b"HGSTATE1"
_ALIGNMENT = 64
_NUMBER = 8


class SnapshotError(HeadgateError):
    """A file of states is missing, damaged or of another kind."""


def write_snapshots(folder: Path, name: str, snapshots: Mapping[str, Snapshot], note: Mapping[str, Any]) -> Path:
    """Write the states of all operators, by name, and a note; the file, whose name is new every time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{uuid.uuid4().hex}.state"
    hidden = path.with_name(f".{path.name}")
    index: dict[str, Any] = {"note": dict(note), "operators": {}}
    with pa.OSFile(str(hidden), "wb") as file:
        file.write(MAGIC)
        for operator, snapshot in snapshots.items():
            tables = {key: _write_table(file, table) for key, table in snapshot.tables.items()}
            index["operators"][operator] = {"tables": tables, "values": dict(snapshot.values)}
        text = json.dumps(index).encode()
        file.write(text)
        file.write(len(text).to_bytes(_NUMBER, "little"))
        file.write(MAGIC)
    os.replace(hidden, path)
    return path


def _write_table(file: pa.NativeFile, table: pa.Table) -> tuple[int, int]:
    """Appends a table; where it begins and how long it is."""
    file.write(bytes(-file.tell() % _ALIGNMENT))
    begin = file.tell()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return begin, file.tell() - begin


def read_snapshots(path: Path) -> tuple[dict[str, Snapshot], dict[str, Any]]:
    """The states by operator, and the note; tables are memory-mapped."""
    try:
        whole = pa.memory_map(str(path)).read_buffer()
    except OSError as error:
        raise SnapshotError(f"the states in {path} cannot be read: {error}") from error
    ends = len(MAGIC) + _NUMBER
    if len(whole) < len(MAGIC) + ends or whole[: len(MAGIC)].to_pybytes() != MAGIC or whole[-8:].to_pybytes() != MAGIC:
        raise SnapshotError(f"{path} is not a whole file of states; rebuild the table with headgate backfill")
    size = int.from_bytes(whole[-ends : -len(MAGIC)].to_pybytes(), "little")
    index = json.loads(whole[len(whole) - ends - size : len(whole) - ends].to_pybytes())
    made = {}
    for operator, stored in index["operators"].items():
        tables = {key: _read_table(whole, *place) for key, place in stored["tables"].items()}
        made[operator] = Snapshot(tables, stored["values"])
    return made, index["note"]


def _read_table(whole: pa.Buffer, begin: int, size: int) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(whole.slice(begin, size))).read_all()
