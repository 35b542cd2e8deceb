"""`headgate run` in processes of its own, as a user would start it: start, stop, find its parts, watch its commits."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIPELINE = Path(__file__).parent / "pipeline.py"
ROOT = Path(__file__).parents[2]
#: JVMs that live for some seconds: no time for the better compiler
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MASTER = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")


class RunError(RuntimeError):
    """The run, or a command to it, did not do what was asked."""


@dataclass(frozen=True)
class Process:
    """A process of the machine."""

    id: int
    parent: int
    command: str


class HeadgateRun:
    """The warehouse of a folder, run again and again. Everything it says goes to `output.txt` in the folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.pipeline = folder / "faults.py"
        self.warehouse = folder / "faults.warehouse"
        self.output = folder / "output.txt"
        self.starts = 0
        paths = [*(environment or {}).get("PYTHONPATH", "").split(os.pathsep), str(ROOT), str(ROOT / "src")]
        paths += os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self._environment = {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_START, **(environment or {})}
        self._environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(PIPELINE, self.pipeline)

    @property
    def tables(self) -> Path:
        return self.warehouse / "tables"

    @property
    def id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *options: str) -> None:
        """Start the run; it takes some seconds until Spark is there and the first update is made."""
        self.starts += 1
        command = [sys.executable, "-m", "headgate.cli", "run", str(self.pipeline), *MASTER, *options]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=self._environment, start_new_session=True
            )

    def wait(self, seconds: float) -> int:
        """Wait for the end of the run; its exit status."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RunError(f"the run did not end within {seconds:g} s; {self.last_words()}") from None

    def stop(self, seconds: float = 60.0) -> int:
        """End the run as a user would; its exit status."""
        self.command("stop", "--no-wait", timeout=seconds)
        return self.wait(seconds)

    def kill(self) -> None:
        """Kill the run and all that it has started."""
        if self._process is None:
            return
        family = [each.id for each in self.family()]
        for process in (self._process.pid, *family):
            send(process, signal.SIGKILL)
        self._process.wait()

    def catch_up(self, seconds: float = 240.0) -> int:
        """Run until all tables are fresh; the exit status of `headgate run --once`."""
        self.start("--once")
        return self.wait(seconds)

    def command(self, name: str, *options: str, timeout: float = 30.0) -> str:
        """What a command of `headgate` to this warehouse prints."""
        command = [sys.executable, "-m", "headgate.cli", name, str(self.warehouse), *options]
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"headgate {name} did not answer within {timeout:g} s") from error
        if done.returncode:
            raise RunError(f"headgate {name} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.command("status", "--json"))
        return answer

    # ---- its parts ---------------------------------------------------------------------------------------------

    def family(self) -> list[Process]:
        """All that the run has started, and what they have."""
        return descendants(self.id)

    def java(self) -> int | None:
        """The Java process of Spark."""
        return next((each.id for each in self.family() if "java" in each.command.split(" ")[0]), None)

    def workers(self) -> list[int]:
        """The Python workers, without the one that forks them."""
        workers = [each for each in self.family() if "pyspark.daemon" in each.command]
        known = {each.id for each in workers}
        return [each.id for each in workers if each.parent in known]

    # ---- its commits -------------------------------------------------------------------------------------------

    def newest_commit(self) -> float:
        """When the last entry was made in the log of any table; 0 before the first."""
        return max((path.stat().st_mtime for path in self.tables.glob("*/_delta_log/*.json")), default=0.0)

    def wait_for_commit(self, after: float, timeout: float = 60.0) -> float:
        """Wait for a commit later than `after`, in seconds since the epoch; how many seconds after it was."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            newest = self.newest_commit()
            if newest > after:
                return newest - after
            if not self.lives:
                raise RunError(f"the run has ended; {self.last_words()}")
            time.sleep(0.05)
        raise RunError(f"no commit within {timeout:g} s; {self.last_words()}")

    def last_words(self, lines: int = 12) -> str:
        text = self.output.read_text("utf-8", errors="replace") if self.output.exists() else ""
        return f"the end of {self.output}:\n" + "\n".join(text.splitlines()[-lines:])


def processes() -> list[Process]:
    """All processes of the machine that can be looked at."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            command = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended meanwhile
            continue
        found.append(Process(int(folder.name), parent, command))
    return found


def descendants(process: int) -> list[Process]:
    """What `process` has started, and what those have."""
    children: dict[int, list[Process]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each)
    found = list(children.get(process, ()))
    for each in found:  # it grows meanwhile
        found += children.get(each.id, ())
    return found


def send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(process, number)
