"""Drivers of a cluster, each in a process of its own: there can be one Spark in a process, and tests have theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.services.cluster import executor_settings
from tests.services.java import QUICK_JAVA

ROOT = Path(__file__).parents[2]
#: far more than any of them takes
PATIENCE = 3600


def environment(**variables: str) -> dict[str, str]:
    """Executors must not find the package or the user's modules by the environment of the tests."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    quick = {"SPARK_SUBMIT_OPTS": QUICK_JAVA, "SPARK_LAUNCHER_OPTS": QUICK_JAVA}
    return {**inherited, **quick, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **variables}


def headgate(*arguments: object, folder: Path, master: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of headgate; with ``master`` it is one that takes Spark's settings."""
    options = ["--master", master] if master else []
    options += [f"--conf={key}={value}" for key, value in executor_settings(sys.executable).items()] if master else []
    command = [sys.executable, "-m", "headgate.cli", *map(str, arguments), *options]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def started(script: str, folder: Path, arguments: Mapping[str, object]) -> subprocess.Popen[str]:
    """Start a script that gets ``arguments`` as JSON, and ``CONF``, the settings of its session."""
    file = folder / "driver.py"
    file.write_text(f"import json, sys\nGIVEN = json.loads(sys.argv[1])\nCONF = json.loads(sys.argv[2])\n{script}")
    command = [sys.executable, str(file), json.dumps(arguments), json.dumps(executor_settings(sys.executable))]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(driver: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a script; what it has printed last, as JSON."""
    try:
        output, errors = driver.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        driver.kill()
        raise AssertionError(f"the driver does not end; it said:\n{driver.communicate()}") from None
    assert driver.returncode == 0, f"{output}\n{errors}"
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def wait_for(file: Path, driver: subprocess.Popen[str]) -> None:
    """Wait until a script has written a file."""
    end = time.monotonic() + PATIENCE
    while not file.exists():
        if driver.poll() is not None or time.monotonic() > end:
            ended(driver)
        time.sleep(0.05)


def told_by(script: str, folder: Path, **arguments: object) -> dict[str, Any]:
    """Run a script and return what it prints last."""
    return ended(started(script, folder, arguments))
