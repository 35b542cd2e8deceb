"""Runs one contender against fresh arrivals and judges it; `python -m benchmarks.spark.contest NAME --speed S`.

A contender is any module that takes the options of `task` and writes the log of `log`. Arrivals and contender start at
the same moment; what happens in the warm-up does not count, and the warm-up includes the start of Spark.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spark import workload
from benchmarks.spark.arrivals import read_manifest
from benchmarks.spark.log import read_log
from benchmarks.spark.measure import Staleness, Window, staleness, without_waiting

#: How long a contender may take to end after its time is over.
PATIENCE = 60.0


@dataclass(frozen=True)
class Contender:
    """A module to run and its options beyond those of `task`."""

    module: str
    options: tuple[str, ...] = ()


CONTENDERS = {
    "structured": Contender("benchmarks.spark.structured"),
    "handmade": Contender("benchmarks.spark.handmade"),
    "declarative": Contender("benchmarks.spark.declarative"),
}


@dataclass(frozen=True)
class Course:
    """The conditions of a run. After `warm_up`, `seconds` are measured; then no more files come for `drain` seconds."""

    speed: float
    warm_up: float
    seconds: float
    seed: int = 1
    rows_per_second: float = workload.ROWS_PER_SECOND
    drain: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a contender achieved, and what one would that needs no time at all."""

    achieved: Staleness
    best_possible: Staleness


class ContenderError(RuntimeError):
    """A contender, or the arrivals, did not do what was asked."""


def contend(contender: Contender, course: Course, folder: Path) -> Outcome:
    """Runs `contender` in `folder`, which must be new or empty, and measures it."""
    landing, log = folder / "landing", folder / "log.jsonl"
    landing.mkdir(parents=True)
    start = time.time()
    measured = course.warm_up + course.seconds
    arrivals = [
        *(sys.executable, "-m", "benchmarks.spark.arrivals", "--folder", str(landing), "--start", str(start)),
        *("--speed", str(course.speed), "--rows", str(course.rows_per_second), "--seed", str(course.seed)),
        *("--seconds", str(measured)),
    ]
    command = [
        *(sys.executable, "-m", contender.module, "--landing", str(landing), "--out", str(folder / "tables")),
        *("--log", str(log), "--seconds", str(measured + course.drain), *contender.options),
    ]
    _run_together(arrivals, command, measured + course.drain + PATIENCE, folder / "output.txt")
    window = Window(start, start + course.warm_up, start + measured)
    ideal = without_waiting(read_manifest(landing), workload.stream_of())
    return Outcome(
        staleness(read_log(log), workload.priorities(), window), staleness(ideal, workload.priorities(), window)
    )


def _run_together(arrivals: Sequence[str], contender: Sequence[str], timeout: float, output: Path) -> None:
    with output.open("w", encoding="utf-8") as text:
        feeding = subprocess.Popen(arrivals, stdout=text, stderr=subprocess.STDOUT)
        try:
            code = subprocess.run(
                contender, stdout=text, stderr=subprocess.STDOUT, timeout=timeout, check=False
            ).returncode
            failed = code or feeding.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise ContenderError(f"{' '.join(contender)} did not end in time; see {output}") from error
        finally:
            feeding.kill()
            feeding.wait()
    if failed:
        raise ContenderError(f"{' '.join(contender)} ended with code {code}; see {output}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Run one contender and print how stale its tables were.",
        epilog="Other options go to the contender.",
    )
    parser.add_argument("contender", choices=sorted(CONTENDERS))
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds (default: 60)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds to measure (default: 60)")
    parser.add_argument("--drain", type=float, default=0.0, help="seconds without arrivals at the end")
    parser.add_argument("--folder", type=Path, help="where to work, a new folder (default: a temporary one)")
    options, others = parser.parse_known_args(arguments)
    chosen = CONTENDERS[options.contender]
    contender = Contender(chosen.module, (*chosen.options, *others))
    course = Course(options.speed, options.warm_up, options.seconds, drain=options.drain)
    with tempfile.TemporaryDirectory() as temporary:
        print_outcome(contend(contender, course, options.folder or Path(temporary) / "run"))


def print_outcome(outcome: Outcome) -> None:
    """A line per table and one for all."""
    print(f"{'table':20} {'priority':>8} {'mean s':>8} {'possible':>8} {'worst s':>8} {'updates/s':>9}")
    for name, priority in workload.priorities().items():
        got, best = outcome.achieved.tables[name], outcome.best_possible.tables[name]
        print(f"{name:20} {priority:8} {got.mean:8.2f} {best.mean:8.2f} {got.worst:8.2f} {got.updates_per_second:9.2f}")
    achieved, best_possible = outcome.achieved, outcome.best_possible
    print(
        f"{'weighted staleness':20} {'':8} {achieved.weighted:8.2f} {best_possible.weighted:8.2f} {'':8} "
        f"{achieved.updates_per_second:9.2f} of {best_possible.updates_per_second:.2f}"
    )


if __name__ == "__main__":
    main()
