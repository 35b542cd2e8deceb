"""The engine: the output is the serial sequence, whatever runs it; queries end well, badly, or when told to."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import UserCodeError
from headgate.core.policies import SHIPPED
from headgate.core.policy import Policy
from headgate.stream import from_rows, to_list
from headgate.stream.engine import LOOPS, Engine
from headgate.stream.errors import QueryError, Reject
from headgate.stream.loops.serial import run_serially
from headgate.stream.query import Query
from headgate.stream.query_run import QueryRun
from tests.stream.queries import (
    SCHEMA,
    FromBatch,
    ToList,
    chain,
    diamond,
    fingerprint,
    rows,
    two_sources,
)

ROWS = rows(1000)
OTHER_ROWS = rows(700, seed=1)

#: {name: a function that writes the query into a sink}
QUERIES: dict[str, Callable[[ToList], Query]] = {
    "chain": lambda sink: chain(FromBatch(ROWS), sink),
    "diamond": lambda sink: diamond(FromBatch(ROWS), sink),
    "union": lambda sink: two_sources(FromBatch(ROWS), FromBatch(OTHER_ROWS), sink),
}

TIMEOUT = 300.0


def serial(make: Callable[[ToList], Query], packet_rows: int = 100) -> str:
    sink = ToList()
    run_serially(QueryRun(make(sink).spec(), time.perf_counter, packet_rows=packet_rows))
    return fingerprint(sink)


def on_engine(make: Callable[[ToList], Query], **options: Any) -> str:
    sink = ToList()
    with Engine(**options) as engine:
        run = engine.add(make(sink))
        engine.validate()
        run.result(TIMEOUT)
        engine.validate()
    return fingerprint(sink)


EXPECTED = {name: serial(make) for name, make in QUERIES.items()}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = threading.enumerate()  # a thread of an earlier test may be about to end
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name.startswith("headgate")] == []


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("packet_rows", [1, 7, 1000, 65_536])
def test_a_serial_run_gives_the_same_sequence_for_every_packet_size(query: str, packet_rows: int) -> None:
    assert serial(QUERIES[query], packet_rows) == EXPECTED[query]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_every_loop_and_number_of_workers_gives_the_serial_sequence(query: str, loop: Any, workers: int) -> None:
    assert on_engine(QUERIES[query], loop=loop, workers=workers, packet_rows=50, period=0.005) == EXPECTED[query]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("scheme", ["hybrid", "partitioned", "shared"])
@pytest.mark.parametrize("buffer", ["non-blocking", "locked"])
def test_every_queue_scheme_and_buffer_gives_the_serial_sequence(query: str, scheme: Any, buffer: Any) -> None:
    found = on_engine(QUERIES[query], scheme=scheme, buffer=buffer, workers=4, packet_rows=50)
    assert found == EXPECTED[query]


@pytest.mark.parametrize("policy", sorted(policy.name for policy in SHIPPED))
@pytest.mark.parametrize("loop", ["dispatch", "rounds"])
def test_every_policy_gives_the_serial_sequence(policy: str, loop: Any) -> None:
    options: dict[str, Any] = {"policy": policy, "loop": loop, "workers": 2, "packet_rows": 100, "period": 0.005}
    assert on_engine(QUERIES["diamond"], **options) == EXPECTED["diamond"]


@pytest.mark.parametrize("consumption", ["all", "half", "at-most-1", "at-most-120", "slice-0.001s"])
def test_every_consumption_rule_gives_the_serial_sequence(consumption: str) -> None:
    assert on_engine(QUERIES["chain"], consumption=consumption, workers=2, packet_rows=50) == EXPECTED["chain"]


# --- what goes wrong ----------------------------------------------------------------------------------------


def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows and batch.column("n")[0].as_py() == 500:  # the packets after it may be done before
        raise ZeroDivisionError("no such thing")
    return batch


@pytest.mark.parametrize("loop", LOOPS)
def test_an_operator_that_raises_stops_its_query_and_no_other(loop: Any) -> None:
    bad_sink, good_sink = ToList(), ToList()
    bad = Query("bad").source(FromBatch(ROWS)).map(broken, name="risky").to(bad_sink)
    with Engine(loop=loop, workers=2, packet_rows=100, period=0.005) as engine:
        failing, working = engine.add(bad), engine.add(QUERIES["chain"](good_sink))
        working.result(TIMEOUT)
        assert failing.wait(TIMEOUT)
    assert fingerprint(good_sink) == EXPECTED["chain"]
    assert isinstance(failing.error, QueryError)
    assert (failing.error.query, failing.error.operator, failing.error.serial) == ("bad", "risky", 5)
    assert isinstance(failing.error.__cause__, ZeroDivisionError)
    assert any(frame.name == "broken" for frame in _frames(failing.error.__cause__))
    assert bad_sink.closed


def _frames(error: BaseException) -> list[Any]:
    return list(traceback.extract_tb(error.__traceback__))


@dataclass(frozen=True)
class BadPolicy(Policy):
    """Fails when it is asked."""

    name = "bad"
    needs = ()

    def priorities(self, view: Any) -> Any:
        raise KeyError("typo")


@pytest.mark.parametrize("loop", ["dispatch", "rounds"])
def test_a_policy_that_raises_ends_every_query_with_its_error(loop: Any) -> None:
    with Engine(loop=loop, policy=BadPolicy(), workers=2, period=0.005) as engine:
        run = engine.add(Query("endless").source(Endless(ROWS)).to(ToList()))
        assert run.wait(TIMEOUT)
    assert isinstance(run.error, UserCodeError)
    assert "bad" in str(run.error)


def test_a_row_that_is_rejected_goes_to_the_rejected_output_with_its_reason() -> None:
    def strict(row: Any) -> Any:
        if row["n"] % 400 == 7:
            raise Reject(f"{row['n']} is not wanted")
        return {"n": row["n"]}

    sink = ToList()
    query = Query("strict").source(FromBatch(ROWS)).map(strict, over="row", schema=pa.schema([("n", pa.int64())]))
    with Engine(workers=2, packet_rows=100) as engine:
        run = engine.add(query.to(sink)).result(TIMEOUT)
    assert [(each.operator, each.reason) for each in run.rejected] == [
        ("strict", f"{n} is not wanted") for n in (7, 407, 807)
    ]
    assert len(sink.rows()) + len(run.rejected) == ROWS.num_rows


@pytest.mark.parametrize("loop", LOOPS)
def test_a_slow_sink_slows_its_own_source_only(loop: Any) -> None:
    gate = threading.Event()

    class Gated(ToList):
        blocking = True

        def write(self, batch: pa.RecordBatch) -> None:
            gate.wait(TIMEOUT)
            super().write(batch)

    slow_sink, quick_sink = Gated(), ToList()
    slow = Query("slow").source(FromBatch(ROWS)).map(lambda batch: batch).to(slow_sink)
    with Engine(loop=loop, workers=2, packet_rows=10, capacity=4, period=0.005) as engine:
        blocked = engine.add(slow)
        quick = engine.add(QUERIES["chain"](quick_sink))
        quick.result(TIMEOUT)
        read = blocked.operators["source"].counters.rows_in
        gate.set()
        blocked.result(TIMEOUT)
    assert read < 200, "bounded queues hold the source back"
    assert len(slow_sink.rows()) == ROWS.num_rows


# --- ending and changing ------------------------------------------------------------------------------------


class Endless(FromBatch):
    """Rows again and again."""

    def open(self, wake: Callable[[], None], now: float) -> Any:
        reader = super().open(wake, now)

        class Again(type(reader)):  # type: ignore[misc]
            ended = False

            def read(self, most: int, now: float) -> Any:
                self._at %= self._batch.num_rows
                return type(reader).read(self, most, now)

        return Again(self.batch)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_that_drains_lets_everything_through_that_was_read(loop: Any) -> None:
    sink = ToList()
    seen = threading.Event()
    query = Query("endless").source(Endless(ROWS)).map(_noting(seen)).to(sink)
    engine = Engine(loop=loop, workers=2, packet_rows=100, period=0.005).start()
    run = engine.add(query)
    assert seen.wait(TIMEOUT)
    engine.stop(drain=True, timeout=TIMEOUT)
    assert run.ending.value == "done"
    assert len(sink.rows()) == run.operators["source"].counters.rows_out


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_that_aborts_ends_at_once(loop: Any) -> None:
    seen = threading.Event()
    sink = ToList()
    engine = Engine(loop=loop, workers=2, packet_rows=100, period=0.005).start()
    run = engine.add(Query("endless").source(Endless(ROWS)).map(_noting(seen)).to(sink))
    assert seen.wait(TIMEOUT)
    engine.stop()
    assert run.ending.value == "stopped"
    assert sink.closed


def _noting(seen: threading.Event) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            seen.set()
        return batch

    return note


@pytest.mark.parametrize("loop", ["dispatch", "rounds", "locality"])
def test_workers_and_queries_change_while_others_run(loop: Any) -> None:
    first, second, third = ToList(), ToList(), ToList()
    with Engine(loop=loop, workers=1, packet_rows=20, period=0.005) as engine:
        one = engine.add(chain(FromBatch(ROWS), first, "one"))
        engine.set_workers(4)
        two = engine.add(chain(FromBatch(ROWS), second, "two"))
        engine.set_workers(2)
        endless = engine.add(Query("endless").source(Endless(ROWS)).to(ToList()))
        three = engine.add(chain(FromBatch(ROWS), third, "three"))
        for run in (one, two, three):
            run.result(TIMEOUT)
        engine.remove("endless", timeout=TIMEOUT)
        assert endless.stopped
    assert [fingerprint(sink) for sink in (first, second, third)] == [EXPECTED["chain"]] * 3


@pytest.mark.parametrize("loop", ["dispatch", "rounds"])
def test_policy_and_placement_change_while_running(loop: Any) -> None:
    sink = ToList()
    with Engine(loop=loop, workers=2, policy="fifo", packet_rows=10, period=0.002) as engine:
        run = engine.add(chain(FromBatch(ROWS), sink))
        for policy in ("hr", "longest-queue", "fcfs"):
            engine.replace_policy(policy)
        engine.replace_placement("least-loaded")
        run.result(TIMEOUT)
    assert fingerprint(sink) == EXPECTED["chain"]


def test_statistics_count_every_row_and_packet() -> None:
    sink = ToList()
    with Engine(workers=2, packet_rows=100) as engine:
        engine.add(Query("q").source(FromBatch(ROWS)).filter(pc.field("key") < 5).to(sink)).result(TIMEOUT)
        statistics = engine.statistics()
    (query,) = statistics.queries
    source, keep, out = query.operators
    kept = sum(row["key"] < 5 for row in ROWS.to_pylist())
    assert (query.rows_in, query.rows_out) == (1000, kept)
    assert (source.packets, source.rows_out) == (10, 1000)
    assert (keep.packets, keep.rows_in, keep.rows_out) == (11, 1000, kept)
    assert (out.rows_in, out.rows_waiting) == (kept, 0)
    assert query.latency.count == kept
    assert query.middle.rows_per_second > 0
    assert 0 <= statistics.scheduling_share < 1


def test_statistics_can_be_asked_for_at_any_moment() -> None:
    with Engine(workers=2, packet_rows=1) as engine:
        run = engine.add(Query("endless").source(Endless(ROWS)).to(ToList()))
        for _ in range(200):
            seen = engine.statistics().queries[0]
            assert seen.ending == "running"
        run.stop()
    assert engine.statistics().queries[0].rows_in >= seen.rows_in


@pytest.mark.parametrize("loop", LOOPS)
def test_queries_that_were_added_before_the_start_run_then(loop: Any) -> None:
    for _ in range(20):
        sink: list[pa.RecordBatch] = []
        query = Query("early")
        query.source(from_rows([{"n": 1}], pa.schema([("n", pa.int64())]))).to(to_list(sink))
        engine = Engine(workers=8, loop=loop)
        run = engine.add(query)
        with engine:
            run.result(TIMEOUT)
        assert sum(batch.num_rows for batch in sink) == 1


def test_an_empty_source_still_flushes() -> None:
    sink = ToList()
    with Engine(workers=2) as engine:
        engine.add(chain(FromBatch(rows(0)), sink)).result(TIMEOUT)
    assert sink.rows() == [{"key": -1, "total": 0.0}]


def test_columns_of_the_test_rows() -> None:
    assert ROWS.schema == SCHEMA
