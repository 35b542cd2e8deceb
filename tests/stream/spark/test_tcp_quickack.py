"""Connections of a worker process are found and acknowledged; batches come through as they are."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.stream.spark.tcp_quickack import acknowledge, acknowledged, tcp_sockets

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has such an option")


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def ports(found: list[socket.socket]) -> set[int]:
    """The ports of connections; whoever listens has no peer."""
    named = set()
    for each in found:
        try:
            each.getpeername()
        except OSError:
            continue
        named.add(each.getsockname()[1])
    return named


def test_the_connections_of_the_process_are_found_through_descriptors_of_their_own() -> None:
    with connection() as (client, accepted):
        wanted = {client.getsockname()[1], accepted.getsockname()[1]}
        with ExitStack() as held:
            found = [held.enter_context(each) for each in tcp_sockets()]
            assert wanted <= ports(found)
            acknowledge(found)
        client.sendall(b"still open")
        assert accepted.recv(20) == b"still open"
        with ExitStack() as held:
            assert len([held.enter_context(each) for each in tcp_sockets()]) == len(found), "descriptors were left open"


def test_batches_come_through_as_they_are_and_no_descriptor_is_left() -> None:
    given = [pa.RecordBatch.from_pydict({"n": [n]}) for n in range(3)]
    with connection():
        before = count()
        assert list(acknowledged(iter(given))) == given
        first = acknowledged(iter(given))
        assert next(first) == given[0]
        first.close()  # type: ignore[attr-defined]
        assert count() == before


def test_a_connection_that_is_gone_stops_nobody() -> None:
    with connection() as (client, _):
        client.close()
        acknowledge([client])


def count() -> int:
    with ExitStack() as held:
        return len([held.enter_context(each) for each in tcp_sockets()])
