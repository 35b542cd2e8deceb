"""The lines of a dbt project that a message is about.

A manifest has the code of models, but not where it begins in its file: dbt leaves out empty lines before it. So the
file is looked at if it is there, and otherwise the code is taken to begin at line 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def where(node: Mapping[str, Any], root: Path, pattern: str = "") -> str:
    """The file of a node, and the line of the first match of ``pattern`` in its code, if that is known."""
    file = str(node.get("original_file_path") or node.get("path") or "manifest")
    line = _source_line(node, root / file) if node["resource_type"] == "source" else _line(node, root / file, pattern)
    return file if line is None else f"{file}:{line}"


def _line(node: Mapping[str, Any], file: Path, pattern: str) -> int | None:
    code = str(node.get("raw_code") or "")
    match = re.search(pattern, code, re.DOTALL) if pattern else None
    if match is None:
        return None
    written = _text(file)
    before = written.find(code.strip()) if code.strip() else -1
    skipped = len(code) - len(code.lstrip())
    if before < 0:  # changed since, or not there
        return code.count("\n", 0, match.start()) + 1
    return written.count("\n", 0, before + match.start() - skipped) + 1


def _source_line(node: Mapping[str, Any], file: Path) -> int | None:
    """The line of a table of a source, below that of the source, in the file of its properties."""
    at = 0
    written = _text(file)
    for name in (node.get("source_name"), node["name"]):
        entry = re.compile(rf"^[ \t]*-[ \t]*name:[ \t]*['\"]?{re.escape(str(name))}['\"]?[ \t]*$", re.MULTILINE)
        match = entry.search(written, at)
        if match is None:
            return None
        at = match.end()
    return written.count("\n", 0, at) + 1


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError):
        return ""
