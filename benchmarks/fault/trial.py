"""One run under faults: files land, faults hit, the run catches up, and every table is compared with the oracle."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fault.feeder import Feeder
from benchmarks.fault.kinds import FAULTS, SHARES, Hit, Target
from benchmarks.fault.oracle import COLUMNS, compare, expected
from benchmarks.fault.process import HeadgateRun, RunError

HOOK = Path(__file__).parent / "hook"
#: megabytes of the warehouse's own file system
SMALL_DISK = 256
#: seconds within which the run must have caught up, or ended
CATCHING_UP = 300.0


@dataclass
class Outcome:
    """What happened. `wrong` has a line for each thing that must not be: a table that differs, a run that ended."""

    seed: int
    hits: list[tuple[str, Hit]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    tables: int = 0
    rows: int = 0
    files: int = 0
    seconds: float = 0.0
    catching_up: float = 0.0


def chosen(name: str, times: int, chance: random.Random) -> list[str]:
    """The faults to come: `times` of one kind, or for "many" of all kinds by chance."""
    if name != "many":
        return [name] * times
    return chance.choices(list(SHARES), list(SHARES.values()), k=times)


def trial(faults: Sequence[str], seed: int, *, brief: bool = True, pause: float = 1.0, restart: bool = True) -> Outcome:
    """Hit a run with `faults`, in this order, with about `pause` seconds between them.

    In the end the run is stopped and catches up with `headgate run --once`, or if there is no time for that
    (`restart`), it goes on until it has caught up.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-faults-") as temporary:
        folder = Path(temporary)
        clock, syncs = folder / "clock", folder / "syncs.txt"
        clock.write_bytes(struct.pack("d", 0.0))
        environment = {
            "PYTHONPATH": str(HOOK),
            "HEADGATE_FAULT_CLOCK": str(clock),
            "HEADGATE_FAULT_SYNCS": str(syncs),
        }
        run = HeadgateRun(folder, environment)
        outcome = Outcome(seed)
        chance = random.Random(seed)
        feeder = Feeder(folder / "landing", seed)
        target = Target(run, feeder, chance, clock, syncs, brief, remarks=outcome.remarks)
        with _small_disk(run.warehouse, "disk-full" in faults) as target.small_disk:
            try:
                _hit_all(target, faults, pause, outcome)
                _judge(target, outcome, restart)
            finally:
                run.kill()
                if outcome.wrong:
                    _keep(folder, seed)
    return outcome


def _hit_all(target: Target, faults: Sequence[str], pause: float, outcome: Outcome) -> None:
    run, began = target.run, time.monotonic()
    run.start()
    target.feeder.start()
    run.wait_for_commit(time.time(), CATCHING_UP)
    for number, name in enumerate(faults, 1):
        time.sleep(target.chance.uniform(0.0, 2.0 * pause))
        try:
            hit = FAULTS[name](target)
        except RunError as error:
            hit = Hit(str(error), float("nan"))
            outcome.wrong.append(f"fault {number}, {name}: {error}")
            if not run.lives:
                run.start()
        outcome.hits.append((name, hit))
        _say(
            f"{time.monotonic() - began:7.1f} s  fault {number:3} of {len(faults)}, {name}: {hit.what.splitlines()[0]}"
        )
        if hit.recovered == hit.recovered:  # else there is none
            _say(f"           a commit {hit.recovered:.2f} s later")
    outcome.seconds = time.monotonic() - began


def _judge(target: Target, outcome: Outcome, restart: bool) -> None:
    run, feeder = target.run, target.feeder
    feeder.stop()
    with target.clock.open("r+b") as file:
        file.write(struct.pack("d", 0.0))
    began = time.monotonic()
    if not restart:
        while compare(feeder.landing, run.tables) and time.monotonic() < began + CATCHING_UP:
            time.sleep(0.5)
        outcome.catching_up = time.monotonic() - began
    status = run.stop(CATCHING_UP)
    if status != 0:
        outcome.wrong.append(f"headgate run ended with {status} after headgate stop; {run.last_words()}")
    if restart:
        began = time.monotonic()
        status = run.catch_up(CATCHING_UP)
        outcome.catching_up = time.monotonic() - began
        if status != 0:
            outcome.wrong.append(f"headgate run --once ended with {status}; {run.last_words()}")
    outcome.wrong += map(str, compare(feeder.landing, run.tables))
    outcome.tables, outcome.files = len(COLUMNS), feeder.files
    outcome.rows = sum(rows.total() for rows in expected(feeder.landing).values())


@contextmanager
def _small_disk(folder: Path, wanted: bool) -> Iterator[bool]:
    """A file system of its own at `folder`, if that is wanted and this user may mount one; whether it is there."""
    if not wanted:
        yield False
        return
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}m", "headgate-faults", str(folder)]
    is_there = shutil.which("mount") is not None and subprocess.run(mount, check=False).returncode == 0
    try:
        yield is_there
    finally:
        if is_there:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _keep(folder: Path, seed: int) -> None:
    """What went wrong can be looked at afterwards."""
    kept = Path(tempfile.gettempdir()) / f"headgate-faults-failed-{seed}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("control"))
    _say(f"kept for a look: {kept}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
