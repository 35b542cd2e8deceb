"""Stream queries in tables under ``kill -9``: of Python workers, executors and the driver, while files come late.

By default one executor and two Python workers are killed, and the driver twice. ``HEADGATE_KILLS=4`` kills four
processes before each end of the driver, and lets it make more updates.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.shop import check
from examples.shop.feed import STREAMS
from tests.services.java import QUICK_JAVA
from tests.warehouse.random_trial import interpreted
from tests.warehouse.shop_under_fire import LateFiles, busy_workers, descendants, executors, processes, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "shop.py"
#: another one with HEADGATE_KILL_SEED
SEED = int(os.environ.get("HEADGATE_KILL_SEED", "15"))
#: where Spark runs from one start of the driver to its end, what is killed before that, one after the other and over
#: again, how often by default, and whether buckets have tasks of their own, as they have in large updates
LIVES = (
    ("local-cluster[1,2,1024]", ("executor", "worker"), 2, True),
    ("local[2]", ("worker",), 1, False),
)
KILLS = os.environ.get("HEADGATE_KILLS")
#: with more of them, there would be more updates than files
MOST_KILLS = 4
#: updates of tables from one start of the driver to its end: so many, and so many more for each kill
UPDATES, UPDATES_OF_A_KILL = 4, 3
#: virtual machines that live for some seconds: no time for the better compiler, nor for code of Spark's own making
QUICK_START = {"JAVA_TOOL_OPTIONS": QUICK_JAVA}
INTERPRETED = ("--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN")
TASKS_APART = "\nfrom headgate.warehouse.updates import hosted\n\nhosted.ONE_TASK_BYTES = -1\n"
VICTIMS = {"worker": busy_workers, "executor": executors}


@contextmanager
def driver(pipeline: Path, master: str) -> Iterator[subprocess.Popen[str]]:
    """A warehouse in processes of its own, killed in the end with all that it has started."""
    options = ("--master", master, "--policy", "fifo", "--chop", "1", "--for", "30 min", *INTERPRETED)
    with (
        pipeline.with_name("driver.err").open("a") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "headgate.cli", "run", str(pipeline), *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, **QUICK_START},
        ) as started,
    ):
        try:
            yield started
        finally:
            family = descendants(started.pid).keys()
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself, with all that it has started
                os.killpg(started.pid, signal.SIGKILL)
    wait_for(lambda: family.isdisjoint(each.pid for each in processes()), "end of all that the driver has started")


def live_and_die(pipeline: Path, master: str, victims: tuple[str, ...], files: LateFiles, chance: random.Random) -> int:
    """Update tables while files land and processes are killed, and in the end be killed; how many updates were made."""
    wanted = UPDATES + UPDATES_OF_A_KILL * len(victims)
    moments = dict(zip(sorted(chance.sample(range(3, wanted), len(victims))), victims, strict=True))
    with driver(pipeline, master) as running:
        assert running.stdout is not None
        made = 0
        for line in running.stdout:
            if line.split()[1].rstrip(":") in STREAMS:
                continue
            made += 1
            files.land(chance.randint(1, 2))
            if made in moments:
                kill_one(moments[made], running, chance)
            if made == wanted:
                break
        # Somewhere inside the next update: before its job, during it, between files and commit, or right after.
        pause(running, chance.uniform(0.0, 0.5))
    assert made == wanted, (
        f"after {made} updates it has ended by itself:\n{pipeline.with_name('driver.err').read_text()}"
    )
    return made


def kill_one(kind: str, running: subprocess.Popen[str], chance: random.Random) -> None:
    pause(running, chance.uniform(0.0, 0.3))
    candidates = wait_for(lambda: VICTIMS[kind](running.pid), kind)
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(chance.choice(candidates), signal.SIGKILL)


def pause(running: subprocess.Popen[str], seconds: float) -> None:
    """Let the run go on for so long: when it is hit is a matter of chance."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(seconds)


def test_tables_are_those_of_one_serial_run_whatever_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    print(f"seed {SEED}")
    spark = interpreted(spark)
    chance = random.Random(SEED)
    files = LateFiles(tmp_path, chance, steps=24)
    pipeline = tmp_path / "shop.py"
    # Files count as one period's if they arrive within it: with a short one, updates take in a few of those waiting.
    shop = SHOP.read_text().replace('period="1 second"', 'period="300 ms"')
    files.land(8)
    made = 0
    for master, kinds, by_default, apart in LIVES:
        pipeline.write_text(shop + (TASKS_APART if apart else ""))
        victims = tuple(islice(cycle(kinds), min(MOST_KILLS, int(KILLS or by_default))))
        made += live_and_die(pipeline, master, victims, files, chance)
        files.land(3)
    files.land(files.left)
    check.bring_up_to_date(tmp_path, spark)
    files.land_the_forgotten()
    check.bring_up_to_date(tmp_path, spark)

    for question in check.QUESTIONS:
        compared = check.compare(question, tmp_path, spark)
        assert compared.equal and compared.rows, compared
    forgotten = {stream: set(rows.column("id").to_pylist()) for stream, rows in files.forgotten.items()}
    for stage in ("sessions", "views", "baskets_left"):
        assert forgotten["clicks"] <= rejected(tmp_path, stage) <= files.held_back["clicks"], stage
    late = files.held_back["sales"] | files.slow["sales"]
    assert forgotten["sales"] <= rejected(tmp_path, "daily_sales") <= late
    assert rejected(tmp_path, "ticket_pairs") == forgotten["sales"], "lines of a ticket may come in any order"
    failures = re.findall(r"^\S+ (\w+): failed", pipeline.with_name("driver.err").read_text(), re.MULTILINE)
    print(f"{made} updates, and these failed: {dict(Counter(failures))}")


def rejected(folder: Path, stage: str) -> set[int]:
    """The rows that a table has rejected, each once."""
    found = check.rejected_ids(folder, stage)
    assert len(found) == len(set(found)), f"{stage}: rejected twice"
    return set(found)
