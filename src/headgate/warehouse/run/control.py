"""Take commands for a running warehouse from other processes of the same user, over a Unix domain socket.

Requests and answers are lines, see ``control_commands``; the client is ``control_client``. A connection may carry
several requests, which are answered in order. The socket is in a new directory that only the user may enter, which
keeps other users out. It is not in the warehouse, because the path of a socket must be short. The lock file of the
warehouse names it.
"""

from __future__ import annotations

import os
import selectors
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from headgate.core import HeadgateError
from headgate.warehouse.run.control_commands import MOST_BYTES, Controlled, answered, as_line, error_answer

if TYPE_CHECKING:
    from headgate.warehouse.run.lock import WarehouseLock

#: connections that may be open at once; a further one gets an error and is closed
MOST_CONNECTIONS = 32
#: seconds after which the connection of a client that neither sends nor reads is closed
PATIENCE = 10.0

_SOCKET_NAME = "control"
#: what every system takes as the path of a socket, in bytes
_LONGEST_PATH = 100


class CannotListenError(HeadgateError):
    """The socket for commands could not be created."""


class BusyError(HeadgateError):
    """More clients are connected than are served at once."""


class ControlServer:
    """Takes commands for a running warehouse from ``start`` to ``stop``, or as a context.

    The holder of the lock calls ``start`` and ``stop`` once each. One thread accepts connections; every connection has
    a thread, so that a slow client does not block others. All are daemon threads.

    Invariants:
    1. The lock file names the socket only while it is listened on.
    2. ``_open`` holds all and only the connections that are being served, at most ``MOST_CONNECTIONS``.
    3. After ``stop`` there is no thread, no socket and no directory left, except for the thread of a command that
       takes longer than ``patience``.
    """

    def __init__(self, run: Controlled, lock: WarehouseLock, patience: float = PATIENCE) -> None:
        self._run = run
        self._lock = lock
        self._patience = patience
        self._stopping = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="headgate-control", daemon=True)
        #: guards ``_open``, for no longer than it takes to change it
        self._guard = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}

    def start(self) -> None:
        """Listen, and say so in the lock file."""
        try:
            self._directory = _private_directory()
            self._listener = _listening(self._directory / _SOCKET_NAME)
        except OSError as error:
            raise CannotListenError(
                f"cannot make a socket to take commands on, in {tempfile.gettempdir()}: {error}; "
                "set TMPDIR to a folder that can be written to"
            ) from error
        # Nothing is sent through this pair: closing one end wakes the thread that waits at the other.
        self._waker, self._woken = socket.socketpair()
        self._acceptor.start()
        self._lock.announce(self._directory / _SOCKET_NAME)

    def stop(self) -> None:
        """Take no more commands; commands in progress are finished and answered."""
        self._lock.announce(None)
        self._stopping.set()
        self._waker.close()
        self._acceptor.join()
        self._woken.close()
        self._listener.close()
        (self._directory / _SOCKET_NAME).unlink(missing_ok=True)
        self._directory.rmdir()
        with self._guard:
            left = dict(self._open)
        for connection in left.values():
            _end_reading(connection)
        for thread in left:
            thread.join(self._patience)

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
                try:
                    connection, _ = self._listener.accept()
                except BlockingIOError:  # woken to stop, or the client has gone again
                    continue
                except OSError:  # for example, too many open files: try again a little later
                    self._stopping.wait(0.1)
                    continue
                self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        connection.settimeout(self._patience)
        thread = threading.Thread(target=self._serve, args=(connection,), name="headgate-control-client", daemon=True)
        with self._guard:
            admitted = len(self._open) < MOST_CONNECTIONS
            if admitted:
                self._open[thread] = connection
        if admitted:
            thread.start()
            return
        with suppress(OSError), connection:
            busy = BusyError(f"{MOST_CONNECTIONS} others are giving commands just now; try again")
            connection.sendall(as_line(error_answer(busy, str(busy))))

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as requests:
                while line := requests.readline(MOST_BYTES + 1):
                    connection.sendall(answered(self._run, line))
                    if len(line) > MOST_BYTES:  # the beginning of the next request is unknown
                        break
        except OSError:  # the client is gone, or has been silent for too long
            pass
        finally:
            with self._guard:
                del self._open[threading.current_thread()]


def _private_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="headgate-"))  # only this user may enter it
    if len(os.fsencode(directory / _SOCKET_NAME)) <= _LONGEST_PATH:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="headgate-", dir="/tmp"))


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(MOST_CONNECTIONS)
        listener.setblocking(False)
    except OSError:
        listener.close()
        path.parent.rmdir()
        raise
    return listener


def _end_reading(connection: socket.socket) -> None:
    """End the requests of a connection; the answer in progress can still be sent."""
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RD)
