"""The faults, one function each: it hits the run of a trial, waits until the run makes progress again, and tells of it.

A fault raises `RunError` if the run does not recover. What it leaves behind must not change what tables have to hold.
"""

from __future__ import annotations

import gzip
import random
import shutil
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.fault.feeder import BAD, Feeder, land
from benchmarks.fault.oracle import COLUMNS, DERIVED, is_damaged
from benchmarks.fault.power import cut_copy, put_in_place
from benchmarks.fault.process import HeadgateRun, Process, RunError, processes, send

Found = TypeVar("Found")

#: tables that no other is computed from
LEAVES = ("large", "categorised", "marked", "visitors", "active", "top", "by_hour")
#: a fault is over when the run has made a commit, at most so many seconds later
PATIENCE = 180.0


@dataclass
class Target:
    """What faults act on: the run, the feeder, and chance. `brief` asks for faults that take seconds, not a minute."""

    run: HeadgateRun
    feeder: Feeder
    chance: random.Random
    clock: Path
    syncs: Path
    brief: bool = True
    #: whether the warehouse has a small file system of its own
    small_disk: bool = False
    #: what a fault saw that deserves a word in the report
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Hit:
    """What was done, and how many seconds later the run made a commit."""

    what: str
    recovered: float


def driver(target: Target) -> Hit:
    """`kill -9` of the run alone, and a new start; Java and Python processes must end by themselves."""
    run = target.run
    _moment(target)
    left = run.family()
    at = time.time()
    send(run.id, signal.SIGKILL)
    run.wait(10.0)
    if remaining := _survivors(left, 20.0):
        target.remarks.append(f"{len(remaining)} processes outlived their driver by 20 s: {remaining[0].command[:80]}")
        for each in remaining:
            send(each.id, signal.SIGKILL)
    run.start()
    return Hit("driver killed", run.wait_for_commit(at, PATIENCE))


def jvm(target: Target) -> Hit:
    """`kill -9` of the Java process alone. The commit that counts is the first of the new one."""
    run = target.run
    _moment(target)
    old = _wait(run.java, "the Java process")
    at = time.time()
    send(old, signal.SIGKILL)
    _wait(lambda: (new := run.java()) is not None and new != old, "another Java process")
    there = time.time()
    return Hit("JVM killed", there - at + run.wait_for_commit(there, PATIENCE))


def worker(target: Target) -> Hit:
    """`kill -9` of a Python worker."""
    run = target.run
    victims = _wait(run.workers, "a Python worker")
    at = time.time()
    send(target.chance.choice(victims), signal.SIGKILL)
    return Hit("Python worker killed", run.wait_for_commit(at, PATIENCE))


def stopped(target: Target) -> Hit:
    """The driver or the JVM is stopped for a while and goes on."""
    run = target.run
    which = target.chance.choice(("driver", "JVM"))
    victim = run.id if which == "driver" else _wait(run.java, "the Java process")
    seconds = target.chance.uniform(0.5, 4.0) if target.brief else 60.0
    send(victim, signal.SIGSTOP)
    time.sleep(seconds)
    at = time.time()
    send(victim, signal.SIGCONT)
    return Hit(f"{which} stopped for {seconds:.1f} s", run.wait_for_commit(at, PATIENCE))


def clock(target: Target) -> Hit:
    """The clock of the driver jumps, and at the next fault of this kind it may be right again."""
    shift = target.chance.choice((-86_400.0, -3_600.0, -60.0, 0.0, 60.0, 3_600.0, 86_400.0))
    at = time.time()
    with target.clock.open("r+b") as file:
        file.write(struct.pack("d", shift))
    return Hit(f"clock {shift:+.0f} s", target.run.wait_for_commit(at, PATIENCE))


def disk_full(target: Target) -> Hit:
    """The disk of the warehouse is full for some seconds."""
    if not target.small_disk:
        raise RunError("this user may not mount a small file system for the warehouse: disk-full cannot be tried")
    ballast = target.run.warehouse / "ballast"
    seconds = target.chance.uniform(1.0, 6.0) if target.brief else 30.0
    end, block = time.monotonic() + seconds, b"\0" * 65_536
    with ballast.open("wb", buffering=0) as file:
        while time.monotonic() < end:  # again and again: what the run deletes is filled up, too
            try:
                while file.write(block) == len(block):
                    pass
            except OSError:
                block = block[: max(1, len(block) // 2)]
                time.sleep(0.02)
    ballast.unlink()
    at = time.time()
    return Hit(f"disk full for {seconds:.1f} s", target.run.wait_for_commit(at, PATIENCE))


def foreign(target: Target) -> Hit:
    """Another program deletes or appends rows of a derived table, or the folder of a table is deleted."""
    from deltalake import DeltaTable, write_deltalake

    tables = target.run.tables
    there = _wait(lambda: [each for each in DERIVED if (tables / each / "_delta_log").exists()], "a derived table")
    name = target.chance.choice(there)
    folder = tables / name
    what = target.chance.choice(("rows deleted", "rows appended", "folder deleted"))
    at = time.time()
    for _ in range(20):  # the run may have been faster
        try:
            if what == "folder deleted":
                shutil.rmtree(folder, ignore_errors=True)
            elif what == "rows deleted":
                column = next(each for each in COLUMNS[name] if each not in ("ts", "minute", "hour", "category"))
                DeltaTable(folder).delete(f"{column} % 3 = 1")
            else:
                table = DeltaTable(folder)
                write_deltalake(table, table.to_pyarrow_table().slice(0, 5), mode="append")
            break
        except Exception as error:
            last = error
            time.sleep(0.1)
    else:
        raise RunError(f"{name}: {what}: the fault itself failed: {last}")
    return Hit(f"{name}: {what}", target.run.wait_for_commit(max(at, time.time()), PATIENCE))


def bad_file(target: Target) -> Hit:
    """A file that cannot be read, or not as declared, lands among the good ones of a stream."""
    number = target.chance.randrange(10**9)
    landing = target.feeder.landing
    row = b'{"ts": "2026-01-01T00:00:00Z", "id": -1, "customer": 1, "item": 1, "amount": 1}\n'
    kinds = {
        "broken gzip": ("orders", "json.gz", gzip.compress(row * 1000)[:60]),
        "no gzip": ("orders", "json.gz", row),
        "garbage": ("orders", "json", target.chance.randbytes(5000)),
        "other columns": ("clicks", "csv", b"colour,size\n" + b"red,1\n" * 20),
        "nothing": ("clicks", "csv", b""),
        "broken gzip of CSV": ("clicks", "csv.gz", gzip.compress(b"ts,id,customer\n" * 1000)[:-30]),
    }
    what = target.chance.choice(sorted(kinds))
    stream, ending, content = kinds[what]
    # The name puts it among the files to come, which have numbers.
    path = landing / stream / f"{BAD}{number}.{ending}"
    land(path, content)
    at = time.time()
    log = target.run.tables / stream / "_delta_log"
    _wait(lambda: max(each.stat().st_mtime for each in log.glob("*.json")) > at, f"a commit of {stream}")
    return Hit(f"bad file in {stream}: {what}", time.time() - at)


def flipped_bits(target: Target) -> Hit:
    """A bit of a file of a table that can be computed again is flipped while the run is down.

    It must be noticed: by the run, which computes the table again or states an error, or by a reader that compares
    checksums. What a person would do then is done here: the folder of a damaged table is deleted.
    """
    run = target.run
    run.stop()
    name = target.chance.choice([leaf for leaf in LEAVES if (run.tables / leaf / "_delta_log").exists()])
    files = sorted(path for path in (run.tables / name).rglob("*") if path.is_file() and path.stat().st_size)
    path = target.chance.choice(files)
    content = bytearray(path.read_bytes())
    bit = target.chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    at = time.time()
    run.start()
    recovered = run.wait_for_commit(at, PATIENCE)
    if is_damaged(run.tables / name, COLUMNS[name]):
        shutil.rmtree(run.tables / name, ignore_errors=True)
    return Hit(f"{name}: bit {bit} of {path.relative_to(run.tables / name)} flipped", recovered)


def power_cut(target: Target) -> Hit:
    """The power fails: what was not synced may be lost. The run is stopped, copied, killed, and goes on in the copy."""
    run = target.run
    _moment(target)
    send(run.id, signal.SIGSTOP)
    java = run.java()
    if java is not None:
        send(java, signal.SIGSTOP)
    copy = run.folder / "after-the-cut"
    counts: Counter[str] = cut_copy(run.warehouse, copy, target.syncs, target.chance)
    at = time.time()
    run.kill()
    put_in_place(copy, run.warehouse, target.syncs)
    run.start()
    what = ", ".join(f"{count} files {fate}" for fate, count in sorted(counts.items()))
    return Hit(f"power cut: {what}", run.wait_for_commit(at, PATIENCE))


Fault = Callable[[Target], Hit]
FAULTS: dict[str, Fault] = {
    "driver": driver,
    "jvm": jvm,
    "worker": worker,
    "disk-full": disk_full,
    "stopped": stopped,
    "clock": clock,
    "foreign": foreign,
    "flipped-bits": flipped_bits,
    "power-cut": power_cut,
    "bad-file": bad_file,
}
#: how often each comes among many: those that need a new start of Spark more rarely
SHARES = {
    **{"driver": 2, "jvm": 2, "worker": 6, "disk-full": 4, "stopped": 4, "clock": 5, "foreign": 4},
    **{"flipped-bits": 1, "power-cut": 1, "bad-file": 4},
}


def _moment(target: Target) -> None:
    """Somewhere inside an update: before its job, during it, between files and commit, or right after."""
    time.sleep(target.chance.uniform(0.0, 1.0))


def _survivors(found: list[Process], seconds: float) -> list[Process]:
    end = time.monotonic() + seconds
    while True:
        alive = {each.id: each.command for each in processes()}
        left = [each for each in found if alive.get(each.id) == each.command and each.command]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def _wait(look: Callable[[], Found | None], what: str, seconds: float = PATIENCE) -> Found:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except (OSError, ValueError):
            pass
        time.sleep(0.02)
    raise RunError(f"{what} was waited for in vain for {seconds:g} s")
