"""Rows of keyed kernels: which of those that come in can be taken, by event time, and how those that go out look.

The stream's time at a row is the largest time up to that row, over all buckets. A row older than its operator can still
take, or without a time, is rejected. Whether it is depends on the rows before it and not on packets or buckets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, ParameterError
from headgate.stream.kernel import Output, Part, Rejected
from headgate.stream.keyed.arrays import column_of, integers, numbers
from headgate.stream.keyed.keys import RowKeys, check_column
from headgate.stream.packet import Ints, empty_batch
from headgate.stream.sorting import sorted_places
from headgate.stream.spec import LATEST, EventTime

NO_ROWS: Ints = np.empty(0, dtype=np.int64)


# --- rows that come in --------------------------------------------------------------------------------------


class AcceptedRows(NamedTuple):
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
    if value > LATEST:
        raise ParameterError(f"{what} must be at most {LATEST}, in units of the time column; got {value}")
    return value


def packet_times(part: Part, time: EventTime) -> Ints:
    """The times of the packet. A part that comes without them is the whole packet."""
    return part.times if part.times is not None else time.of_rows(part.batch, None)[0]


def accept_rows(
    part: Part, time: EventTime, clock: int | None, oldest: Callable[[Ints], Ints] = lambda stream: stream
) -> AcceptedRows:
    """Reject rows that come too late or whose time cannot be taken. ``clock`` is the stream's time before the part.

    ``oldest`` says what time a row must have at least, given the stream's time there, which is never less.
    """
    column = time.column
    times, nulls = integers(part.batch.column(column))
    stream = packet_times(part, time)[part.rows]
    if clock is not None and len(stream) and stream[0] < clock:
        stream = np.maximum(stream, clock)
    # A row that is not behind the stream is never too late; mostly none is.
    bad = times < stream
    if bad.any():
        bad = times < oldest(stream)
    unfit = (times < time.earliest) | (times > time.latest)
    bad |= unfit
    if nulls is not None:
        bad |= nulls
    if not bad.any():
        return AcceptedRows(part.batch, part.rows, times, ())
    good = np.flatnonzero(~bad)
    places = np.flatnonzero(bad)
    null_times = np.zeros(len(bad), dtype=np.bool_) if nulls is None else nulls
    late = f"its time {column!r} lies before what has been closed"
    no_window = f"its time {column!r} lies in a window whose bounds do not fit into 64 bits"
    reasons = [
        null_time(column) if null_times[place] else no_window if unfit[place] else late for place in places.tolist()
    ]
    rejected = rejected_rows(part, places, reasons)
    return AcceptedRows(part.batch.take(pa.array(good)), part.rows[good], times[good], rejected)


def rejected_rows(part: Part, places: Ints, reasons: Sequence[str]) -> tuple[Rejected, ...]:
    """The rows at these places of a part, each with its reason."""
    texts = row_texts(part.batch.take(pa.array(places)))
    return tuple(map(Rejected, part.rows[places].tolist(), reasons, texts))


def row_texts(batch: pa.RecordBatch) -> list[str]:
    """Rows as JSON. Times are numbers if Python has no dates for them."""
    try:
        rows = batch.to_pylist()
    except (OverflowError, ValueError):
        plain = [_as_numbers(column) if pa.types.is_temporal(column.type) else column for column in batch.columns]
        rows = pa.RecordBatch.from_arrays(plain, batch.schema.names).to_pylist()
    return [json.dumps(row, default=str) for row in rows]


def _as_numbers(column: pa.Array) -> pa.Array:
    values, nulls = numbers(column)
    return pa.array(values, mask=nulls)


def null_time(column: str) -> str:
    return f"its time {column!r} is null"


# --- rows that go out ---------------------------------------------------------------------------------------


def output_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """A schema of these columns, which must have different names."""
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DeclarationError(
            f"the output would have several columns called {', '.join(map(repr, twice))}: {names}; "
            "give aggregates another name, or rename the columns that come in"
        )
    return pa.schema(fields)


def no_output(schema: pa.Schema, rejected: tuple[Rejected, ...] = ()) -> Output:
    """An output without rows."""
    return Output(empty_batch(schema), NO_ROWS, rejected=rejected)


def ordered_output(batch: pa.RecordBatch, order: Sequence[pa.Array], parents: Ints | None = None) -> Output:
    """An output sorted by parent, if there are any, then by ``order``."""
    first = [] if parents is None else [pa.array(parents)]
    if batch.num_rows < 2 or not (first or order):
        return Output(batch, parents, tuple(order))
    places = sorted_places([*first, *order])
    indices = pa.array(places)
    return Output(
        batch.take(indices),
        None if parents is None else parents[places],
        tuple(array.take(indices) for array in order),
    )


class WindowRows:
    """Makes the rows of windows: the key, ``window_start``, ``window_end`` and the aggregates.

    Rows of one parent, and those of a flush, go in the order of their start, then of their key.
    """

    def __init__(self, keys: RowKeys, time: pa.Field, aggregates: Sequence[pa.Field]) -> None:
        self._keys = keys
        self._time = time.type
        bounds = [pa.field(name, time.type, nullable=False) for name in ("window_start", "window_end")]
        self.schema = output_schema([*keys.fields, *bounds, *aggregates])
        empty = empty_batch(self.schema)
        order = keys.order([empty.column(place) for place in range(len(keys.fields))])
        self._nothing = Output(empty, NO_ROWS, (pa.array(NO_ROWS), *order))

    def output(
        self,
        slots: Ints,
        starts: Ints,
        ends: Ints,
        aggregates: Sequence[pa.Array],
        parents: Ints | None,
        rejected: tuple[Rejected, ...] = (),
        *,
        in_order: bool = False,
    ) -> Output:
        """``in_order``: rows come in the order in which they are to go out."""
        columns = self._keys.columns(slots)
        bounds = [column_of(values, None, self._time) for values in (starts, ends)]
        batch = pa.RecordBatch.from_arrays([*columns, *bounds, *aggregates], schema=self.schema)
        order = (pa.array(starts), *self._keys.order(columns))
        output = Output(batch, parents, order) if in_order else ordered_output(batch, order, parents)
        return replace(output, rejected=rejected) if rejected else output

    def order(self, slots: Ints, starts: Ints) -> Ints:
        """The order in which rows of these keys and starts of windows go out."""
        return sorted_places([pa.array(starts), *self._keys.order(self._keys.columns(slots))])

    def nothing(self, rejected: tuple[Rejected, ...] = ()) -> Output:
        """No window has closed."""
        return replace(self._nothing, rejected=rejected) if rejected else self._nothing
