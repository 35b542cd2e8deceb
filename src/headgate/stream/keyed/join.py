"""The interval join: pairs of a left and a right row of one key whose times lie near each other.

Left and right rows come as one stream in the order of time; a column says which side a row is of. A pair goes out when
the later of its rows comes: this row is the parent, and pairs of one parent go in the order in which the other rows
came. Rows that can no longer find a partner are forgotten.

Each side is kept as a few *sorted runs*. The rows of a packet, sorted by key, make a new run. Runs of about the same
size are merged, so there are never more than about log2(rows) of them, and a row is moved about as many times. A lookup
searches every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream.kernel import Output, Part, Rejected, Snapshot
from headgate.stream.keyed.arrays import TOLERATED_WASTE, Flags, expand, one_batch, places_after, plain
from headgate.stream.keyed.keys import RowKeys, check_column
from headgate.stream.keyed.rows import (
    AcceptedRows,
    accept_rows,
    check_span,
    no_output,
    output_schema,
    row_texts,
    time_field,
)
from headgate.stream.packet import Ints
from headgate.stream.spec import LATEST, EventTime


class Matches(NamedTuple):
    """Pairs of a lookup and a row that it found: the row's arrival number and the row itself."""

    lookups: Ints
    arrivals: Ints
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Rows sorted by slot, rows of a slot by arrival, which is also by time."""

    slots: Ints
    times: Ints
    arrivals: Ints
    rows: pa.RecordBatch
    #: the different times in order, and what rows are searched by: slot and place of the time in one integer
    moments: Ints
    sort_key: Ints

    @classmethod
    def of(cls, slots: Ints, times: Ints, arrivals: Ints, rows: pa.RecordBatch) -> SortedRun:
        """Of rows in any order."""
        order = np.lexsort((arrivals, slots))
        slots, times = slots[order], times[order]
        moments, place = np.unique(times, return_inverse=True)
        sort_key = slots * (len(moments) + 1) + place
        return cls(slots, times, arrivals[order], rows.take(pa.array(order)), moments, sort_key)

    def __len__(self) -> int:
        return len(self.slots)

    def find(self, slots: Ints, times: Ints, before: int, after: int) -> Matches:
        """The rows of each slot asked for from ``before`` before to ``after`` after the time, both included."""
        base = slots * (len(self.moments) + 1)
        begin = np.searchsorted(self.sort_key, base + places_after(self.moments, times, -before, "left"))
        end = np.searchsorted(self.sort_key, base + places_after(self.moments, times, after, "right"))
        lookups, places = expand(begin, np.maximum(end - begin, 0))
        return Matches(lookups, self.arrivals[places], self.rows.take(pa.array(places)))

    def since(self, oldest: int) -> SortedRun:
        """Without the rows of times before ``oldest``."""
        kept = np.flatnonzero(self.times >= oldest)
        if len(kept) == len(self):
            return self
        return SortedRun.of(self.slots[kept], self.times[kept], self.arrivals[kept], self.rows.take(pa.array(kept)))


class SortedRuns:
    """All rows of one side."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.runs: list[SortedRun] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    def add(self, run: SortedRun, oldest: int) -> None:
        """Take a run of later arrivals; rows of times before ``oldest`` may be forgotten."""
        self.runs = [each for each in self.runs if int(each.moments[-1]) >= oldest]
        if len(run):
            self.runs.append(run)
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            newer, older = self.runs.pop().since(oldest), self.runs.pop().since(oldest)
            merged = self._merge([older, newer])
            if len(merged):
                self.runs.append(merged)

    def whole(self) -> SortedRun:
        """All rows as one run."""
        return self._merge(self.runs)

    def renumber(self, moved: Ints) -> None:
        """Slots have got other numbers."""
        self.runs = [SortedRun.of(moved[run.slots], run.times, run.arrivals, run.rows) for run in self.runs]

    def _merge(self, runs: list[SortedRun]) -> SortedRun:
        none = np.empty(0, dtype=np.int64)
        return SortedRun.of(
            np.concatenate([none, *(run.slots for run in runs)]),
            np.concatenate([none, *(run.times for run in runs)]),
            np.concatenate([none, *(run.arrivals for run in runs)]),
            one_batch(pa.Table.from_batches([run.rows for run in runs], schema=self._schema)),
        )


class _NewRows(NamedTuple):
    """Rows of one side that came with a part: as a sorted run, and in the order in which they came."""

    run: SortedRun
    slots: Ints
    times: Ints
    numbers: Ints
    rows: pa.RecordBatch


class _Pairs(NamedTuple):
    """Pairs: the arrival numbers of the row that came last and of the other, and both rows."""

    parents: Ints
    others: Ints
    left: pa.RecordBatch
    right: pa.RecordBatch
    slots: Ints


class IntervalJoin:
    """Pairs with ``left.time - before <= right.time <= left.time + after`` and equal keys, none of them null.

    ``sides`` are the values of ``side_column`` for left and right; a row of neither is rejected, and so is one older
    than a row before it in the stream. What goes out: the key columns, then the left and the right columns asked for,
    with ``prefixes`` before their names. ``before`` and ``after`` are in units of the time column, and one may be below
    0 as long as the interval is not empty.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        left_columns: Sequence[str],
        right_columns: Sequence[str],
        before: int,
        after: int,
        side_column: str,
        sides: tuple[Any, Any] = ("left", "right"),
        prefixes: tuple[str, str] = ("left_", "right_"),
    ) -> None:
        if before + after < 0:
            raise ParameterError(f"the interval from -before to after is empty: got before={before}, after={after}")
        if not (left_columns and right_columns):
            raise ParameterError("an interval join gives out columns of both sides: name at least one of each")
        check_column(schema, side_column)
        self._keys = RowKeys(schema, keys)
        self._before = check_span("before", before, -LATEST)
        self._after = check_span("after", after, -LATEST)
        self._side, self._sides = side_column, sides
        self._columns = (tuple(left_columns), tuple(right_columns))
        schemas = [
            pa.schema([check_column(schema, name).with_name(prefix + name) for name in columns])
            for prefix, columns in zip(prefixes, self._columns, strict=True)
        ]
        self._schemas = (schemas[0], schemas[1])
        self._held = (SortedRuns(schemas[0]), SortedRuns(schemas[1]))
        self._arrived = 0
        self._clock: int | None = None
        self.output_schema = output_schema([*self._keys.fields, *schemas[0], *schemas[1]])
        # No bucket needs to know of the others' rows: what is old is never found, whenever it is forgotten.
        self._time = EventTime(time_field(schema, time).name, lambda before, after: False)
        self.event_time: EventTime | None = self._time

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self.flush()
        accepted = accept_rows(part, self._time, self._clock)
        left, right = (self._is_side(accepted.batch, side) for side in self._sides)
        rejected = accepted.rejected + self._rows_of_neither(accepted, left | right)
        usable = ~self._keys.any_null(accepted.batch)
        slots = self._keys.slots(accepted.batch)
        new_left = self._new_rows(accepted, slots, np.flatnonzero(left & usable), 0)
        new_right = self._new_rows(accepted, slots, np.flatnonzero(right & usable), 1)
        output = self._output(self._pairs(new_left, new_right), accepted.rows, rejected)
        if len(accepted.times):
            self._clock = int(accepted.times[-1])
            self._keep(new_left, new_right, self._clock)
        self._arrived += len(accepted.times)
        return output

    def flush(self) -> Output:
        """Pairs have gone out as they were found; nothing is left to give."""
        return no_output(self.output_schema)

    def _is_side(self, batch: pa.RecordBatch, side: Any) -> Flags:
        column = plain(batch.column(self._side))
        same = pc.fill_null(pc.equal(column, pa.scalar(side, column.type)), False)
        flags: Flags = same.to_numpy(zero_copy_only=False)
        return flags

    def _rows_of_neither(self, accepted: AcceptedRows, known: Flags) -> tuple[Rejected, ...]:
        places = np.flatnonzero(~known)
        reason = f"its side {self._side!r} is neither {self._sides[0]!r} nor {self._sides[1]!r}"
        texts = row_texts(accepted.batch.take(pa.array(places)))
        return tuple(
            Rejected(row, reason, text) for row, text in zip(accepted.rows[places].tolist(), texts, strict=True)
        )

    def _new_rows(self, accepted: AcceptedRows, slots: Ints, places: Ints, side: int) -> _NewRows:
        columns = [accepted.batch.column(name) for name in self._columns[side]]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schemas[side]).take(pa.array(places))
        numbers = self._arrived + places
        slots, times = slots[places], accepted.times[places]
        return _NewRows(SortedRun.of(slots, times, numbers, rows), slots, times, numbers, rows)

    def _pairs(self, left: _NewRows, right: _NewRows) -> list[_Pairs]:
        """New rows against held ones of the other side, and new ones against new ones."""
        before, after = self._before, self._after
        pairs = []
        for run in self._held[1].runs:
            found = run.find(left.slots, left.times, before, after)
            pairs.append(_paired(left, found, found_left=False))
        for run in self._held[0].runs:
            found = run.find(right.slots, right.times, after, before)
            pairs.append(_paired(right, found, found_left=True))
        found = right.run.find(left.slots, left.times, before, after)
        both = _paired(left, found, found_left=False)
        later, earlier = np.maximum(both.parents, both.others), np.minimum(both.parents, both.others)
        pairs.append(both._replace(parents=later, others=earlier))
        return [each for each in pairs if len(each.parents)]

    def _output(self, pairs: list[_Pairs], rows: Ints, rejected: tuple[Rejected, ...]) -> Output:
        if not pairs:
            return no_output(self.output_schema, rejected)
        parents = np.concatenate([each.parents for each in pairs])
        others = np.concatenate([each.others for each in pairs])
        order = np.lexsort((others, parents))
        keys = self._keys.columns(np.concatenate([each.slots for each in pairs])[order])
        left = one_batch(pa.Table.from_batches([each.left for each in pairs])).take(pa.array(order))
        right = one_batch(pa.Table.from_batches([each.right for each in pairs])).take(pa.array(order))
        batch = pa.RecordBatch.from_arrays([*keys, *left.columns, *right.columns], schema=self.output_schema)
        return Output(batch, rows[parents[order] - self._arrived], rejected=rejected)

    def _keep(self, left: _NewRows, right: _NewRows, now: int) -> None:
        # The next left row, at the earliest now, looks back ``before``; the next right row looks back ``after``.
        self._held[0].add(left.run, now - self._after)
        self._held[1].add(right.run, now - self._before)
        if len(self._keys) > 2 * (len(self._held[0]) + len(self._held[1])) + TOLERATED_WASTE:
            used = np.zeros(len(self._keys), dtype=np.bool_)
            for side in self._held:
                for run in side.runs:
                    used[run.slots] = True
            moved = self._keys.keep(used)
            for side in self._held:
                side.renumber(moved)

    def snapshot(self) -> Snapshot:
        tables = {}
        for name, side in zip(("left", "right"), self._held, strict=True):
            run = side.whole()
            tables[f"{name} keys"] = self._keys.table(run.slots)
            tables[f"{name} times"] = pa.table({"time": pa.array(run.times), "arrival": pa.array(run.arrivals)})
            tables[f"{name} rows"] = pa.Table.from_batches([run.rows])
        return Snapshot(tables, {"clock": self._clock, "arrived": self._arrived})

    def restore(self, snapshot: Snapshot) -> None:
        self._clock, self._arrived = snapshot.values["clock"], snapshot.values["arrived"]
        for name, side in zip(("left", "right"), self._held, strict=True):
            times = snapshot.tables[f"{name} times"]
            slots = self._keys.remember(snapshot.tables[f"{name} keys"], times.num_rows)
            rows = one_batch(snapshot.tables[f"{name} rows"])
            if times.num_rows:
                run = SortedRun.of(slots, times.column("time").to_numpy(), times.column("arrival").to_numpy(), rows)
                side.runs = [run]


def _paired(new: _NewRows, found: Matches, found_left: bool) -> _Pairs:
    """New rows with the rows of the other side that their lookups found."""
    rows = new.rows.take(pa.array(found.lookups))
    left, right = (found.rows, rows) if found_left else (rows, found.rows)
    return _Pairs(new.numbers[found.lookups], found.arrivals, left, right, new.slots[found.lookups])
