"""24 tables from a cold start and after a restart: until every table was fresh once, and how stale they were."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.spark.contest import CONTENDERS, Contender, Course, contend
from benchmarks.spark_tables import HEADGATE, INSTALLED, headgate_contender

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN = ("structured", "handmade")
#: about half of what 24 tables can do
SPEED = 1.5
#: what is measured, in seconds from the start of the process; Spark's own start is part of it
SECONDS = 120.0
#: {kind of start: seconds of the run before it}
STARTS = {"cold": 0.0, "restart": 60.0}


def measure(contender: str, start: str, before: float, seconds: float) -> Row:
    """The first `seconds` of one contender, in a folder of its own; with `before`, after a run of that length."""
    way = contender.removesuffix(INSTALLED)
    options = () if way == contender else ("--writer", "spark", "--forking")
    with tempfile.TemporaryDirectory() as temporary:
        if way == HEADGATE:
            chosen = headgate_contender(SPEED, Path(temporary) / "figures.json")
        else:
            chosen = Contender(CONTENDERS[way].module, (*CONTENDERS[way].options, *options))
        outcome = contend(chosen, Course(SPEED, 0.0, seconds, before=before), Path(temporary) / "run")
    return {
        "start": start,
        "contender": contender,
        "every table fresh after": outcome.fresh_after,
        "weighted staleness": outcome.achieved.weighted,
        "data just landed": outcome.best_possible.weighted,
        "updates per second": outcome.achieved.updates_per_second,
    }


def run(context: Context) -> Results:
    if context.smoke:
        smoke = {"contender": HEADGATE, "start": "cold", "before": 0.0, "seconds": 15.0}
        return Results(context.points(measure, [smoke], timed=True), [])
    contenders = (HEADGATE, *PLAIN, *(name + INSTALLED for name in PLAIN))
    arguments: list[dict[str, Any]] = [
        {"contender": contender, "start": start, "before": before, "seconds": SECONDS}
        for start, before in STARTS.items()
        for contender in contenders
    ]
    rows = context.points(measure, arguments, timed=True)
    return Results(rows, claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = {(row["start"], row["contender"]): row for row in rows}
    made = []
    for start in STARTS:
        for suffix, which in ((INSTALLED, "as installed"), ("", "with help")):
            for figure in ("every table fresh after", "weighted staleness"):
                others = [found[start, name + suffix][figure] for name in PLAIN]
                own = found[start, HEADGATE][figure]
                # whoever left a table without an update took longer than was measured
                better = min(SECONDS if other is None else float(other) for other in others) / float(own or SECONDS)
                what = f"{start}: {figure}: 1.5 times better than streaming queries and the hand-made way {which}"
                made.append(Claim(what, "a target of this project", f"{better:.2f} times", better >= 1.5))
    return made


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    axes = figure.subplots(2, len(STARTS), squeeze=False)
    for column, start in enumerate(STARTS):
        mine = [row for row in rows if row["start"] == start]
        for line, name in enumerate(("every table fresh after", "weighted staleness")):
            plot = axes[line][column]
            plot.barh([row["contender"] for row in mine], [row[name] or SECONDS for row in mine])
            plot.set_title(start)
            plot.set_xlabel(f"{name}, s")


BENCHMARK = Benchmark(
    name="spark_cold_start",
    figure="Spark",
    claim="24 tables from a cold start and after a restart: 1.5 times sooner and less stale than plain Spark.",
    takes="30 min",
    run=run,
    draw=draw,
    pivot=Pivot("contender", "start", "weighted staleness"),
    reps=1,
)
