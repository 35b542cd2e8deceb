"""The states of one bucket in a file: Arrow tables and JSON, safe to read and quick to take up.

    8 bytes that say what it is | Arrow streams, each at a multiple of 64 bytes | JSON that says where | its length | 8
    bytes

A file holds, of each operator, a whole snapshot or what has changed since another file of the same folder, its base,
which may have a base in turn: it names all of them, from the newest to the oldest, which has no base. When to write
which is not decided here: see ``state_chain``.

Tables are mapped into memory, not read: a worker that takes up a bucket touches only what it needs. A file is written
under another name and renamed when it is whole, so nobody sees half of one; it is never changed afterwards.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import HeadgateError
from headgate.stream.kernel import Changes, Snapshot, TableChange
from headgate.stream.patching import laid_over

MAGIC = b"HGSTATE2"
_ALIGNMENT = 64
_NUMBER = 8


class SnapshotError(HeadgateError):
    """A file of states is missing, damaged or of another kind."""


@dataclass(frozen=True)
class Layer:
    """What one file says: of each operator a snapshot, or changes to what its bases say; and a note."""

    operators: Mapping[str, Snapshot | Changes]
    note: Mapping[str, Any]
    #: names of files in the same folder, the newest first
    bases: tuple[str, ...] = ()


# --- writing ------------------------------------------------------------------------------------------------


def write_layer(folder: Path, name: str, layer: Layer) -> Path:
    """The file, whose name is new every time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{uuid.uuid4().hex}.state"
    hidden = path.with_name(f".{path.name}")
    with pa.OSFile(str(hidden), "wb") as file:
        file.write(MAGIC)
        operators = {operator: _write_operator(file, known) for operator, known in layer.operators.items()}
        index = {"note": dict(layer.note), "bases": list(layer.bases), "operators": operators}
        text = json.dumps(index).encode()
        file.write(text)
        file.write(len(text).to_bytes(_NUMBER, "little"))
        file.write(MAGIC)
    os.replace(hidden, path)
    return path


def _write_operator(file: pa.NativeFile, known: Snapshot | Changes) -> dict[str, Any]:
    if isinstance(known, Snapshot):
        tables = {key: _write_table(file, table) for key, table in known.tables.items()}
        return {"tables": tables, "values": dict(known.values)}
    changes = {key: _write_change(file, change) for key, change in known.tables.items()}
    return {"changes": changes, "values": dict(known.values)}


def _write_change(file: pa.NativeFile, change: TableChange) -> dict[str, Any]:
    positions = _write_table(file, pa.table({"position": pa.array(change.positions)}))
    return {"positions": positions, "rows": _write_table(file, change.rows), "length": change.length}


def _write_table(file: pa.NativeFile, table: pa.Table) -> tuple[int, int]:
    """Appends a table; where it begins and how long it is."""
    file.write(bytes(-file.tell() % _ALIGNMENT))
    begin = file.tell()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return begin, file.tell() - begin


# --- reading ------------------------------------------------------------------------------------------------


def read_snapshots(path: Path) -> tuple[dict[str, Snapshot], dict[str, Any]]:
    """The states by operator, and the note; what the file has no whole snapshot of is found with the help of its
    bases. Tables are memory-mapped as far as they have not changed since the oldest."""
    newest = read_layer(path)
    known = dict(newest.operators)
    for base in newest.bases:
        known = laid_over(read_layer(path.with_name(base)).operators, known)
    snapshots = {operator: each for operator, each in known.items() if isinstance(each, Snapshot)}
    if len(snapshots) < len(known):
        lost = sorted(known.keys() - snapshots.keys())
        raise SnapshotError(
            f"{path} and the files it names have no whole snapshot of {', '.join(lost)}; "
            "rebuild the table with headgate backfill"
        )
    return snapshots, dict(newest.note)


def files_needed(path: Path) -> tuple[str, ...]:
    """The names of the file and of its bases, the newest first."""
    return (path.name, *read_layer(path).bases)


def read_layer(path: Path) -> Layer:
    """What one file says; tables are memory-mapped."""
    try:
        whole = pa.memory_map(str(path)).read_buffer()
    except OSError as error:
        raise SnapshotError(f"the states in {path} cannot be read: {error}") from error
    index = _index(path, whole)
    operators = {operator: _read_operator(whole, stored) for operator, stored in index["operators"].items()}
    return Layer(operators, index["note"], tuple(index["bases"]))


def _index(path: Path, whole: pa.Buffer) -> dict[str, Any]:
    ends = len(MAGIC) + _NUMBER
    if len(whole) < len(MAGIC) + ends or whole[: len(MAGIC)].to_pybytes() != MAGIC or whole[-8:].to_pybytes() != MAGIC:
        raise SnapshotError(f"{path} is not a whole file of states; rebuild the table with headgate backfill")
    size = int.from_bytes(whole[-ends : -len(MAGIC)].to_pybytes(), "little")
    index: dict[str, Any] = json.loads(whole[len(whole) - ends - size : len(whole) - ends].to_pybytes())
    return index


def _read_operator(whole: pa.Buffer, stored: Mapping[str, Any]) -> Snapshot | Changes:
    if "tables" in stored:
        tables = {key: _read_table(whole, place) for key, place in stored["tables"].items()}
        return Snapshot(tables, stored["values"])
    changes = {key: _read_change(whole, change) for key, change in stored["changes"].items()}
    return Changes(changes, stored["values"])


def _read_change(whole: pa.Buffer, stored: Mapping[str, Any]) -> TableChange:
    positions = _read_table(whole, stored["positions"]).column("position").to_numpy()
    return TableChange(positions, _read_table(whole, stored["rows"]), stored["length"])


def _read_table(whole: pa.Buffer, place: Sequence[int]) -> pa.Table:
    begin, size = place
    return pa.ipc.open_stream(pa.BufferReader(whole.slice(begin, size))).read_all()
