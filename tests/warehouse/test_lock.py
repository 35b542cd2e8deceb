"""A warehouse directory is run by one process, and the lock dies with it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.core.errors import DeclarationError
from headgate.warehouse.run.lock import FILE_NAME, WarehouseInUseError, WarehouseLock, running_process

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


@pytest.fixture
def common_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("common_umask")
def test_only_its_owner_may_enter_a_new_warehouse(tmp_path: Path) -> None:
    with WarehouseLock(tmp_path / "data" / "city"):
        assert mode(tmp_path / "data" / "city") == 0o700
        assert mode(tmp_path / "data") == 0o755


@pytest.mark.usefixtures("common_umask")
def test_a_warehouse_that_its_owner_shares_stays_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with WarehouseLock(tmp_path):
        assert mode(tmp_path) == 0o750
        assert mode(tmp_path / FILE_NAME) == 0o644  # others who may enter see who runs it


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


FORKS = """
import os, sys, pathlib
from headgate.warehouse.run.lock import WarehouseLock
lock = WarehouseLock(pathlib.Path(sys.argv[1]))
lock.acquire()
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""


def test_a_process_that_was_forked_does_not_keep_the_lock_of_one_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "forked\n"
        assert running_process(tmp_path) == process.pid, "the lock is that of the first one"
        process.kill()
        process.wait()
        with WarehouseLock(tmp_path):
            pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_a_full_disk_keeps_nobody_from_the_lock(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to("/dev/full")
    with WarehouseLock(tmp_path):
        assert running_process(tmp_path) == -1
    assert running_process(tmp_path) is None
