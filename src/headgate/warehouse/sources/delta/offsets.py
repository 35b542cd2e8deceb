"""What is kept of a Delta source between updates: which files of which versions were loaded.

A *place* is a version and the number of a file among those that the version added; places are in the order of pairs.
After the last file of a version comes the first one of the next version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from headgate.warehouse.sources.protocol import Offset, Range
from headgate.warehouse.sources.ranges import ContentsRange, SizedRange

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DeltaOffset(Offset, kind="delta"):
    """Where the stream begins, and what has been loaded: runs of places from a first one to just before another.

    ``contents``: the files of the first version are all that hold its rows, not only those that it added. ``newest`` is
    the newest version of which something was loaded, and when it was committed: by that a table is recognised.
    """

    first: int = 0
    contents: bool = False
    loaded: tuple[tuple[Place, Place], ...] = ()
    newest: tuple[int, int] | None = None

    def after(self, loaded: DeltaRange) -> DeltaOffset:
        """The offset with a range loaded, too."""
        runs: list[tuple[Place, Place]] = []
        for begin, end in sorted([*self.loaded, (loaded.begin, loaded.end)]):
            if runs and begin <= runs[-1][1]:
                runs[-1] = (runs[-1][0], max(runs[-1][1], end))
            else:
                runs.append((begin, end))
        newest = loaded.newest_version if self.newest is None else max(self.newest, loaded.newest_version)
        return DeltaOffset(self.first, self.contents, tuple(runs), newest)

    def gaps(self, since: int) -> Iterator[tuple[Place, Place | None]]:
        """The runs of places that are not loaded, from version ``since`` on; the last one has no end."""
        begin: Place = (max(self.first, since), 0)
        for first, end in self.loaded:
            if begin < first:
                yield begin, first
            begin = max(begin, end)
        yield begin, None

    def _content(self) -> dict[str, object]:
        return {
            "first": self.first,
            "contents": self.contents,
            "loaded": [[list(begin), list(end)] for begin, end in self.loaded],
            "newest": None if self.newest is None else list(self.newest),
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        newest = content["newest"]
        return cls(
            int(content["first"]),
            bool(content["contents"]),
            tuple((_place(begin), _place(end)) for begin, end in content["loaded"]),
            None if newest is None else _place(newest),
        )


@dataclass(frozen=True, slots=True)
class DeltaRange(SizedRange, kind="delta"):
    """The files from the place ``begin`` to just before ``end``. ``newest_version``: as ``newest`` of an offset.

    ``of_contents``: they are files of all rows of a version, not of those that it added.
    """

    stored_blocks = "files"

    begin: Place
    end: Place
    newest_version: tuple[int, int]
    of_contents: bool = False

    def _content(self) -> dict[str, object]:
        return {
            "begin": list(self.begin),
            "end": list(self.end),
            "version": list(self.newest_version),
            **self._measures(),
            "of_contents": self.of_contents,
        }

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            begin=_place(content["begin"]),
            end=_place(content["end"]),
            newest_version=_place(content["version"]),
            of_contents=bool(content["of_contents"]),
            **cls._measured(content),
        )


@dataclass(frozen=True, slots=True)
class DeltaContents(ContentsRange, kind="delta contents"):
    """All rows of one version, committed at ``newest``, for a dimension."""

    version: int
    table: str
    files: int

    @property
    def chunks(self) -> int:
        return self.files

    def names_the_same_as(self, other: Range) -> bool:
        return isinstance(other, DeltaContents) and (self.table, self.version) == (other.table, other.version)

    def _content(self) -> dict[str, object]:
        return {"version": self.version, "table": self.table, "files": self.files, **self._measures()}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(int(content["version"]), str(content["table"]), int(content["files"]), **cls._measured(content))


def _place(stored: Any) -> Place:
    version, number = stored
    return int(version), int(number)
