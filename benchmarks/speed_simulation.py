"""How many events the table simulator processes in a second, and how that changes with the number of nodes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks._golab import job, scaled
from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from headgate.core import placement_from, policy_from
from headgate.sim import TableScenario, TableSimulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOAD = 0.9
#: label: (jobs, tracks)
SIZES = {"30 jobs, 4 tracks": (30, 4), "100 jobs, 4 tracks": (100, 4), "10,000 jobs, 256 tracks": (10_000, 256)}
IMPORTS = 5


def point(label: str, jobs: int, tracks: int, events: int, seed: int) -> Row:
    tables = tuple(job(f"t{i}", priority=10 if i % 2 else 1) for i in range(jobs))
    scenario = scaled(TableScenario(tables, tracks=tracks, events=events), LOAD)
    simulation = TableSimulation(scenario, policy_from("max-benefit"), placement_from("proportional"), seed)
    # Processor time, not wall-clock time: neighbours on the machine must not decide.
    start = time.process_time()
    result = simulation.run()
    seconds = time.process_time() - start
    return {
        "what": label,
        "events": result.events,
        "events per second": result.events / seconds,
        "microseconds per event": 1e6 * seconds / result.events,
    }


def import_time() -> Row:
    """The quickest of several fresh interpreters importing headgate, less one that imports nothing."""
    code = "import sys, headgate; sys.exit('pyspark' in sys.modules)"
    times = {program: min(_seconds(program) for _ in range(IMPORTS)) for program in ("pass", code)}
    return {"what": "import headgate", "seconds": times[code] - times["pass"]}


def _seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


def run(context: Context) -> Results:
    events = 3_000 if context.smoke else 300_000
    arguments = [
        {"label": label, "jobs": jobs, "tracks": tracks, "events": max(events, 2 * jobs), "seed": seed}
        for label, (jobs, tracks) in SIZES.items()
        for seed in context.seeds
    ]
    rows = context.points(point, arguments, timed=True) + context.points(import_time, [{}], timed=True)
    small, hundred, large = (_best(rows, label) for label in SIZES)
    seconds = rows[-1]["seconds"]
    checked = not context.smoke
    return Results(
        rows,
        [
            Claim(
                claim="30 jobs, 4 tracks, Max Benefit with Proportional: at least 50,000 events per second of one core",
                paper="a target of this project; aim for 100,000",
                measured=f"{small:,.0f} events per second",
                holds=small >= 50_000 if checked else None,
            ),
            Claim(
                claim="an event with 10,000 nodes on 256 workers costs at most 3 times one with 100 nodes",
                paper="a target of this project",
                measured=f"{hundred / large:.2f} times",
                holds=hundred / large <= 3 if checked else None,
            ),
            Claim(
                claim="import headgate takes under 0.3 s and does not import pyspark",
                paper="a target of this project",
                measured=f"{seconds:.3f} s",
                holds=seconds < 0.3 if checked else None,
            ),
        ],
    )


def _best(rows: Sequence[Row], label: str) -> float:
    return max(float(row["events per second"]) for row in rows if row["what"] == label)


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    mine = [row for row in rows if "events per second" in row]
    axes.bar([row["what"] for row in mine], [row["events per second"] for row in mine])
    axes.set_ylabel("events per second")


BENCHMARK = Benchmark(
    name="speed_simulation",
    figure="speed",
    claim="At least 50,000 simulated events per second; 10,000 nodes cost at most 3 times as much per event as 100.",
    takes="1 min",
    run=run,
    draw=draw,
    reps=3,
)
