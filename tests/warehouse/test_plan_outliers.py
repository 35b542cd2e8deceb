"""Planning over empty stretches of event time, up to thousands of years: they cost nothing and hide nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.warehouse.updates import plan as planning
from headgate.warehouse.updates.plan import (
    FEW,
    MICROS,
    MOST_LATE,
    Shape,
    SourceState,
    TableState,
    has_backfill,
    is_pending,
    plan_update,
    trailing_edge,
)
from headgate.warehouse.updates.spans import Span, Spans, common, join, length

HOUR = 3600 * MICROS
NOW = 1_794_736_800 * MICROS
#: the last hour of the year 9999
YEAR_9999 = 253_402_297_200 * MICROS


def blocks_in(shape: Shape, spans: Iterable[Span]) -> set[int]:
    """The starts of the blocks that spans touch, one by one."""
    return {b for first, last in spans for b in range(shape.start(first), shape.start(last) + 1, shape.block)}


# ---- against a list of all blocks ------------------------------------------------------------------------------

MOMENTS = st.integers(0, 60)
SPANS = st.lists(st.tuples(MOMENTS, st.integers(0, 9)).map(lambda s: (s[0], s[0] + s[1])), max_size=6).map(tuple)
SHAPES = st.builds(
    Shape,
    block=st.integers(1, 7),
    lookback=st.sampled_from([0, 0, 3, 10]),
    newest_first=st.booleans(),
    several_sources=st.booleans(),
    appended=st.booleans(),
)
LIMITS = st.sampled_from([math.inf, 1e-6, 8e-6])


@dataclass(frozen=True)
class ListedPlan:
    blocks: set[int]
    freshness: int
    dirty: set[int]


def listed_plan(
    shape: Shape,
    table: TableState,
    sources: list[SourceState],
    occupied: Spans,
    most_seconds: float,
    backfill: bool,
) -> ListedPlan | None:
    """The same plan, by a list of all blocks."""
    edge = trailing_edge(sources)
    if edge is None:
        return None
    latest = math.inf
    if shape.several_sources:
        latest = shape.start(edge)
    elif shape.lookback:
        latest = shape.start(max([edge, *(last for source in sources for _, last in source.changed)]))
    end = -math.inf if table.freshness is None else shape.start(table.freshness)
    changed = blocks_in(shape, [(a, b + shape.lookback) for source in sources for a, b in source.changed])
    if table.freshness is not None and edge > table.freshness and (shape.several_sources or shape.lookback):
        changed |= blocks_in(shape, [(table.freshness + 1, edge)])
    dirty = blocks_in(shape, table.dirty)
    has_rows = blocks_in(shape, occupied)
    some = math.inf if most_seconds == math.inf else max(1, int(most_seconds * MICROS // shape.block))

    def part(blocks: set[int]) -> set[int]:
        ordered = sorted(blocks, reverse=shape.newest_first)
        return set(ordered if some == math.inf else ordered[: int(some)])

    ahead = {b for b in changed | dirty if end <= b <= latest}
    behind = {b for b in changed if b < end}
    taken = part(ahead & has_rows)
    left_over = (ahead & has_rows) - taken
    freshness = edge
    if left_over and not shape.newest_first:
        reached = min(left_over) - 1
        freshness = min(edge, reached if table.freshness is None else max(reached, table.freshness))
    chosen = taken | set(sorted(behind & has_rows)[-MOST_LATE:])
    past = set()
    if backfill and table.freshness is not None:
        past = {b for b in dirty - chosen if b < end + (shape.block if shape.appended else 0)}
    chosen |= part(past & has_rows)
    if not (ahead | behind | past) and freshness == table.freshness:
        return None
    return ListedPlan(chosen, freshness, (changed | dirty) - chosen)


@given(
    shape=SHAPES,
    freshness=st.none() | MOMENTS,
    dirty=SPANS,
    changed=st.lists(st.tuples(MOMENTS, SPANS), min_size=1, max_size=2),
    occupied=SPANS,
    limit=LIMITS,
    backfill=st.booleans(),
    few=st.sampled_from([1, 2, FEW]),
)
def test_a_plan_is_the_one_that_a_list_of_all_blocks_gives_without_the_empty_ones(
    shape: Shape,
    freshness: int | None,
    dirty: Spans,
    changed: list[tuple[int, Spans]],
    occupied: Spans,
    limit: float,
    backfill: bool,
    few: int,
) -> None:
    table = TableState(freshness, dirty)
    sources = [SourceState(f"s{i}", 1, fresh, spans) for i, (fresh, spans) in enumerate(changed)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "FEW", few)
        plan = plan_update(shape, table, sources, lambda spans: common(spans, occupied), limit, backfill)
    listed = listed_plan(shape, table, sources, occupied, limit, backfill)
    if plan is None or listed is None:
        assert plan is listed
        return
    has_rows = blocks_in(shape, occupied)
    computed, still_dirty = blocks_in(shape, plan.spans), blocks_in(shape, plan.dirty)
    assert computed & has_rows == listed.blocks
    assert plan.count == len(listed.blocks)
    assert plan.freshness == listed.freshness
    assert still_dirty & has_rows == listed.dirty & has_rows
    # More spans than a few only if there are rows between them.
    for spans in (plan.spans, plan.dirty):
        between = [(a[1] + 1, b[0] - 1) for a, b in pairwise(spans)]
        assert len(spans) <= few or all(blocks_in(shape, [gap]) & has_rows for gap in between)


# ---- until nothing is left to do -------------------------------------------------------------------------------


@dataclass
class Kept:
    """A table over two sources of rows that are just moments, and a dimension that is just a number.

    The rows of a block are the moments that it is computed from, and the number.
    """

    shape: Shape
    rows: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    changed: tuple[list[Span], list[Span]] = field(default_factory=lambda: ([], []))
    number: int = 0
    state: TableState = field(default_factory=lambda: TableState(None))
    table: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    asked: int = 0

    def sources(self) -> list[SourceState]:
        return [
            SourceState(f"s{i}", 1, max(rows, default=None), join(changed))
            for i, (rows, changed) in enumerate(zip(self.rows, self.changed, strict=True))
            if i == 0 or self.shape.several_sources
        ]

    def change(self, source: int, moment: int, is_there: bool) -> None:
        (self.rows[source].add if is_there else self.rows[source].discard)(moment)
        self.changed[source].append((moment, moment))

    def change_dimension(self) -> None:
        self.number += 1
        if self.state.freshness is not None:
            everything = (min([*self.rows[0], *self.rows[1], *self.table, 0]), self.state.freshness)
            self.state = TableState(self.state.freshness, join([*self.state.dirty, everything]))

    def moments(self) -> set[int]:
        return self.rows[0] | self.rows[1] if self.shape.several_sources else self.rows[0]

    def occupied(self, spans: Spans) -> Spans:
        self.asked += len(spans)
        there = [(moment, moment + self.shape.lookback) for moment in self.moments()]
        return common(spans, [*there, *((b, b + self.shape.block - 1) for b in self.table)])

    def batch(self, edge: int) -> dict[int, tuple[int, tuple[int, ...]]]:
        """All blocks that have rows, computed at once from rows up to ``edge``."""
        shape, seen = self.shape, sorted(m for m in self.moments() if m <= edge)
        starts = {b for moment in seen for b in blocks_in(shape, [(moment, min(moment + shape.lookback, edge))])}
        reads = {b: tuple(m for m in seen if b - shape.lookback <= m < b + shape.block) for b in starts}
        return {b: (self.number, read) for b, read in reads.items()}

    def update(self, limit: float, backfill: bool = False) -> bool:
        sources = self.sources()
        plan = plan_update(self.shape, self.state, sources, self.occupied, limit, backfill)
        if not backfill:
            assert (plan is not None) == is_pending(self.shape, self.state, sources)
        if plan is None:
            return False
        batch = self.batch(plan.edge)
        inside = {b for b in {*batch, *self.table} if any(first <= b <= last for first, last in plan.spans)}
        for b in inside:
            self.table.pop(b, None)
            if b in batch:
                self.table[b] = batch[b]
        self.state = TableState(plan.freshness, plan.dirty)
        for changed in self.changed:
            changed.clear()
        return True


FAR = st.sampled_from([0, 0, 0, 0, 10**6, 10**17])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(0, 1), st.builds(int.__add__, MOMENTS, FAR)),
        st.tuples(st.just("gone"), st.integers(0, 1), st.integers(0, 100)),
        st.tuples(st.just("dimension"), st.just(0), st.just(0)),
        st.tuples(st.just("update"), st.integers(0, 1), st.sampled_from([0, 3, 8])),
    ),
    max_size=25,
)


@given(shape=SHAPES.filter(lambda shape: not shape.appended), steps=STEPS, limit=LIMITS)
def test_after_any_changes_and_updates_a_table_gets_all_its_rows_and_then_nothing_is_pending(
    shape: Shape, steps: list[tuple[str, int, int]], limit: float
) -> None:
    kept = Kept(shape)
    for what, which, value in steps:
        match what:
            case "row":
                kept.change(which, value, is_there=True)
            case "gone" if len(kept.rows[which]) > 1:
                # Not the newest: the freshness of a source does not fall.
                kept.change(which, sorted(kept.rows[which])[:-1][value % (len(kept.rows[which]) - 1)], is_there=False)
            case "dimension":
                kept.change_dimension()
            case "update":
                kept.update(value * 1e-6 or math.inf, backfill=bool(which))
    most = 10 + 30 * len(steps)
    while kept.update(limit) or (has_backfill(shape, kept.state) and kept.update(limit, backfill=True)):
        most -= 1
        assert most, "it never ends"
    edge = trailing_edge(kept.sources())
    assert kept.state.freshness == edge
    if edge is not None:
        assert kept.table == kept.batch(edge)
        assert all(first > edge for first, _ in kept.state.dirty)


# ---- far outliers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [math.inf, 3600.0], ids=["at once", "block by block"])
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(Shape(HOUR), id="one source"),
        pytest.param(Shape(HOUR, lookback=2 * HOUR), id="lookback"),
        pytest.param(Shape(HOUR, several_sources=True), id="several sources"),
        pytest.param(Shape(HOUR, lookback=HOUR, several_sources=True), id="both"),
        pytest.param(Shape(HOUR, newest_first=True, lookback=HOUR), id="newest first"),
    ],
)
def test_a_row_dated_9999_costs_a_few_steps_and_keeps_nothing_from_going_on(shape: Shape, limit: float) -> None:
    kept = Kept(shape)
    updates = 0

    def bring_up_to_date() -> None:
        nonlocal updates
        while kept.update(limit) or (has_backfill(shape, kept.state) and kept.update(limit, backfill=True)):
            updates += 1
        edge = trailing_edge(kept.sources())
        assert edge is not None
        assert kept.table == kept.batch(edge)

    def arrive(*moments: int) -> None:
        for source in (0, 1):
            for moment in moments:
                kept.change(source, moment, is_there=True)

    arrive(NOW, NOW + HOUR)
    bring_up_to_date()
    arrive(YEAR_9999)
    bring_up_to_date()
    arrive(NOW + 2 * HOUR)
    bring_up_to_date()
    kept.change_dimension()
    bring_up_to_date()
    assert updates < 40
    assert kept.asked < 5 * updates, "how many spans were looked at, however long they are"


def test_what_is_left_to_do_before_an_outlier_is_a_few_spans_without_the_emptiness_between() -> None:
    kept = Kept(Shape(HOUR))
    for moment in (NOW, NOW + HOUR, NOW + 9 * HOUR, YEAR_9999):
        kept.change(0, moment, is_there=True)
    kept.update(math.inf)
    kept.change_dimension()
    kept.update(3600.0, backfill=True)
    first = kept.shape.start(NOW)
    assert [(a - first) // HOUR for a, _ in kept.state.dirty] == [1, 9], "the newest block is live"
    assert length(kept.state.dirty) == 2 * HOUR


def test_freshness_ends_right_before_the_first_block_that_is_left_over_and_has_rows() -> None:
    kept = Kept(Shape(HOUR))
    for moment in (NOW, NOW + 50 * HOUR, YEAR_9999):
        kept.change(0, moment, is_there=True)
    reached = []
    while kept.update(3600.0):
        reached.append(kept.state.freshness)
    assert reached == [kept.shape.start(NOW + 50 * HOUR) - 1, kept.shape.start(YEAR_9999) - 1, YEAR_9999]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_long_sparse_history_is_not_noted_block_by_block(newest_first: bool) -> None:
    shape, days = Shape(HOUR, newest_first=newest_first), 200
    kept = Kept(shape)
    for day in range(days):
        kept.change(0, NOW + day * 24 * HOUR, is_there=True)
    updates = 0
    while kept.update(10 * 3600.0) or kept.update(10 * 3600.0, backfill=True):
        updates += 1
        assert len(kept.state.dirty) <= FEW
    assert updates == days // 10
    assert kept.table == kept.batch(YEAR_9999)


def test_changes_that_leave_nothing_to_compute_are_noted_without_computing() -> None:
    shape, table = Shape(HOUR), TableState(NOW)
    sources = [SourceState("s", 2, NOW, changed=((NOW - 5 * HOUR, NOW - 4 * HOUR),))]
    assert is_pending(shape, table, sources)
    plan = plan_update(shape, table, sources, lambda _: ())
    assert plan is not None
    assert (plan.spans, plan.count, plan.freshness, plan.dirty) == ((), 0, NOW, ())
