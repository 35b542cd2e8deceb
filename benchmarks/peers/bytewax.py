"""Bytewax: `python -m benchmarks.peers.bytewax`, options as in `protocol`.

Dataflows of its own operators on two workers; rows come in batches from one Parquet file. Time is from calling the
runtime until it returns. Nothing is compiled on the way, so there is no run to warm up.

Where it differs: Bytewax has a watermark for each key, so a window of a key closes when a later row of that very key
comes, or at the end of the input. Pairs of Q1 hardly ever come again: its rankings are made at the end.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
import bytewax.operators.windowing as win  # type: ignore[import-not-found]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]
from bytewax.run import cli_main  # type: ignore[import-not-found]

from benchmarks.peers.protocol import CLICKS, HOUR, Q1, TOP, WHOLE, WORKERS, Answer, Task, this_task, write_rows

#: rows that the source gives at once
BATCH = 1_000
#: Rows behind the watermark are dropped, even if their window is open; and two workers, each with tickets of its own,
#: are not quite in step.
LATENESS = timedelta(hours=2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = {CLICKS: ("ts", "user", "item"), Q1: ("ts", "ticket", "item")}

Ranking = list[tuple[int, int, int]]


class _File(StatefulSourcePartition):  # type: ignore[misc]
    def __init__(self, task: Task) -> None:
        self._columns = COLUMNS[task.chain]
        file = pq.ParquetFile(task.inputs / WHOLE)
        self._batches = file.iter_batches(batch_size=BATCH, columns=list(self._columns))

    def next_batch(self) -> list[tuple[int, ...]]:
        # After the last batch this raises StopIteration, which is how a source tells Bytewax that it is at its end.
        batch = next(self._batches)
        return list(zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True))

    def snapshot(self) -> None:
        return None


class _Source(FixedPartitionedSource):  # type: ignore[misc]
    def __init__(self, task: Task) -> None:
        self._task = task

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: object) -> _File:
        return _File(self._task)


class _List(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def write_batch(self, items: list[Any]) -> None:
        self._found.extend(items)


class _Sink(DynamicSink):  # type: ignore[misc]
    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _List:
        return _List(self._found)


#: rows begin with their time
CLOCK = win.EventClock(ts_getter=lambda row: EPOCH + timedelta(seconds=row[0]), wait_for_system_duration=LATENESS)
#: numbered from the epoch: the number of a window is that of its hour
WINDOWS = win.TumblingWindower(length=timedelta(seconds=HOUR), align_to=EPOCH)


def clicks_flow(task: Task, found: list[Any]) -> Dataflow:
    flow = Dataflow(task.chain)
    clicks = op.input("clicks", flow, _Source(task))
    known = op.filter("known", clicks, lambda row: row[1] >= 0 and row[2] >= 0)
    counted = win.count_window("counted", known, CLOCK, WINDOWS, key=lambda row: str(row[2]))
    op.output("out", counted.down, _Sink(found))
    return flow


def clicks_rows(found: list[Any]) -> Iterator[tuple[int, ...]]:
    for item, (window, count) in found:
        yield window, int(item), count


def q1_flow(task: Task, found: list[Any]) -> Dataflow:
    flow = Dataflow(task.chain)
    lines = op.input("lines", flow, _Source(task))
    by_ticket = op.key_on("by-ticket", lines, lambda row: str(row[1]))
    pairs = op.key_rm("pairs-alone", op.stateful_flat_map("pairs", by_ticket, _pairs))
    counted = win.count_window("counted", pairs, CLOCK, WINDOWS, key=lambda row: f"{row[1]} {row[2]}")
    by_window = op.map("by-window", counted.down, _by_window)
    op.output("out", op.fold_final("best", by_window, list, _best), _Sink(found))
    return flow


def _pairs(items: set[int] | None, row: tuple[int, ...]) -> tuple[set[int], list[tuple[int, int, int]]]:
    ts, _, item = row
    items = set() if items is None else items
    if item in items:
        return items, []
    made = [(ts, min(item, other), max(item, other)) for other in items]
    items.add(item)
    return items, made


def _by_window(counted: tuple[str, tuple[int, int]]) -> tuple[str, tuple[int, int, int]]:
    """With its window as the key, and such that the greater is the better."""
    pair, (window, count) = counted
    a, b = pair.split()
    return str(window), (count, -int(a), -int(b))


def _best(ranking: Ranking, pair: tuple[int, int, int]) -> Ranking:
    if len(ranking) < TOP:
        heapq.heappush(ranking, pair)
    else:
        heapq.heappushpop(ranking, pair)
    return ranking


def q1_rows(found: list[Any]) -> Iterator[tuple[int, ...]]:
    for window, ranking in found:
        for rank, (count, a, b) in enumerate(sorted(ranking, reverse=True), start=1):
            yield int(window), rank, -a, -b, count


Flow = Callable[[Task, list[Any]], Dataflow]
ToRows = Callable[[list[Any]], Iterator[tuple[int, ...]]]
CHAINS: Mapping[str, tuple[Flow, ToRows]] = {CLICKS: (clicks_flow, clicks_rows), Q1: (q1_flow, q1_rows)}


def main() -> None:
    task = this_task()
    flow, rows = CHAINS[task.chain]
    seconds = []
    for _ in range(task.reps):
        found: list[Any] = []
        made = flow(task, found)
        began = time.perf_counter()
        cli_main(made, workers_per_process=WORKERS)
        seconds.append(time.perf_counter() - began)
    write_rows(task, rows(found))
    Answer(seconds, "parquet", "the runtime's call").write(task)


if __name__ == "__main__":
    main()
