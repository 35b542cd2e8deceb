"""Acknowledge TCP at once: saves 40 ms a task.

Spark sends a task's rows to its Python worker through a TCP socket, and that there are no more as a few bytes of their
own. These wait in the sender until what went before is acknowledged (Nagle's algorithm), and the receiver takes its
time for that, 40 ms on Linux, since it has nothing to send. For a small update that is a third of its time. Spark's
other way, Unix domain sockets, has no such wait, but leaves an entry in the driver's list of files to delete for every
result that is fetched, which a driver that lives for weeks cannot afford.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

#: Linux has an option that sends a pending acknowledgement at once; other systems have other ways, or none
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_DESCRIPTORS = Path("/proc/self/fd")


def acknowledged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; what has been received is acknowledged before the next one is waited for."""
    with ExitStack() as held:
        sockets = [held.enter_context(each) for each in tcp_sockets()] if _QUICKACK is not None else []
        while True:
            acknowledge(sockets)
            batch = next(batches, None)
            if batch is None:
                return
            yield batch


def acknowledge(sockets: list[socket.socket]) -> None:
    """Send what acknowledgements are pending. One that fails is of a connection that is gone: nothing to tell."""
    for each in sockets:
        try:
            each.setsockopt(socket.IPPROTO_TCP, _QUICKACK or 0, 1)
        except OSError:
            continue


def tcp_sockets() -> list[socket.socket]:
    """The TCP connections of this process, each through a descriptor of its own, to be closed by the caller. Spark's
    worker keeps its connection to itself, so it is found among them; to be prompt does no harm to any other."""
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
