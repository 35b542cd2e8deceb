"""`headgate top` as a person uses it: in a real pseudo-terminal, by directory and by URL, over a run that dies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO

import pytest

from tests.monitor.terminal import PATIENCE, Terminal
from tests.services.ports import free_ports

pytestmark = pytest.mark.slow


class RunProcess:
    """A pretended run in a process of its own. ``told`` are the commands that it was given."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory, self._port = directory, port
        self.told: SimpleQueue[str] = SimpleQueue()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.monitor.pretended_process", str(self._directory), str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, said: IO[str]) -> None:
        with said:
            for line in said:
                self.told.put(line.strip())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def row(terminal: Terminal, name: str) -> list[str]:
    """The cells of a table's row; none if it is not on the screen."""
    return re.split(r"\s{2,}", terminal.line_with(name).strip(" │"))


def first_column(terminal: Terminal) -> list[str]:
    """The tables whose rows are on the screen, from top to bottom."""
    return [found[0] for line in terminal.lines if (found := re.findall(r"^ ((?:table|stream)\d{3}) ", line))]


def test_without_a_terminal_it_says_so_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headgate.cli", "top", str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a terminal" in done.stderr and "headgate status" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("by", ["directory", "url"])
def test_keys_work_in_a_real_terminal_and_the_run_may_die_and_come_back(tmp_path: Path, by: str) -> None:
    (port,) = free_ports(1)
    run = RunProcess(tmp_path, port)
    try:
        with Terminal("top", str(tmp_path) if by == "directory" else f"http://127.0.0.1:{port}/") as terminal:
            terminal.until(lambda: "live" in terminal.lines[0] and len(first_column(terminal)) == 8)
            terminal.until(lambda: terminal.line_with("held until you resume") == "1 held until you resume: table005")
            # sorted by priority first; now by class, and the other way round
            terminal.press("s")
            terminal.until(lambda: terminal.line_with("sorted by class"))
            before = first_column(terminal)
            terminal.press("S")
            terminal.until(lambda: first_column(terminal) != before)
            # a filter, of which Esc is the end; what is typed on after it is for the table, however fast it comes
            terminal.press("/table005\rr")
            assert run.told.get(timeout=PATIENCE) == "(('refresh', 'table005'),)"
            terminal.until(lambda: first_column(terminal) == ["table005"])
            terminal.until(lambda: "held" in row(terminal, "table005 "))
            # pause and resume: what is held is resumed, and then paused
            terminal.press("p")
            assert run.told.get(timeout=PATIENCE) == "(('resumed', 'table005'),)"
            terminal.until(lambda: terminal.line_with("table005: resumed") and "held" not in "".join(terminal.lines))
            terminal.press("p")
            assert run.told.get(timeout=PATIENCE) == "(('paused', 'table005'),)"
            terminal.until(lambda: "paused" in row(terminal, "table005 "))
            terminal.press("e")
            terminal.until(lambda: terminal.line_with("node='table005'"))
            terminal.press("\x1b")
            terminal.until(lambda: not terminal.line_with("node='table005'"))
            terminal.press("\x1b")
            terminal.until(lambda: len(first_column(terminal)) == 8)
            # the run dies: that is said, and the numbers stand; it comes back, and they go on
            run.kill()
            terminal.until(lambda: "not connected" in terminal.lines[0] and len(first_column(terminal)) == 8)
            run.start()
            terminal.until(lambda: "live" in terminal.lines[0] and terminal.line_with("held until you resume"))
            terminal.press("q")
            assert terminal.ends() == 0
            # what the run says is text: no order of its own reaches the terminal
            assert b"\x1b[31m such" not in terminal.written
            assert b"\x1b[?1049l" in terminal.written, "the screen of before is there again"
    finally:
        run.kill()


def test_without_a_run_it_waits_for_one(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Terminal("top", f"http://127.0.0.1:{port}/") as terminal:
        terminal.until(lambda: terminal.line_with("does not answer"))
        run = RunProcess(tmp_path, port)
        try:
            terminal.until(lambda: "live" in terminal.lines[0] and len(first_column(terminal)) == 8)
        finally:
            run.kill()
        terminal.press("q")
        assert terminal.ends() == 0


def test_the_token_is_taken_from_the_environment_and_never_shown(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Terminal("top", f"http://127.0.0.1:{port}/", environment={"HEADGATE_TOKEN": "secret-of-mine"}) as terminal:
        terminal.until(lambda: terminal.line_with("does not answer"))
        terminal.press("q")
        assert terminal.ends() == 0
    assert b"secret-of-mine" not in terminal.written
