"""Looks at a server in the background: asking never waits, failures are told, and threads end by themselves."""

from __future__ import annotations

import threading

import pytest

from headgate.warehouse.sources import lookout
from headgate.warehouse.sources.lookout import Lookout

PATIENCE = 300.0


class Server:
    """Answers when the test lets it; says which questions it got."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.fails = False

    def look(self, asked: int) -> int:
        self.asked.append(asked)
        self.began.release()
        assert self.answers.acquire(timeout=PATIENCE)
        if self.fails:
            raise OSError("away")
        return 10 * asked


def look_at(server: Server, **options: bool) -> Lookout[int, int]:
    return Lookout(server.look, lambda error: f"it is {error}", every=0.0, **options)


def wait_for(server: Server) -> None:
    assert server.began.acquire(timeout=PATIENCE)


def test_asking_does_not_wait_for_the_server() -> None:
    server = Server()
    watch = look_at(server)
    assert watch.ask(1).seen is None
    wait_for(server)
    assert watch.ask(2).seen is None, "the server has not answered yet"
    server.answers.release()
    wait_for(server)  # the next look has begun, so the first one has ended
    assert watch.ask(2).seen == 10
    assert server.asked == [1, 2], "looks are made for the newest question"
    server.answers.release(10)


def test_a_failure_is_told_with_what_was_found_before() -> None:
    server = Server()
    watch = look_at(server)
    watch.ask(1)
    wait_for(server)
    server.answers.release()
    wait_for(server)
    found_at = watch.ask(1).at
    server.fails = True
    server.answers.release()
    wait_for(server)
    sight = watch.ask(1)
    assert (sight.seen, sight.problem, sight.at) == (10, "it is away", found_at)
    server.fails = False
    server.answers.release()
    wait_for(server)
    assert (watch.ask(1).seen, watch.ask(1).problem) == (10, "")
    server.answers.release(10)


def test_the_thread_ends_when_nobody_asks_and_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "UNASKED", -1.0)
    server = Server()
    watch = look_at(server)
    watch.ask(1)
    thread = watch._thread
    if thread is not None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert watch._thread is None and server.asked == []
    monkeypatch.setattr(lookout, "UNASKED", PATIENCE)
    watch.ask(2)
    wait_for(server)
    assert server.asked == [2]
    monkeypatch.setattr(lookout, "UNASKED", -1.0)
    server.answers.release()


def test_an_inline_look_is_made_when_it_is_asked_for() -> None:
    server = Server()
    server.answers.release(2)
    watch = look_at(server, inline=True)
    assert watch.ask(1).seen == 10
    server.fails = True
    sight = watch.ask(2)
    assert (sight.seen, sight.problem) == (10, "it is away")
