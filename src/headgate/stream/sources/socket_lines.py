"""Lines from a TCP connection, each of them a row.

A thread of its own receives. If the engine does not keep up, it stops receiving, the connection's buffers fill up, and
the sender has to wait: nothing is lost and memory is bounded.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError
from headgate.stream.sources.block import Block
from headgate.stream.sources.errors import InputError
from headgate.stream.sources.fit import Misfit
from headgate.stream.sources.framing import Framer
from headgate.stream.sources.inbox import Inbox
from headgate.stream.sources.line_formats import LineFormat, line_format
from headgate.stream.sources.received import BUFFER_BYTES, BUFFER_ROWS, Received, clock_from
from headgate.stream.sources.source import Wake

_RECEIVE_BYTES = 1 << 16
#: how long ``close`` waits for the thread, which has nothing left to wait for
_JOIN_SECONDS = 5.0

#: a line and its number
NumberedLine = tuple[int, bytes | Misfit]


class Socket:
    """A source of lines from a TCP connection; the row's columns as JSON, or as CSV in the order of the schema.

    It connects to ``host`` and ``port``. With ``listen=True`` it accepts one connection there instead; port 0 is any
    that is free, and the reader's ``address`` says which. When the other side closes the connection, the source ends. A
    line that does not fit the schema is rejected.
    """

    def __init__(
        self,
        host: str,
        port: int,
        schema: pa.Schema,
        format: str = "json",
        *,
        listen: bool = False,
        buffer_rows: int = BUFFER_ROWS,
        timeout: float = 5.0,
    ) -> None:
        self._host, self._port = host, port
        self._schema = schema
        self._lines_as = line_format(format, schema)
        self._listen = listen
        self._buffer_rows = buffer_rows
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"Socket({self._host!r}, {self._port}, listen={self._listen})"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def open(self, wake: Wake, now: float) -> SocketReader:
        opened = self._listening() if self._listen else self._connected()
        inbox = Inbox[NumberedLine](wake, self._buffer_rows, BUFFER_BYTES)
        return SocketReader(inbox, self._lines_as, _Receiver(opened, self._listen, inbox, clock_from(now)))

    def _connected(self) -> socket.socket:
        try:
            return socket.create_connection((self._host, self._port), timeout=self._timeout)
        except OSError as error:
            raise InputError(
                f"Socket cannot connect to {self._host}:{self._port}: {error}. Expected a program that listens there. "
                f"Start it before the query, or let the query listen (listen=True) and the program connect."
            ) from error

    def _listening(self) -> socket.socket:
        try:
            return socket.create_server((self._host, self._port), backlog=1)
        except OSError as error:
            raise DeclarationError(
                f"Socket cannot listen on {self._host}:{self._port}: {error}. Choose an address of this machine and a "
                f"port that no other program has; port 0 takes any that is free."
            ) from error


class SocketReader(Received[NumberedLine]):
    """One connection."""

    def __init__(self, inbox: Inbox[NumberedLine], lines_as: LineFormat, receiver: _Receiver) -> None:
        super().__init__(inbox, self._block, receiver.stop)
        self._lines_as = lines_as
        self._receiver = receiver
        receiver.start()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that it is connected to or listens on."""
        return self._receiver.address

    def _block(self, items: list[NumberedLine]) -> Block:
        host, port = self.address
        return self._lines_as.block(
            [line for _, line in items], lambda index: f"{host}:{port}, line {items[index][0]}: "
        )


class _Receiver:
    """The thread that receives, and what it needs. It waits for the connection or for ``stop``, whichever is first."""

    def __init__(
        self, opened: socket.socket, listens: bool, inbox: Inbox[NumberedLine], clock: Callable[[], float]
    ) -> None:
        self._opened = opened
        self._listens = listens
        self._inbox = inbox
        self._clock = clock
        name = opened.getsockname() if listens else opened.getpeername()
        self.address: tuple[str, int] = (name[0], name[1])
        self._stop_asked, self._stop_heard = socket.socketpair()
        self._framer = Framer()
        self._thread = threading.Thread(target=self._run, name=f"headgate-socket-{self.address[1]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end, and wait for it. May be called more than once."""
        if self._thread.is_alive():
            self._stop_asked.send(b"\0")
            self._thread.join(_JOIN_SECONDS)
        for connection in (self._opened, self._stop_asked, self._stop_heard):
            connection.close()

    def _run(self) -> None:
        try:
            if not self._listens:
                self._receive(self._opened)
            elif self._comes(self._opened):
                connection, _ = self._opened.accept()
                self._opened.close()
                with connection:
                    self._receive(connection)
        except OSError as error:
            host, port = self.address
            self._inbox.finish(
                InputError(
                    f"the connection of Socket with {host}:{port} broke: {error}. Rows up to there have been read; "
                    f"restart the sender and the query."
                )
            )

    def _receive(self, connection: socket.socket) -> None:
        while self._comes(connection):
            data = connection.recv(_RECEIVE_BYTES)
            numbers, lines = self._framer.feed(data) if data else self._framer.end()
            received = list(zip(numbers, lines, strict=True))
            if received and not self._inbox.put(received, _size, self._clock()):
                return
            if not data:
                self._inbox.finish()
                return

    def _comes(self, connection: socket.socket) -> bool:
        """Wait until something comes; False if that is the wish to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._stop_heard, selectors.EVENT_READ)
            return all(key.fileobj is not self._stop_heard for key, _ in selector.select())


def _size(item: NumberedLine) -> int:
    line = item[1]
    return len(line) if isinstance(line, bytes) else 0
