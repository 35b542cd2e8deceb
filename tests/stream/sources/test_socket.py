"""Lines over real connections on the loopback."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from headgate.core.errors import DeclarationError, UnknownNameError
from headgate.stream import InputError, Socket
from headgate.stream.sources.socket_lines import SocketReader
from tests.stream.sources.reading import PATIENCE, drain, nobody

HOST = "127.0.0.1"
SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])


@pytest.fixture
def came() -> threading.Event:
    return threading.Event()


@pytest.fixture
def listening(came: threading.Event) -> Iterator[SocketReader]:
    with closing(Socket(HOST, 0, SCHEMA, listen=True).open(came.set, 0.0)) as reader:
        yield reader


def connected(reader: SocketReader) -> socket.socket:
    return socket.create_connection(reader.address)


def test_lines_come_in_whatever_pieces_they_are_sent(listening: SocketReader, came: threading.Event) -> None:
    with connected(listening) as sender:
        for piece in ('{"n": 1}\n{"n"', ': 2}\n{"n":', ' 3, "name": "last, without newline"}'):
            sender.sendall(piece.encode())
    rows = drain(listening, came).rows
    assert [row["n"] for row in rows] == [1, 2, 3]
    assert rows[-1]["name"] == "last, without newline"


def test_malformed_lines_are_rejected_with_their_number(listening: SocketReader, came: threading.Event) -> None:
    with connected(listening) as sender:
        sender.sendall(b'{"n": 1}\n{"n": one}\n\n{"n": 2}\n[]\n')
    everything = drain(listening, came, most=1)
    assert [row["n"] for row in everything.rows] == [1, 2]
    assert [(position, raw) for position, _, raw in everything.rejected] == [(1, '{"n": one}'), (2, "[]")]
    port = listening.address[1]
    assert everything.reasons[1] == f"127.0.0.1:{port}, line 5: expected a JSON object, {{...}}, on one line"


def test_csv_has_the_order_of_the_schema(came: threading.Event) -> None:
    with closing(Socket(HOST, 0, SCHEMA, "csv", listen=True).open(came.set, 0.0)) as reader:
        with connected(reader) as sender:
            sender.sendall(b"1,a\r\n2,b\r\n")
        assert drain(reader, came).rows == [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}]


def test_rows_arrive_when_they_are_received_by_the_engines_clock(came: threading.Event) -> None:
    before = time.monotonic()
    with closing(Socket(HOST, 0, SCHEMA, listen=True).open(came.set, 500.0)) as reader:
        with connected(reader) as sender:
            sender.sendall(b'{"n": 1}\n')
            assert came.wait(PATIENCE)
        [chunk] = drain(reader, came, now=500.0 + PATIENCE).chunks
    assert 500.0 <= chunk.first_arrival <= chunk.last_arrival <= 500.0 + time.monotonic() - before


def test_a_sender_that_is_too_fast_has_to_wait_and_nothing_is_lost(came: threading.Event) -> None:
    lines = b"".join(json.dumps({"n": n, "name": "x" * 200}).encode() + b"\n" for n in range(10_000))
    at_once = 2**16 // 200
    with closing(Socket(HOST, 0, SCHEMA, listen=True, buffer_rows=100).open(came.set, 0.0)) as reader:
        sender = connected(reader)
        thread = threading.Thread(target=lambda: (sender.sendall(lines), sender.close()))
        thread.start()
        most_waiting, numbers = 0, []
        while not reader.ended:
            came.clear()
            most_waiting = max(most_waiting, reader.waiting(0.0))
            chunk = reader.read(500, 0.0)
            if chunk is not None:
                numbers += chunk.batch.column("n").to_pylist()
            elif not reader.ended:
                assert came.wait(PATIENCE)
        thread.join(PATIENCE)
    assert numbers == list(range(10_000))
    assert most_waiting <= 100 + at_once


@pytest.mark.parametrize("state", ["before anybody connects", "while nothing comes", "while it has no room"])
def test_close_ends_the_thread(state: str) -> None:
    came = threading.Event()
    before = threading.enumerate()
    reader = Socket(HOST, 0, SCHEMA, listen=True, buffer_rows=1).open(came.set, 0.0)
    sender = None if state.startswith("before") else connected(reader)
    if sender is not None and state.endswith("room"):
        sender.sendall(b'{"n": 1}\n' * 10_000)
        assert came.wait(PATIENCE)
    reader.close()
    reader.close()
    assert [each for each in threading.enumerate() if each not in before] == []
    assert reader.ended
    if sender is not None:
        sender.close()


def test_a_connection_that_breaks_is_an_error_after_the_rows_before_it(
    listening: SocketReader, came: threading.Event
) -> None:
    with connected(listening) as sender:
        sender.sendall(b'{"n": 1}\n')
        assert came.wait(PATIENCE)
        # Closing at once with a reset, instead of after a farewell.
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with pytest.raises(InputError, match=r"connection of Socket with 127\.0\.0\.1:\d+ broke: .*reset"):
        drain(listening, came)


def test_a_refused_connection_says_where_and_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))  # so that nobody else does; but it does not listen
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"cannot connect to 127\.0\.0\.1:{port}: .*refused.*listen=True"):
            Socket(HOST, port, SCHEMA).open(nobody, 0.0)


def test_a_port_that_is_taken_says_so(listening: SocketReader) -> None:
    port = listening.address[1]
    with pytest.raises(DeclarationError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*in use"):
        Socket(HOST, port, SCHEMA, listen=True).open(nobody, 0.0)


def test_an_unknown_format_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UnknownNameError, match="Known: csv, json"):
        Socket(HOST, 1, SCHEMA, "xml")
