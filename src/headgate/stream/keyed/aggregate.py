"""Aggregate functions, and accumulators that hold their values for many slots at once.

=========  ==========================================  ==============================
function   of                                          gives
=========  ==========================================  ==============================
count      rows, or the values of a column             int64, never null
sum        integers, booleans                          int64, modulo 2**64
sum        floats                                      float64
mean       integers, booleans, floats                  float64
min, max   integers, booleans, floats, times           the column's type
first,     integers, booleans, floats, times           the column's type
last
=========  ==========================================  ==============================

Nulls are skipped, as in SQL; without any value the result is null. A NaN is a value: sum, mean, min and max of it are
NaN. Floats are added one by one in the order of rows; min and max of -0 are 0. The mean of integers is that of their
exact sum, however large, rounded once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.core import DeclarationError, UnknownNameError
from headgate.stream.keyed.arrays import (
    Flags,
    GrowingArray,
    Numbers,
    RowGroups,
    accumulate,
    column_of,
    is_whole,
    numbers,
    plain_type,
    storage,
)
from headgate.stream.keyed.keys import check_column
from headgate.stream.packet import Ints

FUNCTIONS = ("count", "sum", "mean", "min", "max", "first", "last")
ADDING = ("sum", "mean")
COMPARING = ("min", "max")
_LOW_HALF = (1 << 32) - 1
#: integers below it, shifted by 32 bits, have 53 bits
_EXACT_HIGH = 1 << 21


@dataclass(frozen=True)
class Aggregate:
    """A function of a column; ``count`` without a column counts rows. The result is the column ``output``."""

    function: str
    column: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise UnknownNameError("aggregate function", self.function, FUNCTIONS)
        if self.column is None and self.function != "count":
            raise DeclarationError(
                f"the aggregate function {self.function!r} needs a column; only 'count' does without"
            )

    @property
    def output(self) -> str:
        if self.name is not None:
            return self.name
        return self.function if self.column is None else f"{self.function}_{self.column}"

    def field(self, schema: pa.Schema) -> pa.Field:
        """The column it makes of rows of that schema."""
        return pa.field(self.output, self._result_type(schema), nullable=self.function != "count")

    def _result_type(self, schema: pa.Schema) -> pa.DataType:
        if self.column is None:
            return pa.int64()
        kind = plain_type(check_column(schema, self.column).type)
        if self.function == "count":
            return pa.int64()
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if not (is_number or (is_whole(kind) and self.function not in ADDING)):
            raise DeclarationError(
                f"{self.function} cannot be taken of column {self.column!r} of type {kind}: it takes numbers, booleans"
                f"{'' if self.function in ADDING else ' and times'}; cast the column first"
            )
        if self.function == "mean":
            return pa.float64()
        if self.function == "sum":
            return pa.float64() if pa.types.is_floating(kind) else pa.int64()
        return kind


# --- what a function holds for each slot ---------------------------------------------------------------------


class Values(ABC):
    """What each slot holds, and how values change it. ``had`` counts the values that a slot had before.

    Values can be added in two ways, with the same result to the last bit: all at once, or with the result after each.
    """

    @property
    @abstractmethod
    def parts(self) -> dict[str, GrowingArray]:
        """What has to be remembered."""

    @abstractmethod
    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        """Take values in their order, none of them null."""

    @abstractmethod
    def merge(self, slots: Ints, other: Any, sources: Ints, had: Ints) -> None:
        """Take what another of the same class holds in ``sources``, one by one, as values that came later."""

    @abstractmethod
    def running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        """Take values in the groups' order; what is held after each. ``had`` is by group."""

    @abstractmethod
    def held(self, slots: Ints) -> Numbers:
        """What the slots hold: a number each, or a row of numbers."""


class _Number(Values):
    """One number per slot."""

    def __init__(self, dtype: np.dtype[Any], fill: Any = 0) -> None:
        self.data = GrowingArray(dtype, fill)

    @property
    def parts(self) -> dict[str, GrowingArray]:
        return {"value": self.data}

    def merge(self, slots: Ints, other: _Number, sources: Ints, had: Ints) -> None:
        self.add(slots, other.data.values[sources], had)

    def held(self, slots: Ints) -> Numbers:
        return self.data.values[slots]

    def running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        running = self._running(groups, values, valid, had, self.data.values[groups.codes])
        self.data.values[groups.codes] = running[groups.ends]
        return running

    @abstractmethod
    def _running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints, held: Numbers) -> Numbers:
        """The number after each value; ``held`` is the number of each group before."""


class _Total(_Number):
    """Sums. Integers wrap around, so their running sums may be cut out of one sum over all rows; floats may not."""

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        # add.at goes through the rows one by one: a sum does not depend on the packets.
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(self.data.values, slots, values)

    def _running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints, held: Numbers) -> Numbers:
        # Adding 0 is the same as skipping: a sum that began with 0 is never -0.
        values = np.where(valid, values, values.dtype.type(0))
        if values.dtype != np.int64:
            return accumulate(np.add, values, groups, held)
        return _running_sums(groups, values, held)


def _running_sums(groups: RowGroups, values: Ints, held: Ints) -> Ints:
    """The running sum of every group, starting from ``held``."""
    total = np.cumsum(values)
    sums: Ints = total + groups.spread(held - (total[groups.starts] - values[groups.starts]))
    return sums


class _WideTotal(Values):
    """Sums of integers of any size, as two numbers per slot: the sum is ``high * 2**32 + low``.

    Values are added in halves of 32 bits, so neither sum can overflow before a slot has had 2**31 values. Before values
    are added, what ``low`` has beyond 32 bits is moved to ``high``.
    """

    def __init__(self) -> None:
        self.high, self.low = GrowingArray(np.int64), GrowingArray(np.int64)

    @property
    def parts(self) -> dict[str, GrowingArray]:
        # A state written before there was a high half has the whole sum in the low one.
        return {"value": self.low, "high": self.high}

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        self._add(slots, *_halves(values))

    def merge(self, slots: Ints, other: _WideTotal, sources: Ints, had: Ints) -> None:
        self._add(slots, other.high.values[sources], other.low.values[sources])

    def _add(self, slots: Ints, high: Ints, low: Ints) -> None:
        self._carry(slots)
        np.add.at(self.high.values, slots, high)
        np.add.at(self.low.values, slots, low)

    def _carry(self, slots: Ints) -> None:
        held = self.held(slots)
        # A slot that is there several times is given the same numbers each time.
        self.high.values[slots], self.low.values[slots] = held.T

    def running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        self._carry(groups.codes)
        high, low = _halves(np.where(valid, values, values.dtype.type(0)))
        high = _running_sums(groups, high, self.high.values[groups.codes])
        low = _running_sums(groups, low, self.low.values[groups.codes])
        self.high.values[groups.codes], self.low.values[groups.codes] = high[groups.ends], low[groups.ends]
        return _carried(high, low)

    def held(self, slots: Ints) -> Numbers:
        return _carried(self.high.values[slots], self.low.values[slots])


def _halves(values: Numbers) -> tuple[Ints, Ints]:
    """The upper half of integers, with their sign if they have one, and the lower 32 bits."""
    return (values >> 32).view(np.int64), (values & _LOW_HALF).view(np.int64)


def _carried(high: Ints, low: Ints) -> Ints:
    """A row of both numbers for each slot, with at most 32 bits in ``low``."""
    return np.stack((high + (low >> 32), low & _LOW_HALF), axis=1)


def _means(totals: Numbers, counts: Ints) -> Numbers:
    """Sums divided by counts: numbers, or rows of ``_WideTotal``."""
    counts = np.maximum(counts, 1)
    if totals.ndim == 1:
        with np.errstate(over="ignore", invalid="ignore"):
            means: Numbers = totals / counts
        return means
    high, low = totals.T
    means = ((high << 32) + low) / counts
    # A float holds integers of up to 53 bits exactly; Python divides larger ones without error.
    large = np.flatnonzero((high < -_EXACT_HIGH) | (high >= _EXACT_HIGH))
    rows = zip(high[large].tolist(), low[large].tolist(), counts[large].tolist(), strict=True)
    means[large] = [((upper << 32) + lower) / count for upper, lower, count in rows]
    return means


class _Extreme(_Number):
    """The smallest or the largest value."""

    def __init__(self, operation: np.ufunc, dtype: np.dtype[Any]) -> None:
        self._operation = operation
        smallest = operation is np.minimum
        if dtype.kind == "f":
            self._neutral = np.inf if smallest else -np.inf
        else:
            limits = np.iinfo(dtype)
            self._neutral = limits.max if smallest else limits.min
        super().__init__(dtype, self._neutral)

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        with np.errstate(invalid="ignore"):
            self._operation.at(self.data.values, slots, values)

    def _running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints, held: Numbers) -> Numbers:
        values = np.where(valid, values, values.dtype.type(self._neutral))
        return accumulate(self._operation, values, groups, held)


class _Last(_Number):
    """The value that came last."""

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        # Of several values assigned to one slot the last one stays.
        self.data.values[slots] = values

    def _running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints, held: Numbers) -> Numbers:
        places = np.arange(len(values), dtype=np.int64)
        latest = np.maximum.accumulate(np.where(valid, places, -1))
        none_yet = latest < groups.spread(groups.starts)
        return np.where(none_yet, groups.spread(held), values[latest])


class _First(_Number):
    """The value that came first."""

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        new = had[slots] == 0
        # From behind: of several values assigned to one slot the last one stays.
        self.data.values[slots[new][::-1]] = values[new][::-1]

    def _running(self, groups: RowGroups, values: Numbers, valid: Flags, had: Ints, held: Numbers) -> Numbers:
        count = len(values)
        places = np.arange(count, dtype=np.int64)
        earliest = groups.spread(np.minimum.reduceat(np.where(valid, places, count), groups.starts))
        as_before = (groups.spread(had) > 0) | (places < earliest)
        return np.where(as_before, groups.spread(held), values[np.minimum(earliest, count - 1)])


def values_of(function: str, kind: pa.DataType) -> Values:
    """The values of a function over a column of that type."""
    dtype = storage(kind)
    if function == "mean" and dtype.kind != "f":
        return _WideTotal()
    if function in ADDING:
        return _Total(dtype if dtype.kind == "f" else np.dtype(np.int64))
    if function in COMPARING:
        return _Extreme(np.minimum if function == "min" else np.maximum, dtype)
    return _First(dtype) if function == "first" else _Last(dtype)


# --- accumulators --------------------------------------------------------------------------------------------


class _Accumulator:
    """One aggregate for many slots: how many values each has had and, unless it is a count, a number made of them."""

    def __init__(self, aggregate: Aggregate, schema: pa.Schema) -> None:
        self._function = aggregate.function
        self._column = aggregate.column
        self.field = aggregate.field(schema)
        self._count = GrowingArray(np.int64)
        self._values: Values | None = None
        if aggregate.column is not None and aggregate.function != "count":
            self._values = values_of(aggregate.function, plain_type(schema.field(aggregate.column).type))

    @property
    def parts(self) -> dict[str, GrowingArray]:
        """What has to be remembered."""
        return {"count": self._count} if self._values is None else {"count": self._count, **self._values.parts}

    def add(self, slots: Ints, batch: pa.RecordBatch) -> None:
        values, valid = self._read(batch)
        if valid is not None:
            slots, values = slots[valid], values[valid]
        if self._values is not None:
            self._values.add(slots, values, self._count.values)
        np.add.at(self._count.values, slots, 1)

    def running(self, groups: RowGroups, batch: pa.RecordBatch) -> pa.Array:
        values, valid = self._read(batch)
        mask = np.ones(batch.num_rows, dtype=np.bool_) if valid is None else valid[groups.order]
        had = self._count.values[groups.codes]
        counted = np.cumsum(mask)
        counts = counted + groups.spread(had - (counted[groups.starts] - mask[groups.starts]))
        self._count.values[groups.codes] = counts[groups.ends]
        results = counts
        if self._values is not None:
            results = self._values.running(groups, values[groups.order], mask, had)
        back = np.empty_like(groups.order)
        back[groups.order] = np.arange(len(back), dtype=np.int64)
        return self._finish(counts[back], results[back])

    def merge(self, slots: Ints, other: _Accumulator, sources: Ints) -> None:
        """Take what another one holds in ``sources``, one by one, as values that came after those held here."""
        counts = other._count.values[sources]
        if self._values is not None and other._values is not None:
            some = counts > 0
            self._values.merge(slots[some], other._values, sources[some], self._count.values)
        np.add.at(self._count.values, slots, counts)

    def results(self, slots: Ints) -> pa.Array:
        counts: Ints = self._count.values[slots]
        return self._finish(counts, counts if self._values is None else self._values.held(slots))

    def _read(self, batch: pa.RecordBatch) -> tuple[Numbers, Flags | None]:
        """The values, and which are not null; None if none is."""
        if self._column is None:
            return np.empty(batch.num_rows, dtype=np.int64), None
        column = batch.column(self._column)
        if self._values is None:
            valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
            return np.empty(batch.num_rows, dtype=np.int64), valid
        values, nulls = numbers(column)
        if self._function == "sum" and values.dtype == np.uint64:
            values = values.view(np.int64)
        elif self._function in COMPARING and values.dtype.kind == "f":
            # Which of -0 and 0 NumPy finds smaller depends on where they stand in the array; -0 + 0 is 0.
            values = values + 0.0
        return values, None if nulls is None else ~nulls

    def _finish(self, counts: Ints, values: Numbers) -> pa.Array:
        if self._values is None:
            return pa.array(counts)
        nothing = counts == 0
        if self._function == "mean":
            values = _means(values, counts)
        return column_of(values, nothing if nothing.any() else None, self.field.type)


class Accumulators:
    """Several aggregates for the same slots. Call ``grow`` before slots are used."""

    def __init__(self, schema: pa.Schema, aggregates: Sequence[Aggregate]) -> None:
        self._schema = schema
        self._aggregates = tuple(aggregates)
        self._each = [_Accumulator(aggregate, schema) for aggregate in aggregates]
        self.fields: tuple[pa.Field, ...] = tuple(one.field for one in self._each)

    def fresh(self, count: int) -> Accumulators:
        """The same aggregates, of so many slots that have seen nothing."""
        accumulators = Accumulators(self._schema, self._aggregates)
        accumulators.grow(count)
        return accumulators

    def grow(self, count: int) -> None:
        for part in self._parts().values():
            part.grow(count)

    def add(self, slots: Ints, batch: pa.RecordBatch) -> None:
        """Take rows in their order, each into its slot."""
        for one in self._each:
            one.add(slots, batch)

    def running(self, groups: RowGroups, batch: pa.RecordBatch) -> list[pa.Array]:
        """Take rows, grouped by slot; the results of its slot after each row."""
        return [one.running(groups, batch) for one in self._each]

    def merge(self, slots: Ints, other: Accumulators, sources: Ints) -> None:
        """Take what another of the same aggregates holds in ``sources``, one by one."""
        for one, from_one in zip(self._each, other._each, strict=True):
            one.merge(slots, from_one, sources)

    def results(self, slots: Ints) -> list[pa.Array]:
        return [one.results(slots) for one in self._each]

    def keep(self, slots: Ints) -> None:
        """Hold these slots only, from now on numbered 0, 1, 2, ..."""
        for part in self._parts().values():
            part.replace(part.values[slots])

    def columns(self, slots: Ints) -> dict[str, pa.Array]:
        """What has to be remembered of the slots."""
        return {name: pa.array(part.values[slots]) for name, part in self._parts().items()}

    def remember(self, slots: Ints, table: pa.Table) -> None:
        """The opposite: ``table`` has, among others, the columns that ``columns`` gave, now of these slots."""
        self.grow(int(slots.max(initial=-1)) + 1)
        for name, part in self._parts().items():
            # A state written before means were exact has no high half: it is 0.
            if name in table.column_names or not name.endswith(" high"):
                part.values[slots] = table.column(name).to_numpy()

    def _parts(self) -> dict[str, GrowingArray]:
        return {f"{place} {name}": part for place, one in enumerate(self._each) for name, part in one.parts.items()}
