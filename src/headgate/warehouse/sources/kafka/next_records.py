"""Which of the waiting records of a topic are loaded next: of all partitions, in the order in which they arrived.

So partitions advance together, and a stream is complete up to where all of them are. A partition in which nothing
arrived for a while still gives its next record: that says that nothing earlier is to come from it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headgate.warehouse.sources.kafka.arrivals import Arrivals
from headgate.warehouse.sources.kafka.offsets import Run, cut, merged
from headgate.warehouse.sources.protocol import Limit, within

#: a range that is cut takes about so many blocks of each partition: the more, the less partitions drift apart
_BLOCKS = 4


class RecordBlock(NamedTuple):
    """Some offsets of a partition, and when the last of them arrived."""

    run: Run
    size: int
    arrived: float


class NextRecords(NamedTuple):
    """What is loaded next. The last of the records arrived at ``newest``, but for single ones of quiet partitions."""

    runs: tuple[Run, ...]
    oldest: float
    newest: float


def next_records(
    waiting: Sequence[Run],
    arrivals: Mapping[int, Arrivals],
    limit: Limit,
    per_chunk: int,
    record_bytes: int,
    untouched: Container[int] = (),
) -> NextRecords:
    """What to take of ``waiting`` within ``limit``. ``untouched`` are partitions of which nothing has been loaded."""
    newest_first = limit.first == "newest"
    per_block, by_time = per_chunk, limit
    if limit.chunks is None and limit.bytes is not None:
        per_block = max(1, min(per_chunk, limit.bytes // record_bytes // (_BLOCKS * len(waiting))))
        if sum(run.end - run.first for run in waiting) * record_bytes > limit.bytes:
            # Room for a record of each quiet partition.
            by_time = replace(limit, bytes=max(limit.bytes // 2, limit.bytes - record_bytes * (len(waiting) - 1)))

    def blocks(run: Run) -> Iterator[RecordBlock]:
        known = arrivals[run.partition]
        for part in cut(run, per_block, newest_first=newest_first):
            yield RecordBlock(part, (part.end - part.first) * record_bytes, known.at(part.end - 1))

    in_order = heapq.merge(*map(blocks, waiting), key=lambda block: -block.arrived if newest_first else block.arrived)
    chosen = within(by_time, in_order)
    reached = max(block.arrived for block in chosen)
    runs = [block.run for block in chosen]
    if limit.chunks is None and not newest_first:
        room = (
            math.inf if limit.bytes is None else limit.bytes // record_bytes - sum(run.end - run.first for run in runs)
        )
        runs += _of_quiet_partitions(waiting, runs, arrivals, reached, untouched)[
            : int(max(0, min(room, len(waiting))))
        ]
    found = merged(runs)
    return NextRecords(found, min(arrivals[run.partition].at(run.first) for run in found), reached)


def _of_quiet_partitions(
    waiting: Sequence[Run],
    taken: Sequence[Run],
    arrivals: Mapping[int, Arrivals],
    reached: float,
    untouched: Container[int],
) -> list[Run]:
    """The next record of each partition of which nothing is taken, unless one that came after ``reached`` is loaded."""
    seen = {run.partition for run in taken}
    found = []
    for run in sorted(waiting):
        is_ahead = run.partition not in untouched and arrivals[run.partition].at(run.first - 1) > reached
        if run.partition not in seen and not is_ahead:
            found.append(Run(run.partition, run.first, run.first + 1))
        seen.add(run.partition)
    return sorted(found, key=lambda run: arrivals[run.partition].at(run.first))


def partitions_left(waiting: Sequence[Run], taken: Sequence[Run]) -> tuple[int, ...]:
    """The partitions of which more is waiting than is taken."""
    left = Counter[int]()
    for run in waiting:
        left[run.partition] += run.end - run.first
    for run in taken:
        left[run.partition] -= run.end - run.first
    return tuple(sorted(partition for partition, count in left.items() if count > 0))
