"""Small updates of a table with a query inside: what they take in one Spark task, and in a task for each bucket.

The query makes sessions (the first two operators of Q2, derived from TPCx-BB, unofficial, not comparable). Updates go
one way and the other in turn, on the same table and the same states, so that the compiler of the JVM and the noise of
the machine are the same for both. A task is Spark's time to plan, start and end it, a Python worker's to take it up,
and an engine's to be built. For few rows that is nearly everything; for many, two cores are quicker than one. The
warehouse takes one task up to 2 MB of input (`headgate.warehouse.updates.hosted.ONE_TASK_BYTES`), and here is why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import UNOFFICIAL, median
from benchmarks.stream_spark.process import measured
from headgate.warehouse.updates.hosted import ONE_TASK_BYTES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES, SMOKE_SIZES = [5_000, 50_000, 200_000], [2_000]
#: a number of buckets, and the default of ``on_spark``
BUCKETS, SMOKE_BUCKETS = [2, 8], [2]
ONE, EACH = "one task", "a task for each bucket"
LEAST = 2.0


def updates(sizes: list[int], buckets: list[int], warm_up: int, count: int, seed: int) -> list[Row]:
    found: list[Row] = measured("small", sizes=sizes, buckets=buckets, warm_up=warm_up, updates=count, seed=seed)
    return found


def run(context: Context) -> Results:
    size = {"sizes": SIZES, "buckets": BUCKETS, "warm_up": 8, "count": context.reps}
    if context.smoke:
        size = {"sizes": SMOKE_SIZES, "buckets": SMOKE_BUCKETS, "warm_up": 0, "count": 1}
    rows = context.points(updates, [{**size, "seed": context.seed}], timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    def milliseconds(size: int, buckets: int, tasks: str) -> float:
        return 1000 * median(rows, "seconds", size=size, buckets=buckets, tasks=tasks)

    def ratio(size: int, buckets: int) -> float:
        return milliseconds(size, buckets, EACH) / milliseconds(size, buckets, ONE)

    def told(size: int, buckets: int) -> str:
        both = f"{milliseconds(size, buckets, ONE):.0f} ms against {milliseconds(size, buckets, EACH):.0f}"
        return f"{size:,} rows ({_bytes(rows, size) / 1e6:.2f} MB) and {buckets} buckets {both}"

    small, limit = SIZES[0], [size for size in SIZES if _bytes(rows, size) <= ONE_TASK_BYTES]
    return [
        Claim(
            f"with {BUCKETS[-1]} buckets, an update of {small:,} rows takes at most half as long in one task",
            f"a target of this project ({UNOFFICIAL})",
            "; ".join(told(small, buckets) for buckets in BUCKETS),
            ratio(small, BUCKETS[-1]) >= LEAST,
        ),
        Claim(
            f"up to {ONE_TASK_BYTES >> 20} MB of input, one task is quicker than {BUCKETS[-1]}",
            f"a target of this project ({UNOFFICIAL})",
            "; ".join(told(size, buckets) for size in SIZES[1:] for buckets in BUCKETS),
            all(ratio(size, BUCKETS[-1]) >= 1 for size in limit),
        ),
    ]


def _bytes(rows: Sequence[Row], size: int) -> float:
    return median(rows, "bytes", size=size)


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    for place, buckets in enumerate(dict.fromkeys(row["buckets"] for row in rows)):
        axes = figure.add_subplot(1, len({row["buckets"] for row in rows}), place + 1)
        draw_bars(axes, [row for row in rows if row["buckets"] == buckets], x="size", y="seconds", label="tasks")
        axes.set_title(f"{buckets} buckets", fontsize="small")
        axes.set_xlabel("rows in an update")
        axes.set_ylabel("seconds")
    figure.suptitle(UNOFFICIAL, fontsize="small")


BENCHMARK = Benchmark(
    name="stream_spark_small",
    figure="Spark, queries inside tables",
    claim="A small update of a table with a query inside takes half as long in one task as in one for each bucket.",
    takes="2 min",
    run=run,
    draw=draw,
    reps=8,
)
