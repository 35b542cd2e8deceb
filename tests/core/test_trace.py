"""Traces: lines out and in again, and what they say about staleness, lag and the settings of a run."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.cost import MOST_SECONDS
from headgate.core.features import MOST_CLASS
from headgate.core.staleness import LagMeter
from headgate.core.trace import (
    Change,
    FreshnessHistory,
    NotLoaded,
    Redeclared,
    RunNotice,
    StreamArrival,
    Trace,
    TraceError,
    TraceHeader,
    TraceTable,
    arrivals,
    lag_of,
    measured,
    on_time,
    trace_from,
    track_use,
    waiting,
)
from headgate.core.trace.lines import (
    TRACED_FIELDS,
    change_line,
    end_line,
    full_line,
    header_line,
    not_loaded_line,
    notice_line,
    redeclared_line,
    update_line,
)
from headgate.core.trace.values import FIRST_START, MOST, MOST_SET_BACK
from headgate.core.update import OperatorFigures, Update, first_line

START = 1_794_736_800.0


def micros(seconds: float) -> int:
    return round((START + seconds) * 1e6)


def update(name: str, began: float, seconds: float, reaches: float | None, **more: object) -> Update:
    """A live update by seconds from the start of the run; ``reaches`` is the event time that it brings the table to."""
    plain = Update(
        table=name,
        layer="live",
        track=0,
        released=START + began,
        began=START + began,
        seconds=seconds,
        gained=1.0,
        rows=1,
        rejected=0,
        freshness=None if reaches is None else micros(reaches),
        arrived=None,
        overhead=0.0,
        error=None,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def load(name: str, came: tuple[float, float, int], began: float, seconds: float, reaches: float) -> Update:
    first, last, chunks = came
    return update(name, began, seconds, reaches, arrived=(START + first, START + last, chunks))


def run_of(tables: tuple[TraceTable, ...], *updates: Update, end: float, changes: tuple[Change, ...] = ()) -> Trace:
    header = TraceHeader("city", START, 2, "max-benefit", "proportional", "max", None, tables)
    return Trace(header, updates, changes, START + end)


STREAM = TraceTable("s", kind="stream", freshness=micros(0))
DERIVED = TraceTable("t", sources=("s",), freshness=micros(0))


# --- lines ----------------------------------------------------------------------------------------------------

NUMBERS = st.floats(-MOST, MOST)
WHOLES = st.integers(-(2**63), 2**63)
COUNTS = st.integers(0, 2**63)
LENGTHS = st.floats(0, MOST_SECONDS)
STARTS, MOMENTS = st.floats(FIRST_START, 1e9), st.floats(1e9, 4e9)
MAYBE_MICROS = st.none() | st.integers(-(2**62), 2**62)
ABOVE_ZERO = st.floats(0, MOST, exclude_min=True)
PRIORITIES = st.floats(0, MOST)


@st.composite
def tables(draw: st.DrawFn) -> tuple[TraceTable, ...]:
    """Tables as a warehouse may have them: each is computed from some before it, or loaded."""
    made: list[TraceTable] = []
    for name in draw(st.lists(st.text(), max_size=3, unique=True)):
        sources = draw(st.lists(st.sampled_from([table.name for table in made]), unique=True)) if made else []
        made.append(
            TraceTable(
                name=name,
                sources=tuple(sources),
                period=draw(st.none() | ABOVE_ZERO),
                priority=draw(PRIORITIES),
                importance_class=draw(st.integers(-MOST_CLASS, MOST_CLASS)),
                patience=draw(st.none() | ABOVE_ZERO),
                target_lag=draw(st.none() | ABOVE_ZERO),
                kind="table" if sources else draw(st.sampled_from(["stream", "dimension"])),
                freshness=draw(MAYBE_MICROS),
            )
        )
    return tuple(made)


HEADERS = st.builds(
    TraceHeader,
    warehouse=st.text(),
    started=STARTS,
    tracks=st.integers(1, 100),
    policy=st.text(),
    placement=st.text(),
    inheritance=st.sampled_from(["default", "none", "sum", "max", "max-plus", "max-plus:k=3", "density"]),
    chop=st.none() | ABOVE_ZERO,
    budget=st.none() | ABOVE_ZERO,
    tables=tables(),
)
OPERATORS = st.builds(
    OperatorFigures,
    query=st.text(),
    name=st.text(),
    kind=st.text(),
    rows_in=COUNTS,
    rows_out=COUNTS,
    rejected=COUNTS,
    processor=NUMBERS,
    peak_rows_waiting=COUNTS,
    utilisation=NUMBERS,
    seconds=NUMBERS,
    in_queue=NUMBERS,
    for_a_turn=NUMBERS,
    computing=NUMBERS,
    inputs=st.lists(st.text(), max_size=2).map(tuple),
)
UPDATES = st.builds(
    Update,
    table=st.text(),
    layer=st.sampled_from(["live", "backfill", "maintenance"]),
    track=st.integers(-1, 100),
    released=MOMENTS,
    began=MOMENTS,
    seconds=LENGTHS,
    gained=NUMBERS,
    rows=COUNTS,
    rejected=COUNTS,
    freshness=MAYBE_MICROS,
    arrived=st.none() | st.tuples(MOMENTS, MOMENTS, st.integers(0, 1000)),
    overhead=NUMBERS,
    error=st.none() | st.text(),
    operators=st.lists(OPERATORS, max_size=2).map(tuple),
)
CHANGES = st.builds(Change, MOMENTS, st.dictionaries(st.text(), st.text() | WHOLES | st.lists(st.text()), max_size=2))


NOTICES = st.builds(RunNotice, MOMENTS, st.none() | st.text(), st.text())
REDECLARED = st.builds(Redeclared, MOMENTS, tables())
NOT_LOADED = st.builds(
    NotLoaded,
    MOMENTS,
    st.dictionaries(st.text(), st.tuples(MOMENTS, MOMENTS, st.integers(0, 1000)), max_size=2),
    st.lists(st.text(), max_size=2).map(tuple),
)


def lines_of(trace: Trace) -> list[str]:
    lines = [header_line(trace.header), *map(update_line, trace.updates), *map(change_line, trace.changes)]
    lines += [*map(redeclared_line, trace.redeclared), *map(notice_line, trace.notices)]
    lines += [] if trace.not_loaded is None else [not_loaded_line(trace.not_loaded)]
    lines += [] if trace.full is None else [full_line(trace.full, 10)]
    return lines + ([] if trace.end is None else [end_line(trace.end)])


TRACES = st.builds(
    Trace,
    header=HEADERS,
    updates=st.lists(UPDATES, max_size=3).map(tuple),
    changes=st.lists(CHANGES, max_size=2).map(tuple),
    end=st.none() | MOMENTS,
    full=st.none() | MOMENTS,
    redeclared=st.lists(REDECLARED, max_size=2).map(tuple),
    notices=st.lists(NOTICES, max_size=2).map(tuple),
    not_loaded=st.none() | NOT_LOADED,
)


@settings(max_examples=40)
@given(TRACES)
def test_a_trace_comes_back_from_its_lines_as_it_was(trace: Trace) -> None:
    assert trace_from(lines_of(trace)) == trace


@settings(max_examples=40)
@given(TRACES)
def test_every_line_is_one_json_object_without_a_line_break_inside(trace: Trace) -> None:
    for line in lines_of(trace):
        assert line.count("\n") == 1
        assert line.endswith("\n")
        assert isinstance(json.loads(line), dict)


@given(UPDATES, st.data())
def test_a_last_line_that_was_cut_off_anywhere_is_passed_over(cut: Update, data: st.DataObject) -> None:
    whole = run_of((STREAM,), update("s", 1.0, 0.5, 1.0), end=2.0)
    line = update_line(cut)
    kept = data.draw(st.integers(0, len(line) - 2))
    assert trace_from([*lines_of(whole), line[:kept]]) == whole


def test_keys_and_lines_of_later_versions_are_passed_over() -> None:
    trace = run_of((STREAM,), update("s", 1.0, 0.5, 1.0), end=2.0)
    lines = [json.dumps(json.loads(line) | {"more": 1}) for line in lines_of(trace)]
    assert trace_from([*lines, '{"noted": "something"}']) == trace


def test_a_header_that_does_not_tell_what_tables_had_is_read() -> None:
    header = json.loads(header_line(run_of((STREAM,), end=1.0).header))
    del header["tables"][0]["freshness"]
    assert trace_from([json.dumps(header)]).header.tables == (replace(STREAM, freshness=None),)


FILTER = OperatorFigures("query", "cheap", "stateless", 10, 4, 1, 0.5, 8, 0.25, 2.0)


def test_updates_of_tables_without_queries_say_nothing_of_operators() -> None:
    """As in the traces of versions that knew of none."""
    plain = update("s", 1.0, 0.5, 1.0)
    assert "operators" not in json.loads(update_line(plain))
    assert len(json.loads(update_line(replace(plain, operators=(FILTER, FILTER))))["operators"]) == 2


GOOD = header_line(run_of((STREAM,), end=1.0).header)

BAD_LINES = {
    "nothing at all": ([], ("empty",)),
    "another file": (['{"rows": 3}'], ("not a trace",)),
    "a later version": (['{"trace": 2}'], ("version 2",)),
    "a header without policy": ([GOOD.replace('"policy"', '"polity"')], ("line 1", "'policy'")),
    "a kind of table that does not exist": ([GOOD.replace('"stream"', '"river"')], ("line 1", "'river'", "dimension")),
    "a line in the middle that is no JSON": ([GOOD, '{"upd', end_line(1.0)], ("line 2", "JSON")),
    "an update without a track": ([GOOD, '{"update": "s", "arrived": null, "layer": "live"}'], ("line 2", "'track'")),
    "an update of a text's length": (
        [GOOD, update_line(update("s", 1.0, 0.5, 1.0)).replace('"seconds":0.5', '"seconds":"long"')],
        ("line 2", "long"),
    ),
    "arrivals of two numbers": (
        [GOOD, update_line(update("s", 1.0, 0.5, 1.0)).replace('"arrived":null', '"arrived":[1,2]')],
        ("line 2",),
    ),
    "a stream that waits for a text": (
        [GOOD, '{"not_loaded": {"s": ["a", "b", "c"]}, "at": 1}'],
        ("line 2", "first arrived"),
    ),
    "streams that waited before the run": ([GOOD, '{"not_loaded": {}, "at": 1}'], ("line 2", "'at'", "1794736800")),
    "streams that wait in a list": ([GOOD, '{"not_loaded": ["s"], "at": 1}'], ("line 2", "'not_loaded'")),
    "an operator without its rows": (
        [GOOD, update_line(update("s", 1.0, 0.5, 1.0, operators=(FILTER,))).replace('"rows_in"', '"rows_on"')],
        ("line 2", "'rows_in'"),
    ),
    "operators that are none": (
        [GOOD, update_line(update("s", 1.0, 0.5, 1.0)).replace('"error":null', '"error":null,"operators":[7]')],
        ("line 2",),
    ),
}


@pytest.mark.parametrize(("lines", "named"), BAD_LINES.values(), ids=BAD_LINES)
def test_what_is_no_trace_is_refused_with_the_line(lines: list[str], named: tuple[str, ...]) -> None:
    with pytest.raises(TraceError) as refused:
        trace_from(lines, "run.jsonl")
    assert all(word in str(refused.value) for word in ("run.jsonl", *named)), refused.value


EARLY = START - MOST_SET_BACK - 1

#: of every kind of line, one of a moment before the run
EARLY_LINES = {
    "an update that began": update_line(update("s", EARLY - START, 0.5, 1.0, released=START)),
    "an update that was released": update_line(update("s", 1.0, 0.5, 1.0, released=EARLY)),
    "an update that failed": update_line(update("s", EARLY - START, 0.5, None, released=START, error="it broke")),
    "a change": change_line(Change(EARLY, {"tracks": 3})),
    "tables that were saved": redeclared_line(Redeclared(EARLY, (STREAM,))),
    "a table that was declared": redeclared_line(Redeclared(START, (replace(STREAM, declared=EARLY),))),
    "a notice": notice_line(RunNotice(EARLY, None, "waiting")),
    "what waits": not_loaded_line(NotLoaded(EARLY, {})),
    "the end": end_line(EARLY),
    "a trace that is full": full_line(EARLY, 10),
}


@pytest.mark.parametrize("line", EARLY_LINES.values(), ids=EARLY_LINES)
def test_nothing_happens_in_a_run_before_it_starts(line: str) -> None:
    with pytest.raises(TraceError, match=rf"line 2: .*from the start of the run on, .*got {EARLY}"):
        trace_from([GOOD, line])


@pytest.mark.parametrize("line", EARLY_LINES.values(), ids=EARLY_LINES)
def test_a_clock_may_have_been_set_back_by_hours(line: str) -> None:
    trace_from([GOOD, line.replace(str(EARLY), str(START - 36_000.0))])


def test_data_may_have_come_before_the_run() -> None:
    came = (0.0, 1.0, 2)
    whole = run_of((STREAM,), update("s", 1.0, 0.5, 1.0, arrived=came), end=2.0)
    waits = replace(whole, not_loaded=NotLoaded(START + 2, {"s": came}))
    assert trace_from(lines_of(waits)) == waits


def test_an_update_that_was_withdrawn_before_its_turn_in_a_job_never_began() -> None:
    withdrawn = update("s", -START, 0.0, None, released=START, error="its table was paused before its turn in a job")
    trace = run_of((STREAM,), withdrawn, end=2.0)
    assert trace.updates[0].began == 0.0
    assert trace_from(lines_of(trace)) == trace


@pytest.mark.parametrize("started", [0, -1, -5e9])
def test_a_run_does_not_start_before_clocks_count(started: float) -> None:
    header = json.loads(GOOD) | {"started": started}
    with pytest.raises(TraceError, match=r"line 1: the key 'started'"):
        trace_from([json.dumps(header)])


# --- settings -------------------------------------------------------------------------------------------------


def test_a_setting_that_was_changed_is_the_one_in_force_for_longest() -> None:
    changes = (
        Change(START + 10, {"policy": "fifo"}),
        Change(START + 20, {"tracks": 5}),
        Change(START + 30, {"policy": "max-benefit"}),
        Change(START + 90, {"priority": ["s", 7]}),
        Change(START + 95, {"placement": "anywhere"}),
        Change(START + 40, {"together": "auto"}),
        Change(START + 70, {"inheritance": "sum"}),
    )
    trace = run_of((STREAM, DERIVED), end=100.0, changes=changes)
    assert (trace.policy(), trace.placement(), trace.tracks()) == ("max-benefit", "proportional", 5)
    assert (trace.priority(STREAM), trace.priority(STREAM, START + 85), trace.priority(DERIVED)) == (1.0, 7.0, 1.0)
    assert trace.placement(START + 96) == "anywhere"
    assert (trace.together(), trace.inheritance(), trace.inheritance(START + 60)) == ("auto", "max", "sum")
    assert [trace.together_at(START + at) for at in (-1, 39, 40, 99)] == ["declared", "declared", "auto", "auto"]


@pytest.mark.parametrize(
    ("trace", "finish"),
    [
        pytest.param(run_of((), update("s", 1.0, 3.0, 1.0), end=9.0), 9.0, id="its end"),
        pytest.param(replace(run_of((), update("s", 1.0, 3.0, 1.0), end=9.0), end=None), 4.0, id="killed: last update"),
        pytest.param(replace(run_of((), end=9.0), end=None, full=START + 5), 5.0, id="full: where it stopped"),
        pytest.param(replace(run_of((), end=9.0), end=None), 0.0, id="killed at once"),
    ],
)
def test_a_trace_tells_of_everything_up_to(trace: Trace, finish: float) -> None:
    assert trace.finish == START + finish


# --- staleness ------------------------------------------------------------------------------------------------


def test_staleness_runs_as_in_figure_2_of_golab() -> None:
    """Batches tell of times up to 3 and 9 and are in the table at 5 and 11."""
    trace = run_of((STREAM,), update("s", 4.0, 1.0, 3.0), update("s", 10.0, 1.0, 9.0), end=13.0)
    staleness = FreshnessHistory.of(trace, STREAM).staleness(START, START + 13)
    assert staleness is not None
    assert staleness.mean * 13 == pytest.approx(48.5, abs=1e-4)
    assert staleness.max == pytest.approx(8.0, abs=1e-6)


def test_a_table_that_was_rebuilt_is_as_fresh_as_the_rebuild_left_it() -> None:
    rebuilt = (update("s", 4.0, 1.0, 3.0), update("s", 10.0, 1.0, 9.0, layer="backfill"))
    assert FreshnessHistory.of(run_of((STREAM,), *rebuilt, end=13.0), STREAM).at(START + 12) == START + 9


def test_an_error_with_the_traceback_of_another_one_says_what_that_one_said() -> None:
    raised = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "shop.py", line 33, in charge
    raise ValueError("bad card")
ValueError: bad card
and its number

JVM stack trace follows"""
    said = "An exception was thrown from the Python worker: ValueError: bad card"
    assert first_line(RuntimeError(raised)) == said
    assert first_line(RuntimeError(raised.replace("worker:\nT", "worker: T"))) == said
    assert first_line(RuntimeError("no such file\nTry another")) == "no such file"


STEPS = st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 25)), min_size=1, max_size=8)


@given(STEPS, st.booleans(), st.floats(0, 30), st.floats(0.5, 100))
def test_staleness_is_the_area_below_a_line_that_drops_at_every_update(
    steps: list[tuple[float, float]], begins_empty: bool, skip: float, length: float
) -> None:
    now, updates = 0.0, []
    for gap, behind in steps:
        now += gap
        updates.append(update("s", now - 0.1, 0.1, now - behind))
    table = replace(STREAM, freshness=None) if begins_empty else STREAM
    found = measured(run_of((table,), *updates, end=skip + length), skip).of("s")

    ends = [(u.ended - START, (u.freshness or 0) / 1e6 - START) for u in updates]
    area = seconds = largest = 0.0
    for begin, end in pairwise(sorted({skip, skip + length, *(e for e, _ in ends if skip < e < skip + length)})):
        reached = [reaches for ended, reaches in ends if ended <= begin] + ([] if begins_empty else [0.0])
        if reached:
            seconds += end - begin
            area += (end - begin) * ((begin + end) / 2 - max(reached))
            largest = max(largest, end - max(reached))
    if not seconds:
        assert (found.mean_staleness, found.max_staleness) == (None, None)
    else:
        assert found.mean_staleness == pytest.approx(area / seconds, abs=1e-4)
        assert found.max_staleness == pytest.approx(largest, abs=1e-4)


def test_measures_are_of_the_tables_that_had_rows_in_what_is_not_skipped() -> None:
    never = TraceTable("never", priority=1000.0)
    dimension = TraceTable("d", kind="dimension", priority=1000.0)
    tables = (STREAM, replace(DERIVED, priority=10.0), never, dimension)
    trace = run_of(
        tables, update("s", 4.0, 2.0, 5.0), update("t", 6.0, 1.0, 5.0), update("d", 1.0, 1.0, None), end=10.0
    )
    found = measured(trace, 5.0)
    assert [(table.name, table.updates) for table in found.tables] == [("s", 1), ("t", 1), ("never", 0)]
    assert found.of("s").utilisation == pytest.approx(1 / 5)
    # s: 5 to 6 until 6, then 1 to 5 until 10. t: 5 to 7 until 7, then 2 to 5.
    assert found.of("s").mean_staleness == pytest.approx((5.5 + 12) / 5, abs=1e-4)
    assert found.of("t").mean_staleness == pytest.approx((12 + 10.5) / 5, abs=1e-4)
    assert found.of("never").mean_staleness is None
    assert found.weighted_staleness == pytest.approx((17.5 + 10 * 22.5) / 5, abs=1e-3)


def test_a_track_is_in_use_for_whatever_it_does() -> None:
    trace = run_of(
        (STREAM,),
        update("s", 1.0, 2.0, 1.0),
        update("s", 4.0, 1.0, None, error="no"),
        update("s", 0.0, 10.0, None, track=1, layer="maintenance"),
        end=10.0,
    )
    assert track_use(trace) == pytest.approx((0.3, 1.0), abs=1e-6)
    assert track_use(trace, 2.0) == pytest.approx((2 / 8, 1.0), abs=1e-6)


# --- lag ------------------------------------------------------------------------------------------------------


def test_chunks_of_a_load_are_put_at_even_distances_between_the_first_and_the_last() -> None:
    trace = run_of((STREAM,), load("s", (2.0, 8.0, 4), 9.0, 1.0, 8.0), end=20.0)
    came = [(a.at - START, a.reaches - START) for a in arrivals(trace, STREAM)]
    assert came == [pytest.approx(pair, abs=1e-6) for pair in [(2, 2), (4, 4), (6, 6), (8, 8)]]


def test_loads_that_do_not_make_a_stream_fresher_bring_nothing() -> None:
    late = load("s", (6.0, 6.0, 1), 6.0, 1.0, 4.0)
    trace = run_of((STREAM,), load("s", (5.0, 5.0, 1), 5.0, 1.0, 5.0), late, end=20.0)
    assert [a.at - START for a in arrivals(trace, STREAM)] == [5.0]


def test_data_that_could_not_be_loaded_waits_for_ever() -> None:
    failed = [update("s", began, 1.0, None, released=START + 6.0, error="no") for began in (6.0, 9.0)]
    trace = run_of((STREAM,), load("s", (5.0, 5.0, 1), 5.0, 0.5, 5.0), *failed, end=20.0)
    assert arrivals(trace, STREAM)[-1] == StreamArrival(START + 6.0, math.inf)
    assert [piece.since - START for piece in waiting(trace, STREAM)] == [5.0, 6.0]


@pytest.mark.parametrize(
    ("target", "share"),
    [
        pytest.param(0.0, 13 / 20, id="no lag at all while nothing waits: until 4, from 7 to 12, from 16 to 20"),
        pytest.param(2.0, 17 / 20, id="late from 6 to 7 and from 14 to 16"),
        pytest.param(4.0, 1.0, id="never late"),
    ],
)
def test_a_target_is_met_while_data_has_not_waited_longer(target: float, share: float) -> None:
    table = replace(STREAM, target_lag=target)
    trace = run_of(
        (table,),
        load("s", (4.0, 5.0, 2), 6.0, 1.0, 5.0),
        load("s", (12.0, 12.0, 1), 15.0, 1.0, 12.0),
        end=20.0,
    )
    assert on_time(trace, table) == pytest.approx(share, abs=1e-6)


def test_a_derived_table_waits_from_when_its_data_came_to_the_stream() -> None:
    table = replace(DERIVED, target_lag=1.0)
    trace = run_of((STREAM, table), load("s", (4.0, 4.0, 1), 4.0, 1.0, 4.0), update("t", 7.0, 1.0, 4.0), end=10.0)
    assert on_time(trace, table) == pytest.approx(1 - 3 / 10, abs=1e-6)  # late from 5 to 8


@pytest.mark.parametrize(
    ("behind", "declared", "maximum"),
    [
        pytest.param(micros(-30), None, 8.0, id="it was behind"),
        pytest.param(None, None, 0.0, id="it never had rows"),
        pytest.param(micros(-30), START + 3, 5.0, id="it was declared later"),
        pytest.param(micros(0), None, 0.0, id="it had everything"),
    ],
)
def test_what_a_table_lacked_when_the_run_began_has_waited_since_then(
    behind: int | None, declared: float | None, maximum: float
) -> None:
    table = replace(DERIVED, freshness=behind, declared=declared, target_lag=2.0)
    caught_up = update("t", 7.0, 1.0, 0.0)
    lag = lag_of(run_of((STREAM, table), caught_up, end=13.0), table)
    assert lag is not None
    assert (lag.maximum, lag.lag(START + 13.0)) == pytest.approx((maximum, 0.0), abs=1e-6)
    late = max(0.0, maximum - 2.0)
    assert lag.target_met == pytest.approx(1 - late / (13.0 if declared is None else 10.0), abs=1e-6)


def test_a_table_over_several_streams_waits_from_when_all_of_them_had_the_data() -> None:
    other = replace(STREAM, name="o")
    join = TraceTable("j", sources=("s", "o"), freshness=micros(0), target_lag=0.0)
    trace = run_of(
        (STREAM, other, join),
        load("s", (2.0, 2.0, 1), 2.0, 1.0, 2.0),
        load("o", (6.0, 6.0, 1), 6.0, 1.0, 5.0),
        update("j", 8.0, 1.0, 2.0),
        end=10.0,
    )
    assert on_time(trace, join) == pytest.approx(1 - 3 / 10, abs=1e-6)  # late from 6 to 9


@pytest.mark.parametrize("table", [TraceTable("t"), TraceTable("d", kind="dimension", target_lag=1.0)])
def test_without_a_target_or_event_time_nothing_is_on_time(table: TraceTable) -> None:
    assert on_time(run_of((table,), end=10.0), table) is None


def test_every_field_of_a_record_is_in_the_document() -> None:
    from tests.test_docs import DOCS, rows

    assert (DOCS / "traces.md").exists()
    traced = {
        Update: ["update", *TRACED_FIELDS[1:], "operators", "repairs", "together", "work"],
        TraceTable: ["class" if field.name == "importance_class" else field.name for field in fields(TraceTable)],
        OperatorFigures: [field.name for field in fields(OperatorFigures)],
    }
    for kind, names in traced.items():
        assert list(rows("traces.md", f"trace: {kind.__name__}")) == names


def test_whatever_is_not_traced_does_not_make_updates_differ() -> None:
    assert {field.name for field in fields(Update) if field.compare} == {
        *TRACED_FIELDS,
        *("operators", "repairs", "together"),
    }


# --- tables declared while a run goes on ----------------------------------------------------------------------------

LATER = TraceTable("later", sources=("s",), priority=2.0, declared=START + 4)


def redeclared_run() -> Trace:
    """A stream from the beginning; a table that is declared after 4 of 10 seconds and has rows from second 6 on."""
    updates = (update("s", 1.0, 0.5, 1.0), update("later", 5.5, 0.5, 5.0))
    anew = Redeclared(START + 4, (replace(STREAM, priority=8.0, declared=START + 4), LATER))
    return replace(run_of((STREAM,), *updates, end=10.0), redeclared=(anew,))


def test_a_table_that_was_declared_while_the_run_went_on_is_one_of_its_tables_from_then_on() -> None:
    trace = redeclared_run()
    stream, later = trace.tables
    assert (later, stream.declared, stream.freshness) == (LATER, None, STREAM.freshness)
    assert (trace.begin_of(stream), trace.begin_of(later)) == (START, START + 4)
    assert measured(trace).of("later").updates == 1
    assert FreshnessHistory.of(trace, replace(LATER, freshness=0)).moments[0] == START + 4


def test_the_priority_of_a_table_is_the_one_that_it_had_for_longest_as_declared_or_set() -> None:
    trace = redeclared_run()
    stream, _ = trace.tables
    assert trace.priority(stream) == 8.0, "declared for 6 of 10 seconds"
    set_again = replace(trace, changes=(Change(START + 5, {"priority": ["s", 3.0]}),))
    assert set_again.priority(stream) == 3.0


def test_the_mean_lag_is_that_of_a_look_at_every_moment() -> None:
    meter = LagMeter(0.0)
    looks = []
    for moment, since in ((2.0, 1.0), (5.0, None), (7.0, 9.0), (11.0, None)):
        meter.wait(moment, since)
        looks.append((moment, since))
    meter.advance(16.0)
    steps = [n / 1000 for n in range(16_000)]

    def lag_at(moment: float) -> float:
        since = next((since for begin, since in reversed(looks) if begin <= moment), None)
        return 0.0 if since is None else max(0.0, moment - since)

    assert meter.mean == pytest.approx(sum(map(lag_at, steps)) / len(steps), abs=1e-2)
    assert meter.maximum == pytest.approx(max(map(lag_at, steps)), abs=1e-2)


@pytest.mark.parametrize(
    ("told", "planning", "committing"),
    [
        pytest.param({"work": 1.5}, 0.2, 0.5, id="work is told"),
        pytest.param({}, 0.0, 0.7, id="an older trace, in which all that is no work counts as the commit"),
    ],
)
def test_planning_and_committing_are_told_apart(told: dict[str, float], planning: float, committing: float) -> None:
    line = json.loads(update_line(Update("t", seconds=2.0, overhead=0.7, work=1.5, status="committed")))
    del line["work"]
    header = header_line(TraceHeader("city", FIRST_START, 1, "fifo", "any", "max", None, ()))
    (found,) = trace_from([header, json.dumps(line | told)]).updates
    assert (found.planning, found.committing) == pytest.approx((planning, committing))
