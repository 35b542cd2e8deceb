"""The interval join: pairs of a left and a right row of one key whose times lie near each other.

Left and right rows come merged into one stream in the order of time; a column says which side a row is of. A pair goes
out when the later of its rows comes: this row is the parent, and pairs of one parent go in the order in which the other
rows came. Rows that can no longer find a partner are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headgate.core.errors import ParameterError
from headgate.stream.kernel import Output, Part, Rejected, Snapshot
from headgate.stream.keyed.arrays import Flags, empty_batch, one_batch, plain
from headgate.stream.keyed.emission import NO_ROWS, output_schema
from headgate.stream.keyed.keys import RowKeys, check_column
from headgate.stream.keyed.runs import Matches, Run, Runs
from headgate.stream.keyed.times import Arrivals, arrivals, time_field
from headgate.stream.packet import Ints
from headgate.stream.spec import EventTime

#: keys without rows are dropped when they are the greater part, and not before there are some
_TOLERATED = 1024


class _Lot(NamedTuple):
    """Rows of one side that came with a part: as a run, and one by one in their order."""

    run: Run
    slots: Ints
    times: Ints
    numbers: Ints
    rows: pa.RecordBatch


class _Pairs(NamedTuple):
    """Pairs found: the arrival numbers of the row that came last and of the other, and both rows."""

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
        self._time = time_field(schema, time).name
        self._before, self._after = before, after
        self._side, self._sides = side_column, sides
        self._columns = (tuple(left_columns), tuple(right_columns))
        chosen = [
            pa.schema([check_column(schema, name).with_name(prefix + name) for name in columns])
            for prefix, columns in zip(prefixes, self._columns, strict=True)
        ]
        self._schemas = (chosen[0], chosen[1])
        self._held = (Runs(chosen[0]), Runs(chosen[1]))
        self._arrived = 0
        self._clock: int | None = None
        self.output_schema = output_schema([*self._keys.fields, *chosen[0], *chosen[1]])
        # No bucket needs to hear of the others' rows: what is old is never found, whenever it is forgotten.
        self.event_time: EventTime | None = EventTime(time, lambda before, after: False)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self.flush()
        arrived = arrivals(part, self._time, self._clock)
        left, right = (self._is_side(arrived.batch, side) for side in self._sides)
        rejected = arrived.rejected + self._strangers(arrived, left | right)
        usable = ~self._keys.any_null(arrived.batch)
        slots = self._keys.slots(arrived.batch)
        lots = tuple(
            self._lot(arrived, slots, np.flatnonzero(mask & usable), side) for side, mask in enumerate((left, right))
        )
        output = self._output(self._pairs(lots[0], lots[1]), arrived.rows, rejected)
        if len(arrived.times):
            self._clock = int(arrived.times[-1])
            self._keep(lots[0], lots[1], self._clock)
        self._arrived += len(arrived.times)
        return output

    def flush(self) -> Output:
        """Pairs have gone out as they were found; nothing is left to give."""
        return Output(empty_batch(self.output_schema), NO_ROWS)

    def _is_side(self, batch: pa.RecordBatch, side: Any) -> Flags:
        column = plain(batch.column(self._side))
        same = pc.fill_null(pc.equal(column, pa.scalar(side, column.type)), False)
        flags: Flags = same.to_numpy(zero_copy_only=False)
        return flags

    def _strangers(self, arrived: Arrivals, known: Flags) -> tuple[Rejected, ...]:
        made = []
        for place in np.flatnonzero(~known).tolist():
            row = arrived.batch.slice(place, 1).to_pylist()[0]
            reason = f"its side {self._side!r} is neither {self._sides[0]!r} nor {self._sides[1]!r}"
            made.append(Rejected(int(arrived.rows[place]), reason, str(row)))
        return tuple(made)

    def _lot(self, arrived: Arrivals, slots: Ints, places: Ints, side: int) -> _Lot:
        columns = [arrived.batch.column(name) for name in self._columns[side]]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schemas[side]).take(pa.array(places))
        numbers = self._arrived + places
        slots, times = slots[places], arrived.times[places]
        return _Lot(Run.of(slots, times, numbers, rows), slots, times, numbers, rows)

    def _pairs(self, left: _Lot, right: _Lot) -> list[_Pairs]:
        """New rows against held ones of the other side, and new ones against new ones."""
        before, after = self._before, self._after
        pairs = []
        for run in self._held[1].runs:
            found = run.find(left.slots, left.times - before, left.times + after)
            pairs.append(_met(left, found, found_left=False))
        for run in self._held[0].runs:
            found = run.find(right.slots, right.times - after, right.times + before)
            pairs.append(_met(right, found, found_left=True))
        found = right.run.find(left.slots, left.times - before, left.times + after)
        both = _met(left, found, found_left=False)
        later, earlier = np.maximum(both.parents, both.others), np.minimum(both.parents, both.others)
        pairs.append(both._replace(parents=later, others=earlier))
        return [each for each in pairs if len(each.parents)]

    def _output(self, pairs: list[_Pairs], rows: Ints, rejected: tuple[Rejected, ...]) -> Output:
        if not pairs:
            return Output(empty_batch(self.output_schema), NO_ROWS, rejected=rejected)
        parents = np.concatenate([each.parents for each in pairs])
        others = np.concatenate([each.others for each in pairs])
        order = np.lexsort((others, parents))
        keys = self._keys.columns(np.concatenate([each.slots for each in pairs])[order])
        left = one_batch(pa.Table.from_batches([each.left for each in pairs])).take(pa.array(order))
        right = one_batch(pa.Table.from_batches([each.right for each in pairs])).take(pa.array(order))
        batch = pa.RecordBatch.from_arrays([*keys, *left.columns, *right.columns], schema=self.output_schema)
        return Output(batch, rows[parents[order] - self._arrived], rejected=rejected)

    def _keep(self, left: _Lot, right: _Lot, now: int) -> None:
        # The next left row, at the earliest now, looks back ``before``; the next right row looks back ``after``.
        self._held[0].add(left.run, now - self._after)
        self._held[1].add(right.run, now - self._before)
        if len(self._keys) > 2 * (len(self._held[0]) + len(self._held[1])) + _TOLERATED:
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
                run = Run.of(slots, times.column("time").to_numpy(), times.column("arrival").to_numpy(), rows)
                side.runs = [run]


def _met(new: _Lot, found: Matches, found_left: bool) -> _Pairs:
    """New rows with the rows of the other side that they found."""
    rows = new.rows.take(pa.array(found.questions))
    left, right = (found.rows, rows) if found_left else (rows, found.rows)
    return _Pairs(new.numbers[found.questions], found.arrivals, left, right, new.slots[found.questions])
