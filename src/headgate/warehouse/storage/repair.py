"""Repairing a log after a power cut: entries and checkpoints of which only a part reached the disk.

An entry that is not whole was never a commit: no reader could read it. It is set aside, with all that came after it,
and the table is again what the entries before it say. What was in it is done once more, because the state of the table
does not know of it; tables that had taken it in notice, and are computed from a snapshot.
"""

from __future__ import annotations

import json
import logging
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.places.place import AnyPath
from headgate.warehouse.storage.history import LOG_DIRECTORY, SIZE_KEY, STATE_KEY, entry_path, read_actions, version_of

LAST_CHECKPOINT = "_last_checkpoint"
#: the directory of a table with what was set aside, for a person to look at; readers of Delta ignore it
SET_ASIDE = "_headgate_set_aside"

_log = logging.getLogger(__name__)


def is_whole(table: Path, version: int) -> bool:
    """Whether all of an entry, and all data files that it adds, reached the disk.

    An entry that was cleaned up is whole: a checkpoint has it.
    """
    try:
        actions = read_actions(entry_path(table, version))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files = [action for action in actions if "add" in action or "remove" in action]
    if SIZE_KEY in info:
        count, update = info[SIZE_KEY]
        if len(files) < count or (update is not None and not any("txn" in action for action in actions)):
            return False
    added = [action["add"] for action in files if "add" in action]
    if STATE_KEY not in info:  # of another program, which may name files elsewhere, and may have removed older ones
        is_newest = not entry_path(table, version + 1).exists()
        return bool(actions) and (
            not is_newest or all(_is_there(table, add) for add in added if "://" not in add["path"])
        )
    return all(_is_there(table, add) for add in added)


def _is_there(table: Path, add: dict[str, Any]) -> bool:
    try:
        return (table / unquote(add["path"])).stat().st_size == int(add["size"])
    except OSError:
        return False


def set_aside_torn(table: Path) -> list[Path]:
    """Move away what is torn in the log of a table; returns what was moved."""
    log = table / LOG_DIRECTORY
    checkpoints = {path: version_of(path) for path in sorted(log.glob("*.checkpoint.parquet"))}
    torn = [path for path in checkpoints if not _is_readable(path)]
    start = max((version for path, version in checkpoints.items() if path not in torn), default=-1)
    entries = {path: version_of(path) for path in sorted(log.glob("*.json")) if version_of(path) > start}
    broken = next((version for version in entries.values() if not is_whole(table, version)), None)
    if broken is not None:
        torn += [path for path, version in entries.items() if version >= broken]
    hint = log / LAST_CHECKPOINT
    readable = {version for path, version in checkpoints.items() if path not in torn}
    if hint.exists() and hinted_checkpoint(hint) not in readable:
        torn.append(hint)
    if not torn:
        return []
    folder = table / SET_ASIDE / secrets.token_hex(6)
    folder.mkdir(parents=True)
    for path in torn:
        path.rename(folder / path.name)
    names = ", ".join(path.name for path in torn)
    _log.warning("%s: %s did not reach the disk whole; set aside in %s", log, names, folder)
    return torn


def _is_readable(checkpoint: Path) -> bool:
    try:
        pq.read_metadata(checkpoint)
    except (OSError, pa.ArrowException):
        return False
    return True


def hinted_checkpoint(hint: AnyPath) -> int | None:
    """The version of the last checkpoint by the file that names it; None if that is damaged."""
    try:
        return int(json.loads(hint.read_bytes())["version"])
    except (OSError, ValueError, TypeError, LookupError):
        return None
