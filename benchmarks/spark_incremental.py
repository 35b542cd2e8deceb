"""What an update costs as history grows: groups by minute and by customer, and a chain of minutes, hours and days."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def part(name: str, scale: float, repeats: int) -> list[Row]:
    command = [
        *(sys.executable, "-m", "benchmarks.spark.incremental", name),
        *("--scale", str(scale), "--repeats", str(repeats)),
    ]
    found: list[Row] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def run(context: Context) -> Results:
    if context.smoke:
        return Results(context.points(part, [{"name": "chain", "scale": 0.01, "repeats": 2}], timed=True), [])
    names = ("hour", "customers", "chain")
    rows = context.points(part, [{"name": name, "scale": 1.0, "repeats": 9} for name in names], timed=True)
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    paper = "a target of this project"
    hour = {
        mode: [float(row["seconds"]) for row in rows if row["part"] == "hour" and row["mode"] == mode]
        for mode in ("merge", "blocks")
    }
    empty, full = (float(row["seconds"]) for row in rows if row["part"] == "customers")
    auto, blocks = (float(row["together"]) for row in rows if row["part"] == "chain")
    grown, recomputed = hour["merge"][-1] / hour["merge"][0], hour["blocks"][-1] / hour["blocks"][0]
    return [
        Claim(
            "20,000 rows into groups by minute, as their hour fills to 30 million rows: at most 1.3 times as long",
            paper,
            f"{grown:.2f} times ({hour['merge'][0]:.2f} to {hour['merge'][-1]:.2f} s; recomputed {recomputed:.1f})",
            grown <= 1.3,
        ),
        Claim(
            "20,000 rows into totals of 1 million customers, after 100 million rows: at most 2 times a new table",
            paper,
            f"{full / empty:.2f} times ({empty:.2f} to {full:.2f} s)",
            full <= 2 * empty,
        ),
        Claim(
            "minutes, hours and days with 1 % late rows read at least 20 times fewer rows than recomputed blocks",
            paper,
            f"{blocks / auto:.0f} times fewer ({auto:,.0f} against {blocks:,.0f} rows per update)",
            blocks >= 20 * auto,
        ),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    for mode in ("merge", "blocks"):
        points = [row for row in rows if row["part"] == "hour" and row["mode"] == mode]
        axes.plot(
            [float(row["rows"]) / 1e6 for row in points],
            [float(row["seconds"]) for row in points],
            marker="o",
            label={"merge": "merged", "blocks": "recomputed"}[mode],
        )
    axes.set_xlabel("million rows in the hour")
    axes.set_ylabel("seconds of an update with 20,000 new rows")
    axes.set_ylim(bottom=0)
    axes.legend()


BENCHMARK = Benchmark(
    name="spark_incremental",
    figure="Spark",
    claim="An update costs what has changed, not what its partition or its history holds.",
    takes="15 min",
    run=run,
    draw=draw,
    reps=1,
)
