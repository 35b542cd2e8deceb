"""Kafka to table: the records per second of large updates, and an update of 1,000 records against one of a file."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from tests.services.kafka import why_not

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loads(records: int, updates: int, small: int) -> list[Row]:
    """Measured in a process of its own, with a broker of its own beside it."""
    if reason := why_not():
        print(f"kafka: nothing is measured: {reason}", file=sys.stderr)
        return [{"what": "nothing", "records": 0, "seconds": 0.0}]
    command = [
        *(sys.executable, "-m", "benchmarks.spark.kafka_loads", "--records", str(records)),
        *("--updates", str(updates), "--small", str(small)),
    ]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    rows: list[Row] = [{"what": "update", **update} for update in found["large"]]
    rows += [
        {"what": f"1,000 from a {name}", "records": 1_000, "seconds": seconds}
        for name, seconds in (("topic", found["small"]["kafka"]), ("file", found["small"]["file"]))
    ]
    return rows


def run(context: Context) -> Results:
    if context.smoke:
        return Results(context.points(loads, [{"records": 5_000, "updates": 1, "small": 2}], timed=True), [])
    rows = context.points(loads, [{"records": 1_000_000, "updates": 5, "small": 40}], timed=True)
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    goal = "a target of this project"
    speeds = [row["records"] / row["seconds"] for row in rows if row["what"] == "update" and row["records"] > 500_000]
    seconds = {row["what"]: float(row["seconds"]) for row in rows}
    if not speeds:
        return [Claim("1,000,000 records at once: at least 300,000 a second", goal, "not measured", None)]
    speed = statistics.median(speeds)
    topic, file = seconds["1,000 from a topic"], seconds["1,000 from a file"]
    return [
        Claim("1,000,000 records at once: at least 300,000 a second", goal, f"{speed:,.0f} a second", speed >= 300_000),
        Claim(
            "1,000 records take at most 1.5 times as long as a file of the same rows",
            goal,
            f"{topic / file:.2f} times ({topic:.3f} s and {file:.3f} s)",
            topic <= 1.5 * file,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    axes.bar([f"{row['what']} {number}" for number, row in enumerate(rows)], [row["seconds"] for row in rows])
    axes.tick_params(axis="x", rotation=90)
    axes.set_ylabel("seconds")


BENCHMARK = Benchmark(
    name="kafka",
    figure="Spark",
    claim="A topic of Kafka is loaded as fast as files are.",
    takes="4 min",
    run=run,
    draw=draw,
    reps=1,
)
