"""What a peer is told and what it hands back: `python -m benchmarks.peers.NAME CHAIN INPUTS OUT REPS`.

In the folder INPUTS the same rows are laid out in the ways that peers read them, see `inputs`. A peer writes the rows
of one run as files of comma-separated integers without a header below OUT/rows, and the times of its runs into
OUT/answer.json. It runs in an environment that has nothing of this project, so only the standard library is used here.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: count of clicks by hour and item
CLICKS = "clicks"
#: pairs of items bought together, by hour
Q1 = "q1"
HOUR = 3_600
TOP = 100
WORKERS = 2

WHOLE, WHOLE_CSV, PARTS, PARTS_CSV, SLICES = "whole.parquet", "whole.csv", "parts", "parts-csv", "slices"
ROWS = "rows"
ANSWER = "answer.json"


@dataclass(frozen=True)
class Task:
    """One chain to run: `reps` times for the clock, and once more before that, to warm up."""

    chain: str
    inputs: Path
    out: Path
    reps: int

    @property
    def rows(self) -> Path:
        return self.out / ROWS


@dataclass(frozen=True)
class Answer:
    """Seconds of each run, the format that was read, and how the time was taken."""

    seconds: Sequence[float]
    read: str
    timed: str

    def write(self, task: Task) -> None:
        (task.out / ANSWER).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")


def task_from(arguments: Sequence[str]) -> Task:
    chain, inputs, out, reps = arguments
    return Task(chain, Path(inputs), Path(out), int(reps))


def this_task() -> Task:
    """The task of this process."""
    return task_from(sys.argv[1:])


def write_rows(task: Task, rows: Iterable[Sequence[int]]) -> None:
    """For peers that have their result in memory."""
    task.rows.mkdir(parents=True, exist_ok=True)
    with (task.rows / "all.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def read_answer(out: Path) -> Answer:
    return Answer(**json.loads((out / ANSWER).read_text(encoding="utf-8")))
