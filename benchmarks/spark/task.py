"""What a contender is told on its command line, the same for all of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

#: Who writes the small results that a contender writes itself: Spark, or the driver from Arrow data.
Writer = Literal["driver", "spark"]


@dataclass(frozen=True)
class Task:
    """Where files land, where tables and checkpoints go, where the log goes, and when to end (epoch seconds)."""

    landing: Path
    out: Path
    log: Path
    end: float
    master: str
    writer: Writer
    #: Use Hadoop's local file system as it is, see `localfs`.
    forking: bool

    @property
    def left(self) -> float:
        """Seconds until the end, at least 0."""
        return max(0.0, self.end - time.time())


def task_parser(name: str) -> argparse.ArgumentParser:
    """The options of the contender `name`."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.spark.{name}")
    parser.add_argument("--landing", type=Path, required=True, help="the folder in which arrivals land files")
    parser.add_argument("--out", type=Path, required=True, help="the folder for tables and checkpoints; must be new")
    parser.add_argument("--again", action="store_true", help="go on in the folder of an earlier run")
    parser.add_argument("--log", type=Path, required=True, help="the file for the log of updates")
    parser.add_argument("--seconds", type=float, required=True, help="how long to run, counted from the start")
    parser.add_argument("--master", default="local[2]", help="Spark master (default: local[2])")
    parser.add_argument("--writer", choices=get_args(Writer), default="driver", help="who writes small results")
    parser.add_argument("--forking", action="store_true", help="let Hadoop start a process for every file it writes")
    return parser


def task_from(options: argparse.Namespace) -> Task:
    """The task that the options tell of; its seconds count from now."""
    end = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=options.again)
    return Task(
        options.landing.resolve(),
        options.out.resolve(),
        options.log.resolve(),
        end,
        options.master,
        options.writer,
        options.forking,
    )


def parse_task(name: str, arguments: Sequence[str] | None) -> Task:
    """The task of a contender without options of its own."""
    return task_from(task_parser(name).parse_args(arguments))
