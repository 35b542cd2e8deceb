"""A function over single rows with a state per key: the convenient way, as fast as Python is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core.errors import DeclarationError, user_error
from headgate.stream.kernel import Changes, Output, Part, Snapshot
from headgate.stream.keyed.arrays import empty_batch
from headgate.stream.keyed.emission import NO_ROWS, ordered_output
from headgate.stream.keyed.keys import RowKeys
from headgate.stream.keyed.touched import Touched, added_keys, changed_rows, remember_keys
from headgate.stream.packet import Ints

Row = dict[str, Any]
#: of the key's state and the next row: the new state, and rows to give out
Step = Callable[[Any, Row], tuple[Any, Iterable[Row]]]
#: of the key's last state and its key columns: rows to give out at the end
Finish = Callable[[Any, Row], Iterable[Row]]


class Fold:
    """``function(state, row)`` for each row, in order, with the state that its key has come to, at first ``initial``.

    States are JSON values, so that they can be kept. The function may change the state that it is given. Rows that it
    gives out must have the columns of ``output``; missing ones are null. ``finish``, if given, is called for each key
    at the end, in the order of keys.
    """

    event_time = None

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        function: Step,
        initial: Any,
        output: pa.Schema,
        finish: Finish | None = None,
    ) -> None:
        self._keys = RowKeys(schema, keys)
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
        self._touched = Touched()
        self.output_schema = output

    def process(self, part: Part) -> Output:
        slots = self._keys.slots(part.batch)
        if self._touched:
            self._touched.add(np.unique(slots))
        self._states += [json.loads(self._initial) for _ in range(len(self._keys) - len(self._states))]
        parents: list[int] = []
        made: list[Row] = []
        for place, slot, row in zip(part.rows.tolist(), slots.tolist(), part.batch.to_pylist(), strict=True):
            given = self._step(slot, row)
            made += given
            parents += [place] * len(given)
        return Output(self._batch(made), np.array(parents, dtype=np.int64))

    def _step(self, slot: int, row: Row) -> list[Row]:
        try:
            self._states[slot], given = self._function(self._states[slot], row)
            return list(given)
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
            return Output(empty_batch(self.output_schema), NO_ROWS)
        slots: list[int] = []
        made: list[Row] = []
        held = np.arange(len(self._states), dtype=np.int64)
        # A table without columns has no rows either, but there is one key.
        keys = self._keys.table(held).to_pylist() if self._keys.names else [{}]
        for slot, key in enumerate(keys):
            try:
                given = list(self._finish(self._states[slot], key))
            except Exception as error:
                raise user_error(f"the finishing function of a fold failed on the key {key}", error) from error
            made += given
            slots += [slot] * len(given)
        order = self._keys.order(self._keys.columns(np.array(slots, dtype=np.int64)))
        return ordered_output(self._batch(made), None, order)

    def snapshot(self) -> Snapshot:
        held = np.arange(len(self._states), dtype=np.int64)
        self._touched.begin(len(held))
        return Snapshot({"keys": self._keys.table(held), "states": pa.table(self._columns(held))})

    def changes(self) -> Changes | None:
        count = len(self._states)
        taken = self._touched.take(count)
        if taken is None:
            return None
        since, slots = taken
        states = changed_rows(slots, self._columns(slots), count)
        return Changes({"keys": added_keys(self._keys, since, count), "states": states})

    def _columns(self, slots: Ints) -> dict[str, pa.Array]:
        return {"state": pa.array([json.dumps(self._states[slot]) for slot in slots.tolist()], type=pa.string())}

    def restore(self, snapshot: Snapshot) -> None:
        texts = snapshot.tables["states"].column("state").to_pylist()
        slots = remember_keys(self._keys, snapshot.tables["keys"], len(texts))
        self._states = [None] * len(texts)
        # As one text they are read several times as fast as one by one.
        for slot, state in zip(slots.tolist(), json.loads(f"[{','.join(texts)}]"), strict=True):
            self._states[slot] = state
        self._touched.resume(slots)
