"""Acknowledge TCP at once: saves 40 ms a task.

Spark sends the rows of a task to its Python worker through a TCP socket, and then a few bytes that mark the end. The
sender holds these back until the rows are acknowledged (Nagle's algorithm), and the receiver delays acknowledgements by
40 ms on Linux. For a small update that is a third of its time. Spark can also use Unix domain sockets, which have no
such delay. But then every result adds an entry to the driver's list of files to delete, a leak in a driver that runs
for weeks.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

#: the Linux option that sends a pending acknowledgement at once; None on other systems
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_DESCRIPTORS = Path("/proc/self/fd")


def acknowledged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; received data is acknowledged before waiting for the next batch."""
    with ExitStack() as held:
        sockets = [held.enter_context(each) for each in tcp_sockets()] if _QUICKACK is not None else []
        while True:
            acknowledge(sockets)
            batch = next(batches, None)
            if batch is None:
                return
            yield batch


def acknowledge(sockets: list[socket.socket]) -> None:
    """Send pending acknowledgements. Errors are ignored: the connection is closed."""
    for each in sockets:
        try:
            each.setsockopt(socket.IPPROTO_TCP, _QUICKACK or 0, 1)
        except OSError:
            continue


def tcp_sockets() -> list[socket.socket]:
    """The TCP connections of this process, with new descriptors, to be closed by the caller.

    Spark gives no access to the worker's connection, so all connections are acknowledged; that does no harm to others.
    """
    found = []
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else []:
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            each = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed in the meantime, as the descriptor of the listing itself is
        if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
            found.append(each)
        else:
            each.close()
    return found
