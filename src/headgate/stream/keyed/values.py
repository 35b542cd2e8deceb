"""What aggregate functions do to the number that they hold for each slot: add to it, compare with it, take its place.

Every one takes values in two ways, with the same result to the last bit: all at once, or with what it holds after each.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headgate.stream.keyed.arrays import Flags, Groups, Growing, Numbers, accumulate, storage
from headgate.stream.packet import Ints

ADDING = ("sum", "mean")
COMPARING = ("min", "max")


class Values(Protocol):
    """One number per slot, and how values change it. ``had`` counts the values that a slot had before."""

    data: Growing

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        """Take values in their order, none of them null."""

    def running(self, groups: Groups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        """Take values in the groups' order; what stands there after each. ``had`` is by group."""


class _Total:
    """Sums. Integers wrap around, so their running sums may be cut out of one sum over all rows; floats may not."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.data = Growing(dtype)

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        # add.at goes through the rows one by one: a sum does not depend on the packets.
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(self.data.values, slots, values)

    def running(self, groups: Groups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        before = self.data.values[groups.codes]
        # Adding 0 is the same as skipping: a sum that began with 0 is never -0.
        values = np.where(valid, values, values.dtype.type(0))
        if values.dtype == np.int64:
            total = np.cumsum(values)
            made: Numbers = total + groups.spread(before - (total[groups.starts] - values[groups.starts]))
        else:
            made = accumulate(np.add, values, groups, before)
        self.data.values[groups.codes] = made[groups.ends]
        return made


class _Extreme:
    """The smallest or the largest value."""

    def __init__(self, operation: np.ufunc, dtype: np.dtype[Any]) -> None:
        self._operation = operation
        smallest = operation is np.minimum
        if dtype.kind == "f":
            self._neutral = np.inf if smallest else -np.inf
        else:
            limits = np.iinfo(dtype)
            self._neutral = limits.max if smallest else limits.min
        self.data = Growing(dtype, self._neutral)

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        with np.errstate(invalid="ignore"):
            self._operation.at(self.data.values, slots, values)

    def running(self, groups: Groups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        values = np.where(valid, values, values.dtype.type(self._neutral))
        made = accumulate(self._operation, values, groups, self.data.values[groups.codes])
        self.data.values[groups.codes] = made[groups.ends]
        return made


class _Last:
    """The value that came last."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.data = Growing(dtype)

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        # Of several values assigned to one slot the last one stays.
        self.data.values[slots] = values

    def running(self, groups: Groups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        places = np.arange(len(values), dtype=np.int64)
        latest = np.maximum.accumulate(np.where(valid, places, -1))
        none_yet = latest < groups.spread(groups.starts)
        made = np.where(none_yet, groups.spread(self.data.values[groups.codes]), values[latest])
        self.data.values[groups.codes] = made[groups.ends]
        return made


class _First:
    """The value that came first."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.data = Growing(dtype)

    def add(self, slots: Ints, values: Numbers, had: Ints) -> None:
        new = had[slots] == 0
        # From behind: of several values assigned to one slot the last one stays.
        self.data.values[slots[new][::-1]] = values[new][::-1]

    def running(self, groups: Groups, values: Numbers, valid: Flags, had: Ints) -> Numbers:
        count = len(values)
        places = np.arange(count, dtype=np.int64)
        earliest = groups.spread(np.minimum.reduceat(np.where(valid, places, count), groups.starts))
        as_before = (groups.spread(had) > 0) | (places < earliest)
        held = groups.spread(self.data.values[groups.codes])
        made = np.where(as_before, held, values[np.minimum(earliest, count - 1)])
        self.data.values[groups.codes] = made[groups.ends]
        return made


def values_of(function: str, kind: pa.DataType) -> Values:
    """What a function over a column of that type holds."""
    dtype = storage(kind)
    if function in ADDING:
        return _Total(dtype if dtype.kind == "f" else np.dtype(np.int64))
    if function in COMPARING:
        return _Extreme(np.minimum if function == "min" else np.maximum, dtype)
    return _First(dtype) if function == "first" else _Last(dtype)
