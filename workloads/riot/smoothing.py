"""STATS' first branch: a Kalman filter for every sensor, and a line through its last values that looks ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import ParameterError
from headgate.stream import Output, Part, Snapshot
from workloads.riot.keyed import FIELDS, KeySlots, LastValues, grown, rounds
from workloads.riot.results import MEASUREMENTS, RESULTS, SLIDING_REGRESSION, results
from workloads.riot.schema import Floats, empty, floats

_VALUE = MEASUREMENTS.get_field_index("value")
_Float32s = NDArray[np.float32]


@dataclass(frozen=True)
class KalmanSettings:
    """Noise of the process and of the sensor, and how little is known of a new sensor."""

    process_noise: float = 0.125
    sensor_noise: float = 0.32
    first_error: float = 30.0


class Kalman:
    """p' = p + q; k = p' / (p' + r); x := x + k (z - x); p := (1 - k) p'; from x = 0. In 32 bits, as the original."""

    def __init__(self, settings: KalmanSettings | None = None) -> None:
        settings = settings or KalmanSettings()
        self._q = np.float32(settings.process_noise)
        self._r = np.float32(settings.sensor_noise)
        self._first_error = settings.first_error
        self._keys = KeySlots()
        self._estimate: _Float32s = np.zeros(0, dtype=np.float32)
        self._error: _Float32s = np.zeros(0, dtype=np.float32)

    def process(self, part: Part) -> Output:
        batch = part.batch
        slots = self._keys.of_observations(batch)
        self._reserve()
        observed = floats(batch.column("value")).astype(np.float32)
        smoothed = np.empty(len(observed), dtype=np.float32)
        for rows in rounds(slots):
            slot = slots[rows]
            error = self._error[slot] + self._q
            gain = error / (error + self._r)
            estimate = self._estimate[slot]
            estimate = estimate + gain * (observed[rows] - estimate)
            self._error[slot] = (np.float32(1) - gain) * error
            self._estimate[slot] = estimate
            smoothed[rows] = estimate
        return Output(batch.set_column(_VALUE, "value", pa.array(smoothed.astype(np.float64))))

    def _reserve(self) -> None:
        size = len(self._keys) * FIELDS
        self._estimate = grown(self._estimate, size)
        self._error = grown(self._error, size, self._first_error)

    def flush(self) -> Output:
        return Output(empty(MEASUREMENTS))

    def snapshot(self) -> Snapshot:
        size = len(self._keys) * FIELDS
        columns = {"estimate": self._estimate[:size].copy(), "error": self._error[:size].copy()}
        return Snapshot({"keys": pa.table({"key": self._keys.column()}), "sensors": pa.table(columns)})

    def restore(self, snapshot: Snapshot) -> None:
        self._keys.restore(snapshot.tables["keys"].column("key"))
        sensors = snapshot.tables["sensors"]
        self._estimate = sensors.column("estimate").to_numpy().copy()
        self._error = sensors.column("error").to_numpy().copy()


class SlidingRegression:
    """Least squares of a sensor's last ``window`` values against their numbers; gives the next ``horizon`` values.

    Speaks from the value after the first full window on. The original can be set to learn random numbers instead of
    the values; here it is always the values.
    """

    def __init__(self, window: int = 10, horizon: int = 10) -> None:
        if window < 2 or horizon < 1:
            raise ParameterError(f"a line needs a window from 2 and a horizon from 1; got {window}, {horizon}")
        self._keys = KeySlots()
        # One more than the window, to know that the first full one is over.
        self._history = LastValues(window + 1)
        centre = (window - 1) / 2
        self._offsets = [place - centre for place in range(window)]
        self._spread = sum(offset * offset for offset in self._offsets)
        self._ahead = np.array([centre + step for step in range(1, horizon + 1)])

    def process(self, part: Part) -> Output:
        batch = part.batch
        rows = np.arange(batch.num_rows)
        every = np.ones(batch.num_rows, dtype=bool)
        slots = self._keys.of_observations(batch)
        windows, held = self._history.extend(slots, floats(batch.column("value")), every, rows)
        speaking = np.flatnonzero(held == self._history.width)
        predicted = self._predict(windows[speaking, 1:])
        batch = batch.take(pa.array(speaking))
        return Output(results(batch, SLIDING_REGRESSION, predicted), part.rows[speaking])

    def _predict(self, windows: Floats) -> Floats:
        # Value by value, not as a matrix product: its rounding would depend on the number of rows.
        mean = np.zeros(len(windows))
        slope = np.zeros(len(windows))
        for offset, values in zip(self._offsets, windows.T, strict=True):
            mean += values
            slope += offset * values
        mean /= len(self._offsets)
        slope /= self._spread
        predicted: Floats = mean[:, None] + slope[:, None] * self._ahead
        return predicted

    def flush(self) -> Output:
        return Output(empty(RESULTS))

    def snapshot(self) -> Snapshot:
        keys = self._keys.column()
        return Snapshot({"keys": pa.table({"key": keys}), "history": self._history.table(len(keys) * FIELDS)})

    def restore(self, snapshot: Snapshot) -> None:
        self._keys.restore(snapshot.tables["keys"].column("key"))
        self._history.restore(snapshot.tables["history"])
