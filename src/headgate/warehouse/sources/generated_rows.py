"""The rows of generated chunks as Arrow tables: a pure function of a recipe, a seed and the number of the chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.core import DeclarationError, UserCodeError, user_error
from headgate.warehouse.sources.schema import PRIVATE_PREFIX, Column

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: a user's own rows: all declared columns, or all but the event time
RowFunction = Callable[[np.random.Generator], "pa.Table"]
KINDS = ("sensors",)

#: columns beside the declared ones in a chunk's table
CHUNK = f"{PRIVATE_PREFIX}chunk"
BROKEN = f"{PRIVATE_PREFIX}broken"

_SENSORS = 50
#: what a value of each type is counted as when the size of a chunk is estimated
_BYTES = {"string": 12, "boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the rows of a chunk are generated. Durations are microseconds; ``late`` and ``malformed`` are shares."""

    columns: tuple[Column, ...]
    time: str
    rows: int
    every: int
    seed: int
    kind: str | RowFunction
    late: float
    late_by: int
    malformed: float

    @property
    def bytes_per_chunk(self) -> int:
        """An estimate, without generating the rows."""
        return self.rows * sum(_BYTES.get(column.kind, 8) for column in self.columns)

    def chunk(self, number: int, arrives: int) -> pa.Table:
        """The rows of the chunk that arrives at ``arrives``, with event times since the chunk before it."""
        import pyarrow as pa

        rng = np.random.default_rng([self.seed, number])
        table = self._rows(rng)
        count = table.num_rows
        if self.time not in table.column_names:
            table = table.append_column(self.time, _timestamps(self._event_times(rng, count, arrives)))
        broken = rng.random(count) < self.malformed
        chunk = pa.array([f"chunk {number}"] * count, pa.string())
        declared = table.select([column.name for column in self.columns])
        return declared.append_column(CHUNK, chunk).append_column(BROKEN, pa.array(broken, pa.bool_()))

    def _event_times(self, rng: np.random.Generator, rows: int, arrives: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        times = np.sort(rng.integers(arrives - self.every, arrives, rows))
        delays = rng.integers(0, self.late_by + 1, rows)
        return np.where(rng.random(rows) < self.late, times - delays, times)

    def _rows(self, rng: np.random.Generator) -> pa.Table:
        others = [column for column in self.columns if column.name != self.time]
        if isinstance(self.kind, str):
            return _sensor_rows(rng, others, self.rows)
        table = _called(self.kind, rng)
        expected, got = {column.name for column in others}, set(table.column_names) - {self.time}
        if expected != got:
            raise UserCodeError(
                f"{_name(self.kind)} makes rows for a Generator that declares the columns "
                f"{', '.join(column.name for column in self.columns)}; it returned {', '.join(table.column_names)}. "
                f"Return all of them; {self.time} may be left out and is filled in then"
            )
        return table


def check_kind(kind: object, columns: Sequence[Column], time: str, where: str) -> None:
    """Raise a DeclarationError unless rows of this kind can be generated for these columns."""
    if callable(kind):
        return
    if kind not in KINDS:
        raise DeclarationError(
            f"{where}: kind takes {' or '.join(map(repr, KINDS))}, or a function from a NumPy random generator to an "
            f"Arrow table; got {kind!r}"
        )
    for column in columns:
        if column.name != time and column.kind not in _FILLERS:
            raise DeclarationError(
                f"{where}: the kind {kind!r} cannot fill the column {column.name!r} of the type {column.type}; "
                f"it fills {', '.join(_FILLERS)}. Give a function as kind that makes the rows"
            )


def _called(function: RowFunction, rng: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    try:
        table = function(rng)
    except Exception as error:
        raise user_error(f"{_name(function)}, which makes the rows of a Generator, failed", error) from error
    if not isinstance(table, pa.Table):
        raise UserCodeError(
            f"{_name(function)} makes rows for a Generator and has to return a pyarrow.Table; "
            f"it returned a {type(table).__name__}"
        )
    return table


def _name(function: RowFunction) -> str:
    return getattr(function, "__qualname__", repr(function))


def _timestamps(micros: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    import pyarrow as pa

    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _sensor_rows(rng: np.random.Generator, columns: Sequence[Column], rows: int) -> pa.Table:
    """Readings of a few dozen sensors: texts are their names, numbers are temperatures, now and then above 40."""
    import pyarrow as pa

    arrays = []
    for column in columns:
        arrow_type, fill = _FILLERS[column.kind]
        arrays.append(pa.array(fill(rng, column.name, rows)).cast(pa.type_for_alias(arrow_type)))
    if not columns:
        # a table of no columns has no length, so give it one to be dropped later
        return pa.table({BROKEN: pa.nulls(rows)})
    return pa.table(arrays, names=[column.name for column in columns])


def _names(rng: np.random.Generator, column: str, rows: int) -> list[str]:
    return [f"{column}-{number:02d}" for number in rng.integers(0, _SENSORS, rows)]


def _temperatures(rng: np.random.Generator, _column: str, rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.round(rng.normal(20.0, 10.0, rows), 2)


def _counts(rng: np.random.Generator, _column: str, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return rng.integers(0, 100, rows)


def _flags(rng: np.random.Generator, _column: str, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return rng.random(rows) < 0.5


#: {type of a column: (Arrow's name for it, how to fill it)}
_FILLERS: dict[str, tuple[str, Callable[[np.random.Generator, str, int], Any]]] = {
    "string": ("string", _names),
    "double": ("double", _temperatures),
    "float": ("float", _temperatures),
    "bigint": ("int64", _counts),
    "int": ("int32", _counts),
    "smallint": ("int16", _counts),
    "tinyint": ("int8", _counts),
    "boolean": ("bool", _flags),
}
