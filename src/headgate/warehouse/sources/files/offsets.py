"""What is kept of a source of files between updates: which files were loaded, and which were set aside.

An offset grows with the files in the directory, not with the history. A loaded file that was removed is forgotten, but
only after a while: a share that was away for a moment would else be loaded again as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headgate.warehouse.sources.files.directory import Identity
from headgate.warehouse.sources.files.listing import SetAside, Stamp
from headgate.warehouse.sources.protocol import Offset, Range


@dataclass(frozen=True, slots=True)
class FileOffset(Offset, kind="files"):
    """The files loaded so far, as they were when they were loaded.

    ``missing`` are those of them that are no longer there, and since when, in seconds since the epoch. ``aside`` are
    files that could not be loaded.
    """

    files: Mapping[str, Stamp] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    aside: Mapping[str, SetAside] = field(default_factory=dict)

    def after(self, loaded: FileRange) -> FileOffset:
        gone = {*loaded.gone}
        missing, aside = self.missing, self.aside
        if missing or loaded.missing:
            no_more = {*gone, *loaded.back, *loaded.files}
            missing = {name: since for name, since in {**missing, **loaded.missing}.items() if name not in no_more}
        if aside or loaded.aside:
            no_more = {*gone, *loaded.files}
            aside = {name: known for name, known in {**aside, **loaded.aside}.items() if name not in no_more}
        files = {**self.files, **loaded.files}
        for name in gone:
            files.pop(name, None)
        return FileOffset(files, missing, aside)

    def _content(self) -> dict[str, object]:
        return {"files": _listed(self.files), **_if_any(missing=self.missing, aside=self.aside)}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(_stamps(content["files"]), _moments(content.get("missing", {})), _aside(content.get("aside", {})))


@dataclass(frozen=True, slots=True)
class FileRange(Range, kind="files"):
    """Files to load together, each with the stamp that it must still have when it is read.

    The other fields say what else is new since the last range: loaded files that are ``missing``, and since when, that
    are ``back``, or that can be forgotten (``gone``), and files that are set ``aside``. ``folder`` identifies the
    directory, if the range is the contents of a dimension.
    """

    files: Mapping[str, Stamp]
    oldest: float
    newest: float
    gone: tuple[str, ...] = ()
    missing: Mapping[str, float] = field(default_factory=dict)
    back: tuple[str, ...] = ()
    aside: Mapping[str, SetAside] = field(default_factory=dict)
    folder: Identity | None = None

    @property
    def chunks(self) -> int:
        return len(self.files)

    @property
    def bytes(self) -> int:
        return sum(stamp.size for stamp in self.files.values())

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, FileRange) and dict(self.files) == dict(other.files)

    def _content(self) -> dict[str, object]:
        written = {"files": _listed(self.files), "oldest": self.oldest, "newest": self.newest}
        return written | _if_any(
            gone=self.gone, missing=self.missing, back=self.back, aside=self.aside, folder=self.folder
        )

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        folder = content.get("folder")
        return cls(
            files=_stamps(content["files"]),
            oldest=float(content["oldest"]),
            newest=float(content["newest"]),
            gone=tuple(map(str, content.get("gone", ()))),
            missing=_moments(content.get("missing", {})),
            back=tuple(map(str, content.get("back", ()))),
            aside=_aside(content.get("aside", {})),
            folder=None if folder is None else (int(folder[0]), int(folder[1])),
        )


def _if_any(**fields: Any) -> dict[str, object]:
    """Fields as JSON, without the empty ones."""
    return {
        key: {name: list(v) if isinstance(v, tuple) else v for name, v in value.items()}
        if isinstance(value, Mapping)
        else list(value)
        for key, value in fields.items()
        if value
    }


def _listed(files: Mapping[str, Stamp]) -> list[object]:
    return [[name, stamp.size, stamp.modified] for name, stamp in files.items()]


def _stamps(listed: Any) -> dict[str, Stamp]:
    return {str(name): Stamp(int(size), int(modified)) for name, size, modified in listed}


def _moments(stored: Any) -> dict[str, float]:
    return {str(name): float(since) for name, since in stored.items()}


def _aside(stored: Any) -> dict[str, SetAside]:
    return {
        str(name): SetAside(int(size), int(modified), int(changed), int(declared), str(reason))
        for name, (size, modified, changed, declared, reason) in stored.items()
    }
