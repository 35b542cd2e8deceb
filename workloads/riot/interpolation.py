"""Interpolation: an absent value becomes the mean of the last few of the same sensor, 0 if it has had none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import Output, Part, Snapshot
from workloads.riot.keyed import FIELDS, KeySlots, LastValues
from workloads.riot.schema import OBSERVATIONS, SOURCE_FIELD, empty, floats

_VALUE = OBSERVATIONS.get_field_index("value")


class Interpolation:
    """Keeps the last ``window`` present values by source and field. Means are not kept: they are not observations.

    The original overwrites the field ``source`` with 0 and relies on the join to put it back; here it passes untouched.
    """

    def __init__(self, window: int = 5) -> None:
        self._keys = KeySlots()
        self._history = LastValues(window)

    def process(self, part: Part) -> Output:
        batch = part.batch
        values = floats(batch.column("value"))
        sensor = batch.column("obstype").to_numpy() != SOURCE_FIELD
        present = ~np.isnan(values)
        absent = np.flatnonzero(sensor & ~present)
        windows, held = self._history.extend(self._keys.of_observations(batch), values, sensor & present, absent)
        if not len(absent):
            return Output(batch)
        # Column by column, oldest first: how a sum is rounded must not depend on how many rows there are.
        total = np.zeros(len(absent))
        for column in windows.T:
            total += column
        filled = values.copy()
        filled[absent] = total / np.maximum(held, 1)
        return Output(batch.set_column(_VALUE, "value", pa.array(filled, mask=np.isnan(filled))))

    def flush(self) -> Output:
        return Output(empty(OBSERVATIONS))

    def snapshot(self) -> Snapshot:
        keys = self._keys.column()
        return Snapshot({"keys": pa.table({"key": keys}), "history": self._history.table(len(keys) * FIELDS)})

    def restore(self, snapshot: Snapshot) -> None:
        self._keys.restore(snapshot.tables["keys"].column("key"))
        self._history.restore(snapshot.tables["history"])
