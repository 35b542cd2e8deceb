"""Letting the first row of each key pass, for ever or for a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import ParameterError
from headgate.stream.kernel import Changes, Output, Part, Rejected, Snapshot
from headgate.stream.keyed.arrays import Flags, Groups, Growing, empty_batch, first_equals
from headgate.stream.keyed.emission import NO_ROWS
from headgate.stream.keyed.expiry import Expiry
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.times import arrivals, check_span, time_field
from headgate.stream.keyed.touched import Touched, added_keys, changed_rows, remember_keys
from headgate.stream.packet import Ints
from headgate.stream.spec import EventTime

#: forgotten keys are dropped when they are the greater part, and not before there are some
_TOLERATED = 1024


class Dedupe:
    """A row passes if no row of its key has passed before, or if the last one that did is more than ``within`` older.

    Rows that do not pass do not renew the time. ``within`` is in units of the column ``time``; without it keys are
    never forgotten. With it a row older than a row before it in the stream is rejected.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], within: int | None = None, time: str | None = None
    ) -> None:
        if (within is None) != (time is None):
            raise ParameterError(f"'within' and 'time' go together: give both or none; got {within!r} and {time!r}")
        self._keys = RowKeys(schema, keys)
        self._within = 0 if within is None else check_span("within", within, 0)
        self._time = None if time is None else time_field(schema, time).name
        #: {slot: whether a row has passed}, and when, if there is a time
        self._passed = Growing(np.bool_, False)
        self._passed_at = Growing(np.int64)
        self._expiry = Expiry()
        self._touched = Touched()
        self._forgotten = 0
        self._clock: int | None = None
        self.output_schema = schema
        # No bucket needs to hear of the others' rows: whether a key is forgotten is seen when it comes again.
        self.event_time = None if time is None else EventTime(time, lambda before, after: False)

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self.flush()
        if self._time is None:
            slots = self._slots(part.batch)
            places = _first_places(slots, ~self._passed.values[slots])
            self._passed.values[slots] = True
            return _chosen(part.batch, part.rows, places, ())
        batch, rows, times, rejected = arrivals(part, self._time, self._clock)
        if not batch.num_rows:
            return Output(empty_batch(self.output_schema), NO_ROWS, rejected=rejected)
        slots = self._slots(batch)
        places = self._passing(slots, times)
        self._passed.values[slots] = True
        self._passed_at.values[slots[places]] = times[places]
        if self._touched:
            self._touched.add(np.unique(slots[places]))
        self._expiry.push(slots[places], times[places])
        self._clock = int(times[-1])
        self._forget(self._clock - self._within)
        return _chosen(batch, rows, places, rejected)

    def _slots(self, batch: pa.RecordBatch) -> Ints:
        slots = self._keys.slots(batch)
        self._passed.grow(len(self._keys))
        self._passed_at.grow(len(self._keys))
        return slots

    def _passing(self, slots: Ints, times: Ints) -> Ints:
        """The places of rows that pass. From a row that passes the next one to pass is known: the first of its key that
        is late enough. So every row is given its successor, and who is on a chain from a first row passes."""
        groups = Groups.of(slots)
        count = len(times)
        group = groups.spread(np.arange(len(groups.starts), dtype=np.int64))
        standing = group * (count + 1) + groups.order
        limits = groups.spread(groups.starts + groups.sizes)

        def first_after(moments: Ints, of_group: Ints, limit: Ints) -> Ints:
            places = np.searchsorted(times, moments + self._within, side="right")
            found = np.searchsorted(standing, of_group * (count + 1) + places)
            return np.where(found < limit, found, count).astype(np.int64, copy=False)

        held = self._passed.values[groups.codes]
        begin = groups.starts.copy()
        numbers = np.flatnonzero(held)
        begin[numbers] = first_after(
            self._passed_at.values[groups.codes[numbers]], numbers, (groups.starts + groups.sizes)[numbers]
        )
        successor = np.append(first_after(times[groups.order], group, limits), count)
        passing: Ints = np.sort(groups.order[_reachable(begin[begin < count], successor)])
        return passing

    def _forget(self, before: int) -> None:
        slots, times = self._expiry.pop(before)
        self._forgotten += int(np.count_nonzero(self._passed_at.values[slots] == times))
        if self._forgotten > _TOLERATED and 2 * self._forgotten > len(self._keys):
            self._touched.stop()
            live = self._passed_at.values >= before
            self._take(self._passed_at.values[live], self._keys.keep(live)[live])

    def _take(self, passed_at: Ints, slots: Ints) -> None:
        """Hold these slots only."""
        self._forgotten = 0
        self._passed, self._passed_at = Growing(np.bool_, False), Growing(np.int64)
        self._passed.grow(len(slots))
        self._passed_at.grow(len(slots))
        self._passed.values[slots] = True
        self._passed_at.values[slots] = passed_at
        self._expiry = Expiry()
        self._expiry.push(slots, passed_at)

    def flush(self) -> Output:
        return Output(empty_batch(self.output_schema), NO_ROWS)

    def snapshot(self) -> Snapshot:
        # Of every key that is known a row has passed.
        slots = np.arange(len(self._passed), dtype=np.int64)
        self._touched.begin(len(slots))
        tables = {"keys": self._keys.table(slots), "passed": pa.table(self._columns(slots))}
        return Snapshot(tables, {"clock": self._clock})

    def changes(self) -> Changes | None:
        count = len(self._passed)
        taken = self._touched.take(count)
        if taken is None:
            return None
        since, slots = taken
        passed = changed_rows(slots, self._columns(slots), count)
        return Changes({"keys": added_keys(self._keys, since, count), "passed": passed}, {"clock": self._clock})

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return {"passed_at": pa.array(self._passed_at.values[slots])}

    def restore(self, snapshot: Snapshot) -> None:
        passed = snapshot.tables["passed"]
        slots = remember_keys(self._keys, snapshot.tables["keys"], passed.num_rows)
        self._take(passed.column("passed_at").to_numpy(), slots)
        self._touched.resume(slots)
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


def _chosen(batch: pa.RecordBatch, rows: Ints, places: Ints, rejected: tuple[Rejected, ...]) -> Output:
    if len(places) == batch.num_rows:
        return Output(batch, rows, rejected=rejected)
    return Output(batch.take(pa.array(places)), rows[places], rejected=rejected)
