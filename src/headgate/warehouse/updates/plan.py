"""Planning an update of a derived table: which event times to compute, from which source versions, up to where.

Pure arithmetic on versions and event times (microseconds); it neither reads nor writes anything. See
``docs/warehouse.md`` for the rules in words.

Recomputing works in *blocks*: the shortest spans of event time that are whole partitions of the table and of all its
sources. A block is read by choosing files, so the plan that Spark compiles stays the same from one update to the next.
A block that is recomputed simply replaces the old one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MICROS = 1_000_000

#: a live update recomputes at most this many blocks changed by late data; the rest is left to backfills
MOST_LATE = 8

#: event time from a moment to a moment, both included, in microseconds
Span = tuple[int, int]


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

    def range(self, first: int, last: int) -> range:
        """The starts of the blocks from that of ``first`` to that of ``last``."""
        return range(self.start(first), self.start(last) + 1, self.block)


@dataclass(frozen=True, slots=True)
class RecomputePlan:
    """Recompute and replace the blocks that start at ``blocks``.

    ``edge`` is the trailing edge: rows beyond it are not used. ``freshness`` and ``dirty`` are the table's new state.
    """

    blocks: tuple[int, ...]
    block: int
    lookback: int
    edge: int
    freshness: int
    dirty: tuple[Span, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        """The blocks as spans, neighbours joined."""
        return join((start, start + self.block - 1) for start in self.blocks)

    @property
    def read(self) -> tuple[Span, ...]:
        """The event times of the sources that the blocks are computed from."""
        return join((first - self.lookback, last) for first, last in self.spans)


def trailing_edge(sources: Iterable[SourceState]) -> int | None:
    """The least freshness of the sources that are not dimensions; None as long as one of them is empty."""
    edges = [source.freshness for source in sources if not source.is_dimension]
    known = [edge for edge in edges if edge is not None]
    return min(known) if known and len(known) == len(edges) else None


def is_pending(shape: Shape, table: TableState, sources: Sequence[SourceState]) -> bool:
    """Whether a live update would have anything to do; cheap, however long the history is."""
    edge = trailing_edge(sources)
    if edge is None:
        return False
    if table.freshness is None or edge > table.freshness:
        return True
    latest = _latest(shape, sources, edge)
    spans = [span for source in sources for span in source.changed]
    spans += [span for span in table.dirty if span[1] >= shape.start(table.freshness)]
    return any(shape.start(first) <= latest for first, _ in spans)


def plan_update(
    shape: Shape,
    table: TableState,
    sources: Sequence[SourceState],
    most_seconds: float = math.inf,
    backfill: bool = False,
) -> RecomputePlan | None:
    """The next update of a table, or None if there is nothing to do.

    It takes new blocks, from the table's freshness on, up to ``most_seconds`` of event time but at least one. It also
    takes the newest ``MOST_LATE`` of the older blocks that late data changed. With ``backfill`` it also takes up to
    ``most_seconds`` of dirty older blocks. All other changed blocks become dirty: those beyond the new freshness are
    left to the next live update, older ones to backfills.
    """
    edge = trailing_edge(sources)
    if edge is None:
        return None
    latest = _latest(shape, sources, edge)
    end = None if table.freshness is None else shape.start(table.freshness)
    changed = _blocks(shape, [span for source in sources for span in source.changed])
    passed = _passed_over(shape, table, edge)
    if passed is not None:
        changed |= {start for start in _blocks(shape, [passed]) if start <= latest}
    dirty = {start for first, last in table.dirty for start in shape.range(first, last)}
    new = sorted(b for b in changed | dirty if (end is None or b >= end) and b <= latest)
    late = sorted(b for b in changed if end is not None and b < end)
    count = _count(shape, most_seconds, len(new))
    chosen = new[len(new) - count :] if shape.newest_first else new[:count]
    left_over = sorted(set(new) - set(chosen))
    chosen = [*late[-MOST_LATE:], *chosen]
    freshness = edge
    if left_over and not shape.newest_first:
        freshness = min(edge, left_over[0] - 1 if table.freshness is None else max(left_over[0] - 1, table.freshness))
    if backfill:
        chosen += _to_backfill(shape, table, dirty - set(chosen), most_seconds)
    if not chosen and freshness == table.freshness:
        return None
    return RecomputePlan(
        blocks=tuple(sorted(chosen)),
        block=shape.block,
        lookback=shape.lookback,
        edge=edge,
        freshness=freshness,
        dirty=_spans(shape, (changed | dirty) - set(chosen)),
    )


def _latest(shape: Shape, sources: Iterable[SourceState], edge: int) -> float:
    """The last block to compute now. Rows beyond the trailing edge wait only if another source has to catch up."""
    if shape.several_sources:
        return shape.start(edge)
    if not shape.lookback:
        return math.inf
    # Blocks without rows of their own, which depend on earlier ones, come with the edge.
    return shape.start(max([edge, *(last for source in sources for _, last in source.changed)]))


def _to_backfill(shape: Shape, table: TableState, dirty: set[int], most_seconds: float) -> list[int]:
    if table.freshness is None:
        return []
    old = sorted(start for start in dirty if start < _backfill_end(shape, table.freshness))
    count = _count(shape, most_seconds, len(old))
    return old[len(old) - count :] if shape.newest_first else old[:count]


def has_backfill(shape: Shape, table: TableState) -> bool:
    """Whether any event time before the table's freshness is dirty."""
    if table.freshness is None:
        return False
    end = _backfill_end(shape, table.freshness)
    return any(first < end for first, _ in table.dirty)


def _backfill_end(shape: Shape, freshness: int) -> int:
    """The event time before which dirty blocks are left to backfills."""
    return shape.start(freshness) + (shape.block if shape.appended else 0)


def _passed_over(shape: Shape, table: TableState, edge: int) -> Span | None:
    """The event times between freshness and edge, if they must be computed even where no file changed.

    With several sources, rows of one become visible when the others catch up. With lookback, a block without rows of
    its own depends on earlier ones.
    """
    grown = table.freshness is not None and edge > table.freshness
    if not grown or not (shape.several_sources or shape.lookback):
        return None
    assert table.freshness is not None
    # Rows up to the freshness have been seen. An update that ended with a block must not compute that block again.
    return (table.freshness + 1, edge)


def _blocks(shape: Shape, spans: Iterable[Span]) -> set[int]:
    """The starts of the blocks that depend on ``spans`` of the sources.

    Blocks beyond the edge are included: these changes are not reported again when the edge gets there.
    """
    starts: set[int] = set()
    for first, last in spans:
        starts.update(shape.range(first, last + shape.lookback))
    return starts


def _count(shape: Shape, most_seconds: float, pending: int) -> int:
    if most_seconds == math.inf or not pending:
        return pending
    return max(1, min(pending, int(most_seconds * MICROS // shape.block)))


def _spans(shape: Shape, blocks: Iterable[int]) -> tuple[Span, ...]:
    return join((start, start + shape.block - 1) for start in blocks)


def join(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans in order; those that touch or overlap are merged."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
