"""Aggregates over tumbling and sliding windows of event time.

A window closes at the first row of the stream, of any key, whose time has reached the window's end; that row is the
parent of the window's rows. A flush closes what is open.

Rows are added to *panes*: pieces of time so short that every window is made of whole panes. When a window closes, its
panes are combined in their order. A sum of floats over a sliding window is therefore the sum of its panes' sums, and
``first`` and ``last`` go by the panes before they go by the order of rows.

A row that lies in a window whose start or end is no 64-bit integer is rejected. Windows and panes are numbered from the
first window that can be represented, and computed with as unsigned integers: then nothing overflows, wherever time is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.stream.kernel import Output, Part, Rejected, Snapshot
from headgate.stream.keyed.aggregate import Accumulators, Aggregate
from headgate.stream.keyed.arrays import TOLERATED_WASTE, expand, run_starts
from headgate.stream.keyed.index import KeyIndex
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.rows import AcceptedRows, WindowRows, accept_rows, check_span, packet_times, time_field
from headgate.stream.packet import Ints
from headgate.stream.sorting import sorted_places
from headgate.stream.spec import EARLIEST, LATEST, EventTime

Unsigned = NDArray[np.uint64]

#: more windows than there can be
_ALL = (1 << 64) - 1


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
    """The rows of closed windows: key and start of each, and in which slot of ``totals`` its aggregates are."""

    slots: Ints
    starts: Ints
    totals: Accumulators
    sources: Ints

    def merge_panes(self, panes: Unsigned) -> _ClosedWindows:
        """Combine the panes of each key and window, in their order."""
        order = sorted_places([pa.array(column) for column in (self.starts, self.slots, panes)])
        slots, starts = self.slots[order], self.starts[order]
        begins = run_starts(starts, slots)
        rows = np.arange(len(begins), dtype=np.int64)
        totals = self.totals.fresh(len(begins))
        totals.merge(np.repeat(rows, np.diff(begins, append=len(slots))), self.totals, self.sources[order])
        return _ClosedWindows(slots[begins], starts[begins], totals, rows)


class SlidingAggregate:
    """The aggregates of each key over ``[start, start + size)``, for all starts ``offset + n * step``.

    ``size``, ``step`` and ``offset`` are in units of the time column. A window without rows of a key gives no row for
    it. A row older than the end of the last closed window is rejected.

    Windows and panes are numbered 0, 1, 2, ... from ``_first``, the start of the first window that can be represented.
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
        self._width = gcd(size, step)
        self._first = EARLIEST + (offset - EARLIEST) % step
        last = LATEST - size - (LATEST - size - offset) % step
        self._time = EventTime(
            time_field(schema, time).name,
            self.crosses,
            earliest=self._first + max(size - step, 0),
            latest=min(last + step - 1, LATEST),
        )
        #: the number of the first pane in snapshots, which count from ``offset``; modulo 2**64
        self._first_pane = ((self._first - offset) // self._width - EARLIEST) % (1 << 64) + EARLIEST
        self._panes = _Panes(schema, keys, aggregates)
        self._rows = WindowRows(self._panes.keys, schema.field(time), self._panes.totals.fields)
        self._clock = self._time.earliest
        self.output_schema = self._rows.schema
        self.event_time: EventTime | None = self._time

    def crosses(self, before: int | None, after: int) -> bool:
        """Whether a window may close between two times of the stream."""
        return before is not None and self._closed(before) != self._closed(after)

    def _closed(self, time: int) -> int:
        """How many windows have closed at a time."""
        return max((time - self._first - self._size) // self._step + 1, 0)

    def _since_first(self, times: Ints) -> Unsigned:
        return (times - self._first).view(np.uint64)

    def _oldest(self, stream: Ints) -> Ints:
        """The end of the last window that has closed."""
        since = self._since_first(stream)
        since_end = (since - np.uint64(self._size)) % np.uint64(self._step)
        return np.where(since < self._size, self._time.earliest, stream - since_end.view(np.int64))

    def process(self, part: Part) -> Output:
        accepted = accept_rows(part, self._time, self._clock, self._oldest)
        self._add(accepted)
        times = packet_times(part, self._time)
        if not len(times):
            return self._rows.nothing(accepted.rejected)
        before = self._closed(self._clock)
        self._clock = max(self._clock, int(times[-1]))
        return self._close(before, self._closed(self._clock), times, accepted.rejected)

    def flush(self) -> Output:
        return self._close(self._closed(self._clock), _ALL, None, ())

    def _add(self, accepted: AcceptedRows) -> None:
        if not accepted.batch.num_rows:
            return
        panes = self._since_first(accepted.times) // np.uint64(self._width)
        cells = self._panes.cells(self._panes.keys.slots(accepted.batch), panes.view(np.int64))
        self._panes.totals.add(cells, accepted.batch)

    def _close(self, before: int, closed: int, times: Ints | None, rejected: tuple[Rejected, ...]) -> Output:
        """Close the windows from number ``before`` up to, but not including, ``closed``."""
        panes = self._panes
        if before >= closed or not len(panes):
            return self._rows.nothing(rejected)
        hop, span = np.uint64(self._step // self._width), np.uint64(self._size // self._width)
        pane, slot = panes.pane.view(np.uint64), panes.slot
        newest = pane // hop
        oldest = np.where(pane < span, np.uint64(0), (pane - span) // hop + np.uint64(1))
        begin, end = np.maximum(oldest, np.uint64(before)), np.minimum(newest + np.uint64(1), np.uint64(closed))
        counts = np.where(begin < end, end - begin, np.uint64(0)).view(np.int64)
        cells, windows = expand(begin.view(np.int64), counts)
        # Numbers and their products may need all 64 bits; starts are 64-bit integers again.
        rows = _ClosedWindows(slot[cells], windows * self._step + self._first, panes.totals, cells)
        if span > 1:
            rows = rows.merge_panes(pane[cells])
        output = self._output(rows, times, rejected)
        panes.keep(np.flatnonzero(newest >= np.uint64(closed)))
        return output

    def _output(self, closed: _ClosedWindows, times: Ints | None, rejected: tuple[Rejected, ...]) -> Output:
        if not len(closed.slots):
            return self._rows.nothing(rejected)
        order = self._rows.order(closed.slots, closed.starts)
        starts = closed.starts[order]
        ends = starts + self._size
        parents = None
        if times is not None:
            begins = run_starts(starts)
            parents = np.repeat(np.searchsorted(times, ends[begins]), np.diff(begins, append=len(starts)))
        results = closed.totals.results(closed.sources[order])
        return self._rows.output(closed.slots[order], starts, ends, results, parents, rejected, in_order=True)

    def snapshot(self) -> Snapshot:
        cells = np.arange(len(self._panes), dtype=np.int64)
        panes = self._panes.pane[cells] + self._first_pane
        columns = {"pane": pa.array(panes), **self._panes.totals.columns(cells)}
        keys = self._panes.keys.table(self._panes.slot[cells])
        return Snapshot({"keys": keys, "cells": pa.table(columns)}, {"clock": self._clock})

    def restore(self, snapshot: Snapshot) -> None:
        table = snapshot.tables["cells"]
        slots = self._panes.keys.remember(snapshot.tables["keys"], table.num_rows)
        cells = self._panes.cells(slots, table.column("pane").to_numpy() - self._first_pane)
        self._panes.totals.remember(cells, table)
        clock = snapshot.values["clock"]
        self._clock = self._time.earliest if clock is None else min(max(clock, self._time.earliest), self._time.latest)


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
