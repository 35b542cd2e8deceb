"""Letting the rows of each key pass in the order of their time, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.kernel import Changes, Output, Part, Rejected, Snapshot
from headgate.stream.keyed.arrays import Flags, Groups, Growing, accumulate, empty_batch, integers
from headgate.stream.keyed.emission import NO_ROWS
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.times import time_field
from headgate.stream.keyed.touched import Touched, added_keys, changed_rows, remember_keys
from headgate.stream.packet import Ints

#: what a key has seen that has not seen anything
_BEFORE_ALL = -(1 << 63)


class InOrder:
    """A row passes if its time is not before the latest that a row of its key has had; others are rejected as late.

    Rows without a time are rejected too. Keys do not wait for each other: what is late is decided by the rows of the
    key alone, and no key is ever forgotten.
    """

    # No bucket needs to hear of the others' times.
    event_time = None

    def __init__(self, schema: pa.Schema, keys: Sequence[str], time: str) -> None:
        self._keys = RowKeys(schema, keys)
        self._time = time_field(schema, time)
        #: {slot: the latest time of its rows}
        self._latest = Growing(np.int64, _BEFORE_ALL)
        self._touched = Touched()
        self.output_schema = schema

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self.flush()
        times, nulls = integers(part.batch.column(self._time.name))
        if nulls is not None:
            times = np.where(nulls, _BEFORE_ALL, times)
        latest = self._take(self._keys.slots(part.batch), times)
        # A row that is late leaves the latest time above its own.
        passing = times == latest if nulls is None else (times == latest) & ~nulls
        if passing.all():
            return Output(part.batch, part.rows)
        places = np.flatnonzero(passing)
        rejected = self._rejected(part, np.flatnonzero(~passing), latest, nulls)
        return Output(part.batch.take(pa.array(places)), part.rows[places], rejected=rejected)

    def _take(self, slots: Ints, times: Ints) -> Ints:
        """The latest time of its key at each row, its own included."""
        self._latest.grow(len(self._keys))
        groups = Groups.of(slots)
        self._touched.add(groups.codes)
        running = accumulate(np.maximum, times[groups.order], groups, self._latest.values[groups.codes])
        self._latest.values[groups.codes] = running[groups.ends]
        latest = np.empty_like(times)
        latest[groups.order] = running
        return latest

    def _rejected(self, part: Part, places: Ints, latest: Ints, nulls: Flags | None) -> tuple[Rejected, ...]:
        rows = part.batch.take(pa.array(places))
        own = _written(integers(rows.column(self._time.name))[0], self._time.type)
        seen = _written(latest[places], self._time.type)
        without = np.zeros(len(places), dtype=np.bool_) if nulls is None else nulls[places]
        name = self._time.name
        made = []
        for place, (row, is_null) in enumerate(zip(rows.to_pylist(), without.tolist(), strict=True)):
            late = f"it is late: its time {own[place]} lies before {seen[place]} that its key has already seen"
            reason = f"its time {name!r} is null" if is_null else late
            made.append(Rejected(int(part.rows[places[place]]), reason, json.dumps(row, default=str)))
        return tuple(made)

    def flush(self) -> Output:
        return Output(empty_batch(self.output_schema), NO_ROWS)

    def snapshot(self) -> Snapshot:
        slots = np.arange(len(self._latest), dtype=np.int64)
        self._touched.begin(len(slots))
        return Snapshot({"keys": self._keys.table(slots), "latest": pa.table(self._columns(slots))})

    def changes(self) -> Changes | None:
        count = len(self._latest)
        taken = self._touched.take(count)
        if taken is None:
            return None
        since, slots = taken
        latest = changed_rows(slots, self._columns(slots), count)
        return Changes({"keys": added_keys(self._keys, since, count), "latest": latest})

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return {"latest": pa.array(self._latest.values[slots])}

    def restore(self, snapshot: Snapshot) -> None:
        latest = snapshot.tables["latest"]
        slots = remember_keys(self._keys, snapshot.tables["keys"], latest.num_rows)
        self._latest.grow(len(slots))
        self._latest.values[slots] = latest.column("latest").to_numpy()
        self._touched.resume(slots)


def _written(times: Ints, kind: pa.DataType) -> list[str]:
    """Times as people write them; of timestamps with a time zone in UTC."""
    column = pa.array(times)
    if pa.types.is_timestamp(kind):
        column = column.view(pa.timestamp(kind.unit))
    written: list[str] = column.cast(pa.string()).to_pylist()
    return written
