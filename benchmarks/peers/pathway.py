"""Pathway: `python -m benchmarks.peers.pathway`, options as in `protocol`.

Tables of its own operators on two threads; rows come from a text file, since it has no reader of plain Parquet files.
Time is from `pw.run` until it returns, in a process that has run the chain before.

Where it differs: a window is a column, the hour, and results are revised rather than closed; so the hour is simply
grouped by, without `windowby` and its watermarks. The file is read in static mode, in which the engine takes it all at
one moment of its own time, and ends. The pairs of a ticket and the cut after the best 100 are functions in Python.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

import pathway as pw  # type: ignore[import-not-found]
from pathway.internals.parse_graph import G  # type: ignore[import-not-found]

from benchmarks.peers.protocol import CLICKS, HOUR, Q1, TOP, WHOLE_CSV, Answer, Task, this_task, write_rows


class Click(pw.Schema):  # type: ignore[misc]
    ts: int
    user: int
    item: int


class Line(pw.Schema):  # type: ignore[misc]
    ts: int
    ticket: int
    item: int
    store: int


def clicks_table(path: Path) -> pw.Table:
    clicks = pw.io.csv.read(path, schema=Click, mode="static")
    known = clicks.filter((clicks.user >= 0) & (clicks.item >= 0))
    hours = known.select(known.item, window=known.ts // HOUR)
    return hours.groupby(hours.window, hours.item).reduce(hours.window, hours.item, n=pw.reducers.count())


@pw.udf(deterministic=True)  # type: ignore[untyped-decorator]
def pairs_of(items: tuple[int, ...]) -> list[int]:
    """Items come sorted; a pair is one number that sorts as the pair does."""
    return [a << 32 | b for a, b in combinations(dict.fromkeys(items), 2)]


@pw.udf(deterministic=True)  # type: ignore[untyped-decorator]
def best_of(pairs: tuple[tuple[int, int], ...]) -> list[tuple[int, int, int]]:
    """Rank, count and pair of the first of these, which come sorted."""
    return [(rank, -count, pair) for rank, (count, pair) in enumerate(pairs[:TOP], start=1)]


def q1_table(path: Path) -> pw.Table:
    lines = pw.io.csv.read(path, schema=Line, mode="static")
    lines = lines.select(lines.ticket, lines.item, window=lines.ts // HOUR)
    tickets = lines.groupby(lines.window, lines.ticket).reduce(lines.window, items=pw.reducers.sorted_tuple(lines.item))
    pairs = tickets.select(tickets.window, pair=pairs_of(tickets.items)).flatten(pw.this.pair)
    counts = pairs.groupby(pairs.window, pairs.pair).reduce(pairs.window, pairs.pair, n=pw.reducers.count())
    rankings = counts.groupby(counts.window).reduce(
        counts.window, pairs=pw.reducers.sorted_tuple(pw.make_tuple(-counts.n, counts.pair))
    )
    best = rankings.select(rankings.window, row=best_of(rankings.pairs)).flatten(pw.this.row)
    return best.select(best.window, rank=best.row[0], n=best.row[1], pair=best.row[2])


def clicks_row(row: dict[str, int]) -> tuple[int, ...]:
    return row["window"], row["item"], row["n"]


def q1_row(row: dict[str, int]) -> tuple[int, ...]:
    return row["window"], row["rank"], row["pair"] >> 32, row["pair"] & 0xFFFF_FFFF, row["n"]


ToTable = Callable[[Path], pw.Table]
ToRow = Callable[[dict[str, int]], tuple[int, ...]]
CHAINS: Mapping[str, tuple[ToTable, ToRow]] = {CLICKS: (clicks_table, clicks_row), Q1: (q1_table, q1_row)}


def run_once(task: Task, found: Path | None) -> float:
    """Seconds of one run; the rows go into the file `found`, or nowhere."""
    G.clear()
    table = CHAINS[task.chain][0](task.inputs / WHOLE_CSV)
    if found is None:
        pw.io.null.write(table)
    else:
        pw.io.csv.write(table, found)
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return time.perf_counter() - began


def main() -> None:
    task = this_task()
    found = task.out / "changes.csv"
    run_once(task, found)
    Answer([run_once(task, None) for _ in range(task.reps)], "csv", "pw.run after a first run").write(task)
    with found.open(newline="", encoding="utf-8") as file:
        changes = [{name: int(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    # A change of -1 would take a row back; in static mode there is none.
    write_rows(task, [CHAINS[task.chain][1](change) for change in changes if change["diff"] == 1])


if __name__ == "__main__":
    main()
