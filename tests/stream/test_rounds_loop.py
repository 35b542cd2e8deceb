"""The *rounds* loop on threads: many reschedulings, and never two workers in one operator."""

from __future__ import annotations

import threading
import time

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from headgate.stream.engine import Engine
from headgate.stream.query import Query
from tests.stream.queries import FromBatch, ToList, fingerprint, rows

ROWS = rows(2000)
TIMEOUT = 300.0


class Alone:
    """Passes rows on, and raises if a second worker comes in."""

    def __init__(self) -> None:
        self._inside = threading.Lock()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._inside.acquire(blocking=False):
            raise AssertionError("two workers are in one operator")
        try:
            time.sleep(0)  # somebody else's turn: if it could come in, it would
            return batch
        finally:
            self._inside.release()


def alone(name: str, length: int, sink: ToList) -> Query:
    stream = Query(name).source(FromBatch(ROWS))
    for place in range(length):
        stream = stream.map(Alone(), name=f"step{place}")
    return stream.to(sink)


@pytest.mark.parametrize("policy", ["fcfs", "hr"], ids=["nothing is forced", "operators are forced"])
@pytest.mark.parametrize("period", [0.0002, 0.002], ids=["shorter than a run", "a few runs"])
def test_workers_that_take_over_new_lists_are_never_in_the_same_operator(policy: str, period: float) -> None:
    sinks = [ToList() for _ in range(4)]
    with Engine(
        loop="rounds", policy=policy, placement="random", workers=3, packet_rows=20, batch=20, period=period
    ) as engine:
        runs = [engine.add(alone(f"q{number}", 5, sink)) for number, sink in enumerate(sinks)]
        for run in runs:
            run.result(TIMEOUT)
        assert engine.loop.decisions > 4
        engine.validate()
    assert len({fingerprint(sink) for sink in sinks}) == 1
