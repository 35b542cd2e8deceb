"""Running aggregates: for every row the values that its key has come to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import ParameterError
from headgate.stream.kernel import Changes, Output, Part, Snapshot
from headgate.stream.keyed.aggregate import Accumulators, Aggregate
from headgate.stream.keyed.arrays import Groups, empty_batch
from headgate.stream.keyed.emission import NO_ROWS, output_schema
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.touched import Touched, added_keys, changed_rows, remember_keys


class RunningAggregate:
    """One row out for each row in: the key columns, and the aggregates of all rows of the key up to this one."""

    event_time = None

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        if not aggregates:
            raise ParameterError("a running aggregate needs at least one aggregate; got none")
        self._keys = RowKeys(schema, keys)
        self._totals = Accumulators(schema, aggregates)
        self._touched = Touched()
        self.output_schema = output_schema([*self._keys.fields, *self._totals.fields])

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self.flush()
        slots = self._keys.slots(part.batch)
        self._totals.grow(len(self._keys))
        groups = Groups.of(slots)
        self._touched.add(groups.codes)
        running = self._totals.running(groups, part.batch)
        columns = [part.batch.column(name) for name in self._keys.names]
        return Output(pa.RecordBatch.from_arrays([*columns, *running], schema=self.output_schema), part.rows)

    def flush(self) -> Output:
        return Output(empty_batch(self.output_schema), NO_ROWS)

    def snapshot(self) -> Snapshot:
        # Without key columns there is one key from the start, which the accumulators may not know yet.
        self._totals.grow(len(self._keys))
        slots = np.arange(len(self._keys), dtype=np.int64)
        self._touched.begin(len(slots))
        return Snapshot({"keys": self._keys.table(slots), "totals": pa.table(self._totals.columns(slots))})

    def changes(self) -> Changes | None:
        count = len(self._keys)
        taken = self._touched.take(count)
        if taken is None:
            return None
        since, slots = taken
        totals = changed_rows(slots, self._totals.columns(slots), count)
        return Changes({"keys": added_keys(self._keys, since, count), "totals": totals})

    def restore(self, snapshot: Snapshot) -> None:
        totals = snapshot.tables["totals"]
        slots = remember_keys(self._keys, snapshot.tables["keys"], totals.num_rows)
        self._totals.remember(slots, totals)
        self._touched.resume(slots)
