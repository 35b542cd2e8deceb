"""A source of files: new files in a directory, each loaded once.

A chunk is a file. Every new file is loaded, whatever its name and time; these only decide the order. Files that are
still being written are skipped until they are complete. Files that change after they were loaded are reported. Nothing
is deleted or moved: the owner of the directory may do that at any time after a file was loaded.

A file is identified by its name relative to the directory, so no two files may have the same name. An offset is the set
of loaded files that still exist, not a position in an order: a late file with an early name is still found.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from headgate.core import DeclarationError
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.declare.durations import seconds
from headgate.warehouse.sources.errors import SourceChanged, SourceUnreadable, current_user
from headgate.warehouse.sources.file_batch import FileBatch
from headgate.warehouse.sources.file_formats import FORMATS, FileFormat
from headgate.warehouse.sources.listing import Found, Listing, Stamp, stamp_of
from headgate.warehouse.sources.protocol import Limit, Offset, Pending, Range, expect_kind, within
from headgate.warehouse.sources.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    """Files to load together, each with the stamp that it must still have when it is read.

    ``gone`` are loaded files that have been removed since: the next offset does not need them.
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


ORDERS: dict[str, Callable[[Found], tuple[int, str]]] = {
    "name": lambda file: (0, file.name),
    "modified": lambda file: (file.modified, file.name),
}

_RENAME = "write a file under a name that ends in .tmp and rename it when it is complete"


@dataclass(frozen=True)
class Files:
    """The files that appear in a directory.

    - ``format``: ``json`` (one object per line), ``csv`` (one record per line), ``parquet``, ``orc`` or ``text`` (one
      column, ``value``). Columns are found by name; one that a file does not have is null, one that was not declared
      is ignored. Text formats may be compressed (``.gz``, ``.bz2``).
    - ``schema``: the columns as Spark writes them. Not needed for ``text``.
    - ``order``: what makes a file older than another: its name, or when it was modified.
    - ``pattern``: which names to read, with ``*``, ``?`` and ``[...]``. Names that begin with ``.`` or ``_`` or end in
      ``.tmp``, ``.part``, ``.inprogress`` or ``.crdownload`` are never read.
    - ``options``: for Spark's reader of the format, such as ``{"sep": ";"}``; ``{"header": False}`` for CSV without.
    - ``settle``: a file is complete when it has not changed for this long; 0 if files are renamed into place. A
      Parquet or ORC file must also have its end.
    - ``recursive``: read the files of directories below, too.

    Give every file a name of its own: a changed file under the name of a loaded one is reported, not loaded, and
    one that was taken away for a while and comes back may be loaded again.
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    format: str = "json"
    schema: str = ""
    order: Literal["name", "modified"] = "name"
    pattern: str = "*"
    options: Mapping[str, object] = field(default_factory=dict)
    settle: str | float = "500 ms"
    recursive: bool = False
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    _format: FileFormat = field(init=False, repr=False, compare=False)
    _batch: FileBatch = field(init=False, repr=False, compare=False)
    _listing: Listing = field(init=False, repr=False, compare=False)

    @noting_a_mistake()
    def __post_init__(self) -> None:
        where = f"Files({os.fspath(self.path)!r})"
        self._check(where)
        file_format = FORMATS[self.format]
        schema = self.schema or file_format.default_schema
        columns = parse_schema(schema, where)
        file_format.check_columns(columns, where)
        folder = Path(os.path.abspath(self.path))
        settle = seconds(self.settle, f"{where}: settle")
        derived = {
            "schema": schema,
            "_format": file_format,
            "_batch": FileBatch(str(folder), (), columns, file_format.checked_options(self.options, where)),
            "_listing": Listing(
                folder,
                pattern=self.pattern,
                recursive=self.recursive,
                settle=settle,
                complete=file_format.complete,
                clock=self.clock,
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _check(self, where: str) -> None:
        if not os.fspath(self.path):
            raise DeclarationError("Files needs the directory that the files lie in")
        if "://" in os.fspath(self.path):
            raise DeclarationError(f"{where}: Files reads a directory of this machine, not an address; mount it")
        if self.format not in FORMATS:
            raise DeclarationError(f"{where}: format takes one of {', '.join(FORMATS)}; got {self.format!r}")
        if self.order not in ORDERS:
            raise DeclarationError(f"{where}: order takes one of {', '.join(ORDERS)}; got {self.order!r}")
        if "/" in self.pattern:
            raise DeclarationError(
                f"{where}: pattern is compared with names without their directories; got {self.pattern!r}"
            )

    def resolve(self, base: Path) -> Files:
        return replace(self, path=os.path.join(base, self.path))

    def start(self) -> FileOffset:
        return FileOffset()

    def latest(self, offset: Offset) -> Pending:
        look = self._listing.look(expect_kind(offset, FileOffset, self).files, check_loaded=True)
        if not look.exists:
            note = self.missing()
            return Pending(note=note, missing=bool(note))
        arrivals = [file.arrived for file in look.whole]
        return Pending(
            chunks=len(look.whole),
            bytes=sum(file.size for file in look.whole),
            oldest=min(arrivals, default=None),
            newest=max(arrivals, default=None),
            note=_unfinished_note(look.unfinished),
            notices=look.notices,
        )

    def missing(self) -> str:
        """What is not there and has to be, with a name that may be meant; empty if the directory is there."""
        folder = Path(self._batch.folder)
        if folder.exists():
            return ""
        beside = [other.name for other in folder.parent.iterdir()] if folder.parent.is_dir() else []
        close = difflib.get_close_matches(folder.name, beside, n=1)
        meant = f"; did you mean {folder.parent / close[0]}?" if close else ""
        return f"waiting for the directory {folder}, which does not exist{meant}"

    def next_range(self, offset: Offset, limit: Limit) -> FileRange | None:
        loaded = expect_kind(offset, FileOffset, self).files
        while True:
            found = self._listing.look(loaded).whole
            if not found:
                return None
            found.sort(key=ORDERS[self.order], reverse=limit.first == "newest")
            chosen = within(limit, found)
            gone = self._listing.gone(loaded)
            # Checked last: if the directory was just unmounted, ``gone`` is wrong, and the chosen files are missing.
            if self._listing.unchanged(chosen):
                break
        arrivals = [file.arrived for file in chosen]
        return FileRange(
            files={file.name: file.stamp for file in chosen}, oldest=min(arrivals), newest=max(arrivals), gone=gone
        )

    def advance(self, offset: Offset, loaded: Range) -> FileOffset:
        return expect_kind(offset, FileOffset, self).after(expect_kind(loaded, FileRange, self))

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        files = expect_kind(wanted, FileRange, self).files
        for name, stamp in files.items():
            self._check_file(name, stamp)
            self._check_readable(name)
        # An empty file has no rows in any format, and some of Spark's readers fail on it.
        names = tuple(name for name, stamp in files.items() if stamp.size > 0)
        return self._format.read(spark, replace(self._batch, names=names))

    def verify(self, loaded: Range) -> None:
        for name, stamp in expect_kind(loaded, FileRange, self).files.items():
            self._check_file(name, stamp)

    def _check_file(self, name: str, expected: Stamp) -> None:
        path = self._batch.path(name)
        try:
            stamp = stamp_of(os.stat(path))
        except FileNotFoundError:
            raise SourceChanged(
                path, "was removed before its rows were loaded", "Put it back, or go on without it: try again"
            ) from None
        except OSError as error:
            raise SourceUnreadable(f"{path} cannot be read: {error.strerror}") from None
        if stamp != expected:
            raise SourceChanged(
                path,
                f"changed before its rows were loaded: it had {expected.size} bytes, it has {stamp.size}, "
                f"last modified {_moment(stamp)}",
                f"Try again to load it as it is now. To keep this from happening, {_RENAME}, or raise settle",
            )

    def _check_readable(self, name: str) -> None:
        path = self._batch.path(name)
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise SourceUnreadable(
                f"{path} cannot be read: {error.strerror}. Allow {current_user()} to read it, or move it away; "
                "the stream goes on from there"
            ) from None


def _unfinished_note(names: list[str]) -> str:
    if not names:
        return ""
    if len(names) == 1:
        return f"1 file is not complete yet: {names[0]}"
    return f"{len(names)} files are not complete yet, among them {min(names)}"


def _moment(stamp: Stamp) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stamp.modified / 1e6))
