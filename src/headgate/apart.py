"""Work that must not slow down the scheduler of a run: done by a process of its own, which stands back behind others.

The parent sends a request as JSON on standard input and reads the answer from standard output; or it starts the process
itself (``started_apart``) and both go on talking. The process ends when its parent does. One that answers a request
uses only so much of the processor and of memory; one that goes on limits itself. An interrupt on the terminal is for
the parent alone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import headgate.core
from headgate.core import HeadgateError
from headgate.places.place import AnyPath, path_from

#: seconds of the processor that an answer may take, and after how many seconds it is given up whatever it took: the
#: process stands back behind others, so beside a busy run it waits for most of the time
PROCESSOR_SECONDS = 60
PATIENCE = 600.0
#: how much the process stands back behind others
NICENESS = 10
#: bytes that it may take beyond what it has when it begins: a trace of the most that is recorded takes a part of it
MOST_BYTES = 2 * 1024**3
#: seconds between two looks whether the parent is there
LOOK_SECONDS = 1.0


class ApartError(HeadgateError):
    """A process of its own gave no answer; ``too_long`` if it was given up for that."""

    def __init__(self, why: str, too_long: bool = False) -> None:
        super().__init__(why)
        self.too_long = too_long


def asked_apart(module: str, request: Mapping[str, object], patience: float = PATIENCE) -> bytes:
    """What the main function of a module of this package writes when it is given a request."""
    try:
        done = subprocess.run(
            _command(module),
            input=json.dumps({**request, "parent": os.getpid()}).encode(),
            capture_output=True,
            timeout=patience,
            env=_environment(),
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise ApartError(f"it has not ended within {patience:g} s and was given up", too_long=True) from None
    if done.returncode == -signal.SIGXCPU:
        raise ApartError(f"it took more than {PROCESSOR_SECONDS} s of the processor and was given up", too_long=True)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        if last.startswith("MemoryError"):
            last = f"it needs more than {MOST_BYTES // 1024**3} GiB of memory"
        raise ApartError(last or f"exit status {done.returncode}")
    return done.stdout


def started_apart(module: str) -> subprocess.Popen[bytes]:
    """A process that runs a module of this package, to talk to by pipes. The number of its parent is its argument."""
    pipe = subprocess.PIPE
    command = [*_command(module), str(os.getpid())]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=_environment(), start_new_session=True)


def _command(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]


def _environment() -> dict[str, str]:
    # The package is where it is here, whatever the folder; and nothing in that folder is imported instead of it.
    package = Path(headgate.core.__file__).parents[2]
    path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    # Threads for linear algebra would only take memory.
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def request_apart() -> dict[str, Any]:
    """In the process itself: its request, after it was given its limits."""
    request: dict[str, Any] = json.load(sys.stdin)
    _limit(resource.RLIMIT_CPU, PROCESSOR_SECONDS)
    stand_back(request["parent"])
    return request


def stand_back(parent: int) -> None:
    """In the process itself: stand back behind others, take only so much memory, and end when the parent does."""
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError, ValueError):  # only Linux tells how much is taken already
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + MOST_BYTES)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def trace_to_request(trace: AnyPath) -> dict[str, object]:
    """A trace as part of a request; it goes through a pipe, so that nobody sees the options of an object store."""
    return {"trace": str(trace), "storage": {} if isinstance(trace, Path) else dict(trace.bucket.options)}


def trace_from_request(request: Mapping[str, Any]) -> AnyPath:
    """In the process itself: the trace that a request names."""
    return path_from(request["trace"], request["storage"])


def _limit(kind: int, most: int) -> None:
    """Lower a limit, unless it is lower already."""
    soft, hard = resource.getrlimit(kind)
    known = [each for each in (most, soft, hard) if each != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(kind, (min(known), hard))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)
