"""The sessions of Q2 (its first two operators), for Headgate: clicks of known users and items, then their sessions.

A session goes out when a click of its user comes more than an hour after the one before, with its different items in
ascending order and the time of that click, `trigger`. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.stream_spark.rows import as_timestamps, with_seconds
from headgate.stream import Output, Stream, on_spark
from workloads.tpcxbb.q2 import SessionItems, known_clicks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "ts timestamp, user int, item int, page short, sale int"
#: seconds
GAP = 3_600


def sessions(clicks: Stream) -> Stream:
    known = clicks.stateless(_known, name="known")
    return known.partitioned(partial(SessionItems, GAP), by=["user"], name="sessions").map(_stamped, name="stamped")


def _known(batch: pa.RecordBatch) -> Output:
    return known_clicks(with_seconds(batch))


def _stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "trigger", as_timestamps(batch.column("trigger").to_numpy()))


def sessions_table(buckets: int, clicks: DataFrame) -> DataFrame:
    return on_spark(clicks, sessions, keys=["user"], time="ts", buckets=buckets)
