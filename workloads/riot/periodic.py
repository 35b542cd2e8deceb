"""TRAIN without requests: both models anew whenever a period of event time is over, from the readings of that period.

The first reading of a later period ends a period. The model bears that reading's time: it knows nothing that is newer,
and which model is known at which event time does not depend on the run. A reading that comes late counts for the period
that is open. A period without a reading that has all values makes no model.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import ParameterError
from headgate.stream import Ints, Output, Part, Snapshot
from workloads.riot.schema import SENSORS, empty, floats
from workloads.riot.train import TRAINING, Trainer, TrainSettings, label

#: ``first`` and ``last`` are the period's milliseconds, ``rows`` how many readings it was trained on
TRAINED = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("name", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("rows", pa.int64()),
        ("linear", pa.string()),
        ("tree", pa.string()),
    ]
)
_KEPT = pa.schema([(name, pa.float64()) for name in SENSORS])


class PeriodicTraining:
    """Keeps the values of the open period, which is ``period`` milliseconds long; models are JSON."""

    def __init__(self, period: int, settings: TrainSettings | None = None) -> None:
        if period < 1:
            raise ParameterError(f"a period of training takes a millisecond or more; got {period}")
        self._length = period
        self._trainer = Trainer(settings or TrainSettings())
        #: the number of the open period, counted from the epoch; None before the first reading
        self._open: int | None = None
        self._kept = _KEPT.empty_table()

    def process(self, part: Part) -> Output:
        times = part.batch.column("timestamp").to_numpy()
        if not len(times):
            return Output(empty(TRAINED), part.rows)
        if self._open is None:
            self._open = int(times[0]) // self._length
        # Never back: a late reading counts for the period that is open when it comes.
        periods = np.maximum.accumulate(np.maximum(times // self._length, self._open))
        ends = np.flatnonzero(np.diff(periods, prepend=self._open)).tolist()
        values = part.batch.select(list(SENSORS))
        models = []
        for begin, end in pairwise([0, *ends]):
            self._keep(values.slice(begin, end - begin))
            models.append(self._closed(int(times[end])))
            self._open = int(periods[end])
        self._keep(values.slice(ends[-1] if ends else 0))
        made = [(model, end) for model, end in zip(models, ends, strict=True) if model is not None]
        rows: Ints = part.rows[np.array([end for _, end in made], dtype=np.int64)]
        return Output(pa.RecordBatch.from_pylist([model for model, _ in made], schema=TRAINED), rows)

    def _keep(self, values: pa.RecordBatch) -> None:
        self._kept = pa.concat_tables([self._kept, pa.Table.from_batches([values])]).combine_chunks()

    def _closed(self, timestamp: int) -> dict[str, object] | None:
        """The model of the open period, whose values are forgotten; None if there is nothing to learn from."""
        assert self._open is not None
        columns = [floats(column) for column in self._kept.columns]
        self._kept = _KEPT.empty_table()
        whole = np.flatnonzero(~np.isnan(np.stack(columns)).any(axis=0))
        if not len(whole):
            return None
        first, last = self._open * self._length, (self._open + 1) * self._length - 1
        ones = np.ones(len(whole), dtype=np.int64)
        arrays = [self._open * ones, last * ones, np.arange(len(whole)), *(column[whole] for column in columns)]
        batch = pa.record_batch([pa.array(array) for array in arrays], schema=TRAINING)
        linear, tree = self._trainer.linear(batch).batch, self._trainer.tree(label(batch).batch).batch
        return {
            "timestamp": timestamp,
            "name": f"CITY-{last}",
            "first": first,
            "last": last,
            "rows": len(whole),
            "linear": linear.column("model")[0].as_py(),
            "tree": tree.column("model")[0].as_py(),
        }

    def flush(self) -> Output:
        return Output(empty(TRAINED))

    def snapshot(self) -> Snapshot:
        return Snapshot({"kept": self._kept}, {"open": self._open})

    def restore(self, snapshot: Snapshot) -> None:
        self._kept = snapshot.tables["kept"]
        self._open = snapshot.values["open"]
