"""Take commands for a running warehouse from other processes of the same user, over a Unix domain socket.

Requests and answers are lines, see ``control_commands``; the client is ``control_client``. A connection may carry
several requests, which are answered in order. The lock file of the warehouse names the socket; ``control_folder`` says
where it is.
"""

from __future__ import annotations

import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from headgate.core import HeadgateError
from headgate.warehouse.run.control_answers import ControlAnswers
from headgate.warehouse.run.control_commands import MOST_BYTES, Controlled
from headgate.warehouse.run.control_folder import ControlFolder

if TYPE_CHECKING:
    from headgate.warehouse.run.lease import WarehouseLease
    from headgate.warehouse.run.lock import WarehouseLock

#: connections that are served at once; further ones wait for their turn
MOST_CONNECTIONS = 32
#: connections that may wait
MOST_WAITING = 1024
#: seconds within which all requests of a connection must have arrived; the same again for each answer to be read
PATIENCE = 5.0


class CannotListenError(HeadgateError):
    """The socket for commands could not be created."""


class ControlServer:
    """Takes commands for a running warehouse from ``start`` to ``stop``, or as a context.

    The holder of the lock calls ``start`` and ``stop`` once each. One thread accepts connections; every connection has
    a thread, so that a slow client does not block others. All are daemon threads. Clients that send their request byte
    by byte, or none, are let go in time for others: a connection is read from for ``patience`` seconds in all.

    Invariants:
    1. The lock file names the socket only while it is listened on.
    2. ``_open`` holds all and only the connections that are being served, at most ``MOST_CONNECTIONS``. The others wait
       in the order in which they came.
    3. After ``stop`` there is no thread, no socket and no directory left, except for the threads of commands that take
       longer than ``patience``.
    """

    def __init__(self, run: Controlled, lock: WarehouseLock | WarehouseLease, patience: float = PATIENCE) -> None:
        self._answers = ControlAnswers(run)
        self._lock = lock
        self._patience = patience
        self._stopping = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="headgate-control", daemon=True)
        #: guards ``_open``, for no longer than it takes to change it; tells when there is one less
        self._fewer = threading.Condition()
        self._open: dict[threading.Thread, socket.socket] = {}

    def start(self) -> None:
        """Listen, and say so in the lock file."""
        try:
            self._folder = ControlFolder()
            self._listener = _listening(self._folder)
        except OSError as error:
            raise CannotListenError(
                f"cannot make a socket to take commands on, in {tempfile.gettempdir()}: {error}; "
                "set TMPDIR to a folder that can be written to"
            ) from error
        # Nothing is sent through this pair: closing one end wakes the thread that waits at the other.
        self._waker, self._woken = socket.socketpair()
        self._acceptor.start()
        self._lock.announce(self._folder.socket)

    def stop(self) -> None:
        """Take no more commands; commands in progress are finished and answered."""
        self._lock.announce(None)
        self._stopping.set()
        self._waker.close()
        with self._fewer:
            self._fewer.notify()
        self._acceptor.join()
        self._woken.close()
        self._listener.close()
        self._folder.remove()
        with self._fewer:
            left = dict(self._open)
        for connection in left.values():
            _end_reading(connection)
        end = time.monotonic() + self._patience
        for thread in left:
            thread.join(max(0.0, end - time.monotonic()))

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._listener, selectors.EVENT_READ)
            waiting.register(self._woken, selectors.EVENT_READ)
            while not self._stopping.is_set():
                waiting.select()
                with self._fewer:
                    self._fewer.wait_for(lambda: len(self._open) < MOST_CONNECTIONS or self._stopping.is_set())
                try:
                    connection, _ = self._listener.accept()
                except BlockingIOError:  # woken to stop, or the client has gone again
                    continue
                except OSError:  # for example, too many open files: try again a little later
                    self._stopping.wait(0.1)
                    continue
                thread = threading.Thread(
                    target=self._serve, args=(connection,), name="headgate-control-client", daemon=True
                )
                with self._fewer:
                    self._open[thread] = connection
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                for request in _requests(connection, time.monotonic() + self._patience):
                    connection.settimeout(self._patience)
                    connection.sendall(self._answers.to(request))
        except OSError:  # the client is gone, or has been silent for too long
            pass
        finally:
            with self._fewer:
                del self._open[threading.current_thread()]
                self._fewer.notify()


def _requests(connection: socket.socket, deadline: float) -> Iterator[bytes]:
    """The lines that have arrived by ``deadline``. If one is too long, its beginning is the last that is given."""
    arrived = b""
    while True:
        line, newline, rest = arrived.partition(b"\n")
        if len(line) > MOST_BYTES:
            yield line  # it is refused, and the beginning of the next request is unknown
            return
        if newline:
            yield line
            arrived = rest
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            return
        connection.settimeout(left)
        received = connection.recv(MOST_BYTES)
        if not received:
            if arrived:
                yield arrived
            return
        arrived += received


def _listening(folder: ControlFolder) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(folder.socket))
        listener.listen(MOST_WAITING)
        listener.setblocking(False)
    except OSError:
        listener.close()
        folder.remove()
        raise
    return listener


def _end_reading(connection: socket.socket) -> None:
    """End the requests of a connection; the answer in progress can still be sent."""
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RD)
