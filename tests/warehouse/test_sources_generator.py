"""Generated chunks: when they arrive, what is in them, and that they come out the same every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headgate.core.errors import DeclarationError, UserCodeError
from headgate.warehouse.sources import Generator, Limit, Pending, Range
from headgate.warehouse.sources.generated_rows import BROKEN, Recipe
from headgate.warehouse.sources.generator import GeneratorOffset, GeneratorRange
from headgate.warehouse.sources.schema import parse_schema

pa = pytest.importorskip("pyarrow")

TEN = 1_794_736_800  # 2026-11-15T10:00:00Z
MICROS = 1_000_000
SECOND = MICROS


def generator(now: float = TEN, **changed: Any) -> Generator:
    return Generator(**({"start": TEN, "every": "2 seconds", "rows_per_chunk": 10, "clock": lambda: now} | changed))


# --- arrivals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed", "chunks"),
    [(-0.001, 0), (0.0, 1), (1.999, 1), (2.0, 2), (7.0, 4)],
)
def test_chunk_k_arrives_k_periods_after_the_start(elapsed: float, chunks: int) -> None:
    source = generator(TEN + elapsed)
    assert source.latest(source.start()).chunks == chunks


def test_what_lies_behind_is_counted_with_its_times_of_arrival() -> None:
    source = generator(TEN + 7)
    row = 8 + 12 + 8
    assert source.latest(source.start()) == Pending(chunks=4, bytes=4 * 10 * row, oldest=TEN, newest=TEN + 6)


def test_before_the_start_it_says_what_it_waits_for() -> None:
    source = generator(TEN - 60)
    assert source.latest(source.start()) == Pending(note="begins at 2026-11-15T10:00:00Z")
    assert source.next_range(source.start(), Limit()) is None


def test_without_a_start_the_stream_begins_when_it_is_first_loaded_and_not_again_at_each_restart() -> None:
    offset = generator(TEN + 5, start=None).start()
    assert offset == GeneratorOffset((TEN + 5) * MICROS)
    assert generator(TEN + 15, start=None).latest(offset).chunks == 6


@pytest.mark.parametrize(
    "start", [TEN, float(TEN), "2026-11-15T10:00:00Z", "2026-11-15 10:00:00", "2026-11-15T11:00:00+01:00"]
)
def test_a_start_is_written_in_many_ways(start: object) -> None:
    assert generator(start=start).start().began == TEN * MICROS


@pytest.mark.parametrize(
    ("limit", "first", "last"),
    [
        pytest.param(Limit(), 5, 9, id="the first gap"),
        pytest.param(Limit(chunks=2), 5, 6, id="chunks"),
        pytest.param(Limit(bytes=3 * 280), 5, 7, id="bytes"),
        pytest.param(Limit(bytes=1), 5, 5, id="one chunk at least"),
        pytest.param(Limit(seconds=2), 5, 6, id="seconds between arrivals"),
        pytest.param(Limit(seconds=1.9), 5, 5, id="less than a period"),
        pytest.param(Limit(first="newest"), 20, 30, id="the last gap"),
        pytest.param(Limit(chunks=2, first="newest"), 29, 30, id="newest chunks"),
    ],
)
def test_a_range_is_one_run_of_chunks_within_the_limit(limit: Limit, first: int, last: int) -> None:
    source = generator(TEN + 60.5)
    found = source.next_range(GeneratorOffset(TEN * MICROS, ((0, 4), (10, 19))), limit)
    assert found == GeneratorRange(TEN * MICROS, first, last, 280, TEN + 2 * first, TEN + 2 * last)


def test_after_the_clock_was_set_back_there_is_nothing_new_until_it_has_caught_up() -> None:
    offset = GeneratorOffset(TEN * MICROS, ((0, 2), (8, 9)))
    assert generator(TEN + 2).latest(offset) == Pending()
    assert generator(TEN + 2).next_range(offset, Limit()) is None
    assert generator(TEN + 8).latest(offset).chunks == 2


@pytest.mark.parametrize(
    ("loaded", "run", "expected"),
    [
        pytest.param((), (0, 2), ((0, 2),), id="the first"),
        pytest.param(((0, 2),), (3, 4), ((0, 4),), id="the next"),
        pytest.param(((0, 2),), (5, 6), ((0, 2), (5, 6)), id="with a gap"),
        pytest.param(((0, 2), (5, 6)), (3, 4), ((0, 6),), id="into the gap"),
        pytest.param(((5, 6),), (0, 1), ((0, 1), (5, 6)), id="before"),
        pytest.param(((0, 6),), (2, 3), ((0, 6),), id="again"),
    ],
)
def test_an_offset_keeps_runs_of_chunks(loaded: Any, run: tuple[int, int], expected: Any) -> None:
    source = generator()
    advanced = source.advance(GeneratorOffset(0, loaded), GeneratorRange(0, *run, 1, 0.0, 0.0))
    assert advanced == GeneratorOffset(0, expected)


# --- rows -------------------------------------------------------------------------------------------------------


def recipe(schema: str = "ts timestamp, sensor string, temp double", **changed: Any) -> Recipe:
    defaults = {"rows": 1_000, "every": 2 * SECOND, "seed": 7, "kind": "sensors"}
    chances = {"late": 0.0, "late_by": 60 * SECOND, "malformed": 0.0}
    return Recipe(columns=parse_schema(schema, "here"), time="ts", **(defaults | chances | changed))


def times(table: Any) -> np.ndarray[Any, Any]:
    return np.asarray(table.column("ts").cast(pa.int64()))


def test_a_chunk_is_the_same_every_time_and_unlike_its_neighbours() -> None:
    assert recipe().chunk(3, TEN * MICROS).equals(recipe().chunk(3, TEN * MICROS))
    temps = recipe().chunk(3, TEN * MICROS).column("temp")
    assert temps != recipe().chunk(4, TEN * MICROS).column("temp")
    assert temps != recipe(seed=8).chunk(3, TEN * MICROS).column("temp")


def test_events_happen_in_order_between_the_chunk_before_and_the_arrival() -> None:
    made = times(recipe().chunk(3, TEN * MICROS))
    assert (np.diff(made) >= 0).all()
    assert (TEN - 2) * MICROS <= made.min() < made.max() < TEN * MICROS


def test_late_rows_are_as_many_and_as_late_as_asked_for() -> None:
    made = times(recipe(late=0.25).chunk(0, TEN * MICROS))
    late = made[made < (TEN - 2) * MICROS]
    assert 0.2 < len(late) / len(made) < 0.3
    assert late.min() >= (TEN - 2 - 60) * MICROS


def test_malformed_rows_are_as_many_as_asked_for() -> None:
    broken = np.asarray(recipe(malformed=0.25).chunk(0, TEN * MICROS).column(BROKEN))
    assert 0.2 < broken.mean() < 0.3


def test_columns_are_filled_by_their_type_in_the_declared_order() -> None:
    schema = "n long, i int, ts timestamp, s short, b byte, f float, d double, ok boolean, name string"
    table = recipe(schema).chunk(0, TEN * MICROS)
    assert table.column_names[:9] == ["n", "i", "ts", "s", "b", "f", "d", "ok", "name"]
    assert all(table.column(name).null_count == 0 for name in table.column_names)
    assert [str(table.schema.field(name).type) for name in ("n", "i", "b", "f", "ok")] == [
        *("int64", "int32", "int8", "float", "bool")
    ]


def test_a_schema_of_nothing_but_the_event_time_is_enough() -> None:
    assert recipe("ts timestamp").chunk(0, TEN * MICROS).num_rows == 1_000


def letters(rng: np.random.Generator) -> Any:
    return pa.table({"letter": [chr(ord("a") + number) for number in rng.integers(0, 26, 4)]})


def test_a_function_of_the_user_makes_the_rows_and_the_event_times_are_added() -> None:
    table = recipe("letter string, ts timestamp", kind=letters).chunk(0, TEN * MICROS)
    assert table.num_rows == 4
    assert (times(table) < TEN * MICROS).all()


def test_event_times_that_a_function_makes_itself_are_kept() -> None:
    def timed(rng: np.random.Generator) -> Any:
        return letters(rng).append_column("ts", pa.array([1, 2, 3, 4], pa.timestamp("us", tz="UTC")))

    assert times(recipe("letter string, ts timestamp", kind=timed).chunk(0, TEN * MICROS)).tolist() == [1, 2, 3, 4]


def failing(rng: np.random.Generator) -> Any:
    raise ZeroDivisionError("no rows today")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        pytest.param(failing, "failing, which makes .*: ZeroDivisionError: no rows today", id="fails"),
        pytest.param(lambda rng: [1, 2], "has to return a pyarrow.Table; it returned a list", id="no table"),
        pytest.param(letters, "columns ts, sensor, temp; it returned letter. Return all of them", id="other columns"),
    ],
)
def test_a_function_of_the_user_that_goes_wrong_is_named(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(UserCodeError, match=said):
        recipe(kind=function).chunk(0, TEN * MICROS)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"schema": "a strng"}, "unknown type 'strng'; did you mean 'string'", id="bad schema"),
        pytest.param({"schema": "a int"}, "needs a timestamp column for the event time; got time=None", id="no time"),
        pytest.param({"time": "temp"}, "got time='temp' and 'ts timestamp, sensor", id="time is no timestamp"),
        pytest.param({"kind": "clicks"}, "kind takes 'sensors', or a function", id="unknown kind"),
        pytest.param(
            {"schema": "ts timestamp, a array<int>"}, "cannot fill the column 'a' of the type array<int>", id="array"
        ),
        pytest.param({"every": 0}, "every is a length of time above 0; got 0", id="no pace"),
        pytest.param({"every": "often"}, "every takes a length of time", id="pace in words"),
        pytest.param({"rows_per_chunk": 0}, "rows_per_chunk is a whole number, at least 1; got 0", id="no rows"),
        pytest.param({"seed": -1}, "seed is a whole number, at least 0", id="negative seed"),
        pytest.param({"late": 1.5}, "late is a share of the rows, from 0 to 1; got 1.5", id="more late than rows"),
        pytest.param({"malformed": -0.1}, "malformed is a share of the rows", id="negative share"),
        pytest.param({"late_by": "a bit"}, "late_by takes a length of time", id="late by what"),
        pytest.param({"start": "yesterday"}, "start takes a moment such as '2026-11-15T10:00:00Z'", id="start"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=f"^Generator.*{said}"):
        generator(**wrong)


def test_the_event_time_is_the_first_timestamp_unless_another_is_named() -> None:
    two = "made timestamp, seen timestamp"
    with pytest.raises(DeclarationError, match="cannot fill the column 'seen'"):
        generator(schema=two)
    with pytest.raises(DeclarationError, match="cannot fill the column 'made'"):
        generator(schema=two, time="seen")


def test_a_generator_prints_what_matters() -> None:
    assert repr(generator(seed=3)) == (
        "Generator('ts timestamp, sensor string, temp double', rows_per_chunk=10, every='2 s', seed=3)"
    )


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_reading_gives_the_rows_of_each_chunk_however_chunks_are_grouped(spark: Any) -> None:
    source = generator(TEN + 7, late=0.3, malformed=0.3)
    whole = source.next_range(source.start(), Limit())
    assert whole is not None
    together = source.read(spark, Range.from_json(whole.to_json())).collect()
    one_by_one = [
        row
        for chunk in range(4)
        for row in source.read(spark, GeneratorRange(whole.began, chunk, chunk, 1, 0.0, 0.0)).collect()
    ]
    assert together == one_by_one
    assert len(together) == 40
    good = [row for row in together if row._error is None]
    bad = [row for row in together if row._error is not None]
    assert good and bad
    assert all(None not in (row.ts, row.sensor, row.temp) and row._raw.endswith("}") for row in good)
    assert all((row.ts, row.sensor, row.temp) == (None, None, None) and row._raw for row in bad)
    assert {row._file for row in together} == {"chunk 0", "chunk 1", "chunk 2", "chunk 3"}
    source.verify(whole)


@pytest.mark.spark
@pytest.mark.slow
def test_reading_keeps_the_declared_types_and_microseconds(spark: Any) -> None:
    def odd(rng: np.random.Generator) -> Any:
        moment = pa.array([1_794_736_800_123_456], pa.timestamp("us", tz="UTC"))
        return pa.table({"n": pa.array([1], pa.int64()), "tags": pa.array([["a", "b"]]), "ts": moment})

    source = generator(schema="ts timestamp, n int, tags array<string>", kind=odd)
    found = source.next_range(source.start(), Limit())
    assert found is not None
    frame = source.read(spark, found)
    assert frame.schema.simpleString() == (
        "struct<ts:timestamp,n:int,tags:array<string>,_file:string,_raw:string,_error:string>"
    )
    (row,) = frame.selectExpr("unix_micros(ts) AS ts", "n", "tags", "_raw").collect()
    raw = '{"ts":"2026-11-15T10:00:00.123456Z","n":1,"tags":["a","b"]}'
    assert row.asDict() == {"ts": 1_794_736_800_123_456, "n": 1, "tags": ["a", "b"], "_raw": raw}
