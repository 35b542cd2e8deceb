"""Keyed filters: they let rows of a key pass or not, by what they have seen of the key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream.kernel import Output, Part, Rejected, Snapshot
from headgate.stream.keyed.arrays import (
    TOLERATED_WASTE,
    Expiry,
    Flags,
    GrowingArray,
    RowGroups,
    accumulate,
    first_equals,
    integers,
    places_after,
)
from headgate.stream.keyed.changed_slots import SlotState
from headgate.stream.keyed.rows import accept_rows, check_span, null_time, rejected_rows, time_field
from headgate.stream.packet import Ints
from headgate.stream.spec import EventTime

#: the latest time of a key that has seen none
_BEFORE_ALL = -(1 << 63)


class Dedupe(SlotState):
    """A row passes if no row of its key has passed before, or if the last one that did is more than ``within`` older.

    Rows that do not pass do not renew the time. ``within`` is in units of the column ``time``; without it keys are
    never forgotten. With it a row older than a row before it in the stream is rejected.
    """

    rows_table = "passed"

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], within: int | None = None, time: str | None = None
    ) -> None:
        if (within is None) != (time is None):
            raise ParameterError(f"'within' and 'time' go together: give both or none; got {within!r} and {time!r}")
        super().__init__(schema, keys)
        self._within = 0 if within is None else check_span("within", within, 0)
        #: {slot: whether a row has passed}, and when, if there is a time
        self._passed = GrowingArray(np.bool_, False)
        self._passed_at = GrowingArray(np.int64)
        self._expiry = Expiry()
        self._forgotten = 0
        self._clock: int | None = None
        self.output_schema = schema
        # No bucket needs to know of the others' rows: whether a key is forgotten is seen when it comes again.
        self.event_time = None
        if time is not None:
            self.event_time = EventTime(time_field(schema, time).name, lambda before, after: False)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self._no_output()
        if self.event_time is None:
            slots = self._slots(part.batch)
            places = _first_places(slots, ~self._passed.values[slots])
            self._passed.values[slots] = True
            return _passing_rows(part.batch, part.rows, places)
        batch, rows, times, rejected = accept_rows(part, self.event_time, self._clock)
        if not batch.num_rows:
            return self._no_output(rejected)
        slots = self._slots(batch)
        places = self._passing(slots, times)
        self._passed.values[slots] = True
        self._passed_at.values[slots[places]] = times[places]
        if self._changed:
            self._changed.add(np.unique(slots[places]))
        self._expiry.push(slots[places], times[places])
        self._clock = int(times[-1])
        self._forget(self._clock - self._within)
        return _passing_rows(batch, rows, places, rejected)

    def _slots(self, batch: pa.RecordBatch) -> Ints:
        slots = self._keys.slots(batch)
        self._passed.grow(len(self._keys))
        self._passed_at.grow(len(self._keys))
        return slots

    def _passing(self, slots: Ints, times: Ints) -> Ints:
        """The places of rows that pass. If a row passes, the next one of its key to pass is the first that is late
        enough: its successor. The rows on a chain of successors from the first row that passes are those that do."""
        groups = RowGroups.of(slots)
        count = len(times)
        group = groups.spread(np.arange(len(groups.starts), dtype=np.int64))
        group_and_row = group * (count + 1) + groups.order
        limits = groups.spread(groups.starts + groups.sizes)

        def first_after(moments: Ints, of_group: Ints, limit: Ints) -> Ints:
            places = places_after(times, moments, self._within, "right")
            found = np.searchsorted(group_and_row, of_group * (count + 1) + places)
            return np.where(found < limit, found, count).astype(np.int64, copy=False)

        begin = groups.starts.copy()
        known = np.flatnonzero(self._passed.values[groups.codes])
        begin[known] = first_after(
            self._passed_at.values[groups.codes[known]], known, (groups.starts + groups.sizes)[known]
        )
        successor = np.append(first_after(times[groups.order], group, limits), count)
        passing: Ints = np.sort(groups.order[_reachable(begin[begin < count], successor)])
        return passing

    def _forget(self, before: int) -> None:
        slots, times = self._expiry.pop(before)
        self._forgotten += int(np.count_nonzero(self._passed_at.values[slots] == times))
        if self._forgotten > TOLERATED_WASTE and 2 * self._forgotten > len(self._keys):
            self._changed.stop()
            live = self._passed_at.values >= before
            self._hold(self._passed_at.values[live], self._keys.keep(live)[live])

    def _hold(self, passed_at: Ints, slots: Ints) -> None:
        """Hold these slots only."""
        self._forgotten = 0
        self._passed, self._passed_at = GrowingArray(np.bool_, False), GrowingArray(np.int64)
        self._passed.grow(len(slots))
        self._passed_at.grow(len(slots))
        self._passed.values[slots] = True
        self._passed_at.values[slots] = passed_at
        self._expiry = Expiry()
        self._expiry.push(slots, passed_at)

    # --- snapshots ------------------------------------------------------------------------------------------

    def _row_count(self) -> int:
        # Of every key that is known a row has passed.
        return len(self._passed)

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return {"passed_at": pa.array(self._passed_at.values[slots])}

    def _values(self) -> dict[str, Any]:
        return {"clock": self._clock}

    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        self._hold(snapshot.tables[self.rows_table].column("passed_at").to_numpy(), slots)
        self._clock = snapshot.values["clock"]


def _first_places(slots: Ints, new: Flags) -> Ints:
    """The place of the first row of each slot, of rows that are new."""
    places = np.flatnonzero(new)
    numbers = slots[places]
    if not len(numbers):
        return places
    # New slots follow one another, so they are their own cells.
    leaders = first_equals(numbers, numbers - numbers.min())
    first: Ints = places[leaders == np.arange(len(places))]
    return first


def _reachable(begin: Ints, successor: Ints) -> Ints:
    """All that can be reached from ``begin`` by any number of steps; the last element of ``successor`` is the end.

    Steps of one, two, four, ... are prepared; every number of steps is a sum of them.
    """
    end = len(successor) - 1
    steps = []
    while len(begin) and bool((successor != end).any()):
        steps.append(successor)
        successor = successor[successor]
    reached = np.zeros(end + 1, dtype=np.bool_)
    reached[begin] = True
    for step in reversed(steps):
        reached[step[np.flatnonzero(reached)]] = True
    return np.flatnonzero(reached[:end])


def _passing_rows(batch: pa.RecordBatch, rows: Ints, places: Ints, rejected: tuple[Rejected, ...] = ()) -> Output:
    if len(places) == batch.num_rows:
        return Output(batch, rows, rejected=rejected)
    return Output(batch.take(pa.array(places)), rows[places], rejected=rejected)


class InOrder(SlotState):
    """A row passes if its time is not before the latest that a row of its key has had; others are rejected as late.

    Rows without a time are rejected too. Keys do not wait for each other: what is late is decided by the rows of the
    key alone, and no key is ever forgotten.
    """

    rows_table = "latest"

    def __init__(self, schema: pa.Schema, keys: Sequence[str], time: str) -> None:
        super().__init__(schema, keys)
        self._time = time_field(schema, time)
        #: {slot: the latest time of its rows}
        self._latest = GrowingArray(np.int64, _BEFORE_ALL)
        self.output_schema = schema

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self._no_output()
        times, nulls = integers(part.batch.column(self._time.name))
        if nulls is not None:
            times = np.where(nulls, _BEFORE_ALL, times)
        latest = self._update_latest(self._keys.slots(part.batch), times)
        # A row that is late leaves the latest time above its own.
        passing = times == latest if nulls is None else (times == latest) & ~nulls
        if passing.all():
            return Output(part.batch, part.rows)
        rejected = self._late_rows(part, np.flatnonzero(~passing), latest, nulls)
        return _passing_rows(part.batch, part.rows, np.flatnonzero(passing), rejected)

    def _update_latest(self, slots: Ints, times: Ints) -> Ints:
        """The latest time of its key at each row, including the row."""
        self._latest.grow(len(self._keys))
        groups = RowGroups.of(slots)
        self._changed.add(groups.codes)
        running = accumulate(np.maximum, times[groups.order], groups, self._latest.values[groups.codes])
        self._latest.values[groups.codes] = running[groups.ends]
        latest = np.empty_like(times)
        latest[groups.order] = running
        return latest

    def _late_rows(self, part: Part, places: Ints, latest: Ints, nulls: Flags | None) -> tuple[Rejected, ...]:
        row_times = _time_texts(integers(part.batch.column(self._time.name))[0][places], self._time.type)
        key_times = _time_texts(latest[places], self._time.type)
        null_times = np.zeros(len(places), dtype=np.bool_) if nulls is None else nulls[places]
        reasons = [
            null_time(self._time.name)
            if is_null
            else f"it is late: its time {row_time} lies before {key_time} that its key has already seen"
            for is_null, row_time, key_time in zip(null_times.tolist(), row_times, key_times, strict=True)
        ]
        return rejected_rows(part, places, reasons)

    # --- snapshots ------------------------------------------------------------------------------------------

    def _row_count(self) -> int:
        return len(self._latest)

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return {"latest": pa.array(self._latest.values[slots])}

    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        self._latest.grow(len(slots))
        self._latest.values[slots] = snapshot.tables[self.rows_table].column("latest").to_numpy()


def _time_texts(times: Ints, kind: pa.DataType) -> list[str]:
    """Times as people write them; of timestamps with a time zone in UTC."""
    column = pa.array(times)
    if pa.types.is_timestamp(kind):
        column = column.view(pa.timestamp(kind.unit))
    texts: list[str] = column.cast(pa.string()).to_pylist()
    return texts
