"""A standalone Spark cluster on loopback: two workers of one core against one, and a small update against ``local[2]``.

Files of eight streams land together; that they are loaded is waited for, and then the next files land. Master, workers,
executors and driver share the machine: the second worker can help only if there is a core for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import median
from benchmarks.stream_spark.process import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: rows in a file: an update of many keeps a core of an executor busy, one of few is all overhead
MANY, FEW = 50_000, 100
LEAST_GAIN, MOST_OVERHEAD = 1.6, 1.5


def loads(workers: int, streams: int, rows: int, rounds: int, warm_up: int, seed: int) -> Row:
    options = {"streams": streams, "rows": rows, "rounds": rounds, "warm_up": warm_up, "seed": seed}
    found: Row = measured("on_cluster", workers=workers, **options)
    return found


def run(context: Context) -> Results:
    if context.smoke:
        size = {"streams": 2, "rounds": 1, "warm_up": 0, "seed": context.seed}
        return Results(context.points(loads, [{"workers": 1, "rows": FEW, **size}], timed=True), [])
    size = {"streams": 8, "rounds": 6, "warm_up": 4}
    arguments = [
        {"workers": workers, "rows": rows, "seed": seed, **size}
        for seed in context.seeds
        for workers, rows in ((1, MANY), (2, MANY), (2, FEW), (0, FEW))
    ]
    rows = context.points(loads, arguments, timed=True)
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    one, two = (median(rows, "per_second", workers=workers, rows_in_file=MANY) for workers in (1, 2))
    local, remote = (1000 * median(rows, "seconds", workers=workers, rows_in_file=FEW) for workers in (0, 2))
    return [
        Claim(
            f"two workers of one core make at least {LEAST_GAIN} times the updates of one",
            "a target of this project",
            f"{two:.2f} updates per second against {one:.2f}",
            two >= LEAST_GAIN * one,
        ),
        Claim(
            f"a small update takes at most {MOST_OVERHEAD} times as long as on local[2]",
            "a target of this project",
            f"{remote:.0f} ms against {local:.0f}",
            remote <= MOST_OVERHEAD * local,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.add_subplot(1, 1, 1)
    draw_bars(axes, rows, x="rows_in_file", y="per_second", label="where")
    axes.set_xlabel("rows in a file")
    axes.set_ylabel("updates per second")


BENCHMARK = Benchmark(
    name="cluster",
    figure="Spark, a cluster",
    claim="A second worker nearly doubles the updates, and a small update costs little more than on one machine.",
    takes="10 min",
    run=run,
    draw=draw,
    reps=3,
)
