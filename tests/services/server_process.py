"""A server for tests that is a process of its own and listens on a port of loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.services.ports import free_ports

CACHE = Path(os.environ.get("HEADGATE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "headgate"))
#: seconds to wait for a server to answer, or to end; far more than it takes
_PATIENCE = 300.0


class ServerProcess:
    """The server while it runs, as a context. ``folder`` is for its files and its log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def command(self) -> Sequence[str | Path]:
        """What to start; ``port`` is chosen already."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self._folder,
                env={**os.environ, **self.environment()},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise RuntimeError(f"{type(self).__name__} does not answer: {(self._folder / 'log').read_text()}")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True
