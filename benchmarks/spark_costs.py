"""What Headgate adds to an update: its own time with many idle tables, old partitions, and memory in the long run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks import spark_tables
from benchmarks.harness import Benchmark, Claim, Context, Results, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = 500
#: about half of what 24 tables can do
SPEED = 1.5


def busy_among(idle: int, seconds: float) -> Row:
    course = {"warm_up": 90.0 if idle else 60.0, "seconds": seconds}
    row = spark_tables.measure("headgate", f"{idle} idle", SPEED, course, ("--idle", str(idle)))
    return {"what": f"{24 + idle} tables", "overhead": row["overhead"], "updates per second": row["updates per second"]}


def in_the_long_run(updates: int, partitions: int, warm_up: int, compared: int) -> list[Row]:
    command = [
        *(sys.executable, "-m", "benchmarks.spark.costs", "--updates", str(updates)),
        *("--partitions", str(partitions), "--warm-up", str(warm_up), "--compared", str(compared)),
    ]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    rows: list[Row] = [
        {
            "what": f"update of {name}",
            "table": name,
            "fresh": found["history"]["fresh"][name],
            "old": found["history"]["old"][name],
            "ratio": found["history"]["old"][name] / found["history"]["fresh"][name],
        }
        for name in found["history"]["fresh"]
    ]
    rows += [{"what": "memory", **held} for held in found["memory"]]
    return rows


def run(context: Context) -> Results:
    if context.smoke:
        small = {"updates": 9, "partitions": 5, "warm_up": 1, "compared": 2}
        return Results(context.points(in_the_long_run, [small], timed=True), [])
    arguments = [{"idle": idle, "seconds": 60.0} for idle in (0, TABLES - 24 + 4)]
    rows = context.points(busy_among, arguments, timed=True)
    rows += context.points(
        in_the_long_run, [{"updates": 2_000, "partitions": 1_000, "warm_up": 30, "compared": 40}], timed=True
    )
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    paper = "a target of this project"
    few, many = (float(row["overhead"]) for row in rows if "overhead" in row)
    ratio = max(float(row["ratio"]) for row in rows if "ratio" in row)
    held = [row for row in rows if row["what"] == "memory"]
    # the first fifth is warm-up: classes are loaded and caches filled
    level = [row for row in held if float(row["updates"]) >= float(held[-1]["updates"]) / 5]
    growth = float(level[-1]["heap"]) / float(level[0]["heap"])
    python = float(level[-1]["python"]) / float(level[0]["python"])
    return [
        Claim("Headgate itself takes at most 15 % of an update, 24 tables", paper, f"{few:.1%}", few <= 0.15),
        Claim("and at most 25 % with 500 tables, mostly idle", paper, f"{many:.1%}", many <= 0.25),
        Claim("1,000 old partitions: an update takes at most 1.5 times as long", paper, f"{ratio:.2f}", ratio <= 1.5),
        Claim(
            "2,000 updates: memory stays level",
            paper,
            f"JVM heap {growth:.2f} times, Python {python:.2f} times",
            growth <= 1.15 and python <= 1.15,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    held = [row for row in rows if row["what"] == "memory"]
    for part in ("heap", "python"):
        axes.plot([row["updates"] for row in held], [row[part] for row in held], label=part)
    axes.set_xlabel("updates")
    axes.set_ylabel("MB")
    axes.set_ylim(bottom=0)
    axes.legend()


BENCHMARK = Benchmark(
    name="spark_costs",
    figure="Spark",
    claim="Headgate's own share of an update is small, whatever is idle, however long the history is.",
    takes="12 min",
    run=run,
    draw=draw,
    reps=1,
)
