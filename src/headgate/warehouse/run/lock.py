"""The lock of a warehouse directory: one process runs it. The lock file names the process and its control socket.

It is a lock of the operating system, which releases it when the process ends in any way, so no stale lock is left. The
content of the file is valid only while the lock is held: one JSON object in one line,
``{"process": 4711, "host": "city-1", "control": "/tmp/headgate-control-x1/control"}``.

A folder that several machines share has a lease instead (``lease``): such locks need not count for all of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from headgate.core import DeclarationError, HeadgateError, InvariantError
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath

FILE_NAME = "headgate.lock"

#: a process that checks whether a warehouse is run holds the lock for a moment, so acquiring is tried a few times
_GLANCES = 5
_GLANCE = 0.02
_LONGEST_LINE = 4096


class WarehouseInUseError(HeadgateError):
    """Another process runs this warehouse."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs a warehouse: the process id, None if unknown, its control socket, None if it has none, and its machine.

    ``host`` is empty if it is unknown. ``page`` is the address at which the run can
    be looked at, None if there is none.
    """

    process: int | None = None
    control: str | None = None
    host: str = ""
    page: str | None = None


class WarehouseLock:
    """Held from ``acquire`` to ``release``, or as a context."""

    def __init__(self, warehouse: Path) -> None:
        self._path = warehouse / FILE_NAME
        self._descriptor: int | None = None
        self._control: Path | None = None
        self._page: str | None = None

    def acquire(self) -> None:
        """Take the lock, or raise an error that names the process which has it."""
        try:
            # Only its owner may enter a new warehouse, which keeps other users out of all files in it. The mode of a
            # directory that is there already was chosen by somebody, and stays.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DeclarationError(
                f"the warehouse cannot be in {self._path.parent}: {error.strerror} ({error.filename}). "
                "Its path takes a folder in which this user may create files"
            ) from None
        if not _locked(descriptor):
            found = _content(descriptor)
            os.close(descriptor)
            process = "unknown" if found.process is None else found.process
            raise WarehouseInUseError(
                f"the warehouse {self._path.parent} is being run by another process "
                f"(process id {process}{f' on {found.host}' if found.host else ''}); "
                "stop that one first, or run this pipeline with another path"
            )
        self._descriptor = descriptor
        # A process that a user's function forks must not keep the lock when this one has died.
        os.register_at_fork(after_in_child=self._forget)
        self.announce(None)

    def _forget(self) -> None:
        """In a copy of the process: close the file, without releasing the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def announce(self, control: Path | None) -> None:
        """Write into the file on which socket commands are taken; None if there is none."""
        if self._descriptor is None:
            raise InvariantError("only the holder of the lock can say where commands are taken: call acquire first")
        self._control = control
        self._write()

    def announce_page(self, address: str | None) -> None:
        """Write into the file at which address the run can be looked at; None if there is none."""
        self._page = address
        if self._descriptor is not None:
            self._write()

    def _write(self) -> None:
        assert self._descriptor is not None
        content: dict[str, object] = {"process": os.getpid(), "host": socket.gethostname()}
        content["control"] = None if self._control is None else str(self._control)
        if self._page is not None:
            content["page"] = self._page
        line = json.dumps(content) + "\n"
        # Overwritten first and then truncated, so that a reader always finds a complete first line. On a full disk the
        # file may stay empty: the lock holds all the same, only nobody is told who has it.
        with suppress(OSError):
            os.ftruncate(self._descriptor, os.pwrite(self._descriptor, line.encode(), 0))

    def release(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> WarehouseLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder(warehouse: AnyPath) -> Holder | None:
    """Who runs a warehouse now; None if no process does."""
    from headgate.warehouse.run.lease import has_lease, lease_of

    if isinstance(warehouse, ObjectPath) or has_lease(warehouse):
        lease = lease_of(warehouse)
        return None if lease is None else Holder(lease.process, lease.control, lease.host, lease.page)
    try:
        descriptor = os.open(warehouse / FILE_NAME, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _content(descriptor)
    finally:
        os.close(descriptor)
    return None


def running_process(warehouse: AnyPath) -> int | None:
    """The id of the process that runs a warehouse now; None if there is none, -1 if its id is unknown."""
    found = holder(warehouse)
    if found is None:
        return None
    return -1 if found.process is None else found.process


def _locked(descriptor: int) -> bool:
    for _ in range(_GLANCES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_GLANCE)
    return False


def _content(descriptor: int) -> Holder:
    line, _, _ = os.pread(descriptor, _LONGEST_LINE, 0).partition(b"\n")
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return Holder()
    match content:
        case {"process": int(process)}:
            control, page, host = content.get("control"), content.get("page"), content.get("host")
            return Holder(
                process,
                control if isinstance(control, str) else None,
                host if isinstance(host, str) else "",
                page=page if isinstance(page, str) else None,
            )
    return Holder()
