"""A program in a real pseudo-terminal, and what a person would see of it there."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

import pyte

COLUMNS, LINES = 120, 30
#: how long something may take that happens at once on an idle machine
PATIENCE = 300.0


class Terminal:
    """Runs ``headgate`` with some arguments, as a context. ``lines`` is the screen as it is now."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._command: Sequence[str] = (sys.executable, "-m", "headgate.cli", *arguments)
        self._environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "LINES": str(LINES),
            **(environment or {}),
        }
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        #: everything that the program has written
        self.written = b""
        self._status: int | None = None

    def __enter__(self) -> Terminal:
        self._process, self._descriptor = pty.fork()
        if self._process == 0:
            os.execve(sys.executable, self._command, self._environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is None and self._ended() is None:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
        os.close(self._descriptor)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def line_with(self, text: str) -> str:
        """The first line with ``text`` in it; empty if there is none."""
        return next((line for line in self.lines if text in line), "")

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, holds: Callable[[], object]) -> None:
        """Read until something can be seen."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "it has not come to that:\n" + "\n".join(self.lines)
            assert self._ended() is None, "it has ended:\n" + "\n".join(self.lines)
            self._read(0.05)

    def ends(self) -> int:
        """Its exit status, when it has ended."""
        end = time.monotonic() + PATIENCE
        while (status := self._ended()) is None:
            assert time.monotonic() < end, "it does not end:\n" + "\n".join(self.lines)
            self._read(0.05)
        while self._read(0.0):  # it may have written more, and ended, since the last look
            pass
        return status

    def _ended(self) -> int | None:
        if self._status is None:
            ended, code = os.waitpid(self._process, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(code) if ended else None
        return self._status

    def _read(self, seconds: float) -> bool:
        """Read what it writes within so many seconds; whether that was anything."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return False
        piece = b""
        with suppress(OSError):  # it has closed the terminal
            piece = os.read(self._descriptor, 65536)
            self.written += piece
            self._stream.feed(piece)
        return bool(piece)
