"""Writing queries: what each method makes of rows, and what is refused while a query is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from headgate.core.errors import UnknownNameError
from headgate.stream import (
    Collect,
    EventTime,
    Query,
    QueryDeclarationError,
    QueryError,
    Reject,
    Stream,
    from_batches,
    run,
)

ROWS = pa.table(
    {"ts": [0, 5, 10, 15, 20, 25], "key": ["a", "b", "a", "a", "b", "c"], "value": [1.0, 2.0, 3.0, None, 5.0, 6.0]}
)
VALUES = pa.schema([("value", pa.float64())])


def rows_of(make: Callable[[Stream], Stream], table: pa.Table = ROWS) -> list[dict[str, Any]]:
    """The same rows for packets of one row, of two, and of all."""
    found = []
    for packet_rows in (1, 2, 100):
        sink = Collect()
        run(make(Query("q").source(from_batches(table))).to(sink), workers=2, packet_rows=packet_rows)
        found.append(sink.rows())
    assert found[0] == found[1] == found[2]
    return found[0]


def values(make: Callable[[Stream], Stream], column: str = "value") -> list[Any]:
    return [row[column] for row in rows_of(make)]


# --- without state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(
            lambda s: s.map(lambda b: b.set_column(2, "value", pc.add(b.column("value"), 1))),
            [2, 3, 4, None, 6, 7],
            id="map over batches",
        ),
        pytest.param(
            lambda s: s.map(lambda f: f.with_columns(polars.col("value") * 2), over="frame"),
            [2, 4, 6, None, 10, 12],
            id="map over frames",
        ),
        pytest.param(
            lambda s: s.map(lambda r: {"value": r["ts"] * 1.0}, over="row", schema=VALUES),
            [0, 5, 10, 15, 20, 25],
            id="map over rows",
        ),
        pytest.param(lambda s: s.filter(pc.field("value") > 2), [3, 5, 6], id="filter by an expression: null is no"),
        pytest.param(lambda s: s.filter(lambda b: pc.equal(b.column("key"), "a")), [1, 3, None], id="filter by a mask"),
        pytest.param(lambda s: s.filter(lambda f: f["key"] == "b", over="frame"), [2, 5], id="filter over frames"),
        pytest.param(lambda s: s.filter(lambda r: r["ts"] > 15, over="row"), [5, 6], id="filter over rows"),
        pytest.param(lambda s: s.project(value=pc.field("ts") * 2), [0, 10, 20, 30, 40, 50], id="project"),
        pytest.param(
            lambda s: s.flat_map(lambda r: [r, r] if r["key"] == "b" else [], over="row", schema=ROWS.schema),
            [2, 2, 5, 5],
            id="flat_map over rows",
        ),
        pytest.param(lambda s: s.split(pc.field("key") == "a")[0], None, id="split leaves no end loose"),
    ],
)
def test_stateless_operators(make: Callable[[Stream], Stream], expected: list[Any] | None) -> None:
    if expected is None:
        with pytest.raises(QueryDeclarationError, match="nobody reads the output of 'split-2'"):
            rows_of(make)
    else:
        assert values(make) == expected


def test_split_gives_a_row_to_the_first_condition_that_holds_and_the_rest_to_the_last() -> None:
    def make(stream: Stream) -> Stream:
        first, second, rest = stream.split(pc.field("key") == "a", pc.field("ts") > 10)
        tagged = [
            part.project("ts", branch=pc.scalar(name)) for name, part in (("1", first), ("2", second), ("3", rest))
        ]
        return tagged[0].merge(*tagged[1:])

    assert [(row["ts"], row["branch"]) for row in rows_of(make)] == [
        (0, "1"),
        (5, "3"),
        (10, "1"),
        (15, "1"),
        (20, "2"),
        (25, "2"),
    ]


# --- with state ---------------------------------------------------------------------------------------------


def test_running_aggregates_tell_how_each_key_stands() -> None:
    found = rows_of(lambda s: s.key_by("key").running(n="count", total=("sum", "value")))
    assert [(r["key"], r["n"], r["total"]) for r in found] == [
        ("a", 1, 1.0),
        ("b", 1, 2.0),
        ("a", 2, 4.0),
        ("a", 3, 4.0),
        ("b", 2, 7.0),
        ("c", 1, 6.0),
    ]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(
            lambda s: s.key_by("key").tumbling("ts", 10).aggregate(n="count"),
            [("a", 0, 1), ("b", 0, 1), ("a", 10, 2), ("b", 20, 1), ("c", 20, 1)],
            id="tumbling",
        ),
        pytest.param(
            lambda s: s.filter(pc.field("key") == "a").key_by("key").sliding("ts", 10, 5).aggregate(n="count"),
            [("a", -5, 1), ("a", 0, 1), ("a", 5, 1), ("a", 10, 2), ("a", 15, 1)],
            id="sliding",
        ),
        pytest.param(
            lambda s: s.key_by("key").session("ts", 9).aggregate(n="count"),
            [("a", 0, 1), ("b", 5, 1), ("a", 10, 2), ("b", 20, 1), ("c", 25, 1)],
            id="sessions",
        ),
    ],
)
def test_windows(make: Callable[[Stream], Stream], expected: list[tuple[Any, ...]]) -> None:
    assert [(row["key"], row["window_start"], row["n"]) for row in rows_of(make)] == expected


def test_spans_of_timestamps_are_timedeltas() -> None:
    stamps = ROWS.set_column(0, "ts", ROWS.column("ts").cast(pa.timestamp("s")))
    found = rows_of(lambda s: s.key_by("key").tumbling("ts", timedelta(seconds=10)).aggregate(n="count"), stamps)
    assert [row["n"] for row in found] == [1, 1, 2, 1, 1]
    with pytest.raises(QueryDeclarationError, match="give spans of time as whole numbers in its unit"):
        rows_of(lambda s: s.key_by("key").tumbling("ts", timedelta(seconds=10)).aggregate(n="count"))


@pytest.mark.parametrize(
    ("unit", "span", "expected"),
    [
        ("s", timedelta(days=3), 259_200),
        ("ms", timedelta(seconds=-1.5), -1_500),
        ("us", timedelta(days=99_999, microseconds=1), 8_639_913_600_000_001),
        ("ns", timedelta(days=36_500, microseconds=1), 3_153_600_000_000_001_000),
    ],
)
def test_spans_are_exact(unit: str, span: timedelta, expected: int) -> None:
    stamps = ROWS.set_column(0, "ts", ROWS.column("ts").cast(pa.timestamp(unit)))
    keyed = Query("q").source(from_batches(stamps)).key_by("key")
    assert keyed._span("ts", span) == expected


def test_a_span_that_the_unit_of_the_time_column_cannot_say_is_refused() -> None:
    stamps = ROWS.set_column(0, "ts", ROWS.column("ts").cast(pa.timestamp("s")))
    with pytest.raises(QueryDeclarationError, match="is no whole number of its unit"):
        rows_of(lambda s: s.key_by("key").tumbling("ts", timedelta(seconds=1.5)).aggregate(n="count"), stamps)


def test_dedupe_lets_the_first_row_of_a_key_pass() -> None:
    assert values(lambda s: s.key_by("key").dedupe(), "ts") == [0, 5, 25]
    assert values(lambda s: s.key_by("key").dedupe(within=12, time="ts"), "ts") == [0, 5, 15, 20, 25]


def test_the_best_rows_of_all_and_of_each_key() -> None:
    best = rows_of(lambda s: s.top_k("value", 2))
    assert [(row["value"], row["rank"]) for row in best if row["final"]] == [(6.0, 1), (5.0, 2)]
    per_key = rows_of(lambda s: s.key_by("key").top_k("value", 1))
    assert [(row["key"], row["value"]) for row in per_key if row["final"]] == [("a", 3.0), ("b", 5.0), ("c", 6.0)]


def test_folds_keep_any_state_by_key_or_over_all() -> None:
    def counting(state: int, row: Any) -> tuple[int, list[dict[str, Any]]]:
        return state + 1, [{"seen": state + 1}]

    seen = pa.schema([("seen", pa.int64())])
    assert values(lambda s: s.fold(counting, 0, seen), "seen") == [1, 2, 3, 4, 5, 6]
    assert values(lambda s: s.key_by("key").fold(counting, 0, seen), "seen") == [1, 1, 2, 3, 2, 1]


def test_branches_of_one_source_join_by_interval() -> None:
    def make(stream: Stream) -> Stream:
        return stream.key_by("key").interval_join(stream.key_by("key"), "ts", before=0, after=10)

    pairs = [(row["key"], row["left_ts"], row["right_ts"]) for row in rows_of(make)]
    assert sorted(pairs) == [
        ("a", 0, 0),
        ("a", 0, 10),
        ("a", 10, 10),
        ("a", 10, 15),
        ("a", 15, 15),
        ("b", 5, 5),
        ("b", 20, 20),
        ("c", 25, 25),
    ]


# --- what is refused ----------------------------------------------------------------------------------------


def stream() -> Stream:
    return Query("q").source(from_batches(ROWS))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        pytest.param(lambda: stream().key_by("kye"), UnknownNameError, "Did you mean 'key'", id="misspelt key"),
        pytest.param(lambda: stream().project("vlaue"), UnknownNameError, "Did you mean 'value'", id="misspelt column"),
        pytest.param(lambda: stream().key_by(), QueryDeclarationError, "at least one column", id="no key"),
        pytest.param(lambda: stream().map(len, over="rows"), UnknownNameError, "Known: batch, frame, row", id="over"),
        pytest.param(
            lambda: stream().map(lambda r: r, over="row"), QueryDeclarationError, "say schema=", id="rows without types"
        ),
        pytest.param(
            lambda: stream().map(lambda b: b.column("nope")),
            QueryDeclarationError,
            "failed on a batch without rows",
            id="a function that fails at once",
        ),
        pytest.param(lambda: stream().union(by="value"), QueryDeclarationError, "cannot be the event time", id="union"),
        pytest.param(lambda: stream().union(by="key"), QueryDeclarationError, "cannot be the event time", id="by text"),
        pytest.param(
            lambda: stream().key_by("key").state(dict, time=EventTime("value")),
            QueryDeclarationError,
            "cannot be the event time",
            id="the time of a state",
        ),
        pytest.param(lambda: Query("a/b"), QueryDeclarationError, "without slashes", id="name"),
        pytest.param(Query("q").spec, QueryDeclarationError, "has no operators", id="empty query"),
        pytest.param(stream().query.spec, QueryDeclarationError, "end each stream with", id="no sink"),
        pytest.param(
            lambda: stream().merge(stream()), QueryDeclarationError, "takes streams of one query", id="two queries"
        ),
        pytest.param(
            lambda: stream().key_by("key").running(), QueryDeclarationError, "say what to aggregate", id="no aggregates"
        ),
        pytest.param(
            lambda: stream().key_by("key").running(n=("sum", "key")), Exception, "cannot be taken of column", id="sum"
        ),
    ],
)
def test_mistakes_are_found_while_a_query_is_written(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make()


def test_merge_is_for_branches_of_one_source_and_union_needs_a_time() -> None:
    query = Query("q")
    one, other = query.source(from_batches(ROWS), "one"), query.source(from_batches(ROWS), "other")
    with pytest.raises(QueryDeclarationError, match=r"use union\(..., by=COLUMN\)"):
        one.merge(other)
    with pytest.raises(UnknownNameError, match="tss"):
        one.union(other, by="tss")


def test_streams_with_different_columns_are_not_put_together() -> None:
    source = stream()
    with pytest.raises(QueryDeclarationError, match="the same columns: 'source' has ts int64"):
        source.merge(source.project("ts"))


def test_a_map_that_drops_rows_says_what_to_use_instead() -> None:
    with pytest.raises(QueryError, match="use flat_map"):
        rows_of(lambda s: s.map(lambda b: b.slice(0, 0), schema=ROWS.schema))


def test_a_filter_over_rows_may_reject() -> None:
    def strict(row: Any) -> bool:
        if row["value"] is None:
            raise Reject("no value")
        return row["value"] > 2

    sink = Collect()
    (ran,) = run(stream().filter(strict, over="row").to(sink), packet_rows=2)
    assert [row["value"] for row in sink.rows()] == [3.0, 5.0, 6.0]
    assert [(each.serial, each.row, each.reason) for each in ran.rejected] == [(1, 1, "no value")]


def test_rejected_rows_can_go_to_a_sink_of_their_own() -> None:
    def strict(row: Any) -> bool:
        raise Reject(f"{row['ts']} is not wanted")

    sink, rejected = Collect(), Collect()
    query = Query("q", rejected=rejected)
    query.source(from_batches(ROWS)).filter(strict, over="row").to(sink)
    (ran,) = run(query, packet_rows=4)
    assert [(row["operator"], row["serial"], row["row"]) for row in rejected.rows()] == [
        ("strict", serial, row) for serial, row in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    ]
    assert rejected.rows()[0]["reason"] == "0 is not wanted"
    assert ran.rejected == ()
