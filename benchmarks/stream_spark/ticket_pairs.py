"""Q1 as a query inside a table, partitioned by the hour. Derived from TPCx-BB, unofficial, not comparable.

All states of Q1 are of one hour: a ticket's lines share their time, pairs are counted by the hour, and so is their
ranking. Rows of one hour must therefore meet, and rows of different hours need not, so the hour is the key by which
Spark partitions, and with an update that spans many hours all cores have work. In Q1's own words tickets, pairs and
the ranking are keys of their own, and the ranking sees everything: taken literally, it could only run in one bucket.

An hour goes out when the next hour *of its bucket* begins, so at any time the newest hour of each bucket is not out
yet, where a serial run would hold back only the newest of all.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from benchmarks.stream_spark.rows import SECONDS_BEFORE_EPOCH, as_timestamps, with_seconds
from headgate.stream import Collect, Output, Stream, from_batches, on_spark
from headgate.stream.kernel import Part, Snapshot
from headgate.stream.spec import QuerySpec
from workloads.tpcxbb import q1, sales
from workloads.tpcxbb.dims import Dims

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "ts timestamp, ticket long, item int, store short, net_cents int"
#: the hour since 1900, as Q1 calls it
KEY = "window"
HOUR = 3_600


def top_pairs(lines: Stream) -> Stream:
    """Q1's operators one after the other, each partitioned by the hour as well."""
    operators = {operator.name: operator for operator in _q1().operators}
    kept = lines.stateless(_kept, name="filter")
    pairs = kept.partitioned(operators["pairs"].state, by=[KEY, "ticket"], name="pairs")  # type: ignore[arg-type]
    counts = pairs.partitioned(operators["count"].state, by=[KEY, "pair"], name="count")  # type: ignore[arg-type]
    top = counts.partitioned(operators["top"].state, by=[KEY], name="top")  # type: ignore[arg-type]
    return top.map(_stamped, name="stamped")


@lru_cache(maxsize=1)
def _q1() -> QuerySpec:
    # Which shop it is does not matter: with these parameters all stores and categories are asked for.
    return q1.query(from_batches([], sales.SCHEMA), Collect(), q1.PAPER, dims=Dims())


def _kept(batch: pa.RecordBatch) -> Output:
    function = _q1().by_name["filter"].function
    assert function is not None
    return function(with_seconds(batch))


def _stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    begin = as_timestamps(pc.multiply(batch.column(KEY), HOUR).to_numpy())
    return batch.append_column("hour", begin)


def top_pairs_table(buckets: int, packet_rows: int | None, lines: DataFrame) -> DataFrame:
    return on_spark(with_hour(lines), top_pairs, keys=[KEY], time="ts", buckets=buckets, packet_rows=packet_rows)


def with_hour(lines: DataFrame) -> DataFrame:
    """What Q1 looks at: every further column would cost its way to Python."""
    from pyspark.sql import functions as F

    return lines.drop("net_cents").withColumn(KEY, F.expr(f"(unix_seconds(ts) + {SECONDS_BEFORE_EPOCH}L) DIV {HOUR}"))


class Swallowed:
    """A state that takes rows and gives none: what is left of an update then is the way there."""

    def __init__(self, schema: pa.Schema) -> None:
        self._nothing = Output(pa.RecordBatch.from_pylist([], schema), np.empty(0, dtype=np.int64))

    def process(self, part: Part) -> Output:
        return self._nothing

    def flush(self) -> Output:
        return self._nothing

    def snapshot(self) -> Snapshot:
        return Snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """There is nothing to remember."""


def swallowed(lines: Stream) -> Stream:
    return lines.partitioned(partial(Swallowed, lines.schema), by=[KEY], name="swallowed")
