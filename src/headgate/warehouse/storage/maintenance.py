"""Which files to merge into fewer: plans only, nothing is read or written here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from headgate.warehouse.storage.files import DataFile
from headgate.warehouse.storage.index import FileIndex
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
