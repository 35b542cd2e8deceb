"""Real faults against `headgate run` on real Spark, one kind at a time or many: nothing lost, nothing twice.

`python -m benchmarks faults PART` tries one kind of fault, `--times N` so often; `many` are of all kinds by chance.
"""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.fault.kinds import FAULTS
from benchmarks.fault.trial import chosen, trial
from benchmarks.harness import Benchmark, Claim, Context, Results, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY = "many"
#: how often each kind is tried, unless --times says otherwise
TIMES = {MANY: 200, **dict.fromkeys(FAULTS, 5), "stopped": 2, "worker": 20, "clock": 10, "foreign": 10, "bad-file": 10}
#: a smoke run has seconds: the cheapest faults that end a process, disturb a source, and disturb a table
SMOKE = ("worker", "bad-file", "foreign")
#: how soon Spark must have been started again and the first update committed
AFTER_JVM = 20.0


def measure(part: str, faults: Sequence[str], seed: int, brief: bool, restart: bool = True) -> list[Row]:
    """One run with these faults; a row for each kind of them, and one for all with what the oracle found."""
    print(f"faults {part}: seed {seed}, {len(faults)} faults", file=sys.stderr)
    outcome = trial(faults, seed, brief=brief, pause=0.3 if brief else 1.0, restart=restart)
    rows: list[Row] = []
    for kind in dict.fromkeys(faults):
        found = [hit.recovered for name, hit in outcome.hits if name == kind]
        times = sorted(each for each in found if not math.isnan(each))
        rows.append(
            {
                "part": part,
                "fault": kind,
                "faults": len(found),
                "recovered": len(times),
                "commit after, median s": times[len(times) // 2] if times else None,
                "commit after, worst s": times[-1] if times else None,
            }
        )
    for line in (*outcome.remarks, *outcome.wrong):
        print(f"{part}: {line}", file=sys.stderr)
    whole: Row = {
        "part": part,
        "fault": "all",
        "faults": len(outcome.hits),
        "recovered": sum(row["recovered"] for row in rows),
        "wrong": len(outcome.wrong),
        "first wrong": outcome.wrong[0].splitlines()[0] if outcome.wrong else "",
        "tables": outcome.tables,
        "rows compared": outcome.rows,
        "files landed": outcome.files,
        "seconds": outcome.seconds,
        "catching up": outcome.catching_up,
        # others on the machine slow everything down: how many processes wanted a core at the end, on average
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
    }
    return [*rows, whole]


def run(context: Context) -> Results:
    parts = [context.part] if context.part else [*FAULTS, MANY]
    arguments: list[dict[str, Any]] = []
    if context.smoke and context.part is None:
        arguments.append({"part": "smoke", "faults": SMOKE, "seed": context.seed, "brief": True, "restart": False})
    else:
        for part in parts:
            times = context.times or (3 if context.smoke else TIMES[part])
            faults = chosen(part, times, random.Random(context.seed))
            brief = context.smoke or part == MANY
            arguments.append({"part": part, "faults": faults, "seed": context.seed, "brief": brief})
    rows = context.points(measure, arguments, timed=True)
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    made = []
    wanted = "a target of this project"
    for row in rows:
        if row["fault"] == "all":
            what = f"{row['part']}: {row['faults']} faults, and nothing is lost and nothing is there twice"
            right = f"{row['tables']} tables with {row['rows compared']} rows equal those of the oracle"
            said = row["first wrong"] or right
            made.append(Claim(what, wanted, said, row["wrong"] == 0))
        elif row["fault"] == "jvm":
            worst = row["commit after, worst s"]
            what = f"{row['part']}: the first commit comes at most {AFTER_JVM:g} s after the loss of the JVM"
            made.append(Claim(what, wanted, worst or "never", worst is not None and worst <= AFTER_JVM))
    return made


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots()
    kinds = [row for row in rows if row["fault"] != "all" and row["commit after, worst s"] is not None]
    labels = [f"{row['part']}: {row['fault']}" for row in kinds]
    axes.barh(labels, [row["commit after, worst s"] for row in kinds], label="worst")
    axes.barh(labels, [row["commit after, median s"] for row in kinds], label="median")
    axes.set_xlabel("first commit after the fault, s")
    axes.legend()


BENCHMARK = Benchmark(
    name="faults",
    figure="Faults",
    claim="Killed, stopped, out of disk, out of time, touched by others: nothing is lost, nothing is there twice.",
    takes="50 min",
    run=run,
    draw=draw,
    reps=1,
    parts=(*FAULTS, MANY),
)
