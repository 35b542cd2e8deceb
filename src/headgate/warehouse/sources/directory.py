"""The names of the files below a directory, listed anew only when something may have changed.

Listing ten thousand names takes some milliseconds, too long to do ten times a second for every stream. A directory's
modification time changes whenever a name in it appears or goes, so while it stands still the last listing is true.
Two exceptions: a change in the same tick of the file system's clock as the listing leaves no trace, so a young
modification time is not trusted; and some file systems (mounted object stores) do not keep it at all, so now and
then we list anyway.

Knows nothing about what is in the files, nor which names are wanted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate.warehouse.sources.errors import SourceError, SourceUnreadable, current_user

#: a modification time younger than this when the directory is listed proves nothing, because file systems count in
#: steps: of some milliseconds, or of one or two whole seconds
FINE_STEP_NS, COARSE_STEP_NS = 100_000_000, 2_500_000_000
#: an unchanged modification time is believed for this long
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
        # The system's own clock, even where another was passed in: this is compared with times of the file system.
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
