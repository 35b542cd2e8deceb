"""The files with the states of a bucket: Arrow tables and JSON.

    magic (8 bytes) | Arrow streams, each at a multiple of 64 bytes | JSON index | its length | checksum | magic

The checksum is that of everything before it. It is compared whenever a file is read: a flipped bit becomes an error
instead of a wrong number. Files of older releases have another magic and no checksum.

For each operator a file holds a full snapshot, or the changes since another file in the same folder, its base. The base
may have a base, too. A *chain* is the names of these files: the newest first, the full one last. Commits name chains,
so it is known which files can be deleted without opening any. Two rules keep reading and writing cheap:

1. The files of changes together have at most half the bytes of the full one. If they would have more, a new full file
   is written. So reading costs as much as the state, and the cost of full files per change is constant.
2. Every file has at least twice the bytes of the next newer one; otherwise they are merged. So a chain is
   logarithmically short, and a change is merged a logarithmic number of times.

Tables are memory-mapped, so they are not copied. A file is written under another name and renamed when it is complete;
it is never changed afterwards.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import HeadgateError
from headgate.places.place import AnyPath
from headgate.stream.kernel import Changes, IncrementalState, Snapshot, State, TableChange
from headgate.stream.patching import laid_over
from headgate.stream.query_run import REJECTED_SCHEMA

#: names of files in one folder, the newest first; empty if there are none yet
Chain = tuple[str, ...]

MAGIC = b"HGSTATE3"
#: of files of older releases, which have no checksum
OLD_MAGIC = b"HGSTATE2"
#: below this size a full file is written every time: it is as cheap as any file
SMALL = 1 << 20
_ALIGNMENT = 64
_NUMBER = 8


class UnseenStatesError(HeadgateError):
    """An executor does not see a file of states that the driver sees, or the other way round."""

    def __init__(self, file: AnyPath) -> None:
        super().__init__(
            f"the driver and an executor do not both see {file}, a file of states. All machines of a cluster must see "
            "the folder of the warehouse. The update is tried again"
        )


class SnapshotError(HeadgateError):
    """A file of states is missing, damaged or of another kind."""


@dataclass(frozen=True)
class Layer:
    """The content of one file: for each operator a snapshot, or changes to its bases; and a note."""

    operators: Mapping[str, Snapshot | Changes]
    note: Mapping[str, Any]
    #: names of files in the same folder, the newest first
    bases: tuple[str, ...] = ()


# --- chains -------------------------------------------------------------------------------------------------


def write_states(
    folder: AnyPath,
    name: str,
    states: Mapping[str, State],
    previous: Chain,
    note: Mapping[str, Any],
    small: int = SMALL,
) -> Chain:
    """Write the states of all operators, by name, and a note; returns the new chain.

    ``previous`` must be the chain that these states were restored from or last written to, or empty. Reading the
    changes of a state resets them: if writing fails, the states must not be used any more.
    """
    sizes = _sizes(folder, previous)
    if not sizes or sizes[-1] < small:
        return _write_whole(folder, name, states, note)
    known = {operator: _since_last(state) for operator, state in states.items()}
    if _bytes(known) + sum(sizes[:-1]) > sizes[-1] // 2:
        return _write_whole(folder, name, states, note)
    bases = previous
    while len(bases) > 1 and sizes[len(previous) - len(bases)] < 2 * _bytes(known):
        known = laid_over(read_layer(folder / bases[0]).operators, known)
        bases = bases[1:]
    if all(isinstance(each, Snapshot) for each in known.values()):
        bases = ()
    return (write_layer(folder, name, Layer(known, note, bases)).name, *bases)


def read_states(folder: AnyPath, chain: Chain) -> tuple[dict[str, Snapshot], dict[str, Any]]:
    """The states by operator, and the note of the newest file."""
    path = folder / chain[0]
    newest = read_layer(path)
    if newest.bases != chain[1:]:
        raise SnapshotError(
            f"{path} stands on the files {', '.join(newest.bases) or '(none)'}, but the commit names "
            f"{', '.join(chain[1:]) or '(none)'}; the table must be computed anew"
        )
    return _snapshots(path, newest)


def _write_whole(folder: AnyPath, name: str, states: Mapping[str, State], note: Mapping[str, Any]) -> Chain:
    snapshots = {operator: state.snapshot() for operator, state in states.items()}
    return (write_layer(folder, name, Layer(snapshots, note)).name,)


def _sizes(folder: AnyPath, chain: Chain) -> list[int]:
    """The bytes of each file; empty if one is missing, because then the chain cannot be extended."""
    try:
        return [(folder / name).stat().st_size for name in chain]
    except FileNotFoundError:
        return []


def _since_last(state: State) -> Snapshot | Changes:
    changes = state.changes() if isinstance(state, IncrementalState) else None
    return state.snapshot() if changes is None else changes


def _bytes(known: Mapping[str, Snapshot | Changes]) -> int:
    total = 0
    for each in known.values():
        if isinstance(each, Snapshot):
            total += sum(table.nbytes for table in each.tables.values())
        else:
            total += sum(change.positions.nbytes + change.rows.nbytes for change in each.tables.values())
    return total


# --- writing one file -----------------------------------------------------------------------------------------


def write_layer(folder: AnyPath, name: str, layer: Layer) -> AnyPath:
    """Write one file under a new name; returns its path."""
    path = folder / f"{name}-{uuid.uuid4().hex}.state"
    if isinstance(path, Path):
        _write_to_disk(path, layer)
        return path
    file = pa.BufferOutputStream()
    _write_content(file, layer)
    content = file.getvalue()
    path.write_bytes(b"".join([memoryview(content), zlib.crc32(content).to_bytes(_NUMBER, "little"), MAGIC]))
    return path


def _write_to_disk(path: Path, layer: Layer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    with pa.OSFile(str(hidden), "wb") as file:
        _write_content(file, layer)
    with pa.memory_map(str(hidden)) as written:
        checksum = zlib.crc32(written.read_buffer())
    with hidden.open("ab") as file:
        file.write(checksum.to_bytes(_NUMBER, "little"))
        file.write(MAGIC)
    os.replace(hidden, path)


def _write_content(file: pa.NativeFile, layer: Layer) -> None:
    """All that the checksum is of."""
    file.write(MAGIC)
    operators = {operator: _write_operator(file, known) for operator, known in layer.operators.items()}
    index = {"note": dict(layer.note), "bases": list(layer.bases), "operators": operators}
    text = json.dumps(index).encode()
    file.write(text)
    file.write(len(text).to_bytes(_NUMBER, "little"))


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
    """Append a table; returns its position and length."""
    file.write(bytes(-file.tell() % _ALIGNMENT))
    begin = file.tell()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return begin, file.tell() - begin


# --- reading files --------------------------------------------------------------------------------------------


def read_snapshots(path: AnyPath) -> tuple[dict[str, Snapshot], dict[str, Any]]:
    """The states by operator, and the note. Changes are applied to the snapshots of the file's bases.

    Parts of tables that have not changed since the oldest file stay memory-mapped.
    """
    return _snapshots(path, read_layer(path))


def _snapshots(path: AnyPath, newest: Layer) -> tuple[dict[str, Snapshot], dict[str, Any]]:
    known = dict(newest.operators)
    for base in newest.bases:
        known = laid_over(read_layer(path.parent / base).operators, known)
    snapshots = {operator: each for operator, each in known.items() if isinstance(each, Snapshot)}
    if len(snapshots) < len(known):
        lost = sorted(known.keys() - snapshots.keys())
        raise SnapshotError(
            f"{path} and the files it names have no whole snapshot of {', '.join(lost)}; "
            "the table must be computed anew"
        )
    return snapshots, dict(newest.note)


def read_layer(path: AnyPath) -> Layer:
    """The content of one file; tables are memory-mapped."""
    try:
        whole = pa.memory_map(str(path)).read_buffer() if isinstance(path, Path) else pa.py_buffer(path.read_buffer())
    except OSError as error:
        if not isinstance(path, Path) and not isinstance(error, FileNotFoundError):
            raise  # the store did not answer, which says nothing of the file
        raise SnapshotError(f"the states in {path} cannot be read: {error}") from error
    content = _checked(path, whole)
    size = int.from_bytes(content[-_NUMBER:].to_pybytes(), "little")
    try:
        index = json.loads(content[-_NUMBER - size : -_NUMBER].to_pybytes())
        operators = {operator: _read_operator(whole, stored) for operator, stored in index["operators"].items()}
        return Layer(operators, index["note"], tuple(index["bases"]))
    except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:  # in a file without checksum
        raise SnapshotError(f"{path} is damaged: {error}; the table must be computed anew") from error


def _checked(path: AnyPath, whole: pa.Buffer) -> pa.Buffer:
    """What a file holds, up to and with the length of its index; raises if it is not what was written."""
    magics = {whole[: len(MAGIC)].to_pybytes(), whole[-len(MAGIC) :].to_pybytes()}
    if len(whole) >= 2 * len(MAGIC) + _NUMBER and magics == {OLD_MAGIC}:
        return whole[: -len(MAGIC)]
    if len(whole) < 2 * len(MAGIC) + 2 * _NUMBER or magics != {MAGIC}:
        raise SnapshotError(f"{path} is not a whole file of states; the table must be computed anew")
    content = whole[: -len(MAGIC) - _NUMBER]
    if zlib.crc32(content) != int.from_bytes(whole[-len(MAGIC) - _NUMBER : -len(MAGIC)].to_pybytes(), "little"):
        raise SnapshotError(f"{path} is damaged: its checksum differs; the table must be computed anew")
    return content


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


# --- rejected rows: files of the same form, so that they have a checksum, too ------------------------------------


def write_rejected(folder: AnyPath, name: str, rows: pa.Table) -> str:
    """Write rejected rows to a new file; returns its name."""
    return write_layer(folder, name, Layer({"rejected": Snapshot({"rows": rows})}, {})).name


def read_rejected(folder: AnyPath, names: Sequence[str]) -> pa.Table:
    """The rows in files of rejected rows."""
    return pa.concat_tables([REJECTED_SCHEMA.empty_table(), *(_read_rejected(folder / name) for name in names)])


def _read_rejected(path: AnyPath) -> pa.Table:
    if path.suffix == ".arrow":  # of an older release
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    snapshots, _ = read_snapshots(path)
    return snapshots["rejected"].tables["rows"]
