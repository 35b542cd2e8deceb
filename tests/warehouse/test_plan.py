"""Planning an update: which blocks of event time, up to where."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.declare.locality import block_length
from headgate.warehouse.updates.plan import (
    MICROS,
    MOST_LATE,
    RecomputePlan,
    Shape,
    SourceState,
    TableState,
    has_backfill,
    is_pending,
    plan_update,
    trailing_edge,
)
from headgate.warehouse.updates.spans import Span, Spans

HOUR = 3600 * MICROS
SHAPE = Shape(block=HOUR)


def everywhere(spans: Spans) -> Spans:
    """There are rows at all times."""
    return spans


def hours(plan: RecomputePlan | None) -> list[int]:
    """The blocks of an hour that a plan computes."""
    return [start // HOUR for first, last in (plan.spans if plan else ()) for start in range(first, last, HOUR)]


def source(*changed: Span, freshness: int | None = 10 * HOUR, name: str = "s", version: int = 7) -> SourceState:
    return SourceState(name, version=version, freshness=freshness, changed=changed)


@pytest.mark.parametrize(
    ("lengths", "seconds"),
    [
        pytest.param([600, 3600], 3600, id="partitions that nest"),
        pytest.param([3600], 3600, id="one length"),
        pytest.param([600, 900], 1800, id="partitions that do not nest"),
        pytest.param([0.5, 2], 2, id="parts of a second"),
    ],
)
def test_a_block_is_whole_partitions_of_everybody(lengths: list[float], seconds: float) -> None:
    assert block_length(lengths) == seconds * MICROS


@pytest.mark.parametrize(
    ("freshness", "edge"),
    [
        pytest.param([5, 3, 9], 3, id="the least fresh decides"),
        pytest.param([5, None], None, id="an empty source keeps the others waiting"),
        pytest.param([], None, id="no source with event time"),
    ],
)
def test_the_trailing_edge_is_the_freshness_of_the_least_fresh_source(
    freshness: list[int | None], edge: int | None
) -> None:
    states = [source(freshness=fresh, name=f"s{i}") for i, fresh in enumerate(freshness)]
    dimension = SourceState("d", 1, None, is_dimension=True)
    assert trailing_edge([*states, dimension]) == edge


@pytest.mark.parametrize(
    ("shape", "table", "changed", "blocks"),
    [
        pytest.param(SHAPE, TableState(None), [(0, HOUR - 1)], [0], id="one block, to its last moment"),
        pytest.param(SHAPE, TableState(None), [(0, HOUR)], [0, 1], id="the next moment is in the next block"),
        pytest.param(SHAPE, TableState(9 * HOUR), [(2 * HOUR, 2 * HOUR)], [2], id="late data dirties an old block"),
        pytest.param(SHAPE, TableState(9 * HOUR, dirty=((10 * HOUR, 10 * HOUR),)), [], [10], id="what was left over"),
        pytest.param(SHAPE, TableState(9 * HOUR, dirty=((0, 1),)), [], [], id="the past is for backfilling"),
        pytest.param(SHAPE, TableState(9 * HOUR), [], [], id="nothing changed"),
        pytest.param(
            Shape(HOUR, lookback=HOUR),
            TableState(None),
            [(2 * HOUR, 2 * HOUR)],
            [2, 3],
            id="lookback reaches the next block",
        ),
        pytest.param(
            Shape(HOUR, lookback=HOUR),
            TableState(8 * HOUR + 5),
            [(10 * HOUR, 10 * HOUR)],
            [8, 9, 10],
            id="with lookback, blocks without rows of their own",
        ),
        pytest.param(SHAPE, TableState(None), [(9 * HOUR, 12 * HOUR)], [9, 10, 11, 12], id="rows ahead of one source"),
        pytest.param(
            Shape(HOUR, several_sources=True),
            TableState(None),
            [(9 * HOUR, 30 * HOUR)],
            [9, 10],
            id="of several sources nothing beyond the trailing edge",
        ),
        pytest.param(
            Shape(HOUR, several_sources=True),
            TableState(8 * HOUR + 5),
            [],
            [8, 9, 10],
            id="what the edge has passed over",
        ),
    ],
)
def test_the_blocks_to_compute_are(shape: Shape, table: TableState, changed: list[Span], blocks: list[int]) -> None:
    plan = plan_update(shape, table, [source(*changed)], everywhere)
    assert hours(plan) == blocks
    assert is_pending(shape, table, [source(*changed)]) == (plan is not None)


def test_a_table_becomes_fresher_with_its_source_even_if_there_is_nothing_in_it_for_the_table() -> None:
    plan = plan_update(SHAPE, TableState(9 * HOUR), [source()], everywhere)
    assert plan is not None
    assert (plan.spans, plan.count, plan.freshness) == ((), 0, 10 * HOUR)
    assert plan_update(SHAPE, TableState(10 * HOUR), [source()], everywhere) is None


def test_rows_beyond_the_edge_are_remembered_until_the_edge_comes_to_them() -> None:
    shape = Shape(HOUR, several_sources=True)
    plan = plan_update(shape, TableState(None), [source((9 * HOUR, 12 * HOUR))], everywhere)
    assert plan is not None
    assert plan.dirty == ((11 * HOUR, 13 * HOUR - 1),)
    later = plan_update(shape, TableState(plan.freshness, plan.dirty), [source(freshness=12 * HOUR)], everywhere)
    assert later is not None
    assert hours(later) == [10, 11, 12], "and the block that the edge was in"


def test_limited_updates_over_several_sources_go_on_from_block_to_block() -> None:
    shape, table, computed = Shape(HOUR, several_sources=True), TableState(None), []
    changed = [(5 * HOUR, 10 * HOUR)]
    while (plan := plan_update(shape, table, [source(*changed)], everywhere, most_seconds=60.0)) is not None:
        computed += hours(plan)
        table, changed = TableState(plan.freshness, plan.dirty), []
        assert len(computed) < 20, "it never ends"
    assert computed == [5, 6, 7, 8, 9, 10]


def test_an_update_reaches_the_edge() -> None:
    plan = plan_update(SHAPE, TableState(None), [source((0, 9 * HOUR))], everywhere)
    assert plan is not None
    assert (plan.freshness, plan.dirty) == (10 * HOUR, ())


def test_a_limited_update_takes_the_oldest_blocks_and_is_fresh_as_far_as_they_reach() -> None:
    plan = plan_update(SHAPE, TableState(None), [source((0, 9 * HOUR))], everywhere, most_seconds=2 * 3600)
    assert plan is not None
    assert plan.spans == ((0, 2 * HOUR - 1),)
    assert plan.count == 2
    assert plan.freshness == 2 * HOUR - 1
    assert plan.dirty == ((2 * HOUR, 10 * HOUR - 1),)


def test_newest_first_takes_the_newest_blocks_and_leaves_the_rest_for_later() -> None:
    shape = Shape(HOUR, newest_first=True)
    plan = plan_update(shape, TableState(None), [source((0, 9 * HOUR))], everywhere, most_seconds=2 * 3600)
    assert plan is not None
    assert hours(plan) == [8, 9]
    assert plan.freshness == 10 * HOUR
    assert plan.dirty == ((0, 8 * HOUR - 1),)


def test_of_many_late_blocks_the_newest_come_along_and_the_rest_is_for_backfilling() -> None:
    table = TableState(40 * HOUR)
    plan = plan_update(SHAPE, table, [source((0, 40 * HOUR), freshness=40 * HOUR)], everywhere)
    assert plan is not None
    first = 40 - MOST_LATE
    assert hours(plan) == list(range(first, 41))
    assert plan.dirty == ((0, first * HOUR - 1),)


@pytest.mark.parametrize(
    ("shape", "limit", "blocks", "left"),
    [
        pytest.param(SHAPE, 2 * 3600, [1, 2], ((3 * HOUR, 5 * HOUR - 1),), id="oldest first, in chunks"),
        pytest.param(Shape(HOUR, newest_first=True), 3600, [4], ((HOUR, 4 * HOUR - 1),), id="newest first"),
        pytest.param(SHAPE, math.inf, [1, 2, 3, 4], (), id="all at once"),
    ],
)
def test_backfilling_repairs_the_past_and_nothing_else(
    shape: Shape, limit: float, blocks: list[int], left: tuple[Span, ...]
) -> None:
    table = TableState(9 * HOUR, dirty=((HOUR, 5 * HOUR - 1),))
    plan = plan_update(shape, table, [source(freshness=9 * HOUR, version=3)], everywhere, limit, backfill=True)
    assert has_backfill(shape, table)
    assert plan is not None
    assert hours(plan) == blocks
    assert (plan.dirty, plan.freshness) == (left, 9 * HOUR)


@pytest.mark.parametrize("appended", [False, True])
def test_the_block_in_which_a_table_ends_is_work_for_backfilling_only_if_the_table_is_appended_to(
    appended: bool,
) -> None:
    shape, table = Shape(HOUR, appended=appended), TableState(9 * HOUR, dirty=((9 * HOUR, 9 * HOUR),))
    plan = plan_update(shape, table, [source(freshness=9 * HOUR)], everywhere, backfill=appended)
    assert plan is not None
    assert hours(plan) == [9]
    assert has_backfill(shape, table) == appended


def test_repairing_old_blocks_does_not_make_a_table_less_fresh() -> None:
    table = TableState(10 * HOUR)
    plan = plan_update(SHAPE, table, [source((0, 5 * HOUR))], everywhere, most_seconds=3600)
    assert plan is not None
    assert plan.freshness == 10 * HOUR


def test_even_the_smallest_limit_gets_one_block_done() -> None:
    plan = plan_update(SHAPE, TableState(None), [source((0, 9 * HOUR))], everywhere, most_seconds=1e-3)
    assert plan is not None
    assert hours(plan) == [0]


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=6)


@given(
    arrivals=st.lists(SPANS, min_size=1, max_size=5),
    limit=st.sampled_from([math.inf, 3e-6, 8e-6]),
    newest=st.booleans(),
    block=st.integers(1, 7),
)
def test_however_updates_are_limited_every_moment_that_changed_is_computed_in_the_end(
    arrivals: list[list[Span]], limit: float, newest: bool, block: int
) -> None:
    """Each moment is computed by an update planned after it changed; the table ends up fresh, with nothing dirty."""
    shape = Shape(block, newest_first=newest)
    table = TableState(None)
    stale: set[int] = set()
    freshest = -1
    for number, spans in enumerate(arrivals):
        stale |= {moment for first, last in spans for moment in range(first, last + 1)}
        freshest = max([freshest, *(last for _, last in spans)])
        state = SourceState("s", number + 1, freshest if freshest >= 0 else None, tuple(spans))
        rest = state
        for _ in range(120 if number == len(arrivals) - 1 else 1):
            plan = plan_update(shape, table, [rest], everywhere, limit)
            assert (plan is not None) == is_pending(shape, table, [rest])
            if plan is None:
                plan = plan_update(shape, table, [rest], everywhere, limit, backfill=True)
                assert (plan is not None) == has_backfill(shape, table)
            if plan is None:
                break
            for first, last in plan.spans:
                stale -= set(range(first, last + 1))
            assert table.freshness is None or plan.freshness >= table.freshness
            table = TableState(plan.freshness, plan.dirty)
            rest = SourceState("s", number + 1, freshest)
    assert not stale
    assert all(first > freshest for first, _ in table.dirty)
    assert table.freshness == (freshest if freshest >= 0 else None)
