"""The states of aggregate functions: what is kept of a group, and how the state of new rows is merged into it.

Spark computes the states of new rows. The driver merges them with those kept, with Arrow, because only the groups that
new rows touch take part: a Spark job over them would take longer than everything else. The values are the same as
Spark's: nulls are skipped, and NaN is larger than all other numbers. Groups that are too many for the driver are merged
by Spark (``merge_on_spark``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

Parts = Sequence[pa.ChunkedArray]


class StateKind(ABC):
    """How one kind of aggregate function is kept: in one or more columns, its parts.

    If ``shows_itself``, the first part is the value of the function, so a table that shows it need not keep it twice.
    """

    suffixes: tuple[str, ...] = ("",)
    shows_itself = True

    def parts(self, function: Column, arguments: Callable[[], Sequence[Column]]) -> list[Column]:
        """The parts of a group's rows; ``arguments`` gives the function's, null in rows that its filter drops."""
        return [function]

    @abstractmethod
    def merge(self, kept: Parts, new: Parts) -> list[pa.ChunkedArray]:
        """The parts of all rows of groups, row by row, from the parts kept and those of new rows."""

    @abstractmethod
    def merge_on_spark(
        self, kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]
    ) -> Sequence[Column]:
        """The same as ``merge``, as columns of Spark; ``types`` are those of the parts."""

    def value(self, parts: Parts, function: str) -> pa.ChunkedArray:
        """The value of the function."""
        return parts[0]

    def value_on_spark(self, parts: Sequence[Column], function: str) -> Column:
        """The value of the function, as a column of Spark."""
        return parts[0]


class _SumState(StateKind):
    """Sums and counts; the sum of no values is null."""

    def merge(self, kept: Parts, new: Parts) -> list[pa.ChunkedArray]:
        return [_added(kept[0], new[0])]

    def merge_on_spark(
        self, kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]
    ) -> Sequence[Column]:
        return _added_on_spark(kept, new, types)


class _LargestOrLeast(StateKind):
    def __init__(self, largest: bool) -> None:
        self._largest = largest

    def merge(self, kept: Parts, new: Parts) -> list[pa.ChunkedArray]:
        chooses_new = _is_beyond(new[0], kept[0], self._largest)
        return [_chosen(chooses_new, new[0], kept[0])]

    def merge_on_spark(
        self, kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]
    ) -> Sequence[Column]:
        from pyspark.sql import functions as F

        return [F.when(_is_beyond_on_spark(new[0], kept[0], self._largest), new[0]).otherwise(kept[0])]


class _LargestOrLeastBy(StateKind):
    """The value that belongs to the largest or least of another."""

    suffixes = ("", "_by")

    def __init__(self, largest: bool) -> None:
        self._largest = largest

    def parts(self, function: Column, arguments: Callable[[], Sequence[Column]]) -> list[Column]:
        from pyspark.sql import functions as F

        by = arguments()[1]
        return [function, F.max(by) if self._largest else F.min(by)]

    def merge(self, kept: Parts, new: Parts) -> list[pa.ChunkedArray]:
        chooses_new = _is_beyond(new[1], kept[1], self._largest)
        return [_chosen(chooses_new, new[0], kept[0]), _chosen(chooses_new, new[1], kept[1])]

    def merge_on_spark(
        self, kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]
    ) -> Sequence[Column]:
        from pyspark.sql import functions as F

        chooses_new = _is_beyond_on_spark(new[1], kept[1], self._largest)
        return [F.when(chooses_new, after).otherwise(before) for before, after in zip(kept, new, strict=True)]


class _AverageState(StateKind):
    suffixes = ("_sum", "_count")
    shows_itself = False

    def parts(self, function: Column, arguments: Callable[[], Sequence[Column]]) -> list[Column]:
        from pyspark.sql import functions as F

        (value,) = arguments()
        return [F.sum(value.cast("double")), F.count(value)]

    def merge(self, kept: Parts, new: Parts) -> list[pa.ChunkedArray]:
        return [_added(kept[0], new[0]), _added(kept[1], new[1])]

    def merge_on_spark(
        self, kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]
    ) -> Sequence[Column]:
        return _added_on_spark(kept, new, types)

    def value(self, parts: Parts, function: str) -> pa.ChunkedArray:
        count = pc.cast(parts[1], pa.float64())
        return pc.divide(parts[0], pc.if_else(pc.equal(count, 0.0), None, count))

    def value_on_spark(self, parts: Sequence[Column], function: str) -> Column:
        from pyspark.sql import functions as F

        return F.when(parts[1] > 0, parts[0] / parts[1].cast("double"))


class _VarianceState(StateKind):
    """Count, mean and sum of squared deviations from the mean, merged as Chan, Golub and LeVeque do."""

    suffixes = ("_count", "_mean", "_squares")
    shows_itself = False

    def parts(self, function: Column, arguments: Callable[[], Sequence[Column]]) -> list[Column]:
        from pyspark.sql import functions as F

        value = arguments()[0].cast("double")
        count = F.count(value)
        return [count, F.coalesce(F.avg(value), F.lit(0.0)), F.coalesce(F.var_pop(value) * count, F.lit(0.0))]

    def merge(self, kept: Parts, new: Parts) -> list[pa.ChunkedArray]:
        count = pc.add(kept[0], new[0])
        known = pc.cast(pc.max_element_wise(count, 1), pa.float64())
        share = pc.divide(pc.cast(new[0], pa.float64()), known)
        apart = pc.subtract(new[1], kept[1])
        mean = pc.add(kept[1], pc.multiply(apart, share))
        between = pc.multiply(pc.multiply(apart, apart), pc.multiply(pc.cast(kept[0], pa.float64()), share))
        return [count, mean, pc.add(pc.add(kept[2], new[2]), between)]

    def merge_on_spark(
        self, kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]
    ) -> Sequence[Column]:
        from pyspark.sql import functions as F

        count = kept[0] + new[0]
        share = new[0].cast("double") / F.greatest(count, F.lit(1)).cast("double")
        apart = new[1] - kept[1]
        between = apart * apart * (kept[0].cast("double") * share)
        return [count, kept[1] + apart * share, kept[2] + new[2] + between]

    def value(self, parts: Parts, function: str) -> pa.ChunkedArray:
        counted = pc.subtract(parts[0], 1) if function.endswith("Samp") else parts[0]
        divisor = pc.if_else(pc.less_equal(counted, 0), None, pc.cast(counted, pa.float64()))
        variance = pc.divide(parts[2], divisor)
        return pc.sqrt(variance) if function.startswith("Stddev") else variance

    def value_on_spark(self, parts: Sequence[Column], function: str) -> Column:
        from pyspark.sql import functions as F

        counted = parts[0] - 1 if function.endswith("Samp") else parts[0]
        variance = F.when(counted > 0, parts[2] / counted)
        return F.sqrt(variance) if function.startswith("Stddev") else variance


#: by ``AggregateState.merged_as``
KINDS: Mapping[str, StateKind] = {
    "average": _AverageState(),
    "count": _SumState(),
    "max": _LargestOrLeast(largest=True),
    "max_by": _LargestOrLeastBy(largest=True),
    "min": _LargestOrLeast(largest=False),
    "min_by": _LargestOrLeastBy(largest=False),
    "sum": _SumState(),
    "variance": _VarianceState(),
}


def _added(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = one.type
    if pa.types.is_decimal(kind):
        # Arrow gives a sum one digit more than its parts have, and 38 is the most that it can: the cast back checks.
        wide = pa.decimal256(kind.precision, kind.scale)
        added = pc.add_checked(one.cast(wide), other.cast(wide))
    else:
        added = pc.add_checked(one, other)
    return pc.coalesce(added.cast(kind), one, other)


def _added_on_spark(kept: Sequence[Column], new: Sequence[Column], types: Sequence[DataType]) -> list[Column]:
    from pyspark.sql import functions as F

    def added(one: Column, other: Column, kind: DataType) -> Column:
        # Whether Spark is set to raise at an overflow or not: a wrong sum must not be kept.
        text = f"a sum of type {kind.simpleString()} has become too large for its type: cast what it is computed from"
        both = F.coalesce(F.try_add(one, other).try_cast(kind), F.raise_error(F.lit(f"{text} to a larger type")))
        return F.when(one.isNull(), other).when(other.isNull(), one).otherwise(both)

    return [added(*each) for each in zip(kept, new, types, strict=True)]


def _is_beyond_on_spark(new: Column, kept: Column, largest: bool) -> Column:
    """The same as ``_is_beyond``: Spark, too, takes NaN for the largest number."""
    from pyspark.sql import functions as F

    beyond = new > kept if largest else new < kept
    return F.coalesce(beyond, kept.isNull() & new.isNotNull())


def _is_beyond(new: pa.ChunkedArray, kept: pa.ChunkedArray, largest: bool) -> pa.ChunkedArray:
    """Whether a new value takes the place of the one kept: always if that is null, never if it is null itself."""
    if pa.types.is_floating(new.type):
        new_rank, kept_rank = (pc.if_else(pc.is_nan(each), math.inf, each) for each in (new, kept))
        tie = pc.equal(new_rank, kept_rank)  # NaN is beyond infinity
        nan = pc.is_nan(new) if largest else pc.is_nan(kept)
        beyond = pc.greater(new_rank, kept_rank) if largest else pc.less(new_rank, kept_rank)
        beyond = pc.or_(beyond, pc.and_(tie, nan))
    else:
        beyond = pc.greater(new, kept) if largest else pc.less(new, kept)
    return pc.or_(pc.fill_null(beyond, False), pc.and_(pc.is_null(kept), pc.is_valid(new)))


def _chosen(first: pa.ChunkedArray, one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """``one`` where ``first`` holds, ``other`` elsewhere; of any type."""
    both = pa.chunked_array([*one.chunks, *other.chunks], type=one.type)
    places = pa.array(range(len(one)), pa.int64())
    return both.take(pc.if_else(first, places, pc.add(places, len(one))))
