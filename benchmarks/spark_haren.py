"""Tables of two classes on Spark (Haren, section 7.4): those that matter stay quick, steady and in bursts."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.spark.classes import STREAMS, table_of
from benchmarks.spark.log import read_log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "Haren, 7.4: latencies of the class that matters are an order of magnitude lower"
GRACE = 60.0
#: streaming queries with native sinks and Spark's own file system; without: with the help that `spark_tables` describes
INSTALLED = "structured, as installed"


def measure(contender: str, bursts: bool, warm_up: float, seconds: float) -> list[Row]:
    """How long files waited until a reader of their table could see them, by class."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        landing, log = folder / "landing", folder / "log.jsonl"
        shared = ["--landing", str(landing), "--seconds", str(warm_up + seconds), *(["--bursts"] if bursts else [])]
        base = [sys.executable, "-m", "benchmarks.spark.classes"]
        feeding = subprocess.Popen([*base, "arrivals", *shared], stdout=sys.stderr)
        try:
            installed = ["--installed"] if contender == INSTALLED else []
            part = "structured" if contender == INSTALLED else contender
            command = [*base, part, *installed, *shared, "--out", str(folder / "out"), "--log", str(log)]
            subprocess.run(command, check=True, stdout=sys.stderr, timeout=warm_up + seconds + GRACE)
            feeding.wait(GRACE)
        finally:
            feeding.kill()
            feeding.wait()
        landed = [json.loads(line) for line in (landing / "landed.jsonl").read_text("utf-8").splitlines()]
        updates = sorted(read_log(log), key=lambda update: update.visible)
    begin = landed[0]["landed"] + warm_up
    end = landed[0]["landed"] + warm_up + seconds
    rows = []
    for label, high in (("HIGH", True), ("LOW", False)):
        lags = []
        for stream in (stream for stream in STREAMS if stream.high == high):
            seen = [(u.visible, u.fresh) for u in updates if u.table == table_of(stream.name)]
            for file in landed:
                if file["stream"] == stream.name and begin <= file["landed"] <= end - 1:
                    visible = next((v for v, fresh in seen if fresh >= file["last"] - 1e-3), end)
                    lags.append(max(0.0, visible - file["landed"]))
        rows.append(
            {
                "contender": "headgate" if contender == "warehouse" else contender,
                "arrivals": "bursts" if bursts else "steady",
                "class": label,
                "files": len(lags),
                "mean lag": statistics.fmean(lags),
                "p99 lag": sorted(lags)[int(0.99 * len(lags))],
                "max lag": max(lags),
            }
        )
    return rows


def run(context: Context) -> Results:
    lengths = {"warm_up": 15.0, "seconds": 6.0} if context.smoke else {"warm_up": 50.0, "seconds": 60.0}
    contenders = ("warehouse",) if context.smoke else ("warehouse", "structured", INSTALLED)
    arguments = [
        {"contender": contender, "bursts": bursts, **lengths}
        for bursts in ((False,) if context.smoke else (False, True))
        for contender in contenders
    ]
    rows = context.points(measure, arguments, timed=True)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = {(row["contender"], row["arrivals"], row["class"]): row for row in rows}
    made = []
    for arrivals in ("steady", "bursts"):
        for contender in (INSTALLED, "structured"):
            ours, plain = (found[name, arrivals, "HIGH"] for name in ("headgate", contender))
            times = float(plain["max lag"]) / float(ours["max lag"])
            measured = f"{times:.1f} times ({ours['max lag']:.2f} s against {plain['max lag']:.2f} s)"
            what = f"{arrivals}, against {contender}"
            made.append(Claim(f"{what}: HIGH tables' maximum lag at least 5 times lower", PAPER, measured, times >= 5))
            ours, plain = (found[name, arrivals, "LOW"] for name in ("headgate", contender))
            times = float(ours["mean lag"]) / float(plain["mean lag"])
            measured = f"{times:.2f} times ({ours['mean lag']:.2f} s against {plain['mean lag']:.2f} s)"
            made.append(Claim(f"{what}: LOW tables' mean lag at most 2 times higher", PAPER, measured, times <= 2))
    return made


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots(1, 2)
    for plot, label in zip(axes, ("HIGH", "LOW"), strict=True):
        mine = [row for row in rows if row["class"] == label]
        plot.barh([f"{row['contender']}, {row['arrivals']}" for row in mine], [row["max lag"] for row in mine])
        plot.set_title(f"{label}: greatest lag, s")
        plot.set_xscale("log")


BENCHMARK = Benchmark(
    name="spark_haren",
    figure="Haren 7.4 on Spark",
    claim="3 HIGH and 10 LOW tables: HIGH ones at least 5 times lower maximum lag than plain Spark's.",
    takes="12 min",
    run=run,
    draw=draw,
    reps=1,
)
