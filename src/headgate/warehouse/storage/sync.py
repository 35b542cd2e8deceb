"""Waiting until files are on disk: what is committed must survive a power cut, and in the right order.

A file is on disk when its bytes are and when the directories that lead to it are. The system writes both whenever it
likes, unless it is asked to (``fsync``). Who wrote the files does not matter: those of Spark are asked for by path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headgate.places.place import AnyPath
from headgate.warehouse.storage.errors import StorageError

#: several requests at once take little longer than one: the file system serves them together
_pool = ThreadPoolExecutor(4, thread_name_prefix="fsync")


def sync(paths: Iterable[Path]) -> None:
    """Return when these files and directories are on disk; StorageError if one is not there or cannot be written."""
    try:
        for _ in _pool.map(_sync, dict.fromkeys(paths)):
            pass
    except OSError as error:
        raise StorageError(f"the disk did not take what was written: {error}. Try the update again.") from error


def bring_to_disk(root: AnyPath, files: Iterable[AnyPath]) -> None:
    """Return when ``files`` below ``root`` are on disk, and the directories that lead to them.

    In an object store there is nothing to wait for: an object that was written is durable.
    """
    if isinstance(root, Path):
        sync(with_directories(root, [file for file in files if isinstance(file, Path)]))


def with_directories(root: Path, files: Iterable[Path]) -> list[Path]:
    """``files`` below ``root``, and the directories that lead to them, without ``root`` itself."""
    found: dict[Path, None] = {}
    for file in files:
        found.update(dict.fromkeys([file, *(root / part for part in file.relative_to(root).parents)]))
    found.pop(root, None)
    return list(found)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # some file systems cannot sync directories
            raise
    finally:
        os.close(descriptor)
