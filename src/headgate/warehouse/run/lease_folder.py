"""The lock object of a warehouse in a folder that several machines share: written only where nobody else has written.

A file system has no write with a condition, but of many who create one name, or link to it, one succeeds: also on NFS
and in HDFS, where the server decides. So every version of the content is a file of its own, with the next number as its
name, and the newest one counts. Who writes over version 7 creates version 8. If somebody else has, it is not created.

A file is written under another name first and then linked, or renamed in HDFS, so that it is there as a whole.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from headgate.places.object_path import ObjectPath

#: the folder in a warehouse that has the versions
FOLDER_NAME = "headgate.lease"
#: so many versions are kept: one that is gone could be created again by somebody who has slept meanwhile
_KEPT = 8


class LeaseFolder:
    """An object with conditional writes, made of files: with the methods of `ObjectPath` that a lease uses."""

    def __init__(self, folder: Path | ObjectPath) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def read_with_tag(self) -> tuple[bytes, str]:
        """The content and its tag, for `replace`; FileNotFoundError if there is none."""
        while True:
            newest = max(self._versions(), default=None)
            if newest is None:
                raise FileNotFoundError(2, "there is no lease", str(self._folder))
            try:
                return self._file(newest).read_bytes(), str(newest)
            except FileNotFoundError:
                continue  # newer ones have been written since, so many that this one was removed

    def written_at(self) -> float:
        """When it was last written, by the clock of the file system."""
        while True:
            newest = max(self._versions(), default=None)
            if newest is None:
                raise FileNotFoundError(2, "there is no lease", str(self._folder))
            with suppress(FileNotFoundError):  # removed, as newer ones have been written since
                return self._file(newest).stat().st_mtime

    def create(self, content: bytes) -> str | None:
        """Write the content if there is none; its tag, None if there is some."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return None if self._versions() else self._add(0, content)

    def replace(self, content: bytes, tag: str) -> str | None:
        """Write over the content that has this ``tag``; the new tag, None if the content is another one by now."""
        return self._add(int(tag) + 1, content)

    def _add(self, version: int, content: bytes) -> str | None:
        file = self._file(version)
        if not (_linked(file, content) if isinstance(file, Path) else file.create(content) is not None):
            return None
        versions = self._versions()
        if max(versions) != version:  # it had been there, and was removed
            self._file(version).unlink(missing_ok=True)
            return None
        for old in versions:
            if old <= version - _KEPT:
                self._file(old).unlink(missing_ok=True)
        return str(version)

    def _file(self, version: int) -> Path | ObjectPath:
        return self._folder / f"{version:012}"

    def _versions(self) -> list[int]:
        try:
            return [int(path.name) for path in self._folder.iterdir() if path.name.isdigit()]
        except FileNotFoundError:
            return []


def _linked(file: Path, content: bytes) -> bool:
    """Make a file that is there as a whole; whether there was none."""
    part = file.with_name(f".{secrets.token_hex(8)}")
    try:
        with part.open("xb") as unfinished:
            unfinished.write(content)
            unfinished.flush()
            os.fsync(unfinished.fileno())
        os.link(part, file)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True
