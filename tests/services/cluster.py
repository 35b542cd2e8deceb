"""A standalone Spark cluster on loopback, from the installed ``pyspark``: one master, and workers that come and go.

    with SparkCluster(folder) as cluster:
        worker = cluster.add_worker(hides=[folder_that_it_has_no_share_in])
        ... cluster.master ...
        worker.kill()

All ports are chosen by the system. A worker that *hides* folders has a disk of its own there, as another machine would:
a mount namespace puts an empty file system over them. That needs the right to mount (``can_hide``).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.java import QUICK_JAVA

#: seconds that a process has to say that it is ready; far more than it takes
PATIENCE = 600.0
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


class ClusterNotReadyError(Exception):
    """A process of the cluster did not become ready, or ended."""


@cache
def why_not() -> str:
    """Why no cluster can be started here; empty if one can."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java"
    try:
        import pyspark
    except ImportError:
        return "there is no pyspark"
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    return "" if script.exists() else f"there is no {script}"


@cache
def can_hide() -> bool:
    """Whether a process here may have mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class SparkProcess:
    """A master or a worker, with everything that it has started: they are one process group, which is ended as one."""

    def __init__(self, command: Sequence[str], log: Path, env: dict[str, str], folder: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_for(self, found: Callable[[str], object]) -> None:
        """Wait until what it has written so far satisfies ``found``."""
        end = time.monotonic() + PATIENCE
        while not found(text := self.log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > end:
                raise ClusterNotReadyError(f"{self.log.stem} is not ready:\n{text[-3000:]}")
            time.sleep(0.05)

    def pause(self) -> None:
        """Let it hang, with its executors: it neither works nor ends."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it and its executors at once, as a machine that loses its power."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class SparkCluster:
    """One master, and the workers that were added; all of them are ended with the context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[SparkProcess] = []
        self.workers: list[SparkProcess] = []
        self.master = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            master = self._start("Master", "master", ["--port", "0"])
            master.wait_for(_MASTER.search)
        except BaseException:
            self.close()
            raise
        found = _MASTER.search(master.log.read_text(errors="replace"))
        assert found is not None
        self.master = found[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        self._processes.clear()

    def add_worker(self, cores: int = 1, memory: str = "1g", hides: Sequence[Path] = ()) -> SparkProcess:
        """A worker with a work directory of its own, which sees an empty disk in place of the folders it ``hides``."""
        name = f"worker{len(self._processes)}"
        work = self._folder / name
        work.mkdir()
        options = ["--port", "0", "--cores", str(cores), "--memory", memory, "--work-dir", str(work), self.master]
        worker = self._start("Worker", name, options, hides)
        worker.wait_for(lambda text: "Successfully registered with master" in text)
        self.workers.append(worker)
        return worker

    def _start(self, kind: str, name: str, options: Sequence[str], hides: Sequence[Path] = ()) -> SparkProcess:
        import pyspark

        home = Path(pyspark.__file__).parent
        command = [
            *(str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"),
            *("--host", "127.0.0.1", "--webui-port", "0", *options),
        ]
        if hides:
            mounts = "".join('mount -t tmpfs none "$1" && shift && ' for _ in hides)
            command = ["unshare", "-m", "bash", "-c", f'{mounts}exec "$@"', "bash", *map(str, hides), *command]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        env |= {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        }
        process = SparkProcess(command, self._folder / f"{name}.log", env, self._folder)
        self._processes.append(process)
        return process


def executor_settings(python: str) -> dict[str, str]:
    """Settings of a session on the cluster: small executors, and the interpreter of their Python functions."""
    return {
        "spark.pyspark.python": python,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
