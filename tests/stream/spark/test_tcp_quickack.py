"""Connections of a worker process are found and acknowledged; batches come through as they are."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
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


def ports(found: list[socket.socket]) -> list[int]:
    """The ports of connections, one for each descriptor; whoever listens has no peer."""
    named = []
    for each in found:
        try:
            each.getpeername()
        except OSError:
            continue
        named.append(each.getsockname()[1])
    return named


def descriptors(of: Collection[int]) -> int:
    """How many descriptors connections of these ports have: others in the process come and go meanwhile."""
    with ExitStack() as held:
        return sum(port in of for port in ports([held.enter_context(each) for each in tcp_sockets()]))


def test_the_connections_of_the_process_are_found_through_descriptors_of_their_own() -> None:
    with connection() as (client, accepted):
        wanted = {client.getsockname()[1], accepted.getsockname()[1]}
        before = descriptors(wanted)
        with ExitStack() as held:
            found = [held.enter_context(each) for each in tcp_sockets()]
            assert wanted <= set(ports(found))
            acknowledge(found)
        client.sendall(b"still open")
        assert accepted.recv(20) == b"still open"
        assert descriptors(wanted) == before == 2, "descriptors were left open"


def test_batches_come_through_as_they_are_and_no_descriptor_is_left() -> None:
    given = [pa.RecordBatch.from_pydict({"n": [n]}) for n in range(3)]
    with connection() as (client, accepted):
        own = {client.getsockname()[1], accepted.getsockname()[1]}
        before = descriptors(own)
        assert list(acknowledged(iter(given))) == given
        first = acknowledged(iter(given))
        assert next(first) == given[0]
        first.close()  # type: ignore[attr-defined]
        assert descriptors(own) == before


def test_a_connection_that_is_gone_stops_nobody() -> None:
    with connection() as (client, _):
        client.close()
        acknowledge([client])
