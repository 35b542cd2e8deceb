"""Which of the waiting records of a topic are loaded next: of all partitions, in the order in which they arrived.

So partitions advance together, and a stream is complete up to where all of them are. A partition in which nothing
arrived for a while still gives its next record: that says that nothing earlier is to come from it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.warehouse.sources.kafka.arrivals import Arrivals
from headgate.warehouse.sources.kafka.offsets import Run, cut
from headgate.warehouse.sources.protocol import Limit, within

#: a range that is cut takes about so many blocks of each partition: the more, the less partitions drift apart
_BLOCKS = 4


class RecordBlock(NamedTuple):
    """Some offsets of a partition, and when the last of them arrived."""

    run: Run
    size: int
    arrived: float


def next_blocks(
    waiting: Sequence[Run],
    arrivals: Mapping[int, Arrivals],
    limit: Limit,
    per_chunk: int,
    record_bytes: int,
    untouched: Container[int] = (),
) -> list[RecordBlock]:
    """What to take of ``waiting`` within ``limit``. ``untouched`` are partitions of which nothing has been loaded."""
    newest_first = limit.first == "newest"
    per_block = per_chunk
    if limit.chunks is None and limit.bytes is not None:
        per_block = max(1, min(per_chunk, limit.bytes // record_bytes // (_BLOCKS * len(waiting))))

    def blocks(run: Run) -> Iterator[RecordBlock]:
        known = arrivals[run.partition]
        for part in cut(run, per_block, newest_first=newest_first):
            yield RecordBlock(part, (part.end - part.first) * record_bytes, known.at(part.end - 1))

    in_order = heapq.merge(*map(blocks, waiting), key=lambda block: -block.arrived if newest_first else block.arrived)
    chosen = within(limit, in_order)
    if newest_first or limit.chunks is not None:
        return chosen
    reached = max(block.arrived for block in chosen)
    taken = {block.run.partition for block in chosen}
    for run in sorted(waiting):
        known = arrivals[run.partition]
        is_ahead = run.partition not in untouched and known.at(run.first - 1) > reached
        if run.partition not in taken and not is_ahead:
            first = Run(run.partition, run.first, run.first + 1)
            chosen.append(RecordBlock(first, record_bytes, known.at(run.first)))
        taken.add(run.partition)
    return chosen


def partitions_left(waiting: Sequence[Run], taken: Sequence[Run]) -> tuple[int, ...]:
    """The partitions of which more is waiting than is taken."""
    left = Counter[int]()
    for run in waiting:
        left[run.partition] += run.end - run.first
    for run in taken:
        left[run.partition] -= run.end - run.first
    return tuple(sorted(partition for partition, count in left.items() if count > 0))
