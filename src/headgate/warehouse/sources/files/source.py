"""A source of files: new files in a directory, each loaded once.

A chunk is a file. Every new file is loaded, whatever its name and time; these only decide the order. Files that are
still being written or cannot be read are skipped until that is over. Files that change after they were loaded are
reported. Nothing is deleted or moved: the owner of the directory may do that at any time after a file was loaded.

A file is identified by its name relative to the directory, so no two files may have the same name. An offset is the set
of loaded files that still exist, not a position in an order: a late file with an early name is still found.

A file that can be opened but not loaded, such as a broken archive or one with a line too long for any memory, is *set
aside*: the offset has its name and the reason, and it is tried again when it or the declaration of the source changes.
"""

from __future__ import annotations

import difflib
import glob
import os
import time
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from headgate.core import DeclarationError
from headgate.places.secret_text import shown_address
from headgate.warehouse.declare.collecting import noting_a_mistake
from headgate.warehouse.declare.durations import seconds
from headgate.warehouse.sources.errors import SourceBroken, SourceChanged, SourceUnreadable, current_user
from headgate.warehouse.sources.files.batch import FileBatch
from headgate.warehouse.sources.files.formats import FORMATS, FileFormat
from headgate.warehouse.sources.files.limits import FileLimits, size_in_bytes
from headgate.warehouse.sources.files.listing import Found, Listing, Look, SetAside, Stamp, changed_at, stamp_of
from headgate.warehouse.sources.files.offsets import FileOffset, FileRange
from headgate.warehouse.sources.protocol import Limit, Offset, Pending, Range, expect_kind, within
from headgate.warehouse.sources.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ORDERS: dict[str, Callable[[Found], tuple[int, str]]] = {
    "name": lambda file: (0, file.name),
    "modified": lambda file: (file.modified, file.name),
}

#: a file of a dimension that is not there is waited for this long before its rows go: it may be just being replaced
REPLACED_WITHIN = 2.0
#: seconds for which a loaded file must have been seen missing before its name is forgotten, however long it is missing
#: by the clock on the wall: that may have been set
SEEN_MISSING = 600.0

#: how often to look for files that stay as they are for a moment, before that is left to the next poll
LOOKS_PER_RANGE = 3

_NOTHING: Mapping[str, Stamp] = MappingProxyType({})
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
    - ``follow_links``: read files that links lead to, also outside of the directory.
    - ``max_line``, ``max_file``: the most bytes of a line (uncompressed) and of a file, as in ``"16 MB"``. A larger
      file, or one with a longer line, is set aside.
    - ``remember``: for how long the name of a loaded file is kept after it was removed. A file that comes back within
      that time is not loaded again.

    Give every file a name of its own: a changed file under the name of a loaded one is reported, not loaded.
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    format: str = "json"
    schema: str = ""
    order: Literal["name", "modified"] = "name"
    pattern: str = "*"
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    settle: str | float = "500 ms"
    recursive: bool = False
    follow_links: bool = False
    max_line: str | int = "16 MB"
    max_file: str | int = "64 GB"
    remember: str | float = "1 day"
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    steady: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)
    _format: FileFormat = field(init=False, repr=False, compare=False)
    _batch: FileBatch = field(init=False, repr=False, compare=False)
    _listing: Listing = field(init=False, repr=False, compare=False)
    _limits: FileLimits = field(init=False, repr=False, compare=False)
    _remember: float = field(init=False, repr=False, compare=False)
    _declared: int = field(init=False, repr=False, compare=False)

    @noting_a_mistake()
    def __post_init__(self) -> None:
        where = f"Files({shown_address(os.fspath(self.path))!r})"
        self._check(where)
        file_format = FORMATS[self.format]
        schema = self.schema or file_format.default_schema
        columns = parse_schema(schema, where)
        file_format.check_columns(columns, where)
        folder = Path(os.path.abspath(self.path))
        options = file_format.checked_options(self.options, where)
        limits = FileLimits(
            size_in_bytes(self.max_line, f"{where}: max_line"), size_in_bytes(self.max_file, f"{where}: max_file")
        )
        declared = zlib.crc32(repr((self.format, schema, sorted(options.items()), limits)).encode())
        derived = {
            "schema": schema,
            "_format": file_format,
            "_batch": FileBatch(str(folder), (), columns, options),
            "_limits": limits,
            "_remember": seconds(self.remember, f"{where}: remember"),
            "_declared": declared,
            "_listing": Listing(
                folder,
                pattern=self.pattern,
                recursive=self.recursive,
                settle=seconds(self.settle, f"{where}: settle"),
                complete=file_format.complete,
                clock=self.clock,
                steady=self.steady,
                follow_links=self.follow_links,
                declared=declared,
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
        here = expect_kind(offset, FileOffset, self)
        look = self._listing.look(here.files, here.aside, notices=True)
        if not look.exists:
            return self._waiting()
        return Pending(
            chunks=len(look.whole),
            bytes=look.size,
            oldest=look.oldest,
            newest=look.newest,
            note=_note(look),
            notices=look.notices,
        )

    def _waiting(self) -> Pending:
        note = self.missing()
        return Pending(note=note, missing=bool(note))

    def missing(self) -> str:
        """What is not there and has to be, with a name that may be meant; empty if the directory is there."""
        folder = Path(self._batch.folder)
        if os.path.exists(folder):
            return ""
        try:
            beside = os.listdir(folder.parent)
        except OSError:
            beside = []
        close = difflib.get_close_matches(folder.name, beside, n=1)
        meant = f"; did you mean {folder.parent / close[0]}?" if close else ""
        return f"waiting for the directory {folder}, which does not exist{meant}"

    def next_range(self, offset: Offset, limit: Limit) -> FileRange | None:
        here = expect_kind(offset, FileOffset, self)
        for _ in range(LOOKS_PER_RANGE):
            found = self._listing.look(here.files, here.aside).whole
            if not found:
                return None
            chosen = within(limit, sorted(found, key=ORDERS[self.order], reverse=limit.first == "newest"))
            absent = self._absent(here)
            # Checked last: if the directory was just unmounted, ``absent`` is wrong, and the chosen files are missing.
            if unchanged := self._listing.unchanged(chosen):
                return replace(absent, **self._loading(unchanged))
        return None

    def _loading(self, files: Collection[Found]) -> dict[str, Any]:
        """The fields of a range that loads ``files``."""
        arrivals = [file.arrived for file in files] or [self.clock()]
        return {
            "files": {file.name: file.stamp for file in files},
            "oldest": min(arrivals),
            "newest": max(arrivals),
        }

    def _absent(self, here: FileOffset) -> FileRange:
        """What has become of the loaded files that are not there, as a range without files."""
        now, listing = self.clock(), self._listing
        present = listing.present()
        missing = listing.really_missing(
            name for name in here.files if name not in present and name not in here.missing
        )
        seen_missing = listing.missing_for(name for name in here.missing if name not in present)
        least = min(self._remember, SEEN_MISSING)
        forgettable = [
            name
            for name, seconds in seen_missing.items()
            if seconds >= least and now - here.missing[name] >= self._remember
        ]
        removed = [name for name in here.aside if name not in present]
        return FileRange(
            files={},
            oldest=now,
            newest=now,
            gone=tuple(listing.really_missing([*forgettable, *removed])),
            missing=dict.fromkeys(missing, now),
            back=tuple(sorted(name for name in here.missing if name in present)),
        )

    # --- contents of dimensions -------------------------------------------------------------------------------

    def contents(self, loaded: Range | None) -> tuple[FileRange | None, Pending]:
        before = _NO_FILES if loaded is None else expect_kind(loaded, FileRange, self)
        look = self._listing.look(_NOTHING)
        if self._listing.unchanged(look.whole) != look.whole:
            look = self._listing.look(_NOTHING)
        if not look.exists:
            return None, self._waiting()
        said = Pending(note=_note(look), notices=self._listing.look(_NOTHING, notices=True).notices)
        if look.unfinished or look.unreadable or self._listing.unchanged(look.whole) != look.whole:
            return None, said
        if doubt := self._doubt(before, look):
            return None, replace(said, note=doubt)
        if not look.whole and not before.files:
            return None, said
        return replace(_NO_FILES, folder=self._listing.identity, **self._loading(look.whole)), said

    def _doubt(self, before: FileRange, look: Look) -> str:
        """Why a dimension should not lose the rows of files that are not there now; empty if it should."""
        absent = before.files.keys() - {file.name for file in look.whole}
        is_there = absent.difference(self._listing.really_missing(absent))
        missing = self._listing.missing_for(absent).values()
        if is_there or any(seconds < REPLACED_WITHIN for seconds in missing):
            return f"waiting for {min(is_there or absent)}, which is not there now; is it being replaced?"
        if absent and not look.whole and self._listing.identity != before.folder:
            return (
                f"the directory {self._batch.folder} is empty and not the one that was loaded from: is something to be "
                "mounted there? The table stays as it is"
            )
        return ""

    # --- loading ----------------------------------------------------------------------------------------------

    def advance(self, offset: Offset, loaded: Range) -> FileOffset:
        return expect_kind(offset, FileOffset, self).after(expect_kind(loaded, FileRange, self))

    def read(self, spark: SparkSession, wanted: Range) -> DataFrame:
        files = expect_kind(wanted, FileRange, self).files
        broken = {}
        for name, stamp in files.items():
            self._check_file(name, stamp)
            if problem := self._problem(name, stamp):
                broken[name] = problem
        if broken:
            raise SourceBroken(broken)
        # An empty file has no rows in any format, and some of Spark's readers fail on it.
        names = tuple(name for name, stamp in files.items() if stamp.size > 0)
        return self._format.read(spark, replace(self._batch, names=names))

    def folders(self) -> tuple[str, ...]:
        return (glob.escape(os.path.abspath(self.path)),)

    def verify(self, loaded: Range) -> None:
        for name, stamp in expect_kind(loaded, FileRange, self).files.items():
            self._check_file(name, stamp)

    def _check_file(self, name: str, expected: Stamp) -> None:
        path = self._batch.path(name)
        try:
            stamp = stamp_of(self._listing.status(name))
        except FileNotFoundError:
            raise SourceChanged(
                path, "was removed before its rows were loaded", "Put it back, or go on without it: try again"
            ) from None
        except OSError as error:
            raise SourceUnreadable(f"{path} cannot be read: {error.strerror}") from None
        if stamp != expected:
            self._listing.changed_while_loaded(name)
            raise SourceChanged(
                path,
                f"changed before its rows were loaded: it had {expected.size} bytes, it has {stamp.size}, "
                f"last modified {_moment(stamp)}",
                f"Try again to load it as it is now. To keep this from happening, {_RENAME}, or raise settle",
            )

    def _problem(self, name: str, stamp: Stamp) -> str:
        """Why a file can never be loaded as it is; empty if it may be."""
        path = self._batch.path(name)
        try:
            with open(path, "rb"):
                pass
            return self._limits.problem(path, stamp.size, has_lines=self._format.has_lines)
        except OSError as error:
            if error.errno is None:
                return f"it is damaged: {error}; mend it or take it away"
            raise SourceUnreadable(
                f"{path} cannot be read: {error.strerror}. Allow {current_user()} to read it, or move it away; "
                "the stream goes on from there"
            ) from None
        except (EOFError, zlib.error) as error:
            return f"it is damaged: {error}; mend it or take it away"

    # --- files that cannot be loaded --------------------------------------------------------------------------

    def chunks_of(self, wanted: Range) -> dict[str, Range]:
        files = expect_kind(wanted, FileRange, self)
        return {
            name: replace(_NO_FILES, files={name: stamp}, oldest=files.oldest, newest=files.newest)
            for name, stamp in files.files.items()
        }

    def without(self, wanted: Range, left_out: Collection[str]) -> FileRange:
        files = expect_kind(wanted, FileRange, self)
        return replace(files, files={name: stamp for name, stamp in files.files.items() if name not in left_out})

    def set_aside(self, wanted: Range, reasons: Mapping[str, str]) -> FileRange:
        files = expect_kind(wanted, FileRange, self)
        aside = dict(files.aside)
        for name, reason in reasons.items():
            try:
                status = self._listing.status(name)
            except OSError:
                continue
            if stamp_of(status) == files.files.get(name):  # else it has changed meanwhile, and is tried again
                aside[name] = SetAside(*stamp_of(status), changed_at(status), self._declared, reason)
        return replace(self.without(files, reasons), aside=aside)


_NO_FILES = FileRange(files={}, oldest=0.0, newest=0.0)


def _note(look: Look) -> str:
    """What a look found that is not loaded, in words."""
    notes = []
    if names := look.overdue:
        one = f"1 file is not complete yet: {names[0]}"
        notes.append(one if len(names) == 1 else f"{len(names)} files are not complete yet, among them {min(names)}")
    for files, what in ((look.unreadable, "cannot be read"), (look.aside, "is set aside until it changes")):
        if files:
            name, reason = min(files.items())
            more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
            notes.append(f"{name} {what}{more}: {reason}")
    return "; ".join(notes)


def _moment(stamp: Stamp) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=stamp.modified)
    except OverflowError:
        return f"{stamp.modified} microseconds after 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
