"""At both ends of 64 bits, results are those of integers without bounds; what has no 64-bit result is rejected."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headgate.core.errors import ParameterError
from headgate.stream import Collect, Query, from_batches
from headgate.stream.engine import Engine
from headgate.stream.kernel import Part, Snapshot
from headgate.stream.keyed import (
    Aggregate,
    Dedupe,
    InOrder,
    IntervalJoin,
    RunningAggregate,
    SessionAggregate,
    SlidingAggregate,
    TumblingAggregate,
    plan,
)
from headgate.stream.keyed.rows import null_time
from tests.stream.keyed_driver import Cutting, Row, cuttings, same_for_any_cutting

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
SCHEMA = pa.schema([("user", pa.int64()), ("time", pa.int64()), ("side", pa.string())])
AGGREGATES = (Aggregate("count"), Aggregate("min", "time"), Aggregate("mean", "time"))
KEYS = ["user"]
UNFIT = "its time 'time' lies in a window whose bounds do not fit into 64 bits"
LATE = "its time 'time' lies before what has been closed"

corners = st.sampled_from([LOWEST, -(1 << 62), -1, 0, 1 << 62, HIGHEST])
times = st.builds(lambda corner, more: max(LOWEST, min(corner + more, HIGHEST)), corners, st.integers(-40, 40))
spans = st.integers(0, 12) | st.sampled_from([1 << 61, 1 << 62, HIGHEST - 1, HIGHEST])
rows_of = st.fixed_dictionaries(
    {"user": st.integers(0, 1), "time": st.none() | times, "side": st.sampled_from(["left", "right"])}
)
streams = st.lists(rows_of, max_size=14).flatmap(
    lambda rows: st.sampled_from([rows, sorted(rows, key=lambda row: (row["time"] is not None, row["time"] or 0))])
)
each_packet_size = pytest.mark.parametrize("packet_rows", [1, 2, 3, 100])
Made = list[tuple[int | None, Row]]
Rejects = list[tuple[int, str]]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def aggregated(rows: list[Row]) -> Row:
    every = [row["time"] for row in rows]
    return {"count": len(every), "min_time": min(every), "mean_time": sum(every) / len(every)}


# --- oracles on integers without bounds ---------------------------------------------------------------------------


def plain_windows(rows: list[Row], size: int, step: int, offset: int) -> tuple[Made, Rejects]:
    open_windows: dict[tuple[int, int], list[Row]] = {}
    made: Made = []
    rejected: Rejects = []
    stream: int | None = None

    def close(parent: int | None, until: int | None) -> None:
        for start, user in sorted(open_windows):
            if until is None or start + size <= until:
                bounds = {"window_start": start, "window_end": start + size}
                made.append((parent, {"user": user, **bounds, **aggregated(open_windows.pop((start, user)))}))

    for place, row in enumerate(rows):
        time = row["time"]
        if time is None:
            rejected.append((place, null_time("time")))
            continue
        newest = time - (time - offset) % step
        starts = [start for start in range(newest, time - size, -step)] or [newest]
        if starts[-1] < LOWEST or newest + size > HIGHEST:
            rejected.append((place, UNFIT))
            continue
        stream = time if stream is None else max(stream, time)
        close(place, stream)
        if time < stream - (stream - offset - size) % step:
            rejected.append((place, LATE))
            continue
        for start in starts:
            if time < start + size:
                open_windows.setdefault((start, row["user"]), []).append(row)
    close(None, None)
    return made, rejected


def in_time(rows: list[Row]) -> tuple[list[tuple[int, Row]], Rejects]:
    """The rows that are not older than any before, and the others."""
    taken, rejected, stream = list[tuple[int, Row]](), Rejects(), LOWEST
    for place, row in enumerate(rows):
        if row["time"] is None:
            rejected.append((place, null_time("time")))
        elif row["time"] < stream:
            rejected.append((place, LATE))
        else:
            stream = row["time"]
            taken.append((place, row))
    return taken, rejected


def plain_sessions(rows: list[Row], gap: int) -> Made:
    sessions: dict[int, list[Row]] = {}
    made: Made = []

    def close(parent: int | None, now: int | None) -> None:
        done = [user for user, held in sessions.items() if now is None or held[-1]["time"] + gap < now]
        for user in sorted(done, key=lambda user: (sessions[user][0]["time"], user)):
            held = sessions.pop(user)
            bounds = {"window_start": held[0]["time"], "window_end": held[-1]["time"]}
            made.append((parent, {"user": user, **bounds, **aggregated(held)}))

    for place, row in in_time(rows)[0]:
        close(place, row["time"])
        sessions.setdefault(row["user"], []).append(row)
    close(None, None)
    return made


def plain_dedupe(rows: list[Row], within: int) -> list[int]:
    passed_at: dict[int, int] = {}
    passed = []
    for place, row in in_time(rows)[0]:
        if row["user"] not in passed_at or row["time"] > passed_at[row["user"]] + within:
            passed_at[row["user"]] = row["time"]
            passed.append(place)
    return passed


def plain_join(rows: list[Row], before: int, after: int) -> list[tuple[int, int, int, int]]:
    made, earlier = [], list[Row]()
    for place, row in in_time(rows)[0]:
        for other in earlier:
            left, right = (row, other) if row["side"] == "left" else (other, row)
            near = left["time"] - before <= right["time"] <= left["time"] + after
            if near and other["side"] != row["side"] and other["user"] == row["user"]:
                made.append((place, row["user"], left["time"], right["time"]))
        earlier.append(row)
    return made


# --- any stream, cut in any way -----------------------------------------------------------------------------------


@given(streams, spans, times, cuttings())
def test_tumbling_windows(rows: list[Row], size: int, offset: int, cutting: Cutting) -> None:
    size = max(size, 1)
    planned = plan(TumblingAggregate, SCHEMA, KEYS, "time", size, AGGREGATES, offset)
    ran = same_for_any_cutting(planned, batch_of(rows), KEYS, cutting)
    assert (ran.rows, sorted(ran.rejected)) == plain_windows(rows, size, size, offset)


@given(streams, spans, spans, times, cuttings())
def test_sliding_windows(rows: list[Row], size: int, step: int, offset: int, cutting: Cutting) -> None:
    size, step = max(size, 1), max(step, 1)
    assume(size // step < 30)
    planned = plan(SlidingAggregate, SCHEMA, KEYS, "time", size, step, AGGREGATES, offset)
    ran = same_for_any_cutting(planned, batch_of(rows), KEYS, cutting)
    assert (ran.rows, sorted(ran.rejected)) == plain_windows(rows, size, step, offset)


@given(streams, spans, cuttings())
def test_sessions(rows: list[Row], gap: int, cutting: Cutting) -> None:
    planned = plan(SessionAggregate, SCHEMA, KEYS, "time", gap, AGGREGATES)
    ran = same_for_any_cutting(planned, batch_of(rows), KEYS, cutting)
    assert ran.rows == plain_sessions(rows, gap)
    assert sorted(ran.rejected) == in_time(rows)[1]


@given(streams, spans, cuttings())
def test_dedupe(rows: list[Row], within: int, cutting: Cutting) -> None:
    ran = same_for_any_cutting(plan(Dedupe, SCHEMA, KEYS, within, "time"), batch_of(rows), KEYS, cutting)
    assert [place for place, _ in ran.rows] == plain_dedupe(rows, within)
    assert sorted(ran.rejected) == in_time(rows)[1]


@given(streams, spans, spans, st.booleans(), st.booleans(), cuttings())
@example([{"user": 0, "time": HIGHEST, "side": side} for side in ("left", "right")], 5, 9, True, False, Cutting((1,)))
def test_joins(rows: list[Row], one: int, other: int, after: bool, mirrored: bool, cutting: Cutting) -> None:
    """``after``: right rows come only some time after left ones; ``mirrored``: the other way round."""
    first, second = (-min(one, other), max(one, other)) if after else (one, other)
    if mirrored:
        first, second = second, first
    planned = plan(IntervalJoin, SCHEMA, KEYS, "time", ["time"], ["time"], first, second, "side")
    ran = same_for_any_cutting(planned, batch_of(rows), KEYS, cutting)
    found = [(place, row["user"], row["left_time"], row["right_time"]) for place, row in ran.rows]
    assert found == plain_join(rows, first, second)
    assert sorted(ran.rejected) == in_time(rows)[1]


@given(streams, cuttings())
def test_rows_in_order(rows: list[Row], cutting: Cutting) -> None:
    ran = same_for_any_cutting(plan(InOrder, SCHEMA, KEYS, "time"), batch_of(rows), KEYS, cutting)
    latest: dict[int, int] = {}
    passed = []
    for place, row in enumerate(rows):
        if row["time"] is not None and row["time"] >= latest.get(row["user"], LOWEST):
            latest[row["user"]] = row["time"]
            passed.append(place)
    assert [place for place, _ in ran.rows] == passed


# --- means --------------------------------------------------------------------------------------------------------

wide = st.integers(LOWEST, HIGHEST) | times | st.integers(-(1 << 53) - 3, -(1 << 53) + 3) | st.integers(-9, 9)


@given(st.lists(st.tuples(st.integers(0, 1), st.none() | wide), max_size=12), st.booleans(), cuttings())
def test_means_of_integers_are_those_of_exact_sums(
    values: list[tuple[int, int | None]], unsigned: bool, cutting: Cutting
) -> None:
    shift = -LOWEST if unsigned else 0
    schema = pa.schema([("user", pa.int64()), ("time", pa.int64()), ("n", pa.uint64() if unsigned else pa.int64())])
    rows = [
        {"user": user, "time": place // 3, "n": None if n is None else n + shift}
        for place, (user, n) in enumerate(values)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)

    def mean(held: list[Row]) -> float | None:
        known = [row["n"] for row in held if row["n"] is not None]
        return sum(known) / len(known) if known else None

    ran = same_for_any_cutting(plan(RunningAggregate, schema, KEYS, [Aggregate("mean", "n")]), batch, KEYS, cutting)
    so_far = [[row for row in rows[: place + 1] if row["user"] == rows[place]["user"]] for place in range(len(rows))]
    assert [row["mean_n"] for _, row in ran.rows] == [mean(held) for held in so_far]

    planned = plan(SlidingAggregate, schema, KEYS, "time", 4, 1, [Aggregate("mean", "n")])
    for _, row in same_for_any_cutting(planned, batch, KEYS, cutting).rows:
        inside = range(row["window_start"], row["window_end"])
        assert row["mean_n"] == mean([one for one in rows if one["user"] == row["user"] and one["time"] in inside])


@each_packet_size
@pytest.mark.parametrize(
    ("values", "kind"),
    [([1_700_000_000_000_000_000] * 6, pa.int64()), ([(1 << 64) - 1], pa.uint64()), ([LOWEST] * 3, pa.int64())],
    ids=["nanoseconds since 1970", "the largest unsigned", "the smallest"],
)
def test_a_mean_does_not_wrap_around(values: list[int], kind: pa.DataType, packet_rows: int) -> None:
    table = pa.array(values, kind)
    for build in (
        lambda s: s.tumbling("ts", 10).aggregate(mean=("mean", "value")),
        lambda s: s.running(mean=("mean", "value")),
    ):
        found, _ = run(build, [0] * len(values), packet_rows, value=table)
        assert {row["mean"] for row in found} == {float(values[0])}


def test_a_state_of_before_means_were_exact_goes_on() -> None:
    planned = plan(RunningAggregate, SCHEMA, KEYS, [Aggregate("mean", "time")])
    state = planned.factory()
    state.process(Part.whole(batch_of([{"user": 1, "time": time} for time in (-5, HIGHEST, -4)])))
    kept = state.snapshot()
    high, low = (kept.tables["totals"].column(f"0 {name}").to_numpy() for name in ("high", "value"))
    old = {"0 count": kept.tables["totals"].column("0 count"), "0 value": pa.array((high << 32) + low)}
    state = planned.factory()
    state.restore(Snapshot({**kept.tables, "totals": pa.table(old)}, kept.values))
    assert state.changes() is None, "changes do not fit a snapshot without a high half"
    output = state.process(Part.whole(batch_of([{"user": 1, "time": HIGHEST}])))
    assert output.batch.column("mean_time").to_pylist() == [(2 * HIGHEST - 9) / 4]


# --- what was wrong once, through the engine ----------------------------------------------------------------------


def run(build: Any, at: list[int | None], packet_rows: int, **columns: list[Any]) -> tuple[list[Row], list[int]]:
    """The rows of a query, and the number of each row that it rejects."""
    table = pa.table({"ts": pa.array(at, pa.int64()), "user": pa.array([1] * len(at)), **columns})
    found = Collect()
    with Engine(workers=2, packet_rows=packet_rows) as engine:
        query = build(Query("extreme").source(from_batches(table)).key_by("user")).to(found)
        ended = engine.add(query).result(20)
    return found.rows(), [each.serial * packet_rows + each.row for each in ended.rejected]


def bounds(rows: list[Row]) -> list[tuple[int, int, int]]:
    return [(row["window_start"], row["window_end"], row["n"]) for row in rows]


@each_packet_size
@pytest.mark.parametrize("build", [lambda s: s.sliding("ts", 60, 1), lambda s: s.tumbling("ts", 1, offset=5)])
def test_a_first_packet_without_any_time_is_rejected_as_any_other(build: Any, packet_rows: int) -> None:
    at = [None, None, None, 7, None, 8]
    found, rejected = run(lambda s: build(s).aggregate(n="count"), at, packet_rows)
    assert rejected == [0, 1, 2, 4]
    assert sum(row["n"] for row in found) in (2, 120)


@each_packet_size
@pytest.mark.parametrize(
    ("at", "expected", "rejects"),
    [
        ([LOWEST + 1, 25, 23], [(20, 30, 2)], [0]),
        ([HIGHEST - 1, 25, 23], [(20, 30, 2)], [0]),
        ([25, HIGHEST, 23, 31], [(20, 30, 2), (30, 40, 1)], [1]),
        ([(1 << 62) + 6], [((1 << 62) + 6, (1 << 62) + 16, 1)], []),
        ([-(1 << 62) - 6], [(-(1 << 62) - 6, -(1 << 62) + 4, 1)], []),
    ],
    ids=["the first cannot be represented", "the last", "one in between", "beyond 2**62", "before -2**62"],
)
def test_a_row_whose_window_cannot_be_represented_is_rejected_and_moves_nothing(
    at: list[int | None], expected: list[tuple[int, int, int]], rejects: list[int], packet_rows: int
) -> None:
    offset = expected[0][0] % 10
    found, rejected = run(lambda s: s.tumbling("ts", 10, offset=offset).aggregate(n="count"), at, packet_rows)
    assert (bounds(found), rejected) == (expected, rejects)


@each_packet_size
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_that_python_cannot_show_is_rejected_as_any_other(unit: str, packet_rows: int) -> None:
    stamp = pa.array([LOWEST, HIGHEST, None, 5]).cast(pa.timestamp(unit))
    found, rejected = run(lambda s: s.tumbling("stamp", 10).aggregate(n="count"), [0] * 4, packet_rows, stamp=stamp)
    assert ([row["n"] for row in found], rejected) == ([1], [0, 1, 2])
    falling = stamp.take([1, 0])
    build = lambda s: s.dedupe(within=5, time="stamp").project("ts")  # noqa: E731
    assert run(build, [3, 4], packet_rows, stamp=falling) == ([{"ts": 3}], [1])


@each_packet_size
def test_dedupe_near_the_largest_time_ends(packet_rows: int) -> None:
    at = [HIGHEST - 3, HIGHEST - 2, HIGHEST]
    found, _ = run(lambda s: s.dedupe(within=10, time="ts"), at, packet_rows)
    assert [row["ts"] for row in found] == at[:1]


@each_packet_size
def test_a_session_does_not_stretch_over_the_whole_range(packet_rows: int) -> None:
    at = [LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST]
    found, rejected = run(lambda s: s.session("ts", 5).aggregate(n="count"), at, packet_rows)
    assert (bounds(found), rejected) == ([(*at[:2], 2), (*at[2:], 2)], [])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TumblingAggregate(SCHEMA, KEYS, "time", 1 << 63, []), "size must be at most 9223372036854775807"),
        (lambda: SessionAggregate(SCHEMA, KEYS, "time", 1 << 64, []), "gap must be at most"),
        (lambda: Dedupe(SCHEMA, KEYS, 1 << 63, "time"), "within must be at most"),
        (lambda: IntervalJoin(SCHEMA, KEYS, "time", ["time"], ["time"], 1 << 63, 0, "side"), "before must be at most"),
        (lambda: IntervalJoin(SCHEMA, KEYS, "time", ["time"], ["time"], 1, 1 << 64, "side"), "after must be at most"),
    ],
    ids=["size", "gap", "within", "before", "after"],
)
def test_a_span_that_no_two_times_can_be_apart_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()
