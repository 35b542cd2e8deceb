"""Planning an update of a derived table: which event times to compute, from which source versions, up to where.

Pure arithmetic on versions, event times (microseconds) and ranges; it neither reads nor writes anything. See
``docs/warehouse.md`` for the rules in words.

Recomputing works in *blocks*: the shortest stretches of event time that are whole partitions of the table and of all
its sources. Whole blocks can be read by choosing files, so the plan that Spark compiles stays the same from one update
to the next, and a block that is computed again simply replaces what was there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MICROS = 1_000_000

#: event time from a moment to a moment, both included, in microseconds
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as an update finds it: its version and freshness, and what changed since the table last looked.

    ``changed`` are the spans of files added or removed since; a dimension has no event time: no freshness.
    """

    name: str
    version: int
    freshness: int | None
    changed: tuple[Span, ...] = ()
    has_time: bool = True


@dataclass(frozen=True, slots=True)
class TableState:
    """What a derived table says of itself in its newest commit."""

    freshness: int | None
    dirty: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What does not change from one update of a table to the next. Lengths are microseconds."""

    block: int
    lookback: int = 0
    newest_first: bool = False
    several_sources: bool = False


@dataclass(frozen=True, slots=True)
class RecomputePlan:
    """Compute the blocks that start at ``blocks`` and replace them.

    ``edge`` is the trailing edge: rows beyond it are not used. ``freshness`` and ``dirty`` are the table's new state,
    ``versions`` the source versions it will have consumed.
    """

    blocks: tuple[int, ...]
    block: int
    read_from: int
    edge: int
    freshness: int
    dirty: tuple[Span, ...]
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The blocks as spans, neighbours joined."""
        return join((start, start + self.block - 1) for start in self.blocks)


def block_length(lengths: Iterable[float]) -> int:
    """The least common multiple of partition lengths (seconds), in microseconds."""
    return math.lcm(*(round(length * MICROS) for length in lengths))


def trailing_edge(sources: Iterable[SourceState]) -> int | None:
    """The least freshness of the sources with event time; None as long as one of them is empty."""
    edges = [source.freshness for source in sources if source.has_time]
    known = [edge for edge in edges if edge is not None]
    return min(known) if known and len(known) == len(edges) else None


def pending_blocks(shape: Shape, table: TableState, sources: Sequence[SourceState]) -> list[int]:
    """The starts of all blocks that an update would have to compute now, in order of time."""
    edge = trailing_edge(sources)
    if edge is None:
        return []
    spans = [*table.dirty]
    for source in sources:
        spans.extend(source.changed)
    if shape.several_sources and table.freshness is not None and edge > table.freshness:
        # Rows of one source that came earlier become visible when the others catch up.
        spans.append((table.freshness, edge))
    starts: set[int] = set()
    for first, last in spans:
        low = first // shape.block
        high = (min(last, edge) + shape.lookback) // shape.block
        starts.update(number * shape.block for number in range(low, high + 1))
    latest = edge // shape.block * shape.block
    return sorted(start for start in starts if start <= latest)


def plan_recompute(
    shape: Shape, table: TableState, sources: Sequence[SourceState], most_seconds: float = math.inf
) -> RecomputePlan | None:
    """The next update of a table, or None if there is nothing to do.

    At most ``most_seconds`` of event time are computed, and at least one block; what is left is remembered as dirty.
    """
    pending = pending_blocks(shape, table, sources)
    edge = trailing_edge(sources)
    if not pending or edge is None:
        return None
    count = len(pending)
    if most_seconds < math.inf:
        count = max(1, min(count, int(most_seconds * MICROS // shape.block)))
    chosen = pending[-count:] if shape.newest_first else pending[:count]
    left = sorted(set(pending) - set(chosen))
    return RecomputePlan(
        blocks=tuple(chosen),
        block=shape.block,
        read_from=chosen[0] - shape.lookback,
        edge=edge,
        freshness=_freshness(table.freshness, edge, left, shape.newest_first),
        dirty=join((start, start + shape.block - 1) for start in left),
        versions={source.name: source.version for source in sources},
    )


def _freshness(before: int | None, edge: int, left: Sequence[int], newest_first: bool) -> int:
    """How far the table reaches without a gap; with newest first, gaps are accepted and the edge is reached at once."""
    floor = edge if before is None else before
    missing = [start for start in left if before is None or start > before]
    if newest_first or not missing:
        return edge
    return max(missing[0] - 1, floor if before is not None else missing[0] - 1)


def join(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans sorted, those that touch or overlap made one."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
