"""Two processes, one warehouse: who dies or is paused is replaced, and who was replaced commits nothing any more.

Each process has its Spark from the beginning, so that what is waited for is the lock or the lease, not Java.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath
from headgate.warehouse import reading
from headgate.warehouse.storage.history import FENCE_KEY
from tests.services.object_store import ObjectStoreServer

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

#: HEADGATE_SEED=8 tries other moments
SEED = int(os.environ.get("HEADGATE_SEED", "14"))
#: long enough that a process which only waits for its turn on a busy machine is not taken for dead
LEASE_SECONDS = 4.0
PATIENCE = 240.0
ROWS = 20
TABLES = ("readings", "copies", "minutes")

#: runs the warehouse each time that a line comes in, and says what happens in lines
DRIVER = """
import json, sys, time
import headgate as hg
from headgate.core import HeadgateError
from headgate.warehouse import RunOptions, SparkOptions, WarehouseRun
from headgate.warehouse.session import open_session

given = json.loads(sys.argv[1])
spark = open_session("takeover", "local[1]")
wh = hg.Warehouse("shop", given["path"], storage=given["storage"])
source = hg.Files(given["landing"], format="json", schema="ts timestamp, id long", settle=0)
wh.stream("readings", source, time="ts", period="1 second", partition="1 hour")
wh.sql("copies", "select ts, id from readings", time="ts", partition="1 hour")
wh.sql("minutes", "select date_trunc('minute', ts) as minute, count(*) as n from readings group by 1", time="minute")


def say(*words):
    print(*words, flush=True)


say("ready")
for line in sys.stdin:
    note = lambda update: say("committed", update.name) if update.committed else None
    options = RunOptions(tracks=1), SparkOptions(session=spark)
    asked = time.monotonic()
    try:
        with WarehouseRun(wh.spec(), *options, note, lease_seconds=given["lease"]) as run:
            say("runs", time.monotonic() - asked)
            while run.runtime.is_running:
                if line.strip() == "until fresh":
                    run.wait_until_fresh(given["patience"])
                    break
                time.sleep(0.01)
        say("stopped")
    except HeadgateError as error:
        say("failed", type(error).__name__, error)
"""


class Driver:
    """A process that runs the warehouse when it is told to."""

    def __init__(self, name: str, folder: Path, given: dict[str, object]) -> None:
        self._log = folder / f"{name}.log"
        self._heard = 0
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "XDG_STATE_HOME": str(folder / name)},
            )

    def run(self, until: str = "stopped by a signal") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{until}\n".encode())
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """To it and to its Spark: they stop, or end, together."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()  # a busy machine takes a moment to end it, in which it still has its lock

    def says(self, word: str) -> str:
        """Wait for the next line that begins with ``word``; the rest of it."""
        return self._wait(lambda line: line.partition(" ")[0] == word).partition(" ")[2]

    def commits_to_all(self) -> None:
        """Wait until it has committed to every table."""
        missing = set(TABLES)
        while missing:
            missing.discard(self.says("committed"))

    def _wait(self, wanted: Callable[[str], bool]) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            lines = self._log.read_text(errors="replace").splitlines(keepends=True)
            for place in range(self._heard, len(lines)):
                if lines[place].endswith("\n") and wanted(lines[place].strip()):
                    self._heard = place + 1
                    return lines[place].strip()
            time.sleep(0.01)
        raise AssertionError(f"the driver does not go on; it said:\n{self._log.read_text()}")

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.communicate()  # closes its input


class Landing:
    """Files of numbered rows; every fifth line is malformed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.rows = 0

    def add(self, files: int) -> None:
        for _ in range(files):
            numbers = range(self.rows, self.rows + ROWS)
            (self.folder / f".{self.rows}").write_text("".join(f"{_line(number)}\n" for number in numbers))
            (self.folder / f".{self.rows}").rename(self.folder / f"{self.rows:06}.json")
            self.rows += ROWS

    def check(self, place: AnyPath) -> None:
        """Every table is what plain Python makes of the lines."""
        good = [number for number in range(self.rows) if number % 5 != 4]
        found = reading.read(place, [*TABLES, "readings__rejected"])
        for name in ("readings", "copies"):
            assert sorted(found[name].column("id").to_pylist()) == good, name
        minutes = Counter(number // 60 for number in good)
        stored = {row["minute"].minute + 60 * row["minute"].hour: row["n"] for row in found["minutes"].to_pylist()}
        assert stored == minutes
        assert found["readings__rejected"].num_rows == self.rows - len(good)


def _line(number: int) -> str:
    if number % 5 == 4:
        return f'{{"id": {number}, "ts"'
    at = f"2026-11-15T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    return json.dumps({"id": number, "ts": at})


def fences(place: AnyPath, table: str) -> list[int]:
    """The fencing numbers of a table's commits, oldest first."""
    entries = sorted((place / "tables" / table / "_delta_log").glob("*.json"), key=lambda path: path.name)
    infos = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    return [int(info["commitInfo"].get(FENCE_KEY, 0)) for info in infos if "commitInfo" in info]


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Callable[[str, AnyPath], Driver]]:
    with ExitStack() as stack:

        def start(name: str, place: AnyPath) -> Driver:
            storage = dict(place.bucket.options) if isinstance(place, ObjectPath) else {}
            given = {"path": str(place), "storage": storage, "landing": str(tmp_path / "landing")}
            driver = Driver(name, tmp_path, {**given, "lease": LEASE_SECONDS, "patience": PATIENCE})
            stack.callback(driver.end)
            return driver

        yield start


def strike(driver: Driver, number: signal.Signals, landing: Landing, chance: random.Random) -> None:
    """Some commits later, somewhere in the next update or right after it."""
    for _ in range(chance.randint(1, 4)):
        landing.add(1)
        driver.says("committed")
    landing.add(chance.randint(1, 3))
    time.sleep(chance.uniform(0.0, 0.6))
    driver.signal(number)


def test_a_warehouse_in_an_object_store_is_taken_over_from_the_paused_and_from_the_killed(
    object_store: ObjectStoreServer, tmp_path: Path, drivers: Callable[[str, AnyPath], Driver]
) -> None:
    print(f"seed {SEED}")
    chance, place, landing = random.Random(SEED), object_store.bucket() / "shop", Landing(tmp_path / "landing")
    first, second = drivers("first", place), drivers("second", place)
    for driver in (first, second):
        driver.says("ready")
    landing.add(2)
    first.run()
    first.commits_to_all()
    strike(first, signal.SIGSTOP, landing, chance)

    second.run()
    assert float(second.says("runs")) >= LEASE_SECONDS, "nobody is replaced before"
    landing.add(2)
    second.commits_to_all()
    first.signal(signal.SIGCONT)
    assert first.says("failed").startswith("LeaseLostError")

    strike(second, signal.SIGKILL, landing, chance)
    landing.add(1)
    first.run("until fresh")
    took = float(first.says("runs"))
    assert took >= LEASE_SECONDS
    first.says("stopped")
    print(f"after kill -9, the warehouse was taken over in {took:.1f} s; the lease lasts {LEASE_SECONDS:g} s")

    landing.check(place)
    for table in TABLES:
        owners = fences(place, table)
        assert owners == sorted(owners), f"{table}: one that was replaced has committed after its successor"
        assert set(owners) == {1, 2, 3}


def test_a_warehouse_in_a_folder_is_taken_over_from_the_killed_at_once_and_never_from_the_paused(
    tmp_path: Path, drivers: Callable[[str, AnyPath], Driver]
) -> None:
    print(f"seed {SEED}")
    chance, place, landing = random.Random(SEED), tmp_path / "shop", Landing(tmp_path / "landing")
    first, second = drivers("first", place), drivers("second", place)
    for driver in (first, second):
        driver.says("ready")
    landing.add(2)
    first.run()
    first.commits_to_all()
    strike(first, signal.SIGSTOP, landing, chance)
    second.run()
    assert second.says("failed").startswith("WarehouseInUseError")
    first.signal(signal.SIGCONT)
    first.says("committed")
    strike(first, signal.SIGKILL, landing, chance)
    second.run("until fresh")
    second.says("stopped")
    landing.check(place)
