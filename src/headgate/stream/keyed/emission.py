"""Rows of closed windows: how they look, and in which order they go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError
from headgate.stream.kernel import Output, Rejected
from headgate.stream.keyed.arrays import column_of, empty_batch
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.packet import Ints
from headgate.stream.sorting import sorted_places

NO_ROWS: Ints = np.empty(0, dtype=np.int64)


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


def sort_order(arrays: Sequence[pa.Array]) -> pa.Array:
    """The order that sorts rows by these arrays, ascending; equal rows stay as they are."""
    return pa.array(sorted_places(arrays))


def ordered_output(
    batch: pa.RecordBatch,
    parents: Ints | None,
    order: Sequence[pa.Array],
    rejected: tuple[Rejected, ...] = (),
) -> Output:
    """An output sorted by parent, then by ``order``."""
    first = [] if parents is None else [pa.array(parents)]
    if batch.num_rows < 2 or not (first or order):
        return Output(batch, parents, tuple(order), rejected)
    places = sort_order([*first, *order])
    moved = None if parents is None else parents[places.to_numpy()]
    return Output(batch.take(places), moved, tuple(array.take(places) for array in order), rejected)


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
        batch = self._batch(columns, starts, ends, aggregates)
        order = (pa.array(starts), *self._keys.order(columns))
        return Output(batch, parents, order, rejected) if in_order else ordered_output(batch, parents, order, rejected)

    def order(self, slots: Ints, windows: Ints) -> Ints:
        """The order in which rows of these keys and windows, numbered in the order of their starts, go out."""
        return sorted_places([pa.array(windows), *self._keys.order(self._keys.columns(slots))])

    def _batch(
        self, columns: Sequence[pa.Array], starts: Ints, ends: Ints, aggregates: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        bounds = [column_of(values, None, self._time) for values in (starts, ends)]
        return pa.RecordBatch.from_arrays([*columns, *bounds, *aggregates], schema=self.schema)

    def nothing(self, rejected: tuple[Rejected, ...] = ()) -> Output:
        """No window has closed."""
        return replace(self._nothing, rejected=rejected) if rejected else self._nothing
