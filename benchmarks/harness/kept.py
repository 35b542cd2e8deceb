"""Points that were measured, on disk, so that a run that was broken off can go on where it was.

One line of JSON for each point, written when it is done. A point is known by its function and its arguments as they
print; whoever changes the code in between must begin again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.harness.model import Row


class Kept:
    """The points in one file. Without ``go_on``, those of an earlier run are forgotten."""

    def __init__(self, path: Path, go_on: bool) -> None:
        self._path = path
        self._rows: dict[str, list[Row]] = {}
        if not go_on:
            path.unlink(missing_ok=True)
        elif path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    point = json.loads(line)
                except ValueError:  # the end of a line that was being written when the run was broken off
                    continue
                self._rows[point["point"]] = point["rows"]

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[Row] | None:
        """The rows of a point, or None if it was not measured yet."""
        return self._rows.get(_key(function, arguments))

    def add(self, function: Callable[..., Any], arguments: Mapping[str, Any], rows: list[Row]) -> None:
        key = _key(function, arguments)
        self._rows[key] = rows
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._is_torn() + json.dumps({"point": key, "rows": rows}) + "\n")

    def _is_torn(self) -> bool:
        """Whether the file ends in the middle of a line."""
        with self._path.open("rb") as file:
            if not file.seek(0, 2):
                return False
            file.seek(-1, 2)
            return file.read() != b"\n"


def _key(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name}={arguments[name]!r}" for name in sorted(arguments))
    return sha256(f"{function.__module__}.{function.__qualname__}({said})".encode()).hexdigest()[:32]
