"""Deleting files that nothing needs any more: data files by what the caller says is needed, log entries by age."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from headgate.warehouse.storage.entries import LOG_DIRECTORY
from headgate.warehouse.storage.staging import DATA_DIRECTORY


def staged_directories(table: Path, older_than_seconds: float) -> list[Path]:
    """The directories of updates that were last written to at least ``older_than_seconds`` ago."""
    data = table / DATA_DIRECTORY
    if not data.is_dir():
        return []
    limit = time.time() - older_than_seconds
    return sorted(path for path in data.iterdir() if path.is_dir() and path.stat().st_mtime <= limit)


def delete_unneeded(table: Path, directories: Iterable[Path], needed: Container[str]) -> int:
    """Delete the files below ``directories`` that are not ``needed``, then what has become empty; how many files."""
    deleted = 0
    for top in directories:
        for folder, _, names in os.walk(top, topdown=False):
            here = Path(folder)
            for name in names:
                if (here / name).relative_to(table).as_posix() not in needed:
                    (here / name).unlink(missing_ok=True)
                    deleted += 1
            with suppress(OSError):  # not empty
                here.rmdir()
    return deleted


def clean_up_log(table: Path, newest: int, seconds: float) -> None:
    """Delete the entries before the newest checkpoint that is not after version ``newest`` and older than ``seconds``.

    That checkpoint makes up for them: every version from it on can still be read.
    """
    limit = time.time() - seconds
    log = table / LOG_DIRECTORY
    checkpoints = [path for path in log.glob("*.checkpoint.parquet") if path.stat().st_mtime <= limit]
    start = max((version for path in checkpoints if (version := _version_of(path)) <= newest), default=0)
    for path in [*log.glob("*.json"), *checkpoints]:
        if _version_of(path) < start:
            path.unlink()


def _version_of(path: Path) -> int:
    return int(path.name.split(".")[0])
