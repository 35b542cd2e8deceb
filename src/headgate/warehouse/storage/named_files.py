"""Which files the entries of a log name: what cleaning must not delete. Each entry is read once.

Cleaning asks again and again, and a log may have tens of thousands of entries, each of which is a request in an object
store. Entries never change, so what was read is remembered, by the stamp that the entry had when it was listed.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from headgate.places.object_path import ObjectStatus
from headgate.places.place import AnyPath
from headgate.warehouse.storage.history import CHANGED_KEY, LOG_DIRECTORY

_NAMED = re.compile(rb'"path":"data/([^/"]+)/')
#: so many requests at once take little longer than one
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Names:
    """What an entry names: directories below ``data``, and the paths of files that it removed or that changed rows."""

    directories: frozenset[str]
    past: tuple[str, ...]

    @classmethod
    def read(cls, entry: AnyPath) -> _Names | None:
        """None if the entry was cleaned up."""
        try:
            content = entry.read_bytes()
        except FileNotFoundError:
            return None
        directories = frozenset(name.decode() for name in _NAMED.findall(content))
        return cls(directories, tuple(_past(content.decode("utf-8", "replace").splitlines())))


def _past(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith('{"remove"'):
            yield unquote(json.loads(line)["remove"]["path"])
        elif CHANGED_KEY in line:
            changed = json.loads(line).get("commitInfo", {}).get(CHANGED_KEY, {})
            yield from (file["path"] for files in changed.values() for file in files)


class NamedFiles:
    """The files that the log of one table names. Thread-safe; a thread waits while another one reads."""

    def __init__(self, table: AnyPath) -> None:
        self._log = table / LOG_DIRECTORY
        self._guard = threading.Lock()
        #: {(name of an entry, its stamp): what it names}
        self._read: dict[tuple[str, object], _Names] = {}

    def directories(self) -> set[str]:
        """The directories below ``data`` that any entry names."""
        return {name for names in self._names(-1.0) for name in names.directories}

    def needed_since(self, seconds: float) -> set[str]:
        """The paths that were removed in the last ``seconds``, and those with the rows that changed."""
        return {path for names in self._names(time.time() - seconds) for path in names.past}

    def _names(self, since: float) -> list[_Names]:
        """What the entries name that were written at ``since`` or later."""
        with self._guard:
            listed = {key: (path, written) for path, key, written in self._listed()}
            self._read = {key: names for key, names in self._read.items() if key in listed}
            wanted = [(key, path) for key, (path, written) in listed.items() if written >= since]
            missing = [(key, path) for key, path in wanted if key not in self._read]
            for (key, _), names in zip(missing, self._read_all([path for _, path in missing]), strict=True):
                if names is not None:
                    self._read[key] = names
            return [self._read[key] for key, _ in wanted if key in self._read]

    def _listed(self) -> Iterator[tuple[AnyPath, tuple[str, object], float]]:
        for path in self._log.glob("*.json"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # cleaned up since it was listed
            stamp = status.tag if isinstance(status, ObjectStatus) else (status.st_ino, status.st_mtime_ns)
            yield path, (path.name, stamp), status.st_mtime

    def _read_all(self, entries: list[AnyPath]) -> list[_Names | None]:
        if isinstance(self._log, Path) or len(entries) < 2:
            return [_Names.read(entry) for entry in entries]
        with ThreadPoolExecutor(_AT_ONCE, "headgate-log") as requests:
            return list(requests.map(_Names.read, entries))
