"""Which files of a directory are new and complete, found cheaply even if the directory has many old files.

A *look* compares every name in the directory with those already loaded, and calls ``stat`` for each file that is new
since the last look or not complete yet. As long as neither the directory nor what is loaded has changed, a look only
checks the files that may have become complete or readable. What is remembered between looks only saves work: a new
`Listing` gives the same answers.

A link is followed if it leads to a file inside the directory. One that leads out of it would let whoever may write
there have any file of this machine loaded, so it is left out unless ``follow_links`` is set.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from headgate.warehouse.sources.errors import current_user
from headgate.warehouse.sources.files.directory import Directory, Identity
from headgate.warehouse.sources.protocol import Notice

#: names that writers give to files they are still writing
UNFINISHED_SUFFIXES = (".tmp", ".part", ".inprogress", ".crdownload")
HIDDEN_PREFIXES = (".", "_")

#: how many loaded files to check for later changes at each look: all of ten thousand within ten seconds of polling
CHECKED_PER_LOOK = 100
#: the longest time, in seconds, that a file which changes again and again has to stay as it is before it is loaded
LONGEST_TO_SETTLE = 60.0
#: a file is usually complete after this many times its time to settle, and after some seconds if that is short
USUAL_TIMES_TO_SETTLE, USUAL_TO_COMPLETE = 3.0, 5.0


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


class SetAside(NamedTuple):
    """A file that could not be loaded and is left out until it changes: its content, its name, or who may read it.

    ``changed`` is its change time in microseconds, ``declared`` identifies the declaration that it was read by: with
    another one, it is tried again.
    """

    size: int
    modified: int
    changed: int
    declared: int
    reason: str


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns // 1_000)


def changed_at(status: os.stat_result) -> int:
    return status.st_ctime_ns // 1_000


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the directory found beyond the loaded files.

    ``whole`` can be loaded. ``unfinished`` are not complete yet; ``overdue`` are those of them that have not been for
    longer than is usual. ``unreadable`` cannot be read, with the reason. ``aside`` have been set aside and are still as
    they were. ``size``, ``oldest`` and ``newest`` are of ``whole``: the bytes of all, and when the first and the last
    arrived.
    """

    exists: bool = True
    whole: list[Found] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    overdue: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    size: int = 0
    oldest: float | None = None
    newest: float | None = None
    notices: tuple[Notice, ...] = ()


class _Watched(NamedTuple):
    """A file that is not complete: how it was at a look, and when that look was."""

    stamp: Stamp
    changed: int
    since: float


class Listing:
    """The new files of one directory. Any thread may call; only one look runs at a time.

    A file is complete when it has not changed for ``settle`` seconds and ``complete`` returns True for its path.
    ``declared`` identifies the declaration of the source, see `SetAside`. ``clock`` tells the time on the wall, which
    may be set; ``steady`` tells how much time has passed.
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
        steady: Callable[[], float],
        follow_links: bool = False,
        declared: int = 0,
    ) -> None:
        self._folder = folder
        self._matches = re.compile(fnmatch.translate(pattern)).match
        self._settle = settle
        self._complete = complete
        self._clock = clock
        self._steady = steady
        self._follow_links = follow_links
        self._declared = declared
        # guards everything below; held for the length of a look
        self._lock = threading.Lock()
        self._directory = Directory(folder, recursive=recursive, clock=clock)
        self._whole: dict[str, Found] = {}
        #: files that have changed too recently
        self._watched: dict[str, _Watched] = {}
        #: {name of an incomplete file: its stamp}, so that its end is not read again until it has changed
        self._incomplete: dict[str, Stamp] = {}
        #: {name of a file that is not complete: when it was first found so}
        self._unfinished_since: dict[str, float] = {}
        #: {name: how often in a row the file has changed while it was being loaded}
        self._restless: dict[str, int] = {}
        self._unwanted: set[str] = set()
        #: all notices so far, and those that nobody has been given yet
        self._reported: set[tuple[str, str]] = set()
        self._untold: list[Notice] = []
        #: the loaded files, in the order in which they are checked for changes
        self._to_check: tuple[Mapping[str, Stamp], list[str]] = ({}, [])
        self._next_to_check = 0
        #: a listing, what was loaded, and what a look found: another one finds the same as long as those are the same
        self._last: tuple[list[str], Mapping[str, Stamp], Look] | None = None
        #: a listing, and its names as a set
        self._present: tuple[list[str], frozenset[str]] = ([], frozenset())
        #: {loaded file: when it was first found missing}, for `missing_for`
        self._missing: dict[str, float] = {}

    # --- new files --------------------------------------------------------------------------------------------

    def look(
        self, loaded: Mapping[str, Stamp], aside: Mapping[str, SetAside] | None = None, *, notices: bool = False
    ) -> Look:
        """The files that are neither in ``loaded`` nor ``aside``.

        With ``notices``, some of the loaded files are checked, and all notices since the last time are returned.
        """
        with self._lock:
            names = self._directory.names()
            if names is None:
                return Look(exists=False)
            look = self._same_as_last(names, loaded, aside or {})
            if look is None:
                look = self._looked(names, loaded, aside or {})
                is_final = not (look.unfinished or look.unreadable)
                self._last = (names, loaded, look) if is_final else None
            if notices:
                self._check_loaded(loaded)
                look = replace(look, notices=tuple(self._untold))
                self._untold.clear()
            return look

    def _same_as_last(
        self, names: list[str], loaded: Mapping[str, Stamp], aside: Mapping[str, SetAside]
    ) -> Look | None:
        """The last look, if another one would find the same; None if it may not."""
        if self._last is None:
            return None
        last_names, last_loaded, look = self._last
        if last_names is not names or last_loaded is not loaded:
            return None
        as_before = look.aside.keys() == aside.keys() and all(
            self._is_as_set_aside(name, known) for name, known in aside.items()
        )
        return look if as_before else None

    def _looked(self, names: list[str], loaded: Mapping[str, Stamp], aside: Mapping[str, SetAside]) -> Look:
        look, now = Look(), self._clock()
        for folder, reason in self._directory.locked.items():
            look.unreadable[folder] = reason
            self._tell(folder, f"is left out: {current_user()} cannot list it: {reason}")
        whole: dict[str, Found] = {}
        for name in self._new(names, loaded):
            if name in aside and self._is_as_set_aside(name, aside[name]):
                look.aside[name] = reason = aside[name].reason
                self._tell(name, f"is set aside: {reason}. It is tried again when it changes")
                continue
            try:
                found = self._whole.get(name) or self._examined(name, now)
            except FileNotFoundError:
                continue  # it has gone again, or is a link to nothing
            except OSError as error:
                look.unreadable[name] = reason = error.strerror or str(error)
                self._tell(name, f"is left out: {current_user()} cannot read it: {reason}")
                continue
            if isinstance(found, Found):
                whole[name] = found
            elif found:
                look.unfinished.append(name)
        self._whole = whole
        look.whole.extend(whole.values())
        look.overdue.extend(self._overdue(look.unfinished))
        waiting = set(look.unfinished)
        self._watched = {name: seen for name, seen in self._watched.items() if name in waiting}
        self._incomplete = {name: seen for name, seen in self._incomplete.items() if name in waiting}
        self._restless = {name: times for name, times in self._restless.items() if name in waiting or name in whole}
        return replace(
            look,
            size=sum(file.size for file in look.whole),
            oldest=min((file.arrived for file in look.whole), default=None),
            newest=max((file.arrived for file in look.whole), default=None),
        )

    def _overdue(self, unfinished: list[str]) -> list[str]:
        """Those that are not complete for longer than is usual, or that change whenever they are loaded.

        Where files come all the time there is nearly always one that is not complete yet: that is no news.
        """
        now, before = self._steady(), self._unfinished_since
        since = self._unfinished_since = {name: before.get(name, now) for name in unfinished}
        usual = max(USUAL_TO_COMPLETE, USUAL_TIMES_TO_SETTLE * self._settle)
        return [name for name in unfinished if now - since[name] > usual or self._is_restless(name)]

    def unchanged(self, files: Iterable[Found]) -> list[Found]:
        """Those of ``files`` that are still as they were found, and readable. The others are examined again."""
        with self._lock:
            still = []
            for file in files:
                if self._is_still(file):
                    still.append(file)
                else:
                    self._whole.pop(file.name, None)
                    self._last = None
            return still

    def changed_while_loaded(self, name: str) -> None:
        """A file that was complete has changed before its rows were loaded.

        If that goes on, as with a log that is appended to, it would fail the load of all files again and again. So it
        has to stay as it is for longer and longer before it counts as complete.
        """
        with self._lock:
            self._restless[name] = self._restless.get(name, 0) + 1
            self._whole.pop(name, None)
            self._last = None

    def _time_to_settle(self, name: str) -> float:
        if not self._is_restless(name):
            return self._settle
        return max(self._settle, min(LONGEST_TO_SETTLE, 2.0 ** (self._restless[name] - 2)))

    def _is_restless(self, name: str) -> bool:
        """Whether a file has changed while it was being loaded, more than once: files are sometimes replaced."""
        return self._restless.get(name, 0) >= 2

    def status(self, name: str) -> os.stat_result:
        """The status of a file, or of what it is a link to; an OSError if it is not there or may not be read."""
        path = self.path(name)
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            if not self._follow_links and not self._is_inside(path):
                raise PermissionError(
                    errno.EPERM, "it is a link that leads out of the directory, and follow_links is not set", path
                )
            status = os.stat(path)
        return status

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _is_inside(self, path: str) -> bool:
        home = os.path.realpath(self._folder)
        return os.path.realpath(path).startswith(home.rstrip("/") + "/")

    def _is_still(self, file: Found) -> bool:
        try:
            if stamp_of(self.status(file.name)) != file.stamp:
                return False
            _check_access(self.path(file.name))
        except OSError:
            return False
        return True

    def _is_as_set_aside(self, name: str, known: SetAside) -> bool:
        try:
            status = self.status(name)
        except OSError:
            return False
        seen = (*stamp_of(status), changed_at(status), self._declared)
        return seen == (known.size, known.modified, known.changed, known.declared)

    def _stamp(self, name: str) -> Stamp | None:
        try:
            return stamp_of(self.status(name))
        except OSError:
            return None

    def _new(self, names: list[str], loaded: Mapping[str, Stamp]) -> list[str]:
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
                self._tell(shown, "is left out: its name is not valid UTF-8; rename it")
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
        """The file if it is complete, True if it is not complete yet, False if it is no file."""
        status = self.status(name)
        if not stat.S_ISREG(status.st_mode):
            return False
        stamp = stamp_of(status)
        if not self._has_settled(name, status, now) or self._incomplete.get(name) == stamp:
            return True
        _check_access(self.path(name))
        if not self._complete(self.path(name)):
            self._incomplete[name] = stamp
            return True
        return Found(name, *stamp, status.st_ctime)

    def _has_settled(self, name: str, status: os.stat_result, now: float) -> bool:
        """Whether a file has not changed for a while.

        By its change time, which copying tools cannot set back. If the clocks differ or have been set, by what earlier
        looks have seen.
        """
        settle = self._time_to_settle(name)
        if now - status.st_ctime >= settle:
            return True
        stamp, changed = stamp_of(status), changed_at(status)
        seen = self._watched.get(name)
        if seen is None or (seen.stamp, seen.changed) != (stamp, changed) or now < seen.since:
            seen = self._watched[name] = _Watched(stamp, changed, now)
        return now - seen.since >= settle

    def _check_loaded(self, loaded: Mapping[str, Stamp]) -> None:
        """Tell of loaded files that are different now. A few files are checked each time, in turn."""
        if self._to_check[0] is not loaded:
            self._to_check = (loaded, list(loaded))
        names = self._to_check[1]
        first = self._next_to_check if self._next_to_check < len(names) else 0
        self._next_to_check = first + CHECKED_PER_LOOK
        for name in names[first : self._next_to_check]:
            stamp = self._stamp(name)
            if stamp is not None and stamp != loaded[name]:
                self._tell(name, "changed after it was loaded; it is not loaded again: write new rows to a new file")

    def _tell(self, name: str, problem: str) -> None:
        """Have the next notices contain one about a file, unless it was given before."""
        if (name, problem) not in self._reported:
            self._reported.add((name, problem))
            self._untold.append(Notice(name, problem))

    # --- loaded files that have gone --------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        """Which directory was looked at last; None if it was not there."""
        with self._lock:
            return self._directory.identity

    def present(self) -> frozenset[str]:
        """All names that the directory has."""
        with self._lock:
            names = self._directory.names() or []
            if self._present[0] is not names:
                self._present = (names, frozenset(names))
            return self._present[1]

    def really_missing(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that are not there. A listing may skip a name while others change, so each is checked."""
        return sorted(name for name in names if _is_missing(self.path(name)))

    def missing_for(self, names: Iterable[str]) -> dict[str, float]:
        """For how many seconds each of ``names`` has been found missing, by the looks of this process.

        Names that are not asked for are taken to be there.
        """
        now = self._steady()
        with self._lock:
            before = self._missing
            self._missing = {name: before.get(name, now) for name in names}
            return {name: now - since for name, since in self._missing.items()}


def _is_missing(path: str) -> bool:
    """Whether there is nothing; False also if the file system cannot tell."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _check_access(path: str) -> None:
    """Raise an OSError if a file may not be read. Opening it would take three times as long."""
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
