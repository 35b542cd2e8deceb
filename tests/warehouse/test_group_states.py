"""The states of aggregate functions: merging those of two parts of some values gives that of all of them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.core import HeadgateError
from headgate.warehouse.updates.key_lookup import codes_of, look_up
from headgate.warehouse.updates.states import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Values = Sequence[float | None]


def known(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def squares(values: list[float]) -> float:
    return sum((value - sum(values) / len(values)) ** 2 for value in values) if values else 0.0


def larger(one: float, other: float) -> float:
    """As Spark compares: NaN is larger than everything."""
    return one if math.isnan(one) or (not math.isnan(other) and one >= other) else other


def largest(values: list[float]) -> float | None:
    found: float | None = None
    for value in values:
        found = value if found is None else larger(found, value)
    return found


def least(values: list[float]) -> float | None:
    numbers = [value for value in values if not math.isnan(value)]
    return min(numbers) if numbers else (math.nan if values else None)


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


#: {kind: (the parts of some values, by definition)}
PARTS: dict[str, Callable[[Values], tuple[Any, ...]]] = {
    "count": lambda values: (len(known(values)),),
    "sum": lambda values: (sum(known(values)) if known(values) else None,),
    "min": lambda values: (least(known(values)),),
    "max": lambda values: (largest(known(values)),),
    "average": lambda values: (sum(known(values)) if known(values) else None, len(known(values))),
    "variance": lambda values: (len(known(values)), mean(known(values)), squares(known(values))),
}
#: {(kind, function): its value, by definition}
VALUES: dict[tuple[str, str], Callable[[list[float]], float | None]] = {
    ("average", "Average"): lambda values: mean(values) if values else None,
    ("variance", "StddevSamp"): lambda values: statistics.stdev(values) if len(values) > 1 else None,
    ("variance", "StddevPop"): lambda values: statistics.pstdev(values) if values else None,
    ("variance", "VarianceSamp"): lambda values: statistics.variance(values) if len(values) > 1 else None,
    ("variance", "VariancePop"): lambda values: statistics.pvariance(values) if values else None,
}


def groups(chance: random.Random, with_nan: bool) -> list[tuple[Values, Values]]:
    """Groups of values in two parts: empty, without known values, of one value, of many."""
    choices = [None, -2.5, 0.0, 0.25, 1.0, 3.75, *([math.nan, math.inf] if with_nan else [])]

    def part() -> Values:
        return [chance.choice(choices) for _ in range(chance.randrange(5))]

    return [([], []), ([None], []), ([], [1.0]), *((part(), part()) for _ in range(200))]


def columns(rows: Sequence[tuple[Any, ...]], kind: str) -> list[pa.ChunkedArray]:
    counted = {"count": (0,), "average": (1,), "variance": (0,)}.get(kind, ())
    return [
        pa.chunked_array([pa.array(part, pa.int64() if place in counted else pa.float64())])
        for place, part in enumerate(zip(*rows, strict=True))
    ]


def same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other, abs=1e-9)


@pytest.mark.parametrize("kind", PARTS)
def test_merged_parts_are_those_of_all_values(kind: str) -> None:
    some = groups(random.Random(3), with_nan=kind in ("min", "max"))
    parts = PARTS[kind]
    kept, new = (columns([parts(group[place]) for group in some], kind) for place in (0, 1))
    merged = [column.to_pylist() for column in KINDS[kind].merge(kept, new)]
    for place, (first, second) in enumerate(some):
        expected = parts([*first, *second])
        assert all(same(column[place], value) for column, value in zip(merged, expected, strict=True)), (
            first,
            second,
            [column[place] for column in merged],
            expected,
        )


def merged_on_spark(
    spark: SparkSession, kind: str, kept: Sequence[pa.ChunkedArray], new: Sequence[pa.ChunkedArray]
) -> list[list[Any]]:
    """What Spark merges, in the order of the rows."""
    from pyspark.sql import functions as F

    names = {f"{which}{i}": part for which, parts in (("kept", kept), ("new", new)) for i, part in enumerate(parts)}
    rows = pa.table({**names, "row": pa.array(range(len(kept[0])))})
    frame = spark.createDataFrame(rows)
    types = [frame.schema[f"new{i}"].dataType for i in range(len(new))]
    before, after = ([F.col(f"{which}{i}") for i in range(len(new))] for which in ("kept", "new"))
    merged = KINDS[kind].merge_on_spark(before, after, types)
    found = frame.select("row", *(value.alias(f"merged{i}") for i, value in enumerate(merged))).toArrow().sort_by("row")
    return [found.column(f"merged{i}").to_pylist() for i in range(len(new))]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", PARTS)
def test_spark_merges_the_parts_as_the_driver_does(spark: SparkSession, kind: str) -> None:
    some = groups(random.Random(3), with_nan=kind in ("min", "max"))
    parts = PARTS[kind]
    kept, new = (columns([parts(group[place]) for group in some], kind) for place in (0, 1))
    found = merged_on_spark(spark, kind, kept, new)
    for place, (first, second) in enumerate(some):
        values = [column[place] for column in found]
        assert all(map(same, values, parts([*first, *second]))), (first, second, values)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["max_by", "min_by"])
def test_spark_keeps_the_value_that_belongs_to_the_largest_or_least(spark: SparkSession, kind: str) -> None:
    by = [[1.0, 5.0, None, 7.0, None, 2.0, math.nan], [2.0, None, 3.0, 1.0, None, 2.0, math.inf]]
    kept, new = (
        [pa.chunked_array([[name] * 7]), pa.chunked_array([pa.array(values, pa.float64())])]
        for name, values in zip(("kept", "new"), by, strict=True)
    )
    expected = [column.to_pylist() for column in KINDS[kind].merge(kept, new)]
    assert list(map(str, merged_on_spark(spark, kind, kept, new))) == list(map(str, expected))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("most", [2**63 - 1, Decimal("9" * 18 + ".99")], ids=["long", "decimal"])
def test_spark_refuses_sums_that_do_not_fit(spark: SparkSession, most: int | Decimal, ansi: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    with pytest.raises(Exception, match="has become too large for its type"):
        merged_on_spark(session, "sum", [pa.chunked_array([[most]])], [pa.chunked_array([[most]])])


@pytest.mark.parametrize(("kind", "function"), VALUES)
def test_the_value_of_a_function_is_that_of_all_its_values(kind: str, function: str) -> None:
    some = [[*first, *second] for first, second in groups(random.Random(4), with_nan=False)]
    found = KINDS[kind].value(columns([PARTS[kind](values) for values in some], kind), function).to_pylist()
    for values, value in zip(some, found, strict=True):
        assert same(value, VALUES[kind, function](known(values))), values


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("max_by", ["new", "kept", "new", "kept", None]), ("min_by", ["kept", "kept", "new", "new", None])],
)
def test_the_value_that_belongs_to_the_largest_or_least_is_kept_whatever_its_type(
    kind: str, expected: list[str | None]
) -> None:
    def parts(name: str, by: list[int | None]) -> list[pa.ChunkedArray]:
        values = [[name], [name], [name], [name], None]
        return [pa.chunked_array([pa.array(values)]), pa.chunked_array([pa.array(by, pa.int64())])]

    kept, new = parts("kept", [1, 5, None, 7, None]), parts("new", [2, None, 3, 1, None])
    merged, _ = KINDS[kind].merge(kept, new)
    assert [value and value[0] for value in merged.to_pylist()] == expected


def test_sums_that_do_not_fit_are_refused_as_spark_does() -> None:
    most = pa.chunked_array([pa.array([2**63 - 1])])
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        KINDS["sum"].merge([most], [pa.chunked_array([pa.array([1])])])


@pytest.mark.parametrize("kind", [pa.decimal128(38, 18), pa.decimal128(38, 5), pa.decimal128(20, 2)], ids=str)
def test_sums_of_decimals_have_as_many_digits_as_spark_gives_them(kind: pa.DataType) -> None:
    def sums(*values: str | None) -> list[pa.ChunkedArray]:
        numbers = [None if value is None else Decimal(value) for value in values]
        return [pa.chunked_array([pa.array(numbers, pa.decimal128(38, kind.scale)).cast(kind)])]

    most = "9" * (kind.precision - kind.scale)
    (merged,) = KINDS["sum"].merge(sums("1.25", None, None, f"-{most}"), sums("2.5", "0.75", None, most))
    assert merged.type == kind
    assert merged.to_pylist() == [Decimal("3.75"), Decimal("0.75"), None, Decimal(0)]
    with pytest.raises(pa.ArrowInvalid, match="does not fit"):
        KINDS["sum"].merge(sums(most), sums("1"))


# --- finding rows by their keys -----------------------------------------------------------------------------


def random_rows(chance: random.Random, count: int, wide: bool) -> pa.Table:
    size = 1000 if wide else 3
    numbers = [chance.choice([None, *range(size)]) for _ in range(count)]
    texts = [chance.choice([None, "", *map(str, range(size))]) for _ in range(count)]
    window = [None if chance.random() < 0.1 else {"a": chance.randrange(size), "b": None} for _ in range(count)]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "t": pa.array(texts, pa.string()),
            "w": pa.array(window, pa.struct([("a", pa.int32()), ("b", pa.int64())])),
        }
    )


@pytest.mark.parametrize("wide", [False, True], ids=["few values", "more combinations than codes"])
def test_each_row_is_found_by_its_key_nulls_too(wide: bool) -> None:
    chance = random.Random(5)
    rows = random_rows(chance, 2000, wide)
    seen: dict[str, int] = {}
    for place, row in enumerate(rows.to_pylist()):
        seen.setdefault(repr(row), place)
    keys = rows.take(pa.array(sorted(seen.values())[::2]))
    place_of = {repr(key): place for place, key in enumerate(keys.to_pylist())}
    found = look_up(keys, rows)
    assert found.tolist() == [place_of.get(repr(row), -1) for row in rows.to_pylist()]
    assert (found == -1).any(), "some rows have none of the keys"


def test_rows_with_nan_and_null_in_several_chunks_are_found() -> None:
    nan = float("nan")
    chunks = pa.chunked_array([[1.0, None, nan], [2.0, None, nan]])
    found = look_up(pa.table({"x": pa.array([nan, None, 2.0])}), pa.table({"x": chunks}))
    assert found.tolist() == [-1, 1, 0, 2, 1, 0]


def test_rows_without_keys_are_all_the_same_group() -> None:
    empty = pa.table({"x": pa.array([1, 2])}).select([])
    assert codes_of([empty.slice(0, 0), empty]) is not None
    assert look_up(pa.table({"x": pa.array([], pa.int64())}), pa.table({"x": [1, 2]})).tolist() == [-1, -1]


def test_keys_that_are_lists_cannot_be_looked_up() -> None:
    lists = pa.table({"x": pa.array([[1], [2]])})
    assert codes_of([lists, lists]) is None
    with pytest.raises(HeadgateError, match="types"):
        look_up(lists, lists)


def test_numbers_are_equal_if_rows_are() -> None:
    table = pa.table({"x": [1.5, float("nan"), 1.5, float("nan"), None, None]})
    codes = codes_of([table])
    assert codes is not None
    assert np.unique(codes, return_inverse=True)[1].tolist() in ([0, 1, 0, 1, 2, 2], [1, 2, 1, 2, 0, 0])
