"""A warehouse directory is run by one process, and the lock dies with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.core.errors import DeclarationError
from headgate.warehouse.run.lock import WarehouseInUseError, WarehouseLock, running_process

HOLD = """
import sys, pathlib
from headgate.warehouse.run.lock import WarehouseLock
lock = WarehouseLock(pathlib.Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_run_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with WarehouseLock(tmp_path):
        with pytest.raises(WarehouseInUseError, match=rf"process id {os.getpid()}"):
            WarehouseLock(tmp_path).acquire()
        assert running_process(tmp_path) == os.getpid()
    assert running_process(tmp_path) is None
    with WarehouseLock(tmp_path):
        pass


@pytest.mark.slow
def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert running_process(tmp_path) == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert running_process(tmp_path) is None
    with WarehouseLock(tmp_path):
        pass


@pytest.mark.parametrize("below", ["a file", "a file/warehouse"])
def test_a_path_that_cannot_be_a_folder_is_refused_by_its_name(tmp_path: Path, below: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(DeclarationError, match=f"cannot be in {tmp_path / below}: .*may create files"):
        WarehouseLock(tmp_path / below).acquire()
