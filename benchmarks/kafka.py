"""Kafka to table: large updates, 1,000 records against a file of them, the lag under load, and a long backlog."""

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

LOADS = {"records": 1_000_000, "updates": 5, "small": 40}
#: a tenth of the records per second that an update should load
LAG = {"rate": 30_000, "warm_up": 30.0, "seconds": 60.0}
CATCH_UP = {"records": 4_000_000, "repeats": 2, "most": 0}


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


def lag(rate: int, warm_up: float, seconds: float) -> list[Row]:
    """The lag of the most important table over a topic, while twelve others have something to do."""
    if reason := why_not():
        print(f"kafka: nothing is measured: {reason}", file=sys.stderr)
        return [{"what": "nothing", "records": 0, "seconds": 0.0}]
    command = [sys.executable, "-m", "benchmarks.spark.kafka_lag", "--rate", str(rate)]
    command += ["--warm-up", str(warm_up), "--seconds", str(seconds)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return [{"what": "lag", "records": found["rows"], "seconds": found["worst lag"], **found}]


def catch_up(records: int, repeats: int, most: int) -> list[Row]:
    """A long backlog: read by the driver in pieces, and on executors."""
    if reason := why_not():
        print(f"kafka: nothing is measured: {reason}", file=sys.stderr)
        return [{"what": "nothing", "records": 0, "seconds": 0.0}]
    command = [sys.executable, "-m", "benchmarks.spark.kafka_catch_up", "--records", str(records)]
    command += ["--repeats", str(repeats), "--most", str(most)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return [{"what": f"backlog by {row['by']}", **row} for row in found]


def run(context: Context) -> Results:
    rows: list[Row] = []
    if context.part in (None, "loads"):
        point = {"records": 5_000, "updates": 1, "small": 2} if context.smoke else LOADS
        rows += context.points(loads, [point], timed=True)
    if context.part == "lag" or (context.part is None and not context.smoke):
        point = {"rate": 1_000, "warm_up": 5.0, "seconds": 5.0} if context.smoke else LAG
        rows += context.points(lag, [point], timed=True)
    if context.part == "catch-up" or (context.part is None and not context.smoke):
        point = {"records": 6_000, "repeats": 1, "most": 2_000} if context.smoke else CATCH_UP
        rows += context.points(catch_up, [point], timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    goal = "a target of this project"
    speeds = [row["records"] / row["seconds"] for row in rows if row["what"] == "update" and row["records"] > 500_000]
    seconds = {row["what"]: float(row["seconds"]) for row in rows}
    found = [*_lag_claims(rows, goal), *_catch_up_claims(rows, goal)]
    if not speeds:
        return found
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
        *found,
    ]


def _lag_claims(rows: Sequence[Row], goal: str) -> list[Claim]:
    return [
        Claim(
            "30,000 records a second, and twelve other tables: the important table is at most 2 s behind",
            goal,
            f"worst {row['worst lag']:.1f} s, 95 % of the time at most {row['95 % lag']:.1f} s, "
            f"median {row['median lag']:.1f} s; {row['updates of others']} updates of others",
            row["worst lag"] <= 2.0,
        )
        for row in rows
        if row["what"] == "lag"
    ]


def _catch_up_claims(rows: Sequence[Row], goal: str) -> list[Claim]:
    speeds = {
        by: statistics.median([row["records"] / row["seconds"] for row in rows if row["what"] == f"backlog by {by}"])
        for by in ("the driver", "executors")
        if any(row["what"] == f"backlog by {by}" for row in rows)
    }
    if len(speeds) < 2:
        return []
    most = {row["what"]: row["driver"] for row in rows if str(row["what"]).startswith("backlog by")}
    return [
        Claim(
            "a backlog of millions of records: eight cores of executors are as fast as the driver, by the speed of two",
            goal,
            f"{speeds['executors']:,.0f} a second on two cores, by the driver {speeds['the driver']:,.0f}; "
            f"memory of the driver {most['backlog by executors']} MB",
            4 * speeds["executors"] >= speeds["the driver"],
        )
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
    parts=("loads", "lag", "catch-up"),
)
