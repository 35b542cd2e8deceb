"""The names of the files in a directory, listed again only when something may have changed.

Listing a directory of a hundred thousand files takes 50 ms, too long to do ten times a second for every stream. The
modification time of a directory changes whenever a name is added or removed; as long as it is the same, the last
listing is still right. There are two exceptions. A change in the same tick of the file system's clock as the listing
does not change the time, so a recent modification time is not trusted. And some file systems (mounted object stores)
do not update it, so the directory is listed every few seconds anyway.

A directory with many names in which something changes all the time is listed less often, the more names it has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.warehouse.sources.errors import SourceError, SourceUnreadable, current_user

#: a modification time younger than this when the directory is listed is not trusted: clocks of file systems tick in
#: steps of some milliseconds, or of one or two whole seconds
FINE_STEP_NS, COARSE_STEP_NS = 100_000_000, 2_500_000_000
#: an unchanged modification time is trusted for this long, and longer in directories with many names
LIST_ANYWAY_SECONDS = 5.0
LIST_ANYWAY_PER_NAME = 100e-6
#: a directory with more names than this is not listed again before so many seconds for each of them have passed: with
#: a hundred thousand names once a second, which takes 5 % of the time
MANY_NAMES = 10_000
BETWEEN_LISTINGS_PER_NAME = 10e-6

#: the device and the number of a directory: another directory under the same path has others
Identity = tuple[int, int]


@dataclass(slots=True)
class _Folder:
    """One listed directory. ``names`` of files and ``folders`` are relative to the top directory."""

    modified: int
    trusted: bool
    listed_at: float
    identity: Identity
    names: list[str]
    folders: list[str]

    def is_current(self, modified: int, identity: Identity, now: float) -> bool:
        """Whether the directory, last modified at ``modified``, need not be listed again."""
        if identity != self.identity:
            return False
        age, count = abs(now - self.listed_at), len(self.names)
        if count > MANY_NAMES and age < count * BETWEEN_LISTINGS_PER_NAME:
            return True
        unchanged = self.trusted and modified == self.modified
        return unchanged and age < max(LIST_ANYWAY_SECONDS, count * LIST_ANYWAY_PER_NAME)


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
        self._names: list[str] = []
        #: {directory below that may not be listed: why}; the files of the others can be loaded
        self.locked: dict[str, str] = {}

    @property
    def identity(self) -> Identity | None:
        """Of the directory that was listed last; None if there was none."""
        top = self._folders.get("")
        return None if top is None else top.identity

    def names(self) -> list[str] | None:
        """The names below the directory, relative to it; None if it does not exist.

        The very same list as the last time, as long as no directory was listed again.
        """
        folders: dict[str, _Folder] = {}
        self.locked = {}
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
        except OSError as error:
            raise SourceUnreadable(
                f"{error.filename or self._path} cannot be listed: {error.strerror}. It is tried again"
            ) from None
        finally:
            before, self._folders = self._folders, folders
        if before.keys() != folders.keys() or any(before[name] is not folder for name, folder in folders.items()):
            self._names = [name for folder in folders.values() for name in folder.names]
        return self._names

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
            except PermissionError as error:
                if relative == "":
                    raise
                self.locked[relative] = error.strerror or str(error)
                continue
            yield relative, folder
            waiting.extend(folder.folders)

    def _folder(self, relative: str) -> _Folder:
        path = os.path.join(self._path, relative) if relative else str(self._path)
        # The system's clock, even if another was passed in, because this is compared with times of the file system.
        looked_at_ns = time.time_ns()
        status = os.stat(path)
        modified, identity = status.st_mtime_ns, (status.st_dev, status.st_ino)
        now = self._clock()
        known = self._folders.get(relative)
        if known is not None and known.is_current(modified, identity, now):
            return known
        names, folders = self._listed(path, relative)
        step = COARSE_STEP_NS if modified % 1_000_000_000 == 0 else FINE_STEP_NS
        return _Folder(modified, looked_at_ns - modified > step, now, identity, names, folders)

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
