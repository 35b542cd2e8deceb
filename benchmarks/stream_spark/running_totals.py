"""A count and a sum for each key so far, as a query inside a table, and rows for it that follow from numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.stream_spark.rows import TIMESTAMP
from headgate.stream import Stream, on_spark
from headgate.stream.packet import Ints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "ts timestamp, key long, value double"
#: odd, so that keys far apart follow each other and none comes twice
_STRIDE = 2_654_435_761
_BEGIN_MICROS = 1_790_000_000 * 1_000_000


def totals(rows: Stream) -> Stream:
    """Of each row its time and key, and what its key has come to."""
    return rows.key_by("key").running(n="count", total=("sum", "value"), ts=("last", "ts"))


def totals_table(buckets: int, rows: DataFrame) -> DataFrame:
    return on_spark(rows, totals, keys=["key"], time="ts", buckets=buckets)


def rows_of(keys: Ints, update: int) -> pa.Table:
    """A row for each of these keys, a microsecond after the one before, in the hour of this update."""
    micros = _BEGIN_MICROS + update * 3_600_000_000 + np.arange(len(keys), dtype=np.int64)
    values = (keys % 97).astype(np.float64)
    return pa.table({"ts": pa.array(micros).view(TIMESTAMP), "key": keys, "value": values})


def some_keys(count: int, of: int, first: int) -> Ints:
    """`count` different keys of the numbers below `of`, spread over them; others for another `first`."""
    keys: Ints = (np.arange(first, first + count, dtype=np.int64) * _STRIDE) % of
    return keys
