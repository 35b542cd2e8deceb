"""Loaded by every Python process of a run under faults, before anything else: a clock that can be set, a log of syncs.

Python's clock is shifted by the seconds (a double) in the file HEADGATE_FAULT_CLOCK. Every `os.fsync` is noted in the
file HEADGATE_FAULT_SYNCS, a line each: when it began in nanoseconds, device and inode, and path.
"""

import mmap
import os
import struct
import time

if "HEADGATE_FAULT_CLOCK" in os.environ:
    with open(os.environ["HEADGATE_FAULT_CLOCK"], "rb") as _file:
        _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _time, _time_ns = time.time, time.time_ns

    def _shifted() -> float:
        return _time() + struct.unpack_from("d", _shift)[0]

    def _shifted_ns() -> int:
        return _time_ns() + round(struct.unpack_from("d", _shift)[0] * 1e9)

    time.time, time.time_ns = _shifted, _shifted_ns

if "HEADGATE_FAULT_SYNCS" in os.environ:
    _syncs = os.open(os.environ["HEADGATE_FAULT_SYNCS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    _fsync, _real_time_ns = os.fsync, time.clock_gettime_ns

    def _noted(file: object) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()  # type: ignore[attr-defined]
        began = _real_time_ns(time.CLOCK_REALTIME)
        _fsync(descriptor)
        found = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        os.write(_syncs, f"{began} {found.st_dev} {found.st_ino} {path}\n".encode())

    os.fsync = _noted  # type: ignore[assignment]
