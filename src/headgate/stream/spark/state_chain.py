"""The files that a bucket's states are kept in: a whole snapshot and what has changed since, each file once written.

A *chain* is the names of these files in one folder, the newest first, the whole one last; a commit names chains, so
what can be deleted is known without opening a file. Two rules keep both ways short:

1. The files of changes together have at most half the bytes of the whole one; if they would have more, a new whole one
   is written. So reading costs as much as the state, and whole ones are written at a constant cost per change.
2. Every file has at least twice the bytes of the next newer one; what would break this is merged. So a chain has as
   many files as it takes doublings from one change to half the state, and a change is merged no more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.stream.kernel import Changes, IncrementalState, Snapshot, State
from headgate.stream.patching import laid_over
from headgate.stream.spark.snapshot_file import (
    Layer,
    SnapshotError,
    files_needed,
    read_layer,
    read_snapshots,
    write_layer,
)

#: names of files in one folder, the newest first; empty if nothing was kept yet
Chain = tuple[str, ...]
#: bytes below which a whole file is written every time: it costs no more than a file does in any case
SMALL = 1 << 20


def write_states(
    folder: Path, name: str, states: Mapping[str, State], previous: Chain, note: Mapping[str, Any], small: int = SMALL
) -> Chain:
    """Put down the states of all operators, by name, and a note; the chain to go on from.

    ``previous`` must be the chain that these very states were restored from or put down in the last time, or empty. A
    state whose changes were asked for has told them: if writing fails, the states must not be used any more.
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


def read_states(folder: Path, chain: Chain) -> tuple[dict[str, Snapshot], dict[str, Any]]:
    """The states by operator, and the note of the newest file."""
    path = folder / chain[0]
    if files_needed(path) != chain:
        raise SnapshotError(
            f"{path} stands on the files {', '.join(files_needed(path)[1:]) or '(none)'}, but the commit names "
            f"{', '.join(chain[1:]) or '(none)'}; rebuild the table with headgate backfill"
        )
    return read_snapshots(path)


def _write_whole(folder: Path, name: str, states: Mapping[str, State], note: Mapping[str, Any]) -> Chain:
    snapshots = {operator: state.snapshot() for operator, state in states.items()}
    return (write_layer(folder, name, Layer(snapshots, note)).name,)


def _sizes(folder: Path, chain: Chain) -> list[int]:
    """The bytes of each file; none if one is missing: then nothing can stand on them."""
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
