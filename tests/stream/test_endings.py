"""Every query ends and lets go of what it has, whatever user code does in the middle of it and whenever it is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import DeclarationError, UserCodeError
from headgate.core.graph import Floats
from headgate.core.matrix import FeatureView
from headgate.core.policy import Policy
from headgate.stream import Socket, from_rows, to_function, to_list
from headgate.stream.engine import LOOPS, Engine, LoopName
from headgate.stream.errors import EngineStoppedError, QueryError, Reject
from headgate.stream.kernel import Output, Part
from headgate.stream.query import Query
from headgate.stream.reorder import DEFAULT_SIZE
from headgate.stream.sources.blocks import Block
from headgate.stream.sources.receiving import Inbox, InboxReader, clock_from
from headgate.stream.sources.source import Wake
from tests.services.ports import free_ports

TIMEOUT = 300.0
SCHEMA = pa.schema([("n", pa.int64())])

each_loop = pytest.mark.parametrize("loop", LOOPS)


class Pipe:
    """A source that anybody in the process may feed."""

    schema = SCHEMA

    def open(self, wake: Wake, now: float) -> InboxReader:
        self._inbox = Inbox(wake, 1000, 1 << 20)
        self._clock = clock_from(now)
        return InboxReader(self._inbox, _block, lambda: None)

    def put(self, *numbers: int) -> None:
        self._inbox.put([{"n": number} for number in numbers], lambda _: 1, self._clock())

    def end(self) -> None:
        self._inbox.finish()


def _block(rows: Any) -> Block:
    return Block(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def some_rows(count: int = 1) -> Any:
    return from_rows([{"n": number} for number in range(count)], SCHEMA)


@contextmanager
def running(loop: LoopName, workers: int = 1, **options: Any) -> Iterator[Engine]:
    """An engine that is stopped in a bounded time, however the test ends."""
    engine = Engine(workers=workers, loop=loop, period=0.005, **options).start()
    try:
        yield engine
    finally:
        stopping = threading.Thread(target=engine.stop, daemon=True)
        stopping.start()
        stopping.join(TIMEOUT)
        assert not stopping.is_alive(), "the engine does not stop"


# --- user code that calls back ------------------------------------------------------------------------------


@each_loop
def test_a_sink_may_feed_the_source_of_another_query(loop: LoopName) -> None:
    pipe, found = Pipe(), list[pa.RecordBatch]()

    def feed(batch: pa.RecordBatch) -> None:
        pipe.put(7)
        pipe.end()

    with running(loop) as engine:
        fed = engine.add(Query("fed").source(pipe).to(to_list(found)))
        engine.add(Query("feeds").source(some_rows()).to(to_function(feed))).result(TIMEOUT)
        fed.result(TIMEOUT)
    assert [row for batch in found for row in batch.to_pylist()] == [{"n": 7}]


@each_loop
def test_a_sink_may_drain_its_own_query(loop: LoopName) -> None:
    pipe = Pipe()
    with running(loop) as engine:
        query = Query("q").source(pipe).map(lambda batch: batch)
        run = engine.add(query.to(to_function(lambda _: run.drain())))
        pipe.put(1)
        run.result(TIMEOUT)


@each_loop
def test_the_sink_of_rejected_rows_may_stop_its_query(loop: LoopName) -> None:
    def refuse(row: dict[str, Any]) -> dict[str, Any]:
        raise Reject("no")

    pipe = Pipe()
    with running(loop) as engine:
        query = Query("q", rejected=to_function(lambda _: run.stop()))
        run = engine.add(query.source(pipe).map(refuse, over="row", schema=SCHEMA).to(to_list([])))
        pipe.put(1)
        assert run.wait(TIMEOUT)


# --- user code that fails at a bad moment -------------------------------------------------------------------


class CannotClose:
    def open(self) -> CannotClose:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes it."""

    def close(self) -> None:
        raise OSError("no space left")


@each_loop
def test_a_sink_of_rejected_rows_that_cannot_be_closed_fails_its_query_and_no_other(loop: LoopName) -> None:
    with running(loop) as engine:
        run = engine.add(Query("q", rejected=CannotClose()).source(some_rows()).to(to_list([])))
        with pytest.raises(QueryError, match="no space left"):
            run.result(TIMEOUT)
        engine.add(Query("other").source(some_rows()).to(to_list([]))).result(TIMEOUT)


@dataclass(frozen=True)
class Mistaken(Policy):
    """Raises; with ``local``, each worker ranks its own operators, and raises on its own."""

    local: bool = False
    name = "mistaken"
    needs = ()

    def priorities(self, view: FeatureView) -> Floats:
        raise KeyError("typo")


@pytest.mark.parametrize("local", [False, True], ids=["of all", "of a worker's own"])
def test_a_policy_that_raises_at_a_meeting_ends_every_query_also_those_that_come_later(local: bool) -> None:
    pipe = Pipe()
    with running("rounds", workers=2, policy=Mistaken(local)) as engine:
        first = engine.add(Query("first").source(pipe).to(to_list([])))
        pipe.put(1)
        with pytest.raises(UserCodeError, match="typo"):
            first.result(TIMEOUT)
        later = engine.add(Query("later").source(some_rows()).to(to_list([])))
        with pytest.raises(UserCodeError, match="typo"):
            later.result(TIMEOUT)


@pytest.mark.parametrize("buffer", ["non-blocking", "locked"])
def test_an_answer_beyond_a_full_buffer_does_not_wait_for_one_that_never_comes(buffer: Any) -> None:
    far_ahead = threading.Event()

    class FirstFails:
        """Key 0 fails when the answers of key 1 have filled the buffer."""

        def process(self, part: Part) -> Output:
            for number in part.batch.column("n").to_pylist():
                if number == 0:
                    far_ahead.wait(TIMEOUT)
                    raise OSError("the first answer never comes")
                if number == DEFAULT_SIZE:
                    far_ahead.set()
            return Output(part.batch, part.rows)

    @dataclass(frozen=True)
    class FirstAlone:
        columns: tuple[str, ...] = ("n",)

        def buckets(self, batch: pa.RecordBatch, count: int) -> Any:
            return (batch.column("n").to_numpy() > 0).astype(np.uint16)

    query = Query("q").source(some_rows(DEFAULT_SIZE + 5))
    stream = query.partitioned(FirstFails, by=FirstAlone(), buckets=2)  # type: ignore[arg-type]
    with running("dispatch", workers=2, buffer=buffer, packet_rows=1, capacity=2 * DEFAULT_SIZE) as engine:
        run = engine.add(stream.to(to_list([])))
        with pytest.raises(QueryError, match="the first answer never comes"):
            run.result(TIMEOUT)


class CannotOpen:
    schema = SCHEMA

    def open(self, wake: Wake, now: float) -> Any:
        raise OSError("cannot open")


def test_a_query_that_cannot_be_added_lets_go_of_what_it_has_opened() -> None:
    (port,) = free_ports(1)
    before = threading.enumerate()
    query = Query("two")
    query.source(Socket("127.0.0.1", port, SCHEMA, listen=True), "a").to(to_list([]), "x")
    query.source(CannotOpen(), "b").to(to_list([]), "y")
    with running("dispatch") as engine:
        for _ in range(2):  # the second time, the first one's socket would be in the way
            with pytest.raises(OSError, match="cannot open"):
                engine.add(query)
    with pytest.raises(EngineStoppedError):
        engine.add(Query("late").source(Socket("127.0.0.1", port, SCHEMA, listen=True)).to(to_list([])))
    assert [each.name for each in threading.enumerate() if each not in before and "socket" in each.name] == []


# --- asked at a bad moment ----------------------------------------------------------------------------------


@each_loop
def test_a_query_of_an_engine_that_was_never_started_is_closed_by_its_stop(loop: LoopName) -> None:
    engine = Engine(workers=1, loop=loop)
    run = engine.add(Query("q").source(some_rows()).to(to_list([])))
    engine.stop()
    assert run.wait(TIMEOUT)


@each_loop
def test_a_name_is_free_when_the_query_that_had_it_has_let_go_of_everything(loop: LoopName) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        entered.set()
        leave.wait(TIMEOUT)
        return batch

    def query(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Query:
        return Query("q").source(some_rows()).map(function, schema=SCHEMA).to(to_list([]))

    with running(loop, workers=2) as engine:
        old = engine.add(query(slow))
        assert entered.wait(TIMEOUT)
        old.stop()
        with pytest.raises(DeclarationError, match="has not been closed yet"):
            engine.add(query(lambda batch: batch))
        leave.set()
        assert old.wait(TIMEOUT)
        engine.add(query(lambda batch: batch)).result(TIMEOUT)


@each_loop
def test_a_stop_while_a_query_is_just_ending_leaves_it_closed(loop: LoopName) -> None:
    pipe, ending, go_on = Pipe(), threading.Event(), threading.Event()
    engine = Engine(workers=1, loop=loop, period=0.005).start()
    run = engine.add(Query("q").source(pipe).to(to_function(lambda _: None, blocking=True)))
    told = run.on_end

    def held_up(ended: Any) -> None:
        ending.set()
        go_on.wait(TIMEOUT)
        told(ended)

    run.on_end = held_up
    pipe.put(1)
    pipe.end()
    assert ending.wait(TIMEOUT)
    stopping = threading.Thread(target=engine.stop, daemon=True)
    stopping.start()
    stopping.join(0.2)  # as far as it comes without the query
    go_on.set()
    stopping.join(TIMEOUT)
    assert run.wait(TIMEOUT)
