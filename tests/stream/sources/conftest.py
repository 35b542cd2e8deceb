"""A real MQTT broker for the tests: Debian's mosquitto, on the loopback and a free port, for as long as they run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

HOST = "127.0.0.1"
NO_PROGRAM = "the program mosquitto is not installed; install it with: apt-get install mosquitto"
NO_PACKAGE = "the package paho-mqtt is not installed; install it with: pip install 'headgate[mqtt]'"


@dataclass(frozen=True)
class RunningBroker:
    host: str
    port: int


def program() -> str:
    # Debian puts it where only root looks.
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return found or cannot_run(NO_PROGRAM)


def cannot_run(reason: str) -> NoReturn:
    """Skips, except where everything has to be tested."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    if find_spec("paho") is None:
        cannot_run(NO_PACKAGE)
    folder: Path = tmp_path_factory.mktemp("mosquitto")
    # Between finding a free port and taking it somebody else may have done so.
    said = []
    for attempt in range(3):
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        config = folder / f"mosquitto-{attempt}.conf"
        config.write_text(f"listener {port} {HOST}\nallow_anonymous true\nmax_queued_messages 0\nlog_dest stderr\n")
        with started(config) as process:
            said = lines_until_running(process)
            if said[-1:] and said[-1].endswith("running"):
                # Its log is read on, so that the pipe never fills up.
                reader = threading.Thread(target=list, args=(process.stderr,), daemon=True)
                reader.start()
                yield RunningBroker(HOST, port)
                process.terminate()
                reader.join()
                return
    pytest.fail("mosquitto did not start: " + "\n".join(said))


@contextmanager
def started(config: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([program(), "-c", str(config)], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=300)
            except subprocess.TimeoutExpired:
                process.kill()


def lines_until_running(process: subprocess.Popen[str]) -> list[str]:
    """What it has logged until the line by which it says that it listens, or until it has ended."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip())
        if said[-1].endswith("running"):
            break
    return said
