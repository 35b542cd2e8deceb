"""States that answer row by row: running aggregates, and folds by a function of the user's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, ParameterError, user_error
from headgate.stream.kernel import Output, Part, Snapshot
from headgate.stream.keyed.aggregate import Accumulators, Aggregate
from headgate.stream.keyed.arrays import RowGroups
from headgate.stream.keyed.changed_slots import SlotState
from headgate.stream.keyed.rows import ordered_output, output_schema
from headgate.stream.packet import Ints, empty_batch

Row = dict[str, Any]
#: takes the key's state and the next row; gives the new state, and rows to give out
Step = Callable[[Any, Row], tuple[Any, Iterable[Row]]]
#: takes the key's last state and its key columns; gives rows to give out at the end
Finish = Callable[[Any, Row], Iterable[Row]]


class RunningAggregate(SlotState):
    """One row out for each row in: the key columns, and the aggregates of all rows of the key up to this one."""

    rows_table = "totals"

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        if not aggregates:
            raise ParameterError("a running aggregate needs at least one aggregate; got none")
        super().__init__(schema, keys)
        self._totals = Accumulators(schema, aggregates)
        self.output_schema = output_schema([*self._keys.fields, *self._totals.fields])

    def process(self, part: Part) -> Output:
        if not part.batch.num_rows:
            return self._no_output()
        slots = self._keys.slots(part.batch)
        self._totals.grow(len(self._keys))
        groups = RowGroups.of(slots)
        self._changed.add(groups.codes)
        running = self._totals.running(groups, part.batch)
        columns = [part.batch.column(name) for name in self._keys.names]
        return Output(pa.RecordBatch.from_arrays([*columns, *running], schema=self.output_schema), part.rows)

    def _row_count(self) -> int:
        # Without key columns there is one key from the start, which the accumulators may not know yet.
        self._totals.grow(len(self._keys))
        return len(self._keys)

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return self._totals.columns(slots)

    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        self._totals.remember(slots, snapshot.tables[self.rows_table])


class Fold(SlotState):
    """Calls ``function(state, row)`` for each row, in order, with the state of its key, at first ``initial``.

    This is convenient, and as fast as Python is. States are JSON values, so that they can be kept. The function may
    change the state that it gets. Rows that it gives out must have the columns of ``output``; missing ones are null.
    ``finish``, if given, is called for each key at the end, in the order of keys.
    """

    rows_table = "states"

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        function: Step,
        initial: Any,
        output: pa.Schema,
        finish: Finish | None = None,
    ) -> None:
        super().__init__(schema, keys)
        self._function = function
        self._finish = finish
        try:
            #: as text, so that keys do not share what they may change
            self._initial = json.dumps(initial)
        except (TypeError, ValueError) as error:
            raise DeclarationError(
                f"the initial state of a fold must be a JSON value; got {initial!r}: {error}"
            ) from error
        #: {slot: state}
        self._states: list[Any] = []
        self.output_schema = output

    def process(self, part: Part) -> Output:
        slots = self._keys.slots(part.batch)
        if self._changed:
            self._changed.add(np.unique(slots))
        self._states += [json.loads(self._initial) for _ in range(len(self._keys) - len(self._states))]
        parents: list[int] = []
        rows_out: list[Row] = []
        for place, slot, row in zip(part.rows.tolist(), slots.tolist(), part.batch.to_pylist(), strict=True):
            step_rows = self._step(slot, row)
            rows_out += step_rows
            parents += [place] * len(step_rows)
        return Output(self._batch(rows_out), np.array(parents, dtype=np.int64))

    def _step(self, slot: int, row: Row) -> list[Row]:
        try:
            self._states[slot], rows_out = self._function(self._states[slot], row)
            return list(rows_out)
        except Exception as error:
            raise user_error(f"the function of a fold failed on the row {row}", error) from error

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        if not rows:
            return empty_batch(self.output_schema)
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self.output_schema)
        except Exception as error:
            wanted = ", ".join(f"{field.name}: {field.type}" for field in self.output_schema)
            raise user_error(f"a fold gave out rows that do not have the declared columns ({wanted})", error) from error

    def flush(self) -> Output:
        if self._finish is None or not self._states:
            return self._no_output()
        slots: list[int] = []
        rows_out: list[Row] = []
        # A table without columns has no rows either, but there is one key.
        keys = self._keys.table(np.arange(len(self._states))).to_pylist() if self._keys.names else [{}]
        for slot, key in enumerate(keys):
            try:
                key_rows = list(self._finish(self._states[slot], key))
            except Exception as error:
                raise user_error(f"the finishing function of a fold failed on the key {key}", error) from error
            rows_out += key_rows
            slots += [slot] * len(key_rows)
        order = self._keys.order(self._keys.columns(np.array(slots, dtype=np.int64)))
        return ordered_output(self._batch(rows_out), order)

    def _row_count(self) -> int:
        return len(self._states)

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return {"state": pa.array([json.dumps(self._states[slot]) for slot in slots.tolist()], type=pa.string())}

    def _restore_rows(self, slots: Ints, snapshot: Snapshot) -> None:
        texts = snapshot.tables[self.rows_table].column("state").to_pylist()
        self._states = [None] * len(texts)
        # As one text they are read several times as fast as one by one.
        for slot, state in zip(slots.tolist(), json.loads(f"[{','.join(texts)}]"), strict=True):
            self._states[slot] = state
