"""What a run uses over time, read from /proc: memory, threads and descriptors of driver and JVM, and disk."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.fault.process import descendants

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Level:
    """One look. Memory is what is resident; disk is what the folder holds. Megabytes and numbers."""

    at: float
    driver_memory: float
    jvm_memory: float
    threads: int
    descriptors: int
    disk: float


class Sampler:
    """Looks at a process, its children and a folder every `every` seconds, as a context."""

    def __init__(self, process: int, folder: Path, every: float) -> None:
        self.levels: list[Level] = []
        self._process, self._folder, self._every = process, folder, every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            with contextlib.suppress(OSError):  # the process is starting or ending
                self.levels.append(look(self._process, self._folder))


def look(process: int, folder: Path) -> Level:
    """The level of now."""
    java = next((each.id for each in descendants(process) if "java" in each.command.split(" ")[0]), None)
    parts = [process] if java is None else [process, java]
    return Level(
        time.time(),
        _memory(process),
        0.0 if java is None else _memory(java),
        sum(len(os.listdir(f"/proc/{part}/task")) for part in parts),
        sum(len(os.listdir(f"/proc/{part}/fd")) for part in parts),
        _disk(folder),
    )


def growth(levels: Sequence[Level], name: str, start: float, end: float) -> float | None:
    """The mean of the last quarter between two moments as a multiple of that of the second; None if nobody looked."""
    quarter = (end - start) / 4

    def mean(begin: float) -> float | None:
        found = [float(getattr(each, name)) for each in levels if begin <= each.at < begin + quarter]
        return sum(found) / len(found) if found else None

    second, last = mean(start + quarter), mean(start + 3 * quarter)
    return last / second if second and last is not None else None


def _memory(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE / 1e6


def _disk(folder: Path) -> float:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total / 1e6
