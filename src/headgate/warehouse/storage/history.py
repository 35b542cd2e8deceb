"""Reading the log of a table: single entries, the entries between two versions, earlier states.

An entry is a JSON file with one action per line; its name is its version. Entries that Headgate wrote hold more than
others: the state, and for each removed file its rows and event times.

Old entries are cleaned up; reading them raises HistoryLostError.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from headgate.places.object_path import ObjectPath, delete_objects
from headgate.places.place import AnyPath
from headgate.warehouse.storage import PARTITION_COLUMN
from headgate.warehouse.storage.errors import ForeignHistoryError, HistoryLostError, StorageError
from headgate.warehouse.storage.files import DataFile, RowChanges, State
from headgate.warehouse.storage.partitions import parse_time

LOG_DIRECTORY = "_delta_log"
#: the key of the commit's metadata that holds the state
STATE_KEY = "headgate"
#: the key that holds the rows and event times of each removed path, which Delta's remove actions do not have
REMOVED_KEY = "headgateRemoved"
#: the key that holds the files with the changed rows, in commits that say which rows have changed
CHANGED_KEY = "headgateChanged"
#: the key that holds the number of files named in the entry, and its update: by them a torn entry is recognised
SIZE_KEY = "headgateSize"
#: the key that holds a random text, which no other entry has
TOKEN_KEY = "headgateToken"
#: the key that holds the fencing number of the process that wrote the entry, where warehouses have one
FENCE_KEY = "headgateFence"
_REMEMBERED_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version: its update (None: maintenance), its state, and the files with the rows that it added and removed.

    Files that maintenance rewrote without changing rows are left out. If the commit has `RowChanges`, their files are
    here instead of those of the table. ``is_foreign``: another program wrote the entry and changed rows, which it need
    not name. Then no files are named here either. ``token`` tells the entry from another one of the same version, in a
    table that was put back from a copy; entries of other programs and older releases have none. ``fence`` is the
    fencing number of its writer, 0 if it has none.
    """

    version: int
    update: int | None
    state: State | None
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    is_foreign: bool = False
    token: str = ""
    fence: int = 0


def entry_path(table: AnyPath, version: int) -> AnyPath:
    return table / LOG_DIRECTORY / f"{version:020}.json"


def read_entry(table: AnyPath, version: int, time_column: str | None) -> LogEntry:
    """The entry of ``version``; HistoryLostError if it was cleaned up or is damaged."""
    try:
        actions = read_actions(entry_path(table, version))
    except FileNotFoundError:
        raise HistoryLostError(table.name, version) from None
    except ValueError as error:
        raise HistoryLostError(table.name, version, f"version {version} of {table.name!r} is damaged") from error
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    update = next((action["txn"]["version"] for action in actions if "txn" in action), None)
    state = info.get(STATE_KEY)
    details, token, fence = info.get(REMOVED_KEY, {}), str(info.get(TOKEN_KEY, "")), int(info.get(FENCE_KEY, 0))
    if CHANGED_KEY in info:
        changed = info[CHANGED_KEY]
        added, removed = _row_files(changed["added"]), _row_files(changed["removed"])
        return LogEntry(version, update, state, added, removed, token=token, fence=fence)
    adds, removes = _changing(actions, "add"), _changing(actions, "remove")
    if state is None:
        return LogEntry(version, None, None, is_foreign=bool(adds or removes))
    added = tuple(_added(action["add"], time_column) for action in adds)
    removed = tuple(_removed(action["remove"], details) for action in removes)
    return LogEntry(version, update, state, added, removed, token=token, fence=fence)


def read_actions(entry: AnyPath) -> list[dict[str, Any]]:
    """The actions of an entry; ValueError if it is damaged."""
    actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines() if line]
    if not all(isinstance(action, dict) for action in actions):
        raise ValueError(f"{entry} must have a JSON object in every line")
    return actions


def removal_details(files: Iterable[DataFile]) -> dict[str, list[int | None]]:
    """The value of `REMOVED_KEY` in a commit that removes ``files``."""
    return {file.path: [file.rows, file.first, file.last] for file in files}


def change_details(changes: RowChanges) -> dict[str, list[dict[str, Any]]]:
    """The value of `CHANGED_KEY` in a commit with ``changes``."""
    return {
        kind: [{"path": f.path, "rows": f.rows, "size": f.size, "first": f.first, "last": f.last} for f in files]
        for kind, files in (("added", changes.added), ("removed", changes.removed))
    }


def _row_files(details: Iterable[dict[str, Any]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(f["path"], None, f["rows"], f["size"], f["first"], f["last"]) for f in details)


def _changing(actions: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [action for action in actions if kind in action and action[kind]["dataChange"]]


def _added(add: dict[str, Any], time_column: str | None) -> DataFile:
    statistics = json.loads(add["stats"])
    first = last = None
    if time_column is not None:
        first = parse_time(statistics["minValues"][time_column])
        last = parse_time(statistics["maxValues"][time_column])
    partition = add["partitionValues"].get(PARTITION_COLUMN)
    arrived: int = add["modificationTime"]
    return DataFile(unquote(add["path"]), partition, statistics["numRecords"], add["size"], first, last, arrived)


def _removed(remove: dict[str, Any], details: dict[str, list[int | None]]) -> DataFile:
    path = unquote(remove["path"])
    rows, first, last = details[path]
    return DataFile(path, remove["partitionValues"].get(PARTITION_COLUMN), rows or 0, remove["size"], first, last)


class History:
    """The log entries of one table: the latest ones from memory, older ones from disk.

    Entries never change, so all threads may read. Only one thread at a time may call `remember`.
    """

    def __init__(self, table: AnyPath, time_column: str | None) -> None:
        self._table = table
        self._time_column = time_column
        self._remembered: dict[int, LogEntry] = {}

    def remember(self, entry: LogEntry) -> None:
        self._remembered[entry.version] = entry
        if len(self._remembered) > _REMEMBERED_ENTRIES:
            del self._remembered[next(iter(self._remembered))]

    def entry(self, version: int) -> LogEntry:
        """The entry of ``version``; HistoryLostError if it was cleaned up."""
        return self._remembered.get(version) or read_entry(self._table, version, self._time_column)

    def entries(self, since: int, until: int) -> Iterator[LogEntry]:
        """The entries after ``since`` up to ``until``; HistoryLostError if one does not say which rows have changed.

        An entry of another program that changes no rows has the state of the one before.
        """
        for version in range(since + 1, until + 1):
            entry = self.entry(version)
            if entry.is_foreign:
                raise ForeignHistoryError(self._table.name, version)
            yield entry if entry.state is not None else replace(entry, state=self.state(version))

    def token(self, version: int) -> str:
        """The token of an entry; empty if it has none. HistoryLostError if the entry was cleaned up."""
        return self.entry(version).token

    def is_foreign_since_update(self, version: int) -> bool:
        """Whether another program changed rows after the newest update that is not after ``version``."""
        for entry in self._backwards(version):
            if entry.is_foreign:
                return True
            if entry.update is not None:
                break
        return False

    def states(self, version: int) -> Iterator[State]:
        """The state at ``version`` and after each earlier update, newest first, as far back as the log goes."""
        any_found = carried = False
        for entry in self._backwards(version):
            if entry.state is None:
                continue
            if not any_found:
                yield entry.state
                any_found, carried = True, entry.update is None
            elif entry.update is not None:
                # An entry of maintenance repeats the state of the update before it, which must not be yielded twice.
                if not carried:
                    yield entry.state
                carried = False

    def state(self, version: int) -> State:
        """The state at ``version``: of its entry, or of an older one if other programs have written since."""
        for state in self.states(version):
            return state
        raise StorageError(
            f"no entry of the log in {self._table / LOG_DIRECTORY} carries a state, so headgate did not write this "
            "table; move it away or give your table another name"
        )

    def version_of(self, update: int, newest: int) -> int | None:
        """The version that committed ``update``, at most ``newest``; None if its entry was cleaned up."""
        committed = (entry for entry in self._backwards(newest) if entry.update is not None)
        found = next((entry for entry in committed if entry.update is not None and entry.update <= update), None)
        return found.version if found is not None and found.update == update else None

    def _backwards(self, version: int) -> Iterator[LogEntry]:
        try:
            for earlier in range(version, -1, -1):
                yield self.entry(earlier)
        except HistoryLostError:
            return


def newest_fence(table: AnyPath) -> int:
    """The fencing number of the newest commit that Headgate made to a table; 0 if it has none."""
    entries: list[AnyPath] = [path for path in (table / LOG_DIRECTORY).glob("*.json")]
    for entry in sorted(entries, key=lambda path: path.name, reverse=True):
        with suppress(FileNotFoundError, ValueError):  # cleaned up since, or damaged
            for action in read_actions(entry):
                info = action.get("commitInfo", {})
                if STATE_KEY in info:
                    return int(info.get(FENCE_KEY, 0))
    return 0


def clean_up_log(table: AnyPath, newest: int, seconds: float) -> None:
    """Delete the entries before the newest checkpoint that is not after version ``newest`` and older than ``seconds``.

    Every version from that checkpoint on can still be read.
    """
    limit = time.time() - seconds
    found: list[AnyPath] = [path for path in (table / LOG_DIRECTORY).glob("*")]
    checkpoints = [path for path in found if fnmatchcase(path.name, "*.checkpoint.parquet")]
    checkpoints = [path for path in checkpoints if path.stat().st_mtime <= limit]
    start = max((version for path in checkpoints if (version := version_of(path)) <= newest), default=0)
    entries = [path for path in found if path.name.endswith(".json")]
    old = [path for path in (*entries, *checkpoints) if version_of(path) < start]
    if isinstance(table, ObjectPath):
        delete_objects([path for path in old if isinstance(path, ObjectPath)])
        return
    for path in old:
        path.unlink()


def version_of(path: AnyPath) -> int:
    return int(path.name.split(".")[0])
