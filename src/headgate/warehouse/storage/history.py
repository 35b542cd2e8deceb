"""What the log of a table tells about its past: changes between versions, earlier states, files of old versions.

The past goes back as far as the log does; what was cleaned up is lost, and said to be.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from headgate.warehouse.storage.entries import LOG_DIRECTORY, LogEntry, entry_path, read_entry
from headgate.warehouse.storage.errors import HistoryLostError, StorageError
from headgate.warehouse.storage.files import Changes, DataFile, State

_REMEMBERED_ENTRIES = 256
_NAMED = re.compile(rb'"path":"data/([^/"]+)/')


class History:
    """The log entries of one table: the latest from memory, older ones read when they are asked for.

    Entries never change, so every thread may read while one at a time calls `remember`.
    """

    def __init__(self, table: Path, time_column: str | None) -> None:
        self._table = table
        self._time_column = time_column
        self._remembered: dict[int, LogEntry] = {}

    def remember(self, entry: LogEntry) -> None:
        self._remembered[entry.version] = entry
        if len(self._remembered) > _REMEMBERED_ENTRIES:
            del self._remembered[next(iter(self._remembered))]

    def entry(self, version: int) -> LogEntry:
        """What ``version`` says; HistoryLostError if its entry was cleaned up."""
        return self._remembered.get(version) or read_entry(self._table, version, self._time_column)

    def changes(self, since: int, until: int) -> Changes:
        """What the entries after ``since`` add up to; a file that came and went between leaves no trace."""
        added: dict[str, DataFile] = {}
        removed: dict[str, DataFile] = {}
        for version in range(since + 1, until + 1):
            entry = self.entry(version)
            if entry.unknown is not None:
                raise StorageError(
                    f"version {version} of the table in {self._table} was not written by headgate: it changes rows "
                    f"without saying which ({entry.unknown}). Compute what depends on this table from a snapshot of it."
                )
            for file in entry.removed:
                if added.pop(file.path, None) is None:
                    removed[file.path] = file
            added.update((file.path, file) for file in entry.added)
        return Changes(since, until, tuple(added.values()), tuple(removed.values()))

    def states(self, version: int) -> Iterator[State]:
        """The state at ``version`` and after each earlier update, newest first, as far back as the log goes."""
        any_given = carried = False
        for entry in self._backwards(version):
            if entry.state is None:
                continue
            if not any_given:
                yield entry.state
                any_given, carried = True, entry.update is None
            elif entry.update is not None:
                # Maintenance carries the state of the update before it, which must not count twice.
                if not carried:
                    yield entry.state
                carried = False

    def state(self, version: int) -> State:
        """The state at ``version``: that of its own entry, or an older one if others have written since."""
        for state in self.states(version):
            return state
        raise StorageError(
            f"no entry of the log in {self._table / LOG_DIRECTORY} carries a state, so headgate did not write this "
            "table; move it away or give your table another name"
        )

    def version_of(self, update: int, newest: int) -> int | None:
        """The version that committed ``update``, looked for from ``newest`` back; None if the log has it no more."""
        committed = (entry for entry in self._backwards(newest) if entry.update is not None)
        found = next((entry for entry in committed if entry.update is not None and entry.update <= update), None)
        return found.version if found is not None and found.update == update else None

    def _backwards(self, version: int) -> Iterator[LogEntry]:
        try:
            for earlier in range(version, -1, -1):
                yield self.entry(earlier)
        except HistoryLostError:
            return


def named_directories(table: Path) -> set[str]:
    """The directories below ``data`` that some entry still in the log names."""
    names: set[str] = set()
    for path in (table / LOG_DIRECTORY).glob("*.json"):
        names.update(name.decode() for name in _NAMED.findall(path.read_bytes()))
    return names


def removed_since(table: Path, newest: int, seconds: float) -> set[str]:
    """The paths that versions up to ``newest`` removed in the last ``seconds``, whether or not rows changed."""
    limit = time.time() - seconds
    paths: set[str] = set()
    for version in range(newest, -1, -1):
        entry = entry_path(table, version)
        try:
            if entry.stat().st_mtime < limit:
                break
            lines = entry.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            break
        paths.update(unquote(json.loads(line)["remove"]["path"]) for line in lines if line.startswith('{"remove"'))
    return paths
