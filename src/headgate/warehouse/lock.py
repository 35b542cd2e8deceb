"""One warehouse directory is run by one process.

The lock is the operating system's: it is gone with the process that held it, however that ended, so there is never a
stale one to clean up.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import IO

from headgate.core.errors import HeadgateError

FILE_NAME = "headgate.lock"


class WarehouseInUseError(HeadgateError):
    """Another process runs this warehouse."""


class WarehouseLock:
    """Held from ``acquire`` to ``release``, or as a context."""

    def __init__(self, warehouse: Path) -> None:
        self._path = warehouse / FILE_NAME
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock, or say who has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise WarehouseInUseError(
                f"the warehouse {self._path.parent} is being run by another process (process id {holder}); "
                "stop that one first, or run this pipeline with another path"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None

    def __enter__(self) -> WarehouseLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def running_process(warehouse: Path) -> int | None:
    """The id of the process that runs a warehouse now, None if nobody does."""
    path = warehouse / FILE_NAME
    if not path.exists():
        return None
    with path.open("r", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            written = file.read().strip()
            return int(written) if written.isdecimal() else -1
    return None
