"""Event times of a part: its own rows', and those of the whole packet, which say how far the stream has come.

The stream's time at a row is the largest time up to that row, over all buckets. A row older than its operator can still
take, or without a time, is rejected; whether it is depends on the rows before it and not on the packets or buckets.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError, ParameterError
from headgate.stream.kernel import Part, Rejected
from headgate.stream.keyed.arrays import Flags, integers
from headgate.stream.keyed.keys import check_column
from headgate.stream.packet import Ints


class Arrivals(NamedTuple):
    """The rows of a part that can be taken, with their places in the packet and their times."""

    batch: pa.RecordBatch
    rows: Ints
    times: Ints
    rejected: tuple[Rejected, ...]


def time_field(schema: pa.Schema, column: str) -> pa.Field:
    """The column of event time: 64-bit integers or timestamps."""
    field = check_column(schema, column)
    if field.type != pa.int64() and not pa.types.is_timestamp(field.type):
        raise DeclarationError(
            f"column {column!r} of type {field.type} cannot be the event time: it must be int64 or a timestamp; cast it"
        )
    return field


def check_span(what: str, value: int, least: int) -> int:
    """A span of time in units of the time column."""
    if value < least:
        raise ParameterError(f"{what} must be at least {least}, in units of the time column; got {value}")
    return value


def packet_times(part: Part, column: str) -> Ints:
    """The times of the packet. A part that comes without them is the whole packet."""
    if part.times is not None:
        return part.times
    return np.maximum.accumulate(integers(part.batch.column(column))[0])


def arrivals(
    part: Part, column: str, clock: int | None, oldest: Callable[[Ints], Ints] = lambda stream: stream
) -> Arrivals:
    """Sort out what comes too late: ``oldest`` says what time a row must have at least, given the stream's time there,
    which is never less.

    ``clock`` is the stream's time before the part.
    """
    own, nulls = integers(part.batch.column(column))
    stream = packet_times(part, column)[part.rows]
    if clock is not None and len(stream) and stream[0] < clock:
        stream = np.maximum(stream, clock)
    # A row that is not behind the stream is never too late; mostly none is.
    bad = own < stream
    if bad.any():
        bad = own < oldest(stream)
    if nulls is not None:
        bad |= nulls
    if not bad.any():
        return Arrivals(part.batch, part.rows, own, ())
    good = np.flatnonzero(~bad)
    return Arrivals(part.batch.take(pa.array(good)), part.rows[good], own[good], _rejected(part, column, bad, nulls))


def _rejected(part: Part, column: str, bad: Flags, nulls: Flags | None) -> tuple[Rejected, ...]:
    made = []
    for place in np.flatnonzero(bad).tolist():
        raw = json.dumps(part.batch.slice(place, 1).to_pylist()[0], default=str)
        without = nulls is not None and nulls[place]
        reason = f"its time {column!r} is null" if without else f"its time {column!r} lies before what has been closed"
        made.append(Rejected(int(part.rows[place]), reason, raw))
    return tuple(made)
