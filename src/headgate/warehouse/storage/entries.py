"""Single entries of a Delta log: what one version says about files, its update and its state.

A log entry is a JSON file of one action a line; its name is its version. Entries that Headgate wrote say more than
others: they carry the state, and for each file removed what only its addition knew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headgate.warehouse.declare.spec import PARTITION_COLUMN
from headgate.warehouse.storage.errors import HistoryLostError
from headgate.warehouse.storage.files import DataFile, State
from headgate.warehouse.storage.partitions import parse_time

LOG_DIRECTORY = "_delta_log"
#: the key of the commit's metadata that holds the state
STATE_KEY = "headgate"
#: the key that holds, for each path removed, its rows and event times: Delta's own remove actions lack them
REMOVED_KEY = "headgateRemoved"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version: its update (None: maintenance), its state, and the files by which it changed the table's rows.

    Entries of others may lack what is needed to know those files; then ``unknown`` says what is missing.
    """

    version: int
    update: int | None
    state: State | None
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    unknown: str | None = None


def entry_path(table: Path, version: int) -> Path:
    return table / LOG_DIRECTORY / f"{version:020}.json"


def read_entry(table: Path, version: int, time_column: str | None) -> LogEntry:
    """What ``version`` says; HistoryLostError if its entry was cleaned up."""
    try:
        lines = entry_path(table, version).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise HistoryLostError(table.name, version) from None
    actions = [json.loads(line) for line in lines if line]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    update = next((action["txn"]["version"] for action in actions if "txn" in action), None)
    state = info.get(STATE_KEY)
    details = info.get(REMOVED_KEY, {})
    try:
        added = tuple(_added(action["add"], time_column) for action in _changing(actions, "add"))
        removed = tuple(_removed(action["remove"], details) for action in _changing(actions, "remove"))
    except (KeyError, TypeError) as error:
        return LogEntry(version, update, state, unknown=str(error))
    return LogEntry(version, update, state, added, removed)


def removal_details(files: Iterable[DataFile]) -> dict[str, list[int | None]]:
    """What a commit that removes ``files`` says under `REMOVED_KEY`."""
    return {file.path: [file.rows, file.first, file.last] for file in files}


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
