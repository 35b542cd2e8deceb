"""Planning an update of a derived table: which event times to compute, from which source versions, up to where.

Pure arithmetic on versions and event times (microseconds); it neither reads nor writes anything. See
``docs/warehouse.md`` for the rules in words.

Recomputing works in *blocks*: the shortest spans of event time that are whole partitions of the table and of all its
sources. A block is read by choosing files, so the plan that Spark compiles stays the same from one update to the next.
A block that is recomputed simply replaces the old one.

A block is *occupied* if there are rows that it is computed from, or rows of the table in it. Other blocks would come
out empty, as they are, so they are passed over. One row dated 9999 lies millions of blocks ahead, so blocks are never
listed: all is done with spans, and costs as much as there are spans and files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from headgate.warehouse.updates.spans import Span, Spans, clip, first_part, join, last_part, length, minus

MICROS = 1_000_000

#: a live update recomputes at most this many blocks changed by late data; the rest is left to backfills
MOST_LATE = 8
#: commits and queries name no more spans than this, if there is nothing between some of them
FEW = 32

#: the parts of spans that are occupied
Occupied = Callable[[Spans], Spans]


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source when an update is planned: its version and freshness, and what changed since the table consumed it.

    ``changed`` are the event times of files added or removed. A dimension has no freshness. ``version_id`` tells the
    version from another one of the same number, if the table was made anew or put back from a copy.
    """

    name: str
    version: int
    freshness: int | None
    changed: tuple[Span, ...] = ()
    is_dimension: bool = False
    version_id: str = ""


@dataclass(frozen=True, slots=True)
class TableState:
    """A derived table by its newest commit: its freshness, and the event times still to be recomputed."""

    freshness: int | None
    dirty: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What does not change from one update of a table to the next. Lengths are microseconds.

    Live updates never recompute an ``appended`` table, so its backfills may reach up to its newest block.
    """

    block: int
    lookback: int = 0
    newest_first: bool = False
    several_sources: bool = False
    appended: bool = False

    def start(self, moment: int) -> int:
        """The start of the block that a moment lies in."""
        return moment // self.block * self.block

    def last(self, moment: int) -> int:
        """The last moment of the block that a moment lies in."""
        return self.start(moment) + self.block - 1

    def whole_blocks(self, spans: Iterable[Span]) -> Spans:
        """The spans, extended to whole blocks."""
        return join((self.start(first), self.last(last)) for first, last in spans)


@dataclass(frozen=True, slots=True)
class RecomputePlan:
    """Recompute and replace the whole blocks in ``spans``; ``count`` of them are occupied.

    ``edge`` is the trailing edge: rows beyond it are not used. ``freshness`` and ``dirty`` are the table's new state.
    If there are no spans, the update only commits that state.
    """

    spans: Spans
    count: int
    lookback: int
    edge: int
    freshness: int
    dirty: Spans

    @property
    def read(self) -> Spans:
        """The event times of the sources that the blocks are computed from."""
        return join((first - self.lookback, last) for first, last in self.spans)


def trailing_edge(sources: Iterable[SourceState]) -> int | None:
    """The least freshness of the sources that are not dimensions; None as long as one of them is empty."""
    edges = [source.freshness for source in sources if not source.is_dimension]
    known = [edge for edge in edges if edge is not None]
    return min(known) if known and len(known) == len(edges) else None


def is_pending(shape: Shape, table: TableState, sources: Sequence[SourceState]) -> bool:
    """Whether a live update would have anything to do, if only to note that what changed needs no computing."""
    edge = trailing_edge(sources)
    if edge is None:
        return False
    if table.freshness is None or edge > table.freshness:
        return True
    latest = _latest(shape, sources, edge)
    spans = [span for source in sources for span in source.changed]
    spans += [span for span in table.dirty if span[1] >= shape.start(table.freshness)]
    return any(latest is None or first <= latest for first, _ in spans)


def plan_update(
    shape: Shape,
    table: TableState,
    sources: Sequence[SourceState],
    occupied: Occupied,
    most_seconds: float = math.inf,
    backfill: bool = False,
) -> RecomputePlan | None:
    """The next update of a table, or None if there is nothing to do.

    It takes new blocks, from the table's freshness on, up to ``most_seconds`` of event time but at least one. It also
    takes the newest ``MOST_LATE`` of the older blocks that late data changed. With ``backfill`` it also takes up to
    ``most_seconds`` of dirty older blocks. All other changed blocks become dirty: those beyond the new freshness are
    left to the next live update, older ones to backfills. Only blocks that are occupied are taken and counted.
    """
    edge = trailing_edge(sources)
    if edge is None:
        return None
    end = None if table.freshness is None else shape.start(table.freshness)
    changed = _changed(shape, table, sources, edge)
    dirty = shape.whole_blocks(table.dirty)
    waiting = join([*changed, *dirty])

    ahead = clip(waiting, end, _latest(shape, sources, edge))
    new = shape.whole_blocks(occupied(ahead))
    taken = _part(shape, new, most_seconds)
    left_over = minus(new, taken)
    freshness = edge
    if left_over and not shape.newest_first:
        reached = left_over[0][0] - 1
        freshness = min(edge, reached if table.freshness is None else max(reached, table.freshness))

    behind = () if end is None else clip(changed, None, end - 1)
    late = shape.whole_blocks(occupied(behind))
    chosen = join([*taken, *last_part(late, MOST_LATE * shape.block)])
    past: Spans = ()
    if backfill and table.freshness is not None:
        past = minus(clip(dirty, None, _backfill_end(shape, table.freshness) - 1), chosen)
    old = shape.whole_blocks(occupied(past))
    chosen = join([*chosen, *_part(shape, old, most_seconds)])

    looked_at = [*ahead, *behind, *past]
    if not looked_at and freshness == table.freshness:
        return None
    still_dirty = [*minus(waiting, looked_at), *minus([*new, *late, *old], chosen)]
    return RecomputePlan(
        spans=few(shape, chosen, occupied),
        count=length(chosen) // shape.block,
        lookback=shape.lookback,
        edge=edge,
        freshness=freshness,
        dirty=few(shape, still_dirty, occupied),
    )


def _changed(shape: Shape, table: TableState, sources: Iterable[SourceState], edge: int) -> Spans:
    """The blocks that depend on changed rows, or on rows that the edge has passed over.

    Changed blocks beyond the edge are included: these changes are not reported again when the edge gets there.
    """
    changed = [(first, last + shape.lookback) for source in sources for first, last in source.changed]
    grown = table.freshness is not None and edge > table.freshness
    if grown and (shape.several_sources or shape.lookback):
        # With several sources, rows of one become visible when the others catch up. With lookback, a block without
        # rows of its own depends on earlier ones. Rows up to the freshness have been seen: an update that ended with a
        # block must not compute that block again.
        assert table.freshness is not None
        changed.append((table.freshness + 1, edge))
    return shape.whole_blocks(changed)


def _latest(shape: Shape, sources: Iterable[SourceState], edge: int) -> int | None:
    """The last moment of the last block to compute now; None if there is no limit.

    Rows beyond the trailing edge wait only if another source has to catch up.
    """
    if shape.several_sources:
        return shape.last(edge)
    if not shape.lookback:
        return None
    # Blocks without rows of their own, which depend on earlier ones, come with the edge.
    return shape.last(max([edge, *(last for source in sources for _, last in source.changed)]))


def has_backfill(shape: Shape, table: TableState) -> bool:
    """Whether any event time before the table's freshness is dirty."""
    if table.freshness is None:
        return False
    end = _backfill_end(shape, table.freshness)
    return any(first < end for first, _ in table.dirty)


def _backfill_end(shape: Shape, freshness: int) -> int:
    """The event time before which dirty blocks are left to backfills."""
    return shape.start(freshness) + (shape.block if shape.appended else 0)


def _part(shape: Shape, blocks: Spans, most_seconds: float) -> Spans:
    """The blocks that one update takes in: all that fit into ``most_seconds``, at least one."""
    if most_seconds == math.inf:
        return blocks
    most = max(1, int(most_seconds * MICROS // shape.block)) * shape.block
    return last_part(blocks, most) if shape.newest_first else first_part(blocks, most)


def few(shape: Shape, spans: Iterable[Span], occupied: Occupied) -> Spans:
    """The spans, and as many blocks between them that are not occupied as make them ``FEW``, if there are enough.

    Computing a block that is not occupied changes nothing, but thousands of spans make long commits and slow queries.
    """
    joined = join(spans)
    if len(joined) <= FEW:
        return joined
    gaps = minus([(joined[0][0], joined[-1][1])], joined)
    free = set(gaps).intersection(minus(gaps, shape.whole_blocks(occupied(gaps))))
    return join([*joined, *nsmallest(len(joined) - FEW, free, key=lambda gap: (gap[1] - gap[0], gap))])
