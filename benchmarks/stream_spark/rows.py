"""Rows of the TPCx-BB workloads as they land in files, and back: event time is a timestamp there, as tables want it.

The workloads count seconds since 1900. Derived from TPCx-BB, unofficial, not comparable.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from headgate.stream.packet import Ints

TIMESTAMP = pa.timestamp("us", "UTC")
#: from 1900-01-01 to 1970-01-01
SECONDS_BEFORE_EPOCH = 25_567 * 86_400
_MICROS = 1_000_000


def stamped(rows: pa.Table) -> pa.Table:
    """With the seconds of column `ts` as timestamps."""
    seconds = rows.column("ts").combine_chunks().to_numpy()
    return rows.set_column(0, "ts", as_timestamps(seconds))


def as_timestamps(seconds: Ints) -> pa.Array:
    return pa.array((seconds - SECONDS_BEFORE_EPOCH) * _MICROS).view(TIMESTAMP)


def as_seconds(timestamps: pa.Array) -> Ints:
    """The workload's seconds of timestamps without nulls."""
    seconds: Ints = timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False) // _MICROS + SECONDS_BEFORE_EPOCH
    return seconds


def with_seconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of landed rows as the workload's operators know it."""
    place = batch.schema.get_field_index("ts")
    return batch.set_column(place, "ts", pa.array(as_seconds(batch.column(place))))


def cut(rows: pa.Table, files: int) -> list[pa.Table]:
    """As many tables of about the same length, one after the other."""
    bounds = np.linspace(0, rows.num_rows, files + 1).astype(np.int64).tolist()
    return [rows.slice(first, last - first) for first, last in pairwise(bounds)]


def land(rows: pa.Table, folder: Path, name: str) -> Path:
    """A Parquet file that appears when it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden, path = folder / f".{name}.parquet", folder / f"{name}.parquet"
    pq.write_table(rows, hidden)
    hidden.rename(path)
    return path
