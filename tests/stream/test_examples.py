"""The examples of the stream engine run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "stream"


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--policy", "fcfs"], ["--loop", "threads"]], ids=" ".join)
def test_the_machine_room_tells_how_quick_its_queries_were(options: list[str]) -> None:
    command = [sys.executable, str(EXAMPLES / "machine_room.py"), "--seconds", "0.3", "--rate", "20000", *options]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    lines = [line.split() for line in printed.splitlines()]
    assert lines[0][0] == "query"
    assert [(line[0], line[1]) for line in lines[1:]] == [("alarms", "6000"), ("profile", "6000")]
