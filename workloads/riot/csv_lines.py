"""Readings as plain CSV lines, ``timestamp,source,longitude,latitude,<five sensors>``, without quotes.

A line with another number of fields, a time that is not a whole number or a value that is neither a number nor ``null``
is rejected.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.stream import Output, Rejected
from workloads.riot.numbers import LONGEST, NULL, is_whole, parse_number, parse_numbers, transposed
from workloads.riot.schema import READINGS, Floats, nullable

_FIELDS = READINGS.names[1:]
_WIDTH = len(_FIELDS)


def write(readings: pa.RecordBatch) -> pa.Array:
    """The lines of a batch of readings."""
    texts = [readings.column(name).cast(pa.string()) for name in _FIELDS]
    return pc.binary_join_element_wise(*texts, ",", null_handling="replace", null_replacement=NULL)


def parse(batch: pa.RecordBatch) -> Output:
    """``LINES`` as ``READINGS``, rejected lines left out."""
    parts = pc.split_pattern(batch.column("line"), ",")
    whole = pc.equal(pc.list_value_length(parts), len(_FIELDS)).fill_null(False)
    rows = np.flatnonzero(whole.to_numpy(zero_copy_only=False))
    stamps, sources, *texts = transposed((parts if len(rows) == len(parts) else parts.filter(whole)).flatten(), _WIDTH)
    values, bad = parse_numbers(pa.concat_arrays(texts))
    numbers = values.reshape(len(texts), -1)
    whole_time = pc.and_(pc.ascii_is_decimal(stamps), pc.less_equal(pc.binary_length(stamps), LONGEST))
    good = pc.and_(whole_time, pc.not_equal(sources, "")).to_numpy(zero_copy_only=False)
    good = good & ~bad.reshape(len(texts), -1).any(axis=0)
    if len(good) == batch.num_rows and good.all():
        return Output(_readings(batch.column("msgid"), stamps, sources, numbers))
    rows, kept = rows[good], pa.array(np.flatnonzero(good))
    msgids = batch.column("msgid").take(pa.array(rows))
    readings = _readings(msgids, stamps.take(kept), sources.take(kept), numbers[:, good])
    rejected = np.setdiff1d(np.arange(batch.num_rows), rows)
    return Output(readings, rows, (), tuple(_rejected(batch, int(row)) for row in rejected))


def _readings(msgids: pa.Array, stamps: pa.Array, sources: pa.Array, numbers: Floats) -> pa.RecordBatch:
    columns = [msgids, stamps.cast(pa.int64()), sources, *(nullable(values) for values in numbers)]
    return pa.record_batch(columns, schema=READINGS)


def _rejected(batch: pa.RecordBatch, row: int) -> Rejected:
    line = batch.column("line")[row].as_py()
    return Rejected(row, _fault(line), line or "")


def _fault(line: str | None) -> str:
    fields = (line or "").split(",")
    if len(fields) != len(_FIELDS):
        return f"expected {len(_FIELDS)} fields ({', '.join(_FIELDS)}), got {len(fields)}"
    if not is_whole(fields[0]):
        return f"timestamp: expected milliseconds as a whole number, got {fields[0]!r}"
    if not fields[1]:
        return "source: expected a name, got an empty field"
    for name, text in zip(_FIELDS[2:], fields[2:], strict=True):
        try:
            parse_number(text)
        except ValueError:
            return f"{name}: expected a number or null, got {text!r}"
    raise AssertionError(f"a good line was rejected: {line!r}")
