"""Aggregates over tumbling and sliding windows of event time.

A window closes at the first row of the stream, of any key, whose time has reached the window's end; that row is the
parent of the window's rows. A flush closes what is open.

Rows are added to *panes*: pieces of time so short that every window is made of whole panes. When a window closes, its
panes are combined in their order. A sum of floats over a sliding window is therefore the sum of its panes' sums, and
``first`` and ``last`` go by the panes before they go by the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Output, Part, Rejected, Snapshot
from headgate.stream.keyed.aggregate import Accumulators, Aggregate
from headgate.stream.keyed.arrays import TOLERATED_WASTE, expand, run_starts
from headgate.stream.keyed.index import KeyIndex
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.rows import AcceptedRows, WindowRows, accept_rows, check_span, packet_times, time_field
from headgate.stream.packet import Ints
from headgate.stream.sorting import sorted_places
from headgate.stream.spec import EventTime

#: below and above all window numbers
_NEVER, _FOREVER = -(1 << 62), 1 << 62


class _Panes:
    """The open cells: the aggregates of the rows of one key in one pane. Cells are numbered 0, 1, 2, ..."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        self.keys = RowKeys(schema, keys)
        self.totals = Accumulators(schema, aggregates)
        self._bits = 0
        self._numbers = KeyIndex()
        self._cells = KeyIndex()

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def slot(self) -> Ints:
        """The key of each cell, by slot."""
        return self._cells.keys & ((1 << self._bits) - 1)

    @property
    def pane(self) -> Ints:
        panes: Ints = self._numbers.keys[self._cells.keys >> self._bits]
        return panes

    def cells(self, slots: Ints, panes: Ints) -> Ints:
        """The cells of these keys and panes; new ones are made."""
        if len(self.keys) > 1 << self._bits:
            self._renumber(self.slot, self.pane)
        cells = self._cells.slots(self._codes(slots, panes))
        self.totals.grow(len(self._cells))
        return cells

    def _codes(self, slots: Ints, panes: Ints) -> Ints:
        """Pane and slot as one integer. Panes are numbered densely, so that they fit whatever the unit of time, and
        slots get no more bits than they need, so that codes lie close together."""
        return self._numbers.slots(panes) << self._bits | slots

    def _renumber(self, slots: Ints, panes: Ints) -> None:
        """Hold cells of these keys and panes only, numbered in this order."""
        self._bits = (len(self.keys) - 1).bit_length()
        self._numbers = KeyIndex()
        self._cells = KeyIndex()
        self._cells.slots(self._codes(slots, panes))

    def keep(self, cells: Ints) -> None:
        """Hold these cells only, numbered anew in their order."""
        every, panes = self.slot, self.pane[cells]
        slots = every[cells]
        self.totals.keep(cells)
        # Keys of windows that have just closed are likely to come again in the next one.
        used = np.zeros(len(self.keys), dtype=np.bool_)
        used[every] = True
        if len(used) > 2 * np.count_nonzero(used) + TOLERATED_WASTE:
            slots = self.keys.keep(used)[slots]
        self._renumber(slots, panes)


class _ClosedWindows(NamedTuple):
    """The rows of closed windows: key and window of each, and in which slot of ``totals`` its aggregates are."""

    slots: Ints
    windows: Ints
    totals: Accumulators
    sources: Ints

    def merge_panes(self, panes: Ints) -> _ClosedWindows:
        """Combine the panes of each key and window, in their order."""
        order = sorted_places([pa.array(column) for column in (self.windows, self.slots, panes)])
        slots, windows = self.slots[order], self.windows[order]
        begins = run_starts(windows, slots)
        rows = np.arange(len(begins), dtype=np.int64)
        totals = self.totals.fresh(len(begins))
        totals.merge(np.repeat(rows, np.diff(begins, append=len(slots))), self.totals, self.sources[order])
        return _ClosedWindows(slots[begins], windows[begins], totals, rows)


class SlidingAggregate:
    """The aggregates of each key over ``[start, start + size)``, for all starts ``offset + n * step``.

    ``size``, ``step`` and ``offset`` are in units of the time column. A window without rows of a key gives no row for
    it. A row older than the end of the last closed window is rejected.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        size: int,
        step: int,
        aggregates: Sequence[Aggregate],
        offset: int = 0,
    ) -> None:
        self._size, self._step = check_span("size", size, 1), check_span("step", step, 1)
        self._offset = offset
        self._time = time
        self._width = gcd(size, step)
        self._panes = _Panes(schema, keys, aggregates)
        self._rows = WindowRows(self._panes.keys, time_field(schema, time), self._panes.totals.fields)
        self._clock: int | None = None
        self.output_schema = self._rows.schema
        self.event_time: EventTime | None = EventTime(time, self.crosses)

    def crosses(self, before: int | None, after: int) -> bool:
        """Whether a window may close between two times of the stream."""
        return before is not None and self._closed(before) != self._closed(after)

    def _closed(self, time: int) -> int:
        """The number of the last window that has closed at a time."""
        return (time - self._offset - self._size) // self._step

    def _oldest(self, stream: Ints) -> Ints:
        ends = (stream - self._offset - self._size) // self._step * self._step + self._offset + self._size
        return ends.astype(np.int64, copy=False)

    def process(self, part: Part) -> Output:
        accepted = accept_rows(part, self._time, self._clock, self._oldest)
        self._add(accepted)
        times = packet_times(part, self._time)
        if not len(times):
            return self._rows.nothing(accepted.rejected)
        before = _NEVER if self._clock is None else self._closed(self._clock)
        self._clock = int(times[-1]) if self._clock is None else max(self._clock, int(times[-1]))
        return self._close(before, self._closed(self._clock), times, accepted.rejected)

    def flush(self) -> Output:
        before = _NEVER if self._clock is None else self._closed(self._clock)
        return self._close(before, _FOREVER, None, ())

    def _add(self, accepted: AcceptedRows) -> None:
        if not accepted.batch.num_rows:
            return
        panes = (accepted.times - self._offset) // self._width
        cells = self._panes.cells(self._panes.keys.slots(accepted.batch), panes)
        self._panes.totals.add(cells, accepted.batch)

    def _close(self, before: int, last: int, times: Ints | None, rejected: tuple[Rejected, ...]) -> Output:
        """Close the windows numbered above ``before`` up to ``last``."""
        panes = self._panes
        if before >= last or not len(panes):
            return self._rows.nothing(rejected)
        hop, span = self._step // self._width, self._size // self._width
        pane, slot = panes.pane, panes.slot
        newest = pane // hop
        first = np.maximum(-((span - 1 - pane) // hop), before + 1)
        cells, windows = expand(first, np.maximum(np.minimum(newest, last) - first + 1, 0))
        closed = _ClosedWindows(slot[cells], windows, panes.totals, cells)
        if span > 1:
            closed = closed.merge_panes(pane[cells])
        output = self._output(closed, times, rejected)
        panes.keep(np.flatnonzero(newest > last))
        return output

    def _output(self, closed: _ClosedWindows, times: Ints | None, rejected: tuple[Rejected, ...]) -> Output:
        if not len(closed.slots):
            return self._rows.nothing(rejected)
        order = self._rows.order(closed.slots, closed.windows)
        windows = closed.windows[order]
        starts = windows * self._step + self._offset
        ends = starts + self._size
        parents = None
        if times is not None:
            begins = run_starts(windows)
            parents = np.repeat(np.searchsorted(times, ends[begins]), np.diff(begins, append=len(windows)))
        results = closed.totals.results(closed.sources[order])
        return self._rows.output(closed.slots[order], starts, ends, results, parents, rejected, in_order=True)

    def snapshot(self) -> Snapshot:
        cells = np.arange(len(self._panes), dtype=np.int64)
        columns = {"pane": pa.array(self._panes.pane[cells]), **self._panes.totals.columns(cells)}
        keys = self._panes.keys.table(self._panes.slot[cells])
        return Snapshot({"keys": keys, "cells": pa.table(columns)}, {"clock": self._clock})

    def restore(self, snapshot: Snapshot) -> None:
        table = snapshot.tables["cells"]
        slots = self._panes.keys.remember(snapshot.tables["keys"], table.num_rows)
        cells = self._panes.cells(slots, table.column("pane").to_numpy())
        self._panes.totals.remember(cells, table)
        self._clock = snapshot.values["clock"]


class TumblingAggregate(SlidingAggregate):
    """The aggregates of each key over ``[start, start + size)``, for all starts ``offset + n * size``: windows that
    follow one another without overlap."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        size: int,
        aggregates: Sequence[Aggregate],
        offset: int = 0,
    ) -> None:
        super().__init__(schema, keys, time, size, size, aggregates, offset)
