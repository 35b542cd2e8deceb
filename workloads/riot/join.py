"""Join: the observations of a message become one reading again when the last of them has come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream import Ints, Output, Part, Snapshot
from workloads.riot.schema import OBSERVABLES, OBSERVATIONS, READINGS, SENSORS, empty, floats, nullable

_EACH = len(OBSERVABLES)


class MessageJoin:
    """Keeps observations by message until all fields are there; then forgets the message.

    If a field comes twice, its n-th value belongs to the n-th reading of that message number. What is incomplete at the
    end is dropped, as in the original. The reading's source is what the observation of the field ``source`` says, so
    null if the Bloom filter did not know it; the original takes the sensor's name of whatever came first.
    """

    def __init__(self) -> None:
        self._waiting = empty(OBSERVATIONS)

    def process(self, part: Part) -> Output:
        if self._whole_messages(part.batch):
            return Output(_readings(part.batch), part.rows[_EACH - 1 :: _EACH])
        return self._joined(part)

    def _whole_messages(self, batch: pa.RecordBatch) -> bool:
        """Nothing waits, and messages come one after the other with their fields in order: the usual case."""
        if self._waiting.num_rows or batch.num_rows % _EACH:
            return False
        fields = batch.column("obstype").to_numpy().reshape(-1, _EACH)
        messages = batch.column("msgid").to_numpy().reshape(-1, _EACH)
        return bool((fields == np.arange(_EACH)).all() and (messages == messages[:, :1]).all())

    def _joined(self, part: Part) -> Output:
        batch = pa.concat_batches([self._waiting, part.batch])
        messages, fields = batch.column("msgid").to_numpy(), batch.column("obstype").to_numpy()
        order = np.lexsort((fields, messages))
        number = _number_in_run(messages[order] * _EACH + fields[order])
        # Observations with the same message and number make a reading; sorted by these, then by field.
        order = order[np.lexsort((fields[order], number, messages[order]))]
        complete = _complete(messages[order], fields[order])
        last = order[complete].reshape(-1, _EACH).max(axis=1)
        by_time = np.argsort(last)
        done = order[complete].reshape(-1, _EACH)[by_time].ravel()
        left = np.setdiff1d(np.arange(batch.num_rows), done)
        waited = self._waiting.num_rows
        self._waiting = batch.take(pa.array(left))
        return Output(_readings(batch.take(pa.array(done))), part.rows[last[by_time] - waited])

    def flush(self) -> Output:
        return Output(empty(READINGS))

    def snapshot(self) -> Snapshot:
        return Snapshot({"waiting": pa.Table.from_batches([self._waiting])})

    def restore(self, snapshot: Snapshot) -> None:
        batches = snapshot.tables["waiting"].to_batches()
        self._waiting = pa.concat_batches(batches) if batches else empty(OBSERVATIONS)


def _number_in_run(values: Ints) -> Ints:
    """How many equal values come directly before each."""
    places = np.arange(len(values))
    begins = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    counted: Ints = places - np.maximum.accumulate(np.where(begins, places, 0))
    return counted


def _complete(messages: Ints, fields: Ints) -> Ints:
    """Where all fields of one message stand in a row, field 0 first: the places of all their observations."""
    starts = np.flatnonzero(fields == 0)
    starts = starts[starts + _EACH <= len(fields)]
    places = starts[:, None] + np.arange(_EACH)
    whole = (fields[places] == np.arange(_EACH)).all(axis=1) & (messages[places] == messages[starts][:, None]).all(
        axis=1
    )
    found: Ints = places[whole].ravel()
    return found


def _readings(observations: pa.RecordBatch) -> pa.RecordBatch:
    """Readings of observations that stand in whole messages."""
    values = floats(observations.column("value")).reshape(-1, _EACH)
    firsts = observations.take(pa.array(np.arange(0, observations.num_rows, _EACH)))
    columns = {name: firsts.column(name) for name in ("msgid", "timestamp", "longitude", "latitude")}
    columns["source"] = firsts.column("text")
    columns |= {name: nullable(values[:, place].copy()) for place, name in enumerate(SENSORS, start=1)}
    return pa.record_batch([columns[name] for name in READINGS.names], schema=READINGS)
