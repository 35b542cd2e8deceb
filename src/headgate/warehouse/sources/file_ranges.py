"""Offsets and ranges of a directory of files: which were loaded, and which to load together.

A file is known by its name, relative to the directory, so every file needs a name of its own. An offset is the set of
loaded files that still exist, not a place in some order: a file that comes late under an early name is still found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headgate.warehouse.sources.listing import Stamp
from headgate.warehouse.sources.protocol import Offset, Range


@dataclass(frozen=True, slots=True)
class FileOffset(Offset, kind="files"):
    """The files loaded so far, as they were when they were loaded."""

    files: Mapping[str, Stamp] = field(default_factory=dict)

    def after(self, loaded: FileRange) -> FileOffset:
        files = {**self.files, **loaded.files}
        for name in loaded.gone:
            files.pop(name, None)
        return FileOffset(files)

    def _content(self) -> dict[str, object]:
        return {"files": _listed(self.files)}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(_stamps(content["files"]))


@dataclass(frozen=True, slots=True)
class FileRange(Range, kind="files"):
    """Files to load together, each as it must still be when it is read.

    ``gone`` are files of the offset before it that have been removed meanwhile and need not be remembered.
    """

    files: Mapping[str, Stamp]
    oldest: float
    newest: float
    gone: tuple[str, ...] = ()

    @property
    def chunks(self) -> int:
        return len(self.files)

    @property
    def bytes(self) -> int:
        return sum(stamp.size for stamp in self.files.values())

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, FileRange) and dict(self.files) == dict(other.files)

    def _content(self) -> dict[str, object]:
        content: dict[str, object] = {"files": _listed(self.files), "oldest": self.oldest, "newest": self.newest}
        return content | ({"gone": list(self.gone)} if self.gone else {})

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        gone = tuple(str(name) for name in content.get("gone", ()))
        return cls(_stamps(content["files"]), float(content["oldest"]), float(content["newest"]), gone)


def _listed(files: Mapping[str, Stamp]) -> list[object]:
    return [[name, stamp.size, stamp.modified] for name, stamp in files.items()]


def _stamps(listed: Any) -> dict[str, Stamp]:
    return {str(name): Stamp(int(size), int(modified)) for name, size, modified in listed}
