"""Q1 inside a table: rows per second from Parquet to commit, in updates of two million rows, and where the time goes.

Derived from TPCx-BB, unofficial, not comparable. Q1 ranks, hour by hour, the pairs of items that are bought together.
All of its states are of one hour, so Spark partitions rows by the hour (`benchmarks.stream_spark.ticket_pairs` says why
that is right): two million rows are a hundred hours, which keeps all cores busy. The hours of the first update are
compared with the workload's batch query in Spark SQL.

An update is two: landed files go into the stream's own table, and its new files through Q1 into Q1's table. Each ends
with a commit. The time of both counts, and that of the second is told on its own.

Steps of an update are timed with all those before them, without states and without commits, on one file of so many
rows: reading; partitioning and sorting in Spark; the order of arrival and the way to Python, with a query that gives
nothing out; and the engine with Q1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.ordered_queries import UNOFFICIAL, median
from benchmarks.stream_spark.process import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, SMOKE_ROWS = 2_000_000, 50_000
WARM_UP = 3
BUCKETS, SMOKE_BUCKETS = 4, 1
LEAST = 1e6


def updates(rows: int, warm_up: int, count: int, buckets: int, steps: int, seed: int) -> list[Row]:
    options = {"rows": rows, "warm_up": warm_up, "updates": count, "buckets": buckets, "reps": steps, "seed": seed}
    found = measured("q1", **options)
    made: list[Row] = []
    for number, took in enumerate(found["updates"], start=1):
        for part, seconds in (*took.items(), ("both", sum(took.values()))):
            made.append(
                {"what": "update", "part": part, "rep": number, "seconds": seconds, "rows per second": rows / seconds}
            )
    cumulative = {"nothing": 0.0, **found["steps"]}
    for before, step in pairwise(cumulative):
        seconds = cumulative[step] - cumulative[before]
        made.append({"what": "step", "part": step, "seconds": seconds, "up to here": cumulative[step]})
    return [*made, {"what": "check", "part": "hours that agree with the batch query", "count": found["hours checked"]}]


def run(context: Context) -> Results:
    size = {"rows": ROWS, "warm_up": WARM_UP, "count": context.reps, "buckets": BUCKETS, "steps": context.reps}
    if context.smoke:
        size = {"rows": SMOKE_ROWS, "warm_up": 0, "count": 1, "buckets": SMOKE_BUCKETS, "steps": 0}
    rows = context.points(updates, [{**size, "seed": context.seed}], timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    rates = {part: median(rows, "rows per second", part=part) / 1e6 for part in ("both", "table", "load")}
    where = ", ".join(f"{row['part']} {row['seconds']:.2f} s" for row in rows if row["what"] == "step")
    table = median(rows, "seconds", part="table")
    last = [row["up to here"] for row in rows if row["what"] == "step"][-1]
    target = f"a target of this project ({UNOFFICIAL})"
    return [
        Claim(
            "Q1 inside a table: at least 1 million rows a second from landed Parquet to commit, 2 million in an update",
            target,
            f"{rates['both']:.2f} million rows/s; into the stream's table {rates['load']:.2f}",
            rates["both"] >= LEAST / 1e6,
        ),
        Claim(
            "the same, from the Parquet files of the stream's table to the commit of Q1's",
            target,
            f"{rates['table']:.2f} million rows/s: {where}, states and commit {table - last:.2f} s",
            rates["table"] >= LEAST / 1e6,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """Where the time of an update goes, one step on top of the other."""
    axes = figure.subplots()
    steps = [(row["part"], row["seconds"]) for row in rows if row["what"] == "step"]
    table, load = (median(rows, "seconds", part=part) for part in ("table", "load"))
    steps = [("into the stream's table", load), *steps]
    steps.append(("states and commit", max(0.0, table + load - sum(seconds for _, seconds in steps))))
    left = 0.0
    for name, seconds in steps:
        axes.barh("an update", seconds, left=left, label=f"{name}: {seconds:.2f} s")
        left += max(seconds, 0.0)
    axes.set_xlabel("seconds")
    axes.legend(fontsize="small")
    figure.suptitle(UNOFFICIAL, fontsize="small")


BENCHMARK = Benchmark(
    name="stream_spark_q1",
    figure="Spark, queries inside tables",
    claim="Q1 inside a table reads at least 1 million rows a second, from Parquet to commit, 2 million in an update.",
    takes="2 min",
    run=run,
    draw=draw,
    reps=5,
)
