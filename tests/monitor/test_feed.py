"""Viewers: each is told what happens, and one that stops reading costs nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable

import pytest

from headgate.monitor.feed import MISSED, MOST_LETTERS, MOST_WAITING, Feed
from headgate.monitor.server import MonitorServer
from headgate.monitor.watch import RunWatch
from tests.monitor.pretended import NASTY, PretendedRun


def read_after(sent: Callable[[Feed], object], times: int = 1) -> list[str]:
    """What a viewer reads, ``times`` times, that has looked away while something was sent."""

    async def look() -> list[str]:
        feed = Feed()
        async with feed.messages() as messages:
            sent(feed)
            return [await anext(messages) for _ in range(times)]

    return asyncio.run(look())


def test_a_viewer_reads_what_was_sent_in_its_order() -> None:
    def sent(feed: Feed) -> None:
        feed.send("update", {"text": f"a\nb{NASTY}\ud800", "seconds": float("nan")})
        feed.send("ended", {})

    (read,) = read_after(sent)
    first, second, rest = read.split("\n\n")
    kind, data = first.split("\n")
    assert kind == "event: update" and data.isascii()
    assert json.loads(data.removeprefix("data: ")) == {"text": f"a\nb{NASTY}\ud800", "seconds": None}
    assert (second, rest) == ("event: ended\ndata: {}", "")


@pytest.mark.parametrize(
    ("messages", "letters", "missed"),
    [
        pytest.param(MOST_WAITING, 10, False, id="as many as may wait"),
        pytest.param(MOST_WAITING + 1, 10, True, id="one more"),
        pytest.param(1, 2 * MOST_LETTERS, False, id="one that is longer than all that may wait"),
        pytest.param(2, MOST_LETTERS, True, id="two that are too long together"),
        pytest.param(1000, 10_000, True, id="far too much"),
    ],
)
def test_a_viewer_that_reads_too_late_is_told_to_ask_again(messages: int, letters: int, missed: bool) -> None:
    def sent(feed: Feed) -> None:
        for _ in range(messages):
            feed.send("update", {"text": "x" * letters})
        assert feed.waiting <= max(MOST_LETTERS, 2 * letters) + 1000

    (read,) = read_after(sent)
    assert (read == MISSED) == missed
    assert missed or read.count("event: update") == messages


def test_what_comes_after_a_gap_is_read_again() -> None:
    async def look() -> list[str]:
        feed = Feed()
        async with feed.messages() as messages:
            for _ in range(MOST_WAITING + 1):
                feed.send("update", {})
            read = [await anext(messages)]
            feed.send("seen", {})
            return [*read, await anext(messages)]

    assert asyncio.run(look()) == [MISSED, "event: seen\ndata: {}\n\n"]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end, "it has not come to that"
        time.sleep(0.005)


def looking(server: MonitorServer, buffer: int) -> socket.socket:
    """A connection that has asked for events and has room for so many bytes."""
    viewer = socket.socket()
    viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    viewer.settimeout(300)
    viewer.connect(("127.0.0.1", server.port))
    viewer.sendall(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    return viewer


@pytest.mark.slow
def test_a_socket_that_never_reads_delays_nobody_and_keeps_nothing() -> None:
    watch = RunWatch(every=None)
    PretendedRun(watch, tables=3)
    text = "x" * 200_000
    with MonitorServer(watch, port=0) as server, looking(server, 4096) as stopped, looking(server, 1 << 20) as reads:
        until(lambda: watch.feed.viewers == 2)
        read, most, sent = b"", 0, 200
        for number in range(sent):  # 40 MB, far more than all buffers on the way
            watch.feed.send("update", {"number": number, "text": text})
            end = f'"number":{number},'.encode()
            while end not in read[-300_000:]:
                read += reads.recv(1 << 20)
            most = max(most, watch.feed.waiting)
        assert read.count(b"event: update") == sent and b"event: missed" not in read
        # Of 40 MB, the one that never reads has only what may wait, in all: it was told of nothing since.
        assert most <= 2 * (MOST_LETTERS + len(text) + 1000)
        assert watch.feed.viewers == 2
        # It goes on where it is: what it has missed is one line.
        late, last = 0, b""
        while b"event: missed" not in last:
            piece = stopped.recv(1 << 20)
            late, last = late + len(piece), (last + piece)[-50_000:]
            assert late < 8 * MOST_LETTERS
        reads.close()
        stopped.close()
        watch.feed.send("update", {"text": text})  # a connection is seen to be closed when something is sent
        until(lambda: watch.feed.viewers == 0)
    watch.stop()


def test_only_so_many_may_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.monitor.feed.MOST_VIEWERS", 1)
    watch = RunWatch(every=None)
    PretendedRun(watch, tables=3)
    with MonitorServer(watch, port=0) as server, looking(server, 4096) as first:
        until(lambda: watch.feed.viewers == 1)
        with looking(server, 4096) as second:
            answers = [first.recv(4096), second.recv(4096)]
    watch.stop()
    assert [answer.split(b" ")[1] for answer in answers] == [b"200", b"503"]


def test_the_end_of_the_server_ends_those_who_look_without_a_word(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who has not read to the end by then is broken off.
    monkeypatch.setattr("headgate.monitor.server.END_SECONDS", 300)
    watch = RunWatch(every=None)
    PretendedRun(watch, tables=3)
    with MonitorServer(watch, port=0) as server, looking(server, 4096) as viewer:
        until(lambda: watch.feed.viewers == 1)
        watch.stop()
        server.stop()
        read = b""
        while piece := viewer.recv(4096):
            read += piece
    assert read.endswith(b"event: ended\ndata: {}\n\n\r\n0\r\n\r\n")
    assert not caplog.records


def test_asking_for_the_head_of_events_ends() -> None:
    watch = RunWatch(every=None)
    PretendedRun(watch, tables=3)
    with MonitorServer(watch, port=0) as server, socket.create_connection(("127.0.0.1", server.port), 60) as asked:
        asked.sendall(
            f"HEAD /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b""
        while piece := asked.recv(4096):
            answer += piece
    watch.stop()
    assert answer.startswith(b"HTTP/1.1 200") and b"text/event-stream" in answer
