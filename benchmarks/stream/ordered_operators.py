"""Operators that cost what they are told to, for the ordered paper's experiments with one operator (figures 9 to 13).

Work is one of two kinds. *Burning* keeps a core busy, in NumPy, which lets go of the interpreter's lock meanwhile: two
cores do two workers' work. *Waiting* sleeps as long: any number of workers can do it at once, so it shows how schemes
share work among more workers than there are cores; it says nothing of processors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from benchmarks.harness import Row
from benchmarks.stream.ordered_queries import run_once, throughput_of
from headgate.stream import Output, Part, Query, QuerySpec, Snapshot, from_batches, to_function
from workloads.chains import Burner

#: spends so many microseconds
Work = Callable[[float], None]
SCHEMA = pa.schema([("number", pa.int64()), ("key", pa.float64())])
OPERATOR = "operator"


@cache
def work_of(kind: str) -> Work:
    """``burning`` or ``waiting``."""
    return Burner.calibrated(seconds=0.1).burn if kind == "burning" else _wait


def _wait(microseconds: float) -> None:
    time.sleep(microseconds / 1e6)


def keyed_rows(count: int, sigma: float, seed: int) -> pa.RecordBatch:
    """Rows whose keys are normal with mean 0, drawn again if outside of [-1, 1]: the greater ``sigma``, the more
    even."""
    random = np.random.default_rng(seed)
    keys = np.empty(0)
    while len(keys) < count:
        drawn = random.normal(0, sigma, 2 * count)
        keys = np.concatenate((keys, drawn[np.abs(drawn) <= 1]))
    return pa.record_batch([pa.array(np.arange(count)), pa.array(keys[:count])], schema=SCHEMA)


def ranges(buckets: int) -> tuple[float, ...]:
    """The bounds of so many ranges of equal length."""
    return tuple(np.linspace(-1, 1, buckets + 1)[1:-1].tolist())


@dataclass(frozen=True)
class Stopwatch:
    """When each row was begun with, and when it came to the sink."""

    begun: NDArray[np.float64]
    ended: NDArray[np.float64]

    @classmethod
    def of(cls, rows: int) -> Stopwatch:
        return cls(np.full(rows, np.nan), np.full(rows, np.nan))

    def begin(self, batch: pa.RecordBatch) -> None:
        self.begun[batch.column("number").to_numpy()] = time.perf_counter()

    def end(self, batch: pa.RecordBatch) -> None:
        self.ended[batch.column("number").to_numpy()] = time.perf_counter()


@dataclass
class Working:
    """The state of a bucket: works for every row and lets it through."""

    work: Work
    cost: float
    stopwatch: Stopwatch | None = None
    seen: int = field(default=0, init=False)

    def process(self, part: Part) -> Output:
        if part.batch.num_rows:
            if self.stopwatch is not None:
                self.stopwatch.begin(part.batch)
            self.work(self.cost * part.batch.num_rows)
            self.seen += part.batch.num_rows
        return Output(part.batch)

    def flush(self) -> Output:
        return Output(pa.RecordBatch.from_pylist([], schema=SCHEMA))

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"seen": self.seen})

    def restore(self, snapshot: Snapshot) -> None:
        self.seen = snapshot.values["seen"]


def partitioned_rate(work: str, cost: float, rows: pa.RecordBatch, buckets: int, **options: object) -> Row:
    """Throughput of a partitioned operator on range-partitioned keys."""
    query = Query("partitioned")
    keyed = query.source(from_batches([rows])).key_by("key", ranges=ranges(buckets))
    keyed.state(partial(Working, work_of(work), cost), name=OPERATOR).to(to_function(_nowhere))
    return _rate(query.spec(), options)


def processing_latency(work: str, cost: float, rows: pa.RecordBatch, buckets: int, **options: object) -> Row:
    """The mean time from the beginning of work on a row to its leaving the operator through the reordering buffer.

    Rows are seen when the sink takes them, so the mean of what they have waited there is taken off.
    """
    stopwatch = Stopwatch.of(rows.num_rows)
    query = Query("latency")
    keyed = query.source(from_batches([rows])).key_by("key", ranges=ranges(buckets))
    made = keyed.state(partial(Working, work_of(work), cost, stopwatch), name=OPERATOR)
    found, use = run_once(made.to(to_function(stopwatch.end)).spec(), dict(options))
    sink = found.operators[-1]
    to_sink = float(np.mean(stopwatch.ended - stopwatch.begun))
    return {"processing latency": 1e6 * (to_sink - sink.in_queue - sink.for_a_turn), **use}


def stateless_rate(work: str, cost: float, rows: pa.RecordBatch, **options: object) -> Row:
    """Throughput of an operator without state, and what a row costs its workers, waiting for each other included."""
    query = Query("stateless")
    made = query.source(from_batches([rows])).stateless(_working(work_of(work), cost, 1), name=OPERATOR)
    return _rate(made.to(to_function(_nowhere)).spec(), options)


def selective_rate(
    work: str, cost: float, selectivity: int, then: float, rows: pa.RecordBatch, **options: object
) -> Row:
    """Throughput of a pipeline: an operator without state that gives out many rows for each, then a partitioned one."""
    query = Query("selective")
    many = query.source(from_batches([rows])).stateless(_working(work_of(work), cost, selectivity), name=OPERATOR)
    keyed = many.key_by("key", ranges=ranges(2))
    keyed.state(partial(Working, work_of(work), then), name="reader").to(to_function(_nowhere))
    return _rate(query.spec(), options)


def _working(work: Work, cost: float, selectivity: int) -> Callable[[pa.RecordBatch], Output]:
    def kernel(batch: pa.RecordBatch) -> Output:
        if batch.num_rows:
            work(cost * batch.num_rows)
        if selectivity == 1:
            return Output(batch)
        parents = np.repeat(np.arange(batch.num_rows, dtype=np.int64), selectivity)
        return Output(batch.take(pa.array(parents)), parents)

    return kernel


def _rate(spec: QuerySpec, options: dict[str, object]) -> Row:
    found, use = run_once(spec, dict(options))
    operator = next(each for each in found.operators if each.name == OPERATOR)
    return {
        "rows per second": throughput_of(found),
        "of the whole run": found.rows_per_second,
        "processing cost": 1e6 * operator.computing,
        **use,
    }


def _nowhere(_: pa.RecordBatch) -> None:
    """Rows have arrived; nobody keeps them."""
