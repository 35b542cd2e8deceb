"""24 tables kept fresh by Headgate and by plain Spark in three ways, at a load it can carry and at one it cannot.

The part ``jobs`` compares only how tables share jobs, at the load that cannot be carried.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.spark import workload
from benchmarks.spark.contest import CONTENDERS, Contender, Course, contend
from benchmarks.spark.environment import python_with_pipelines
from headgate.core import PATIENCE_PERIODS, placement_from, policy_from
from headgate.sim import CostModel, TraceReplay, replay_of
from headgate.warehouse.run.trace import read_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: tables in groups by hand, without groups, without groups but with jobs that the scheduler lets them share, and fifo
HEADGATE, ALONE, CHOSEN, FIFO = "headgate", "headgate, alone", "headgate, jobs chosen", "headgate, fifo"
#: updates per second that the files of speed 1 make possible
OFFERED = sum((1 + len(workload.derived(stream.name))) / stream.period for stream in workload.STREAMS)
#: far more than can be done; only to see how much that is
SATURATING = 40.0
#: what declarative pipelines need beyond this project's own packages is installed here
ENVIRONMENT = Path(__file__).parent / "results" / "environment"
LOADS = {"60 %": 0.6, "200 %": 2.0}
OVERLOAD = "200 %"
PLAIN = ("structured", "declarative", "handmade")
#: Plain Spark with the same settings, but with native sinks and Hadoop's own local file system. The others have help
#: that is not for the asking: results written by the driver from Arrow, and a file system without forks.
INSTALLED = ", as installed"
HANDMADE = ("handmade", "handmade" + INSTALLED)


def headgate_contender(speed: float, figures: Path, *options: str) -> Contender:
    return Contender("benchmarks.spark.warehouse", ("--speed", str(speed), "--figures", str(figures), *options))


def measure(contender: str, load: str, speed: float, course: Mapping[str, float], options: Sequence[str] = ()) -> Row:
    """One contender at one load, in a folder of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        figures = Path(temporary) / "figures.json"
        way = contender.removesuffix(INSTALLED)
        plain = CONTENDERS.get(way)
        if way != contender:
            options = ("--writer", "spark", "--forking", *options)
        if way == "declarative":
            python_with_pipelines(ENVIRONMENT)
            options = ("--environment", str(ENVIRONMENT), *options)
        chosen = (
            headgate_contender(speed, figures, *options)
            if plain is None
            else Contender(plain.module, (*plain.options, *options))
        )
        outcome = contend(chosen, Course(speed, **course), Path(temporary) / "run")
        row: Row = {
            "load": load,
            "contender": contender,
            "speed": round(speed, 2),
            "weighted staleness": outcome.achieved.weighted,
            "data just landed": outcome.best_possible.weighted,
            "updates per second": outcome.achieved.updates_per_second,
            "offered per second": OFFERED * speed,
        }
        if figures.exists():
            row |= of_the_run(json.loads(figures.read_text("utf-8")), speed, course["warm_up"])
    return row


def of_the_run(figures: dict[str, Any], speed: float, skip: float) -> Row:
    """What the run itself knows: against a run without waiting, its overhead, and who waited beyond patience."""
    replay = replay_after(figures, skip)
    load = figures["load"]
    own = load["scheduler"] + load["updates"] - load["work"]
    periods = {stream.name: stream.period / speed for stream in workload.STREAMS}
    beyond = []
    for table in figures["tables"]:
        if table["name"] not in workload.stream_of():
            continue  # one of the idle tables of ``spark_costs``
        period = periods[workload.stream_of()[table["name"]]]
        beyond.append(table["longest_wait"] - PATIENCE_PERIODS * max(period, 1.0))
    longest = max((table["last_seconds"] or 0.0) for table in figures["tables"])
    return {
        "against no waiting": _times(replay.measured().weighted_staleness, replay.without_waiting().weighted_staleness),
        "predicted": _times(
            replay.run(policy_from(replay.policies[0]), placement_from(replay.placement)).weighted_staleness,
            replay.measured().weighted_staleness,
        ),
        "overhead": own / (load["updates"] + load["scheduler"]),
        "beyond patience": max(beyond),
        "longest update": longest,
    }


def _times(staleness: float, other: float) -> float:
    """One weighted staleness over another; on a slow machine, a smoke run may be over before any table has rows."""
    return staleness / other if other else math.nan


def replay_after(figures: dict[str, Any], warm_up: float) -> TraceReplay:
    """The recorded run without its warm-up, which counts from the start of the process."""
    trace = read_trace(Path(figures["trace"]))
    return replay_of(trace, max(0.0, figures["began"] + warm_up - trace.header.started), CostModel)


def run(context: Context) -> Results:
    course = {"warm_up": 15.0, "seconds": 6.0} if context.smoke else {"warm_up": 60.0, "seconds": 45.0}
    if context.smoke:
        rows = context.points(measure, [_arguments(HEADGATE, "smoke", 4.0, course)], timed=True)
        return Results(rows, [])
    capacity = context.points(measure, [_arguments(HEADGATE, "capacity", SATURATING, course)], timed=True)
    possible = float(capacity[0]["updates per second"])
    arguments = []
    if context.part is None:
        for load, share in LOADS.items():
            speed = share * possible / OFFERED
            arguments += [_arguments(name, load, speed, course) for name in (HEADGATE, *PLAIN, *_installed(PLAIN))]
    most = LOADS[OVERLOAD] * possible / OFFERED
    if context.part == "jobs":
        arguments += [_arguments(name, OVERLOAD, most, course) for name in (HEADGATE, *HANDMADE)]
    else:
        arguments.append(_arguments(FIFO, OVERLOAD, most, course, "--policy", "fifo"))
    arguments.append(_arguments(ALONE, OVERLOAD, most, course, "--alone"))
    arguments.append(_arguments(CHOSEN, OVERLOAD, most, course, "--alone", "--together", "auto"))
    rows = [*capacity, *context.points(measure, arguments, timed=True)]
    return Results(rows, claims(rows) if context.part is None else about_jobs(rows))


def _installed(names: Sequence[str]) -> list[str]:
    return [name + INSTALLED for name in names]


def _arguments(contender: str, load: str, speed: float, course: Mapping[str, float], *options: str) -> dict[str, Any]:
    return {"contender": contender, "load": load, "speed": speed, "course": course, "options": options}


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = {(row["load"], row["contender"]): row for row in rows}

    def stale(load: str, contender: str) -> float:
        return float(found[load, contender]["weighted staleness"])

    def times(load: str, *contenders: str) -> float:
        return min(stale(load, other) for other in contenders) / stale(load, HEADGATE)

    paper = "a target of this project"
    made = []
    for suffix, which in ((INSTALLED, "as installed"), ("", "with help")):
        for load in LOADS:
            better = times(load, "structured" + suffix, "declarative" + suffix)
            what = f"at {load}: 3 times less stale than streaming queries and declarative pipelines {which}"
            made.append(Claim(what, paper, f"{better:.2f} times", better >= 3))
            plain = found[load, "structured" + suffix]
            more = float(found[load, HEADGATE]["updates per second"]) / float(plain["updates per second"])
            what = f"at {load}: 2 times as many updates as streaming queries {which}"
            made.append(Claim(what, paper, f"{more:.2f} times", more >= 2))
        low, high = times("60 %", "handmade" + suffix), times("200 %", "handmade" + suffix)
        made.append(Claim(f"at 60 %: not worse than the hand-made way {which}", paper, f"{low:.2f} times", low >= 1))
        what = f"at 200 %: 2 times less stale than the hand-made way {which}"
        made.append(Claim(what, paper, f"{high:.2f} times", high >= 2))
    limit = float(found["60 %", HEADGATE]["against no waiting"])
    made.append(Claim("at 60 %: at most 1.25 times a run without waiting", paper, f"{limit:.2f} times", limit <= 1.25))
    fifo = times("200 %", FIFO)
    made.append(
        Claim("at 200 %: 1.4 times less stale than first in, first out", paper, f"{fifo:.2f} times", fifo >= 1.4)
    )
    made += about_jobs(rows)
    own = found["200 %", HEADGATE]
    beyond = float(own["beyond patience"]) - float(own["longest update"])
    made.append(Claim("at 200 %: nobody waits beyond patience and one update", paper, f"{beyond:.2f} s", beyond <= 0))
    overhead = max(float(found[load, HEADGATE]["overhead"]) for load in LOADS)
    made.append(Claim("Headgate itself takes at most 15 % of an update", paper, f"{overhead:.1%}", overhead <= 0.15))
    return made


def about_jobs(rows: Sequence[Row]) -> list[Claim]:
    """What the scheduler's own choice of jobs that several tables share is worth at overload."""
    stale = {row["contender"]: float(row["weighted staleness"]) for row in rows if row["load"] == OVERLOAD}
    made = []
    for other, than, least in (
        (ALONE, "than every table alone", 1.0),
        (HEADGATE, "than groups by hand", 1.0),
        ("handmade" + INSTALLED, "than the hand-made way as installed", 2.0),
        ("handmade", "than the hand-made way with help", 1.5),
    ):
        better = stale[other] / stale[CHOSEN]
        what = f"at {OVERLOAD}: jobs that the scheduler chooses, {least:g} times less stale {than}"
        made.append(Claim(what, "a target of this project", f"{better:.2f} times", better >= least))
    return made


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    loads = [load for load in LOADS if any(row["load"] == load for row in rows)] or [*LOADS]
    axes = figure.subplots(1, len(loads), squeeze=False)[0]
    for plot, load in zip(axes, loads, strict=True):
        mine = [row for row in rows if row["load"] == load]
        plot.barh([row["contender"] for row in mine], [row["weighted staleness"] for row in mine])
        plot.set_title(f"load {load}")
        plot.set_xlabel("weighted staleness, s")


BENCHMARK = Benchmark(
    name="spark_tables",
    figure="Spark",
    claim="24 tables on local[2]: 3 times less stale than plain Spark, at overload 2 times less than written by hand.",
    takes="32 min",
    run=run,
    draw=draw,
    pivot=Pivot("contender", "load", "weighted staleness"),
    reps=1,
    parts=("jobs",),
)
