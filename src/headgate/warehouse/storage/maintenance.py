"""Maintenance of data files: choosing files to merge, and deleting files that no version needs."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from headgate.places.object_path import ObjectPath, delete_objects
from headgate.places.place import AnyPath, relative
from headgate.warehouse.storage.files import DATA_DIRECTORY, DataFile
from headgate.warehouse.storage.history import LOG_DIRECTORY
from headgate.warehouse.storage.live import FileIndex
from headgate.warehouse.storage.partitions import SECOND, partition_label, partition_start

#: merged files are about this large at most; they are read into memory whole
TARGET_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace ``sources`` by one file in ``partition`` that has the same rows."""

    partition: str | None
    sources: tuple[DataFile, ...]


def compaction(index: FileIndex, partitions: Iterable[str | None], target_bytes: int) -> list[Rewrite]:
    """Merge the small files of each of ``partitions``."""
    return [
        Rewrite(partition, bin_)
        for partition in partitions
        for bin_ in _bins((file for file in index.files_in([partition]) if file.size < target_bytes), target_bytes)
        if len(bin_) > 1
    ]


def roll_up(index: FileIndex, older_than: int, length_seconds: int, target_bytes: int) -> list[Rewrite]:
    """Merge partitions into longer ones of ``length_seconds`` that end before ``older_than``."""

    def longer(label: str) -> str:
        return partition_label(partition_start(label), length_seconds)

    rewrites = []
    for target, labels in groupby(index.partitions(), longer):
        if partition_start(target) + length_seconds * SECOND > older_than:
            break
        members = tuple(labels)
        if members == (target,):
            continue
        moving = (file for file in index.files_in(members) if file.partition != target or file.size < target_bytes)
        rewrites += [Rewrite(target, bin_) for bin_ in _bins(moving, target_bytes)]
    return rewrites


def _bins(files: Iterable[DataFile], size: int) -> Iterator[tuple[DataFile, ...]]:
    """``files`` in the order of event time, cut where the sum of their sizes would exceed ``size``."""
    current: list[DataFile] = []
    total = 0
    for file in sorted(files, key=lambda file: (file.first or 0, file.path)):
        if current and total + file.size > size:
            yield tuple(current)
            current, total = [], 0
        current.append(file)
        total += file.size
    if current:
        yield tuple(current)


def staged_directories(table: AnyPath, older_than_seconds: float) -> list[AnyPath]:
    """The directories of updates that were last written to at least ``older_than_seconds`` ago."""
    data = table / DATA_DIRECTORY
    limit = time.time() - older_than_seconds
    if isinstance(data, ObjectPath):
        newest: dict[str, float] = {}
        for path in data.rglob("*"):
            name = relative(path, data).partition("/")[0]
            newest[name] = max(path.stat().st_mtime, newest.get(name, 0.0))
        return [data / name for name, written in sorted(newest.items()) if written <= limit]
    if not data.is_dir():
        return []
    return sorted(path for path in data.iterdir() if path.is_dir() and path.stat().st_mtime <= limit)


def delete_unneeded(table: AnyPath, directories: Iterable[AnyPath], needed: Container[str]) -> int:
    """Delete the files below ``directories`` that are not ``needed``, and empty directories; returns how many files."""
    deleted = 0
    for top in directories:
        if isinstance(top, ObjectPath):
            unneeded = [path for path in top.rglob("*") if relative(path, table) not in needed]
            delete_objects(unneeded)
            top.delete_empty_folders()
            deleted += len(unneeded)
            continue
        for folder, _, names in os.walk(top, topdown=False):
            here = Path(folder)
            for name in names:
                if relative(here / name, table) not in needed:
                    (here / name).unlink(missing_ok=True)
                    deleted += 1
            with suppress(OSError):  # not empty
                here.rmdir()
    return deleted


def delete_folder(folder: AnyPath) -> None:
    """Delete everything below ``folder``."""
    if isinstance(folder, Path):
        shutil.rmtree(folder)
    else:
        folder.delete_below()


def put_aside(table: AnyPath, check: Callable[[], None]) -> AnyPath:
    """End a table, so that a process that dies half-way leaves no half of it; returns what is left to be deleted.

    ``check`` raises if the table may be another process's by now: it is called before each file is deleted.
    """
    if isinstance(table, Path):
        check()
        return table.rename(table.with_name(f".{table.name}-{secrets.token_hex(6)}"))
    # There is no renaming in an object store. What is left of the log when its newest files are deleted first is always
    # an older version of the table, whose data is there.
    log = sorted((table / LOG_DIRECTORY).rglob("*"), key=lambda path: path.name, reverse=True)
    for path in log:  # `_last_checkpoint` comes first by its name
        check()
        path.unlink()
    return table
