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
from typing import IO

from benchmarks.spark import workload
from benchmarks.spark.arrivals import read_manifest
from benchmarks.spark.log import read_log
from benchmarks.spark.measure import Staleness, Window, fresh_after, staleness, without_waiting

#: How long a contender may take to end after its time is over.
PATIENCE = 600.0


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
    """The conditions of a run. After `warm_up`, `seconds` are measured; then no more files come for `drain` seconds.

    With `before`, the contender first runs for so long, ends, and is started again in the same folder: what is measured
    begins with the second start.
    """

    speed: float
    warm_up: float
    seconds: float
    seed: int = 1
    rows_per_second: float = workload.ROWS_PER_SECOND
    drain: float = 0.0
    before: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a contender achieved, and what one would that needs no time at all.

    `fresh_after` is how many seconds after its start every table had been updated once; None if one never was.
    """

    achieved: Staleness
    best_possible: Staleness
    fresh_after: float | None


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
        # Before a second start files come until the contender has ended, however long that takes.
        *("--seconds", str(measured + (course.before + PATIENCE if course.before else 0.0))),
    ]

    def command(seconds: float, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", contender.module, "--landing", str(landing), "--out", str(folder / "tables")),
            *("--log", str(log), "--seconds", str(seconds), *contender.options, *more),
        ]

    output, length = folder / "output.txt", measured + course.drain
    with output.open("w", encoding="utf-8") as text:
        feeding = subprocess.Popen(arrivals, stdout=text, stderr=subprocess.STDOUT)
        begun = start
        try:
            if course.before:
                _run(command(course.before), course.before + PATIENCE, text)
                begun = time.time()
            _run(command(length, *(["--again"] if course.before else [])), length + PATIENCE, text)
            if not course.before and feeding.wait(PATIENCE):
                raise ContenderError(f"the arrivals ended with code {feeding.returncode}; see {output}")
        finally:
            feeding.kill()
            feeding.wait()
    window = Window(start, begun + course.warm_up, begun + measured)
    updates, priorities = read_log(log), workload.priorities()
    ideal = without_waiting(read_manifest(landing), workload.stream_of())
    return Outcome(
        staleness(updates, priorities, window),
        staleness(ideal, priorities, window),
        fresh_after(updates, workload.names(), begun),
    )


def _run(contender: Sequence[str], timeout: float, output: IO[str]) -> None:
    try:
        code = subprocess.run(
            contender, stdout=output, stderr=subprocess.STDOUT, timeout=timeout, check=False
        ).returncode
    except subprocess.TimeoutExpired as error:
        raise ContenderError(f"{' '.join(contender)} did not end in time; see {output.name}") from error
    if code:
        raise ContenderError(f"{' '.join(contender)} ended with code {code}; see {output.name}")


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
