"""Patterns of arrival: at a constant rate, in bursts, in batches of a timer, or as recorded.

They say when a row is due, in seconds from the start of a run. Row 0 is due at the start.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from headgate.core import DeclarationError, ParameterError
from headgate.stream.sources.fit import schema_text

#: the rounding error of products such as 30 * 0.1, which must not move a row into the next batch or burst
_ROUNDING = 1e-12
_TICKS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class Dues(Protocol):
    """When the rows of a block are due, in seconds of the engine's clock."""

    def at(self, row: int) -> float:
        """When a row of the block is due."""

    def count(self, now: float) -> int:
        """How many rows, from the first of the block on, are due by now. It may go beyond the block or stop there."""


class Timetable(Protocol):
    """The dues of one run, block after block."""

    def block(self, first: int, batch: pa.RecordBatch) -> Dues:
        """The dues of the next block, whose first row has this number."""


class Pattern(Protocol):
    """When row i is due."""

    #: whether rows have to be seen to know; then they cannot be repeated, since their times would go back
    by_rows: bool

    def check(self, schema: pa.Schema) -> None:
        """Raise if rows of this schema cannot have this pattern."""

    def timetable(self, start: float) -> Timetable: ...


class _ByNumber(ABC):
    """A pattern in which a row's number alone says when it is due."""

    by_rows = False

    @abstractmethod
    def due(self, number: int) -> float:
        """Seconds after the start; never less than for the row before."""

    @abstractmethod
    def about(self, elapsed: float) -> float:
        """Roughly how many rows are due by then: where to begin to look for the exact number."""

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 - there is nothing to refuse
        """Goes with every schema."""

    def timetable(self, start: float) -> Timetable:
        return _NumberTimetable(self, start)


@dataclass(frozen=True)
class Constant(_ByNumber):
    """Rows one by one, at equal distances."""

    rows_per_second: float

    def __post_init__(self) -> None:
        _above_zero(self, "rows_per_second", self.rows_per_second)

    def due(self, number: int) -> float:
        return number / self.rows_per_second

    def about(self, elapsed: float) -> float:
        return elapsed * self.rows_per_second + 1


@dataclass(frozen=True)
class Bursts(_ByNumber):
    """``rows_per_second`` for ``on_seconds``, then ``base`` rows a second for ``off_seconds``, and so on."""

    on_seconds: float
    off_seconds: float
    rows_per_second: float
    base: float = 0.0

    def __post_init__(self) -> None:
        _above_zero(self, "on_seconds", self.on_seconds)
        _above_zero(self, "off_seconds", self.off_seconds)
        _above_zero(self, "rows_per_second", self.rows_per_second)
        if not 0 <= self.base < math.inf:
            raise ParameterError(f"{self}: base is a number of rows a second, 0 or more; got {self.base!r}")

    def due(self, number: int) -> float:
        burst = self.on_seconds * self.rows_per_second
        cycle = burst + self.off_seconds * self.base
        cycles = math.floor(number / cycle * (1 + _ROUNDING))
        rest = max(0.0, number - cycles * cycle)
        began = cycles * (self.on_seconds + self.off_seconds)
        if rest < burst or not self.base:
            return began + rest / self.rows_per_second
        return began + self.on_seconds + (rest - burst) / self.base

    def about(self, elapsed: float) -> float:
        cycles, rest = divmod(elapsed, self.on_seconds + self.off_seconds)
        burst = self.on_seconds * self.rows_per_second
        within = min(rest, self.on_seconds) * self.rows_per_second + max(0.0, rest - self.on_seconds) * self.base
        return cycles * (burst + self.off_seconds * self.base) + within + 1


@dataclass(frozen=True)
class Batched(_ByNumber):
    """Many rows at once by a timer: every 100 ms a tenth of the rate, as in EdgeWise, section 7.1."""

    rows_per_second: float
    every: float = 0.1

    def __post_init__(self) -> None:
        _above_zero(self, "rows_per_second", self.rows_per_second)
        _above_zero(self, "every", self.every)

    def due(self, number: int) -> float:
        batch = self.rows_per_second * self.every
        return max(0, math.ceil((number + 1) / batch * (1 - _ROUNDING)) - 1) * self.every

    def about(self, elapsed: float) -> float:
        return (math.floor(elapsed / self.every) + 1) * self.rows_per_second * self.every


@dataclass(frozen=True)
class Replay:
    """Rows as they came when they were recorded, by a column of event times, ``speed`` times as fast.

    A row that is older than one before it, or has no time, is due together with the one before it. Numbers are taken as
    seconds.
    """

    column: str
    speed: float = 1.0
    by_rows = True

    def __post_init__(self) -> None:
        _above_zero(self, "speed", self.speed)

    def check(self, schema: pa.Schema) -> None:
        index = schema.get_field_index(self.column)
        kind = None if index < 0 else schema.field(index).type
        if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DeclarationError(
                f"{self} needs a column {self.column!r} of timestamps, or of numbers that are seconds. "
                f"Got: {schema_text(schema)}. Name the column of event times."
            )

    def timetable(self, start: float) -> Timetable:
        return _ReplayTimetable(self, start)


class _NumberTimetable:
    def __init__(self, pattern: _ByNumber, start: float) -> None:
        self._pattern = pattern
        self._start = start

    def block(self, first: int, batch: pa.RecordBatch) -> Dues:
        return _NumberDues(self._pattern, self._start, first)


class _NumberDues:
    def __init__(self, pattern: _ByNumber, start: float, first: int) -> None:
        self._pattern = pattern
        self._start = start
        self._first = first

    def at(self, row: int) -> float:
        return self._start + self._pattern.due(self._first + row)

    def count(self, now: float) -> int:
        if now < self._start:
            return 0
        guess = math.floor(self._pattern.about(now - self._start)) - self._first
        return count_due(guess, self.at, now)


def count_due(guess: int, at: Callable[[int], float], now: float) -> int:
    """The number of rows with ``at(row) <= now``, found from a guess, quickly if it is nearly right."""
    # Invariant of the three loops: every row up to ``due`` is due; after the first, row ``late`` is not.
    due, late, step = -1, max(guess, 0), 1
    while at(late) <= now:
        due, late, step = late, late + step, step * 2
    probe, step = late - 1, 1
    while probe > due and at(probe) > now:
        late, probe, step = probe, probe - step, step * 2
    due = max(due, probe)
    while late - due > 1:
        middle = (due + late) // 2
        due, late = (middle, late) if at(middle) <= now else (due, middle)
    return late


class _ReplayTimetable:
    """Remembers the time of the first row, and the latest time so far."""

    def __init__(self, pattern: Replay, start: float) -> None:
        self._pattern = pattern
        self._start = start
        self._zero: pa.Scalar | None = None
        self._latest = start

    def block(self, first: int, batch: pa.RecordBatch) -> Dues:
        times, ticks = _ticks(batch.column(self._pattern.column))
        if self._zero is None and times.null_count < len(times):
            self._zero = times.drop_null()[0]
        # The difference first: the time since 1970 in nanoseconds does not fit a float.
        since = times if self._zero is None else pc.subtract(times, self._zero)
        elapsed = pc.cast(since, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        dues = np.maximum.accumulate(np.fmax(self._start + elapsed / (ticks * self._pattern.speed), self._latest))
        self._latest = float(dues[-1])
        return _ListedDues(dues)


class _ListedDues:
    def __init__(self, dues: NDArray[np.float64]) -> None:
        self._dues = dues

    def at(self, row: int) -> float:
        return float(self._dues[row])

    def count(self, now: float) -> int:
        return int(np.searchsorted(self._dues, now, side="right"))


def _ticks(column: pa.Array) -> tuple[pa.Array, float]:
    """Times as numbers, and how many of their units make a second."""
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()), _TICKS[column.type.unit]
    return (column if pa.types.is_floating(column.type) else column.cast(pa.int64())), 1.0


def _above_zero(pattern: object, name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ParameterError(f"{type(pattern).__name__}: {name} must be a number above 0; got {value!r}")
