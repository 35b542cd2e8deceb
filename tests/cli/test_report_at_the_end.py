"""`headgate stop` of a run with `--report`: when it returns, the report is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

PIPELINE = """
import headgate as hg

wh = hg.Warehouse("small")
wh.stream("readings", hg.Generator(), time="ts")
"""


def test_the_report_is_written_when_stop_returns(tmp_path: Path) -> None:
    file, report = tmp_path / "small.py", tmp_path / "report.html"
    file.write_text(PIPELINE, encoding="utf-8")
    headgate = [sys.executable, "-m", "headgate.cli"]
    command = [*headgate, "run", str(file), "--report", str(report), "--master", "local[1]"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if "keeping the tables fresh" in line:
                break
        stop = [*headgate, "stop", str(file), "--grace", "20 min"]
        done = subprocess.run(stop, check=False, capture_output=True, text=True, timeout=1800)
        is_there = report.exists()
        lines += run.stdout
    assert done.returncode == 0, done.stderr
    assert "has stopped" in done.stdout
    assert is_there
    assert run.returncode == 0, "".join(lines)
