"""RIoTBench across nodes (EdgeWise 7.5): PRED and STATS inside tables on 1, 2 and 4 executors, and classes in a task.

Master, executors and driver share the machine, so no ratio can be above its number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.stream.bars import draw_bars
from benchmarks.stream.ordered_queries import median
from benchmarks.stream_spark.process import measured
from benchmarks.stream_spark.sharing import VARIANTS, measure_sharing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "EdgeWise, fig. 12: about 2.5 times with 8 nodes"
HAREN = "Haren, 7.4: rows of the class that matters leave first"
EXECUTORS = (1, 2, 4)
LEAST_GAIN = 1.3
LOW = 4


def scale(pipeline: str, executors: int, many: int, few: int, rounds: int, warm_up: int) -> Row:
    size = {"many": many, "few": few, "rounds": rounds, "warm_up": warm_up}
    found: Row = measured("on_nodes", pipeline=pipeline, executors=executors, **size)
    return found


def run(context: Context) -> Results:
    rows: list[Row] = []
    checked: list[Claim] = []
    if context.part in (None, "scale"):
        size = {"many": 100_000, "few": 1_000, "rounds": 3, "warm_up": 2}
        configurations = [(pipeline, count) for pipeline in ("pred", "stats") for count in EXECUTORS]
        if context.smoke:
            # On one machine: that is quick, and `cluster` starts a cluster in its smoke run.
            size, configurations = {"many": 500, "few": 100, "rounds": 1, "warm_up": 0}, [("stats", 0)]
        arguments = [{"pipeline": name, "executors": count, **size} for name, count in configurations]
        found = context.points(scale, arguments * context.reps, timed=True)
        rows += found
        checked += [] if context.smoke else scale_claims(found)
    if context.part in (None, "policy"):
        lines = 4_000 if context.smoke else 100_000
        arguments = [{"variant": variant, "low": LOW, "lines": lines} for variant in VARIANTS]
        found = context.points(measure_sharing, arguments * context.reps, timed=True)
        rows += found
        checked += policy_claims(found, enough=not context.smoke)
    return Results(rows, checked)


def scale_claims(rows: Sequence[Row]) -> list[Claim]:
    made = []
    for pipeline in ("PRED", "STATS"):
        speed = {n: median(rows, "lines_per_second", pipeline=pipeline, executors=n) for n in EXECUTORS}
        ratios = ", ".join(f"{n} executors {speed[n] / speed[1]:.2f} times" for n in EXECUTORS[1:])
        best = max(speed[n] for n in EXECUTORS[1:]) / speed[1]
        cores = os.cpu_count() or 1
        made.append(
            Claim(
                f"{pipeline} inside a table: more executors make at least {LEAST_GAIN} times the lines of one",
                PAPER,
                f"{ratios}, on {cores} cores that the driver shares",
                best >= LEAST_GAIN if cores > 1 else None,
            )
        )
        sums = {(row["rows_in_table"], row["checksum"]) for row in rows if row["pipeline"] == pipeline}
        same = f"{len(sums)} different tables in {sum(row['pipeline'] == pipeline for row in rows)} runs"
        made.append(Claim(f"{pipeline}: the table is the same on any number of executors", "-", same, len(sums) == 1))
    return made


def policy_claims(rows: Sequence[Row], enough: bool) -> list[Claim]:
    default, serial = list(VARIANTS)[:2]
    high, low = (median(rows, "last", variant=default, **{"class": name}) for name in ("HIGH", "LOW"))
    before = median(rows, "last", variant=serial, **{"class": "HIGH"})
    whole, serially = (median(rows, "task", variant=variant) for variant in (default, serial))
    return [
        Claim(
            f"one HIGH and {LOW} LOW queries in a task: HIGH's last row leaves at least twice as early as serially",
            HAREN,
            f"after {high:.2f} s against {before:.2f} s; LOW's after {low:.2f} s",
            2 * high <= before if enough else None,
        ),
        Claim(
            "and the task takes at most 1.2 times as long",
            "-",
            f"{whole:.2f} s against {serially:.2f} s",
            whole <= 1.2 * serially if enough else None,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    across = [row for row in rows if "executors" in row]
    inside = [row for row in rows if "variant" in row]
    shown = [each for each in (across, inside) if each]
    for place, mine in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), place)
        if mine is across:
            draw_bars(axes, mine, x="executors", y="lines_per_second", label="pipeline", scale=1000)
            axes.set_xlabel("executors of one core")
            axes.set_ylabel("thousand lines per second")
        else:
            draw_bars(axes, mine, x="class", y="last", label="variant")
            axes.set_ylabel("seconds until the last row leaves the task")


BENCHMARK = Benchmark(
    name="nodes",
    figure="EdgeWise fig. 12 on Spark",
    claim="PRED and STATS inside tables gain by executors; in a task, rows of the class that matters leave first.",
    takes="8 min",
    run=run,
    draw=draw,
    reps=1,
    parts=("scale", "policy"),
)
