"""For tests that hit the running shop: files that come late and out of order, and the processes of Spark."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from examples.shop.feed import STREAMS, Feed, land

Found = TypeVar("Found")
#: by what rows of a stream find their states
KEYS = {"clicks": "user", "sales": "ticket"}


def wait_for(found: Callable[[], Found | None], what: str, seconds: float = 600.0) -> Found:
    """Ask again and again until there is an answer; fail if that takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        threading.Event().wait(0.005)
    raise AssertionError(f"after {seconds:g} s still no {what}")


# --- files -------------------------------------------------------------------------------------------------------


@dataclass
class LateFiles:
    """The rows of so many steps of four hours, landed in pieces, some of them late.

    Every fourth key is *slow*: its rows come some steps later than those of the others, in order among themselves. A
    few rows of other keys are *held back* and come when their key has gone on: these are really late. Those of the
    first step are *forgotten*: they come when everything else is over.
    """

    folder: Path
    chance: random.Random
    steps: int
    #: {stream: numbers of rows}
    slow: dict[str, set[int]] = field(default_factory=dict)
    held_back: dict[str, set[int]] = field(default_factory=dict)
    forgotten: dict[str, pa.Table] = field(default_factory=dict)
    _pieces: dict[str, list[pa.Table]] = field(default_factory=dict)
    _landed: int = 0

    def __post_init__(self) -> None:
        feed = Feed(seed=self.chance.randrange(1000), customers=150, clicks_per_day=2_000, lines_per_hour=30)
        for stream in STREAMS:
            files = [feed.rows(stream, number) for number in range(2 * self.steps)]
            self._plan(stream, [pa.concat_tables(files[first : first + 2]) for first in range(0, len(files), 2)])

    def _plan(self, stream: str, steps: list[pa.Table]) -> None:
        """Cut each step in three and decide when each piece comes."""
        planned: list[tuple[int, pa.Table]] = []
        slow_place = 0
        self.slow[stream], self.held_back[stream] = set(), set()
        for number, rows in enumerate(steps):
            slow = rows.column(KEYS[stream]).to_numpy() % 4 == 0
            held_back = ~slow & np.array([self.chance.random() < 0.03 for _ in range(rows.num_rows)], dtype=np.bool_)
            slow_place = max(slow_place, number + self.chance.randint(1, 2))
            for place, chosen in (
                (number, ~slow & ~held_back),
                (slow_place, slow),
                (number + self.chance.randint(2, 3), held_back),
            ):
                planned.append((place, rows.filter(pa.array(chosen))))
            self.slow[stream].update(rows.column("id").filter(pa.array(slow)).to_pylist())
            self.held_back[stream].update(rows.column("id").filter(pa.array(held_back)).to_pylist())
        _, self.forgotten[stream] = planned.pop(2)
        self._pieces[stream] = [rows for _, rows in sorted(planned, key=lambda each: each[0])]

    @property
    def left(self) -> int:
        """How many pieces of each stream have not landed yet."""
        return 3 * self.steps - 1 - self._landed

    def land(self, count: int) -> None:
        """So many more pieces of each stream."""
        for number in range(self._landed, self._landed + min(count, self.left)):
            for stream in STREAMS:
                land(self._pieces[stream][number], self.folder, stream, f"{number:06}")
            self._landed += 1

    def land_the_forgotten(self) -> None:
        for stream, rows in self.forgotten.items():
            land(rows, self.folder, stream, "forgotten")


# --- processes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    status: str
    command: str

    @property
    def is_python_of_spark(self) -> bool:
        return "pyspark.daemon" in self.command

    @property
    def is_executor(self) -> bool:
        return "CoarseGrainedExecutorBackend" in self.command


def processes() -> list[Process]:
    """All that run now; those that have ended and that nobody has asked about are left out."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,args="], check=True, capture_output=True)
    lines = [line.split(None, 3) for line in listed.stdout.decode(errors="replace").splitlines()]
    everyone = [Process(int(pid), int(parent), status, "".join(command)) for pid, parent, status, *command in lines]
    return [each for each in everyone if not each.status.startswith("Z")]


def descendants(root: int) -> dict[int, Process]:
    """The processes that a process has started, and those that they have started, by number."""
    children: dict[int, list[Process]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each)
    found: dict[int, Process] = {}
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            found[child.pid] = child
            todo.append(child.pid)
    return found


def busy_workers(root: int) -> list[int]:
    """The processes in which Spark runs a Python function now: children, at work, of a daemon that only starts them."""
    pythons = {pid: each for pid, each in descendants(root).items() if each.is_python_of_spark}
    return sorted(pid for pid, each in pythons.items() if each.parent in pythons and each.status.startswith("R"))


def executors(root: int) -> list[int]:
    return sorted(each.pid for each in descendants(root).values() if each.is_executor)
