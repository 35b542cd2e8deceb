"""Small queries for tests of the engine, with sources and sinks of their own that need nothing but lists."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream.kernel import Output, Part, Snapshot
from headgate.stream.query import Query, Stream
from headgate.stream.sources.source import Chunk

SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.int64()), ("ts", pa.int64()), ("value", pa.float64())])


def rows(count: int, keys: int = 13, seed: int = 0) -> pa.RecordBatch:
    """Rows with few keys, in the order of time, several to a second."""
    chance = np.random.default_rng(seed)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(count)),
            pa.array(chance.integers(0, keys, count)),
            pa.array(np.cumsum(chance.integers(0, 2, count))),
            pa.array(chance.random(count)),
        ],
        schema=SCHEMA,
    )


class FromBatch:
    """A source that has all its rows from the beginning."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.schema = batch.schema

    def open(self, wake: Callable[[], None], now: float) -> FromBatchReader:
        return FromBatchReader(self.batch)


class FromBatchReader:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch, self._at = batch, 0
        self.closed = False

    def ready_at(self, now: float) -> float:
        return now

    def waiting(self, now: float) -> int:
        return int(self._batch.num_rows - self._at)

    def read(self, most: int, now: float) -> Chunk | None:
        if self.ended:
            return None
        piece = self._batch.slice(self._at, most)
        self._at += piece.num_rows
        return Chunk(piece, now, now)

    @property
    def ended(self) -> bool:
        return self._at >= self._batch.num_rows

    def close(self) -> None:
        self.closed = True


class ToList:
    """A sink that keeps batches, and knows whether it was closed."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.closed = 0

    def open(self) -> ToList:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        self.closed += 1

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]


def fingerprint(sink: ToList) -> str:
    """A hash of the complete sequence of rows, however it was cut into batches."""
    return hashlib.sha256(repr(sink.rows()).encode()).hexdigest()


class RunningSum:
    """For each row, the sum of the values of its key so far; at the end, the sums by key."""

    def __init__(self) -> None:
        self.sums: dict[int, float] = {}

    def process(self, part: Part) -> Output:
        totals = []
        keys, values = part.batch.column("key").to_pylist(), part.batch.column("value").to_pylist()
        for key, value in zip(keys, values, strict=True):
            self.sums[key] = self.sums.get(key, 0.0) + value
            totals.append(self.sums[key])
        return Output(self._batch(keys, totals))

    def flush(self) -> Output:
        keys = sorted(self.sums)
        batch = self._batch(keys, [self.sums[key] for key in keys])
        return Output(batch, order=(batch.column("key"),))

    @staticmethod
    def _batch(keys: Sequence[int], totals: Sequence[float]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.int64()), pa.array(totals, pa.float64())], names=["key", "total"]
        )

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"sums": {str(key): total for key, total in self.sums.items()}})

    def restore(self, snapshot: Snapshot) -> None:
        self.sums = {int(key): total for key, total in snapshot.values["sums"].items()}


class EveryThird:
    """Lets every third row pass, and says at the end how many there were: a state that sees everything."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, part: Part) -> Output:
        numbers = self.seen + np.arange(part.batch.num_rows)
        self.seen += part.batch.num_rows
        kept = np.flatnonzero(numbers % 3 == 0)
        return Output(part.batch.take(pa.array(kept)), part.rows[kept])

    def flush(self) -> Output:
        batch = pa.RecordBatch.from_arrays([pa.array([-1], pa.int64()), pa.array([float(self.seen)])], ["key", "total"])
        return Output(batch)

    def snapshot(self) -> Snapshot:
        return Snapshot(values={"seen": self.seen})

    def restore(self, snapshot: Snapshot) -> None:
        self.seen = snapshot.values["seen"]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(3, "value", pc.multiply(batch.column("value"), 2.0))


def chain(source: FromBatch, sink: ToList, name: str = "chain") -> Query:
    """A stateless operator, a partitioned one and a stateful one."""
    stream = Query(name).source(source).map(doubled).filter(pc.field("key") != 3)
    summed = stream.partitioned(RunningSum, by=["key"], name="sums")
    return summed.stateful(EveryThird, name="thirds").to(sink)


def diamond(source: FromBatch, sink: ToList, name: str = "diamond") -> Query:
    """Two branches of different work and different selectivity that meet again, and a sum behind them."""
    stream = Query(name).source(source)
    few, others = stream.split(pc.field("key") < 4)
    left = few.flat_map(twice, name="twice")
    right = others.map(doubled).filter(lambda batch: pc.greater(batch.column("value"), 0.5), name="large")
    return left.merge(right).partitioned(RunningSum, by=["key"], name="sums").to(sink)


def twice(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
    parents = np.repeat(np.arange(batch.num_rows), 2)
    return batch.take(pa.array(parents)), parents


def two_sources(first: FromBatch, second: FromBatch, sink: ToList, name: str = "union") -> Query:
    """Two sources in the order of event time, and a sum over both."""
    query = Query(name)
    left: Stream = query.source(first, "left").map(doubled)
    right: Stream = query.source(second, "right").filter(lambda batch: pc.greater(batch.column("value"), 0.2))
    return left.union(right, by="ts").partitioned(RunningSum, by=["key"], name="sums").to(sink)
