"""Lines from a TCP connection, each of them a row.

A thread receives. If the engine does not keep up, the thread stops receiving, the connection's buffers fill up, and the
sender has to wait: nothing is lost and memory is bounded.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError
from headgate.stream.errors import InputError
from headgate.stream.sources.blocks import Block
from headgate.stream.sources.fit import Misfit
from headgate.stream.sources.lines import Framer, LineFormat, line_format
from headgate.stream.sources.receiving import BUFFER_BYTES, BUFFER_ROWS, Inbox, InboxReader, clock_from
from headgate.stream.sources.source import Wake

_RECEIVE_BYTES = 1 << 16
#: how long ``close`` waits for the thread, which ends as soon as it is told to
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
        self.schema = schema
        self._line_format = line_format(format, schema)
        self._listen = listen
        self._buffer_rows = buffer_rows
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"Socket({self._host!r}, {self._port}, listen={self._listen})"

    def open(self, wake: Wake, now: float) -> SocketReader:
        connection = self._listen_socket() if self._listen else self._connect()
        inbox = Inbox[NumberedLine](wake, self._buffer_rows, BUFFER_BYTES)
        return SocketReader(inbox, self._line_format, _Receiver(connection, self._listen, inbox, clock_from(now)))

    def _connect(self) -> socket.socket:
        try:
            return socket.create_connection((self._host, self._port), timeout=self._timeout)
        except OSError as error:
            raise InputError(
                f"Socket cannot connect to {self._host}:{self._port}: {error}. Expected a program that listens there. "
                f"Start it before the query, or let the query listen (listen=True) and the program connect."
            ) from error

    def _listen_socket(self) -> socket.socket:
        try:
            return socket.create_server((self._host, self._port), backlog=1)
        except OSError as error:
            raise DeclarationError(
                f"Socket cannot listen on {self._host}:{self._port}: {error}. Choose an address of this machine and a "
                f"port that no other program has; port 0 takes any that is free."
            ) from error


class SocketReader(InboxReader[NumberedLine]):
    """One connection."""

    def __init__(self, inbox: Inbox[NumberedLine], line_format: LineFormat, receiver: _Receiver) -> None:
        super().__init__(inbox, self._block, receiver.stop)
        self._line_format = line_format
        self._receiver = receiver
        receiver.start()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that it is connected to or listens on."""
        return self._receiver.address

    def _block(self, items: list[NumberedLine]) -> Block:
        host, port = self.address
        return self._line_format.block(
            [line for _, line in items], lambda index: f"{host}:{port}, line {items[index][0]}: "
        )


class _Receiver:
    """The thread that receives. It waits for data or for ``stop``, whichever is first."""

    def __init__(
        self, connection: socket.socket, listens: bool, inbox: Inbox[NumberedLine], clock: Callable[[], float]
    ) -> None:
        #: of ``listens`` the listening socket, otherwise the connection
        self._socket = connection
        self._listens = listens
        self._inbox = inbox
        self._clock = clock
        name = connection.getsockname() if listens else connection.getpeername()
        self.address: tuple[str, int] = (name[0], name[1])
        self._stop_sender, self._stop_receiver = socket.socketpair()
        self._framer = Framer()
        self._thread = threading.Thread(target=self._run, name=f"headgate-socket-{self.address[1]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. May be called more than once."""
        if self._thread.is_alive():
            self._stop_sender.send(b"\0")
            self._thread.join(_JOIN_SECONDS)
        for connection in (self._socket, self._stop_sender, self._stop_receiver):
            connection.close()

    def _run(self) -> None:
        try:
            if not self._listens:
                self._receive(self._socket)
            elif self._wait_for(self._socket):
                connection, _ = self._socket.accept()
                self._socket.close()
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
        while self._wait_for(connection):
            data = connection.recv(_RECEIVE_BYTES)
            numbers, lines = self._framer.feed(data) if data else self._framer.end()
            numbered = list(zip(numbers, lines, strict=True))
            if numbered and not self._inbox.put(numbered, _size, self._clock()):
                return
            if not data:
                self._inbox.finish()
                return

    def _wait_for(self, connection: socket.socket) -> bool:
        """Wait until data comes; False if it is time to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._stop_receiver, selectors.EVENT_READ)
            return all(key.fileobj is not self._stop_receiver for key, _ in selector.select())


def _size(item: NumberedLine) -> int:
    line = item[1]
    return len(line) if isinstance(line, bytes) else 0
