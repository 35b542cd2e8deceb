"""Which files of a directory are new and complete, found cheaply even if the directory has many old files.

A *look* lists the directory, compares every name with those already loaded, and calls ``stat`` for each file that is
new since the last look or not complete yet. What is remembered between looks only saves work: a new `Listing` gives
the same answers.

Listing ten thousand names takes some milliseconds, too long to do ten times a second for every stream. So a
`Directory` lists again only when something may have changed. The modification time of a directory changes whenever a
name is added or removed; as long as it is the same, the last listing is still right. There are two exceptions. A change
in the same tick of the file system's clock as the listing does not change the time, so a recent modification time is
not trusted. And some file systems (mounted object stores) do not update it, so the directory is listed every few
seconds anyway.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headgate.warehouse.sources.errors import SourceError, SourceUnreadable, current_user
from headgate.warehouse.sources.protocol import Notice

#: a modification time younger than this when the directory is listed is not trusted: clocks of file systems tick in
#: steps of some milliseconds, or of one or two whole seconds
FINE_STEP_NS, COARSE_STEP_NS = 100_000_000, 2_500_000_000
#: an unchanged modification time is trusted for this long
LIST_ANYWAY_SECONDS = 5.0


@dataclass(slots=True)
class _Folder:
    """One listed directory. ``names`` of files and ``folders`` are relative to the top directory."""

    modified: int
    trusted: bool
    listed_at: float
    names: list[str]
    folders: list[str]


class Directory:
    """The files of a directory by name; with ``recursive`` those of the directories below it, too.

    Directories whose names begin with a dot or an underscore are not entered, nor are links to directories. Not
    safe to use from several threads at once.
    """

    def __init__(self, path: Path, *, recursive: bool, clock: Callable[[], float]) -> None:
        self._path = path
        self._recursive = recursive
        self._clock = clock
        self._folders: dict[str, _Folder] = {}

    def names(self) -> list[str] | None:
        """The names below the directory, relative to it; None if it does not exist."""
        folders: dict[str, _Folder] = {}
        try:
            for relative, folder in self._walk():
                folders[relative] = folder
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise SourceError(
                f"{self._path} is not a directory: a source of files takes the directory that they lie in. "
                f"Use pattern={self._path.name!r} to read just that file"
            ) from None
        except PermissionError as error:
            raise SourceUnreadable(
                f"{error.filename or self._path} cannot be listed: {error.strerror}. "
                f"Allow {current_user()} to read and enter the directory"
            ) from None
        finally:
            self._folders = folders
        if len(folders) == 1:
            return folders[""].names
        return [name for folder in folders.values() for name in folder.names]

    def _walk(self) -> Iterator[tuple[str, _Folder]]:
        waiting = [""]
        while waiting:
            relative = waiting.pop()
            try:
                folder = self._folder(relative)
            except (FileNotFoundError, NotADirectoryError):
                if relative == "":
                    raise
                continue  # it was removed between the listing of its parent and now
            yield relative, folder
            waiting.extend(folder.folders)

    def _folder(self, relative: str) -> _Folder:
        path = os.path.join(self._path, relative) if relative else str(self._path)
        # The system's clock, even if another was passed in, because this is compared with times of the file system.
        looked_at_ns = time.time_ns()
        modified = os.stat(path).st_mtime_ns
        now = self._clock()
        known = self._folders.get(relative)
        if (
            known is not None
            and known.trusted
            and known.modified == modified
            and abs(now - known.listed_at) < LIST_ANYWAY_SECONDS
        ):
            return known
        names, folders = self._listed(path, relative)
        step = COARSE_STEP_NS if modified % 1_000_000_000 == 0 else FINE_STEP_NS
        return _Folder(modified, looked_at_ns - modified > step, now, names, folders)

    def _listed(self, path: str, relative: str) -> tuple[list[str], list[str]]:
        prefix = f"{relative}/" if relative else ""
        names, folders = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.is_dir():
                    names.append(prefix + entry.name)
                elif self._recursive and not entry.name.startswith((".", "_")) and not entry.is_symlink():
                    folders.append(prefix + entry.name)
        return names, folders


#: names that writers give to files they are still writing
UNFINISHED_SUFFIXES = (".tmp", ".part", ".inprogress", ".crdownload")
HIDDEN_PREFIXES = (".", "_")

#: how many loaded files to check for later changes at each look: all of ten thousand within ten seconds of polling
CHECKED_PER_LOOK = 100


class Stamp(NamedTuple):
    """The size and modification time (microseconds) of a file: they show whether it has changed."""

    size: int
    modified: int


class Found(NamedTuple):
    """A complete file. ``arrived`` is when it got its content and name: the later of writing and renaming."""

    name: str
    size: int
    modified: int
    arrived: float

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.modified)


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns // 1_000)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the directory found beyond the loaded files."""

    exists: bool = True
    whole: list[Found] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    notices: tuple[Notice, ...] = ()


class Listing:
    """The new files of one directory. Any thread may call; only one look runs at a time.

    A file is complete when it has not changed for ``settle`` seconds and ``complete`` returns True for its path.
    ``clock`` must not differ from the clock of the file system by more than ``settle``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        pattern: str,
        recursive: bool,
        settle: float,
        complete: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._matches = re.compile(fnmatch.translate(pattern)).match
        self._settle = settle
        self._complete = complete
        self._clock = clock
        # guards everything below; held for the length of a look
        self._lock = threading.Lock()
        self._directory = Directory(folder, recursive=recursive, clock=clock)
        self._whole: dict[str, Found] = {}
        #: {name of an incomplete file: its stamp}, so that its end is not read again until it has changed
        self._incomplete: dict[str, Stamp] = {}
        self._unwanted: set[str] = set()
        self._reported: set[str] = set()
        self._next_to_check = 0

    def look(self, loaded: Mapping[str, Stamp], *, check_loaded: bool = False) -> Look:
        """The files that are not in ``loaded``; with ``check_loaded``, also notices about some that are."""
        with self._lock:
            names = self._directory.names()
            if names is None:
                return Look(exists=False)
            whole: dict[str, Found] = {}
            unfinished: list[str] = []
            notices: list[Notice] = []
            now = self._clock()
            for name in self._new(names, loaded, notices):
                found = self._whole.get(name) or self._examined(name, now)
                if isinstance(found, Found):
                    whole[name] = found
                elif found:
                    unfinished.append(name)
            self._whole = whole
            self._incomplete = {name: self._incomplete[name] for name in unfinished if name in self._incomplete}
            if check_loaded:
                notices.extend(self._changed_after_loading(loaded))
            return Look(whole=list(whole.values()), unfinished=unfinished, notices=tuple(notices))

    def unchanged(self, files: Iterable[Found]) -> bool:
        """Whether all of ``files`` are still as they were found; if not, look again."""
        with self._lock:
            changed = [file.name for file in files if self._stamp(file.name) != file.stamp]
            for name in changed:
                self._whole.pop(name, None)
            return not changed

    def gone(self, loaded: Mapping[str, Stamp]) -> tuple[str, ...]:
        """Those of ``loaded`` that are no longer in the directory."""
        with self._lock:
            names = self._directory.names()
            missing = loaded.keys() - set(names) if names is not None else ()
            # A listing may skip a name while others change, so each missing name is checked.
            return tuple(sorted(name for name in missing if not os.path.lexists(self._path(name))))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _stamp(self, name: str) -> Stamp | None:
        try:
            return stamp_of(os.stat(self._path(name)))
        except OSError:
            return None

    def _new(self, names: list[str], loaded: Mapping[str, Stamp], notices: list[Notice]) -> list[str]:
        """Those of ``names`` that are wanted and not loaded."""
        if len(self._unwanted) > len(names):
            self._unwanted.intersection_update(names)
        known, unwanted = self._whole, self._unwanted
        new = []
        for name in [name for name in names if name not in loaded and name not in unwanted]:
            if name in known:
                new.append(name)
            elif not self._wanted(name):
                unwanted.add(name)
            elif not name.isprintable() and not _is_text(name):
                unwanted.add(name)
                shown = os.fsencode(name).decode("utf-8", "backslashreplace")
                notices.append(Notice(shown, "is left out: its name is not valid UTF-8; rename it"))
            else:
                new.append(name)
        return new

    def _wanted(self, name: str) -> bool:
        last = name.rpartition("/")[2]
        return (
            not last.startswith(HIDDEN_PREFIXES)
            and not last.endswith(UNFINISHED_SUFFIXES)
            and self._matches(last) is not None
        )

    def _examined(self, name: str, now: float) -> Found | bool:
        """The file if it is complete, True if it is not complete yet, False if it is no file or has gone already."""
        try:
            status = os.stat(self._path(name))
        except OSError:
            return False
        if not stat.S_ISREG(status.st_mode):
            return False
        # The change time, unlike the modification time, cannot be set back by copying tools.
        if self._settle > 0 and now - status.st_ctime < self._settle:
            return True
        stamp = stamp_of(status)
        if self._incomplete.get(name) == stamp:
            return True
        if not self._complete(self._path(name)):
            self._incomplete[name] = stamp
            return True
        return Found(name, *stamp, status.st_ctime)

    def _changed_after_loading(self, loaded: Mapping[str, Stamp]) -> list[Notice]:
        """Notices about loaded files that are different now. A few files are checked each time, in turn."""
        names = list(loaded)
        first = self._next_to_check if self._next_to_check < len(names) else 0
        self._next_to_check = first + CHECKED_PER_LOOK
        notices = []
        for name in names[first : self._next_to_check]:
            stamp = self._stamp(name)
            if stamp is not None and stamp != loaded[name] and name not in self._reported:
                self._reported.add(name)
                notices.append(
                    Notice(name, "changed after it was loaded; it is not loaded again: write new rows to a new file")
                )
        return notices


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
