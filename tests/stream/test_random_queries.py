"""Any graph of operators, run in any way, gives what it gives row by row in one thread."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headgate.stream.engine import LOOPS, Engine
from headgate.stream.kernel import Output, Part, Snapshot
from headgate.stream.loops.serial import run_serially
from headgate.stream.query import Query, Stream
from headgate.stream.query_run import QueryRun
from tests.stream.queries import SCHEMA, FromBatch, ToList, doubled, rows, twice

TIMEOUT = 300.0


class LastOfKey:
    """Every row with the value of the row before of its key; at the end the last row of every key."""

    def __init__(self) -> None:
        self.last: dict[int, dict[str, Any]] = {}

    def process(self, part: Part) -> Output:
        made = []
        for row in part.batch.to_pylist():
            before = self.last.get(row["key"])
            self.last[row["key"]] = row
            made.append({**row, "value": None if before is None else before["value"]})
        return Output(pa.RecordBatch.from_pylist(made, SCHEMA))

    def flush(self) -> Output:
        batch = pa.RecordBatch.from_pylist([self.last[key] for key in sorted(self.last)], SCHEMA)
        return Output(batch, order=(batch.column("key"),))

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"last": {str(key): row for key, row in self.last.items()}})

    def restore(self, snapshot: Snapshot) -> None:
        self.last = {int(key): row for key, row in snapshot.values["last"].items()}


class EverySecond:
    """Every second row of the whole stream."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, part: Part) -> Output:
        kept = np.flatnonzero((self.seen + np.arange(part.batch.num_rows)) % 2 == 0)
        self.seen += part.batch.num_rows
        return Output(part.batch.take(pa.array(kept)), part.rows[kept])

    def flush(self) -> Output:
        return Output(pa.RecordBatch.from_pylist([], SCHEMA))

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"seen": self.seen})

    def restore(self, snapshot: Snapshot) -> None:
        self.seen = snapshot.values["seen"]


def _steps(stream: Stream) -> dict[str, Any]:
    """What can come after a stream; all of it keeps the columns."""
    return {
        "map": lambda: [stream.map(doubled)],
        "filter": lambda: [stream.filter(pc.field("key") != 2)],
        "twice": lambda: [stream.flat_map(twice)],
        "last": lambda: [stream.partitioned(LastOfKey, by=["key"], buckets=3, name="last")],
        "second": lambda: [stream.stateful(EverySecond, name="second")],
        "dedupe": lambda: [stream.key_by("n").dedupe()],
        "split": lambda: list(stream.split(pc.field("key") < 3)),
        "copy": lambda: [stream, stream.map(doubled)],
    }


def build(choices: list[tuple[int, int, int]], joins: list[tuple[int, int]], sinks: list[ToList]) -> Query:
    """A query from numbers: at each step some stream goes on in some way; then some streams are joined."""
    query = Query("random")
    streams = [query.source(FromBatch(rows(30, keys=5)), "a"), query.source(FromBatch(rows(20, keys=5, seed=1)), "b")]
    for which, step, _ in choices:
        stream = streams.pop(which % len(streams))
        steps = _steps(stream)
        streams += steps[sorted(steps)[step % len(steps)]]()
    for one, other in joins:
        if len(streams) > 1:
            left = streams.pop(one % len(streams))
            right = streams.pop(other % len(streams))
            same = left._space == right._space and left is not right
            streams.append(left.merge(right) if same else left.union(right, by="ts"))
    for stream in streams:
        sinks.append(ToList())
        stream.to(sinks[-1])
    return query


numbers = st.integers(0, 50)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    choices=st.lists(st.tuples(numbers, numbers, numbers), max_size=6),
    joins=st.lists(st.tuples(numbers, numbers), max_size=2),
    loop=st.sampled_from(LOOPS),
    workers=st.sampled_from([1, 2, 5]),
    packet_rows=st.sampled_from([1, 3, 16, 1000]),
    scheme=st.sampled_from(["hybrid", "partitioned", "shared"]),
    buffer=st.sampled_from(["non-blocking", "locked"]),
    capacity=st.sampled_from([1, 2, 16]),
)
def test_any_graph_run_in_any_way_gives_the_serial_rows(
    choices: Any, joins: Any, loop: Any, workers: int, packet_rows: int, scheme: Any, buffer: Any, capacity: int
) -> None:
    expected: list[ToList] = []
    run_serially(QueryRun(build(choices, joins, expected).spec(), time.perf_counter, packet_rows=1))
    found: list[ToList] = []
    query = build(choices, joins, found)
    note("\n".join(f"{operator.name} <- {', '.join(operator.inputs)}" for operator in query.spec().operators))
    options = {"scheme": scheme, "buffer": buffer, "capacity": capacity, "packet_rows": packet_rows}
    with Engine(loop=loop, workers=workers, period=0.005, **options) as engine:
        engine.add(query).result(TIMEOUT)
    assert [sink.rows() for sink in found] == [sink.rows() for sink in expected]
