"""The names of what a project reads: files have none there, but a stream and a dimension need one.

A name is that of the last folder. Where several have the same, each takes more of its path, so that no name depends on
which of them comes first, or on others that are read later: a stream goes on where the stream of its name was.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from headgate.warehouse.pipelines.definitions import KAFKA, FileRead

#: a path, and whether it is read as a stream
FileKey = tuple[str, bool]


def file_names(reads: Iterable[FileKey], stated: Mapping[FileKey, str], taken: Collection[str]) -> dict[FileKey, str]:
    """A name for each of ``reads``, all different. ``taken`` are other names, in lower case."""
    names = dict(stated)
    used = {*taken, *(name.lower() for name in names.values())}
    keys = sorted({key for key in reads if key not in names}, key=lambda key: (not key[1], key[0]))
    by_path = _told_apart({path for path, _ in keys})
    for path, streaming in keys:
        name = by_path[path]
        while name.lower() in used:
            name = f"{name}_files" if streaming else f"{name}_now"
        names[path, streaming] = name
        used.add(name.lower())
    return names


def own_names(reads: Collection[FileRead], taken: Collection[str]) -> dict[FileKey, str]:
    """The names of what has one, also in other programs: tables and topics. Those that are ``taken`` have none here.

    A table is named by the last part of its name, or by all parts if that is not one of its own.
    """
    short = {read.key: _word(read.table.rpartition(".")[2] if read.table else read.path) for read in reads}
    count = Counter(name.lower() for name in short.values())
    found: dict[FileKey, str] = {}
    for read in sorted((read for read in reads if read.table or read.format == KAFKA), key=lambda read: read.key):
        if (read.path, True) in short and not read.streaming:
            continue  # a stream and a batch of the same: the name is the one of the stream
        name = short[read.key]
        if read.format == KAFKA or count[name.lower()] > 1 or name.lower() in taken:
            name = _word(read.table or f"{read.path}_topic")
        if name.lower() not in {*taken, *(other.lower() for other in found.values())}:
            found[read.key] = name
    return found


def _word(name: str) -> str:
    """``name`` as one of a stream."""
    word = re.sub(r"\W", "_", name)
    return f"t{word}" if word[:1].isdigit() or word[:1] == "_" else word


def _told_apart(paths: Iterable[str]) -> dict[str, str]:
    """{path: its name}: of as many folders, from the last one, as it takes."""
    left, found, depth = sorted(paths), dict[str, str](), 0
    while left:
        depth += 1
        names = {path: _of_folders(path, depth) for path in left}
        count = Counter(name.lower() for name in names.values())
        longest = max(len(_folders(path)) for path in left)
        for path, name in names.items():
            if count[name.lower()] == 1:
                found[path] = name
            elif depth >= longest:  # they differ in signs that names do not have
                found[path] = f"{name}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
        left = [path for path in left if path not in found]
    return found


def _folders(path: str) -> list[str]:
    parts = [part for part in re.split(r"[/\\]", path) if part and not re.search(r"[*?\[]", part)]
    return parts or ["source"]


def _of_folders(path: str, depth: int) -> str:
    *above, last = _folders(path)[-depth:]
    stem = re.sub(r"\W", "_", "_".join([*above, last.partition(".")[0]])) or "source"
    return f"{'f' if stem[0].isdigit() or stem[0] == '_' else ''}{stem}_files"
