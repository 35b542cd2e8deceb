"""Late rows that some of the tables that are read together have taken in, and others have not.

Tables that are read up to one edge hold the same event times. A row that comes late lies before the edge: tables that
were updated since have it, the others get it with their next update. Only the versions of the streams that they were
computed from tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.places.place import AnyPath
from headgate.warehouse.storage.errors import StorageError
from headgate.warehouse.storage.history import History
from headgate.warehouse.updates.commit_state import CommitState

#: {(table, version): {stream: the version of it that was reached there}}
_Reached = dict[tuple[str, int], Mapping[str, int]]
#: so many versions of a stream are looked through at most: a table that is further behind is behind in its edge, too
MOST_VERSIONS = 200


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows of ``stream`` from event time ``first`` on, before the edge, that the tables ``missing_in`` do not reflect.

    ``rows`` counts the files that they came in, so there may be fewer.
    """

    stream: str
    missing_in: tuple[str, ...]
    first: int
    rows: int


def committed_state(directories: Mapping[str, AnyPath], name: str, version: int) -> CommitState:
    return CommitState.from_json(History(directories[name], None).state(version), name)


def late_rows(
    directories: Mapping[str, AnyPath], states: Mapping[str, tuple[int, CommitState]], edge: int
) -> tuple[LateRows, ...]:
    """What tables, each given with its version and state, do not have in common up to ``edge``."""
    taken: dict[str, dict[str, int]] = {}
    known: _Reached = {}
    for table, (version, state) in states.items():
        for stream, reached in _streams(directories, table, version, state, known).items():
            taken.setdefault(stream, {})[table] = reached
    found = (_missing(directories[stream], stream, by_table, edge) for stream, by_table in taken.items())
    return tuple(each for each in found if each is not None)


def _streams(
    directories: Mapping[str, AnyPath], name: str, version: int, state: CommitState, known: _Reached
) -> Mapping[str, int]:
    """The streams that a table was computed from, each with the version that was reached; a stream has only itself."""
    if not state.sources:
        return {name: version}
    found: dict[str, int] = {}
    for source in state.sources.items():
        if source not in known and source[0] in directories:
            try:
                known[source] = _streams(directories, *source, committed_state(directories, *source), known)
            except StorageError:  # cleaned up; the table is far behind, and its freshness tells that
                continue
        for stream, reached in known.get(source, {}).items():
            # A table may see a stream on two ways; what it lacks on one of them, it lacks.
            found[stream] = min(reached, found.get(stream, reached))
    return found


def _missing(directory: AnyPath, stream: str, by_table: Mapping[str, int], edge: int) -> LateRows | None:
    oldest, newest = min(by_table.values()), max(by_table.values())
    if oldest == newest:
        return None
    try:
        time = CommitState.from_json(History(directory, None).state(newest), stream).time
        if time is None:
            return None
        entries = History(directory, time).entries(max(oldest, newest - MOST_VERSIONS), newest)
        late = [
            (entry.version, file.first, file.rows)
            for entry in entries
            for file in entry.added
            if file.first is not None and file.first <= edge
        ]
    except StorageError:  # cleaned up, or changed by another program
        return None
    if not late:
        return None
    last = max(version for version, _, _ in late)
    behind = tuple(table for table, version in by_table.items() if version < last)
    return LateRows(stream, behind, min(first for _, first, _ in late), sum(rows for _, _, rows in late))
