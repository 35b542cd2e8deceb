"""24 tables at three times what the machine can do, and then at little: who waits, what grows, when all is fresh again.

`python -m benchmarks overload --seconds 600`. The tables and plain Spark are those of `spark_tables`.
`python -m benchmarks overload soak` is Headgate alone, for half an hour, with nearly as much to do as it can: what
grows then grows for ever.
"""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fault.levels import Level, Sampler, growth
from benchmarks.harness import Benchmark, Claim, Context, Results, Row
from benchmarks.spark import arrivals, workload
from benchmarks.spark.log import Visible, read_log
from benchmarks.spark.measure import Window, staleness
from benchmarks.spark_tables import OFFERED, SATURATING
from headgate.core import PATIENCE_PERIODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: of the updates per second that are possible: during the overload, after it, and in the soak
OVERLOAD, AFTERWARDS, SOAK_LOAD = 3.0, 0.2, 0.8
SOAK = "soak"
HEADGATE = "headgate, budget of 1 s"
#: {contender: module and options}
CONTENDERS: dict[str, tuple[str, ...]] = {
    HEADGATE: ("benchmarks.spark.warehouse",),
    "headgate, no budget": ("benchmarks.spark.warehouse", "--budget", "inf"),
    "headgate, 3 periods an update": ("benchmarks.spark.warehouse", "--budget", "inf", "--chop", "3"),
    "streaming queries, as installed": ("benchmarks.spark.structured", "--writer", "spark", "--forking"),
}
CAPACITY = "capacity"
WANTED = "a target of this project"
#: seconds for Spark to start and to compile
WARM_UP = 45.0
#: so many looks at the levels of a contender are kept
LOOKS = 30
LEVELS = ("driver_memory", "jvm_memory", "threads", "descriptors")


def phases(speed: float, start: float, end: float, afterwards: float) -> Iterator[arrivals.Arrival]:
    """All files: at `speed` from `start` to `end`, then at the speed of `afterwards`, without end."""
    last = dict.fromkeys((stream.name for stream in workload.STREAMS), 0)

    def first() -> Iterator[arrivals.Arrival]:
        plans = [arrivals.schedule(stream, speed, start, workload.ROWS_PER_SECOND) for stream in workload.STREAMS]
        for arrival in takewhile(lambda each: each.due < end, heapq.merge(*plans, key=lambda each: each.due)):
            last[arrival.stream] = arrival.number + 1
            yield arrival

    def second() -> Iterator[arrivals.Arrival]:
        plans = [arrivals.schedule(stream, afterwards, end, workload.ROWS_PER_SECOND) for stream in workload.STREAMS]
        for arrival in heapq.merge(*plans, key=lambda each: each.due):
            yield replace(arrival, number=arrival.number + last[arrival.stream], since=max(arrival.since, end))

    return chain(first(), second())


def measure(
    contender: str, possible: float, course: Mapping[str, float], seed: int, load: float = OVERLOAD
) -> list[Row]:
    """One contender: a row for all of it, then its levels over time. `possible` are the updates per second that the
    machine can do, `load` is how many times that it is asked for."""
    speed, calm = load * possible / OFFERED, AFTERWARDS * possible / OFFERED
    with tempfile.TemporaryDirectory(prefix="headgate-overload-") as temporary:
        folder = Path(temporary)
        landing, log, figures = folder / "landing", folder / "log.jsonl", folder / "figures.json"
        landing.mkdir()
        module, *options = CONTENDERS[contender]
        if module == "benchmarks.spark.warehouse":
            options += ["--speed", str(speed), "--figures", str(figures)]
        start = time.time()
        overload_ends = start + course["warm_up"] + course["seconds"]
        length = course["warm_up"] + course["seconds"] + course["recovery"]
        files = phases(speed, start, overload_ends, calm)
        feeding = threading.Thread(target=arrivals.run, args=(landing, files, start + length - 2.0, seed), daemon=True)
        command = [sys.executable, "-m", module, "--landing", str(landing), "--out", str(folder / "tables")]
        command += ["--log", str(log), "--seconds", str(length), *options]
        with (folder / "output.txt").open("w", encoding="utf-8") as output:
            running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            try:
                feeding.start()
                with Sampler(running.pid, folder / "tables", max(1.0, length / 300)) as sampler:
                    status = running.wait(length + 600.0)
            finally:
                running.kill()
                running.wait()
        if status:
            raise RuntimeError(f"{contender} ended with {status}: {(folder / 'output.txt').read_text('utf-8')[-2000:]}")
        updates = read_log(log)
        window = Window(start, start + course["warm_up"], overload_ends)
        judged = staleness(updates, workload.priorities(), window)
        row: Row = {
            "contender": contender,
            "offered per second": OFFERED * speed,
            "updates per second": judged.updates_per_second,
            "weighted staleness": judged.weighted,
            "stalest, s": max(table.worst for table in judged.tables.values()),
            "all fresh again after, s": recovered(arrivals.read_manifest(landing), updates, overload_ends),
        }
        for name in (*LEVELS, "disk"):
            row[f"{name}, most"] = max(float(getattr(level, name)) for level in sampler.levels)
            if name in LEVELS:
                row[f"{name}, growth"] = growth(sampler.levels, name, window.start, window.end)
        if figures.exists():
            row |= waits(json.loads(figures.read_text("utf-8")), speed)
    thinned = sampler.levels[:: max(1, len(sampler.levels) // LOOKS)]
    looks = [{"contender": contender, "since the start, s": level.at - start, **_figures(level)} for level in thinned]
    return [row, *looks]


def _figures(level: Level) -> Row:
    return {name: value for name, value in asdict(level).items() if name != "at"}


def recovered(landed: Sequence[arrivals.Landing], updates: Sequence[Visible], end: float) -> float | None:
    """Seconds from `end` until every table had what had landed by then; None if one had not in the time given."""
    newest: dict[str, float] = {}
    for each in landed:
        if each.landed <= end:
            newest[each.stream] = max(newest.get(each.stream, 0.0), each.last)
    moments = []
    for table, stream in workload.stream_of().items():
        enough = [each.visible for each in updates if each.table == table and each.fresh >= newest[stream] - 1e-3]
        if not enough:
            return None
        moments.append(max(0.0, min(enough) - end))
    return max(moments)


def waits(figures: dict[str, Any], speed: float) -> Row:
    """By how much the longest wait of any table went beyond its patience, and the longest update."""
    periods = {stream.name: stream.period / speed for stream in workload.STREAMS}
    beyond = [
        table["longest_wait"] - PATIENCE_PERIODS * max(periods[workload.stream_of()[table["name"]]], 1.0)
        for table in figures["tables"]
    ]
    longest = max((table["last_seconds"] or 0.0) for table in figures["tables"])
    return {"beyond patience, s": max(beyond), "longest update, s": longest}


def capacity(seconds: float, seed: int) -> Row:
    """How many updates per second Headgate makes if there is always something to do."""
    course = {"warm_up": WARM_UP, "seconds": seconds, "recovery": 1.0}
    row = measure(HEADGATE, SATURATING * OFFERED / OVERLOAD, course, seed)[0]
    if not row["updates per second"]:
        raise RuntimeError(f"no update was made from {WARM_UP:g} to {WARM_UP + seconds:g} s after the start: too busy?")
    return {"contender": CAPACITY, "updates per second": row["updates per second"]}


def run(context: Context) -> Results:
    if context.smoke:
        course = {"warm_up": 8.0, "seconds": context.seconds or 4.0, "recovery": 8.0}
        arguments = [{"contender": HEADGATE, "possible": 8.0, "course": course, "seed": context.seed}]
        return Results(_in_order(context.points(measure, arguments, timed=True)), [])
    seconds = context.seconds or 600.0
    possible = context.points(capacity, [{"seconds": min(60.0, seconds), "seed": context.seed}], timed=True)
    if context.part == SOAK:
        course = {"warm_up": WARM_UP, "seconds": context.seconds or 1800.0, "recovery": 30.0}
        soak = {"contender": HEADGATE, "possible": float(possible[0]["updates per second"]), "course": course}
        rows = _in_order(context.points(measure, [soak | {"seed": context.seed, "load": SOAK_LOAD}], timed=True))
        return Results([*possible, *rows], own_claims(rows[0]))
    course = {"warm_up": WARM_UP, "seconds": seconds, "recovery": max(30.0, seconds / 5)}
    arguments = [
        {
            "contender": contender,
            "possible": float(possible[0]["updates per second"]),
            "course": course,
            "seed": context.seed,
        }
        for contender in CONTENDERS
    ]
    rows = _in_order(context.points(measure, arguments, timed=True))
    return Results([*possible, *rows], claims(rows, course))


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """What people read first comes first: a row for each contender, then the levels over time."""
    return sorted(rows, key=_is_look)


def _is_look(row: Row) -> bool:
    return "since the start, s" in row


def claims(rows: Sequence[Row], course: Mapping[str, float]) -> list[Claim]:
    found = {row["contender"]: row for row in rows if not _is_look(row)}

    def after(contender: str) -> float:
        value = found[contender]["all fresh again after, s"]
        return course["recovery"] if value is None else float(value)

    plain = after("streaming queries, as installed")
    what = "after the overload every table is fresh again sooner than with streaming queries"
    sooner = Claim(what, WANTED, f"{after(HEADGATE):.1f} s against {plain:.1f}", after(HEADGATE) < plain)
    return [*own_claims(found[HEADGATE]), sooner]


def own_claims(own: Row) -> list[Claim]:
    """What Headgate alone is to show: nobody waits too long, and nothing grows."""
    beyond = float(own["beyond patience, s"]) - float(own["longest update, s"])
    made = [Claim("nobody waits beyond patience and one update", WANTED, f"{beyond:.1f} s", beyond <= 0)]
    for name in LEVELS:
        grown = own[f"{name}, growth"]
        what = f"{name.replace('_', ' ')} of the last quarter is at most 1.25 times that of the second"
        made.append(
            Claim(what, WANTED, f"{grown:.2f} times" if grown else "nothing seen", bool(grown and grown <= 1.25))
        )
    return made


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    mine = [row for row in rows if row["contender"] != CAPACITY and not _is_look(row)]
    above, below = figure.subplots(2, 2)
    for plot, name in zip(above, ("weighted staleness", "all fresh again after, s"), strict=True):
        plot.barh([row["contender"] for row in mine], [row[name] or 0.0 for row in mine])
        plot.set_xlabel(name)
    for plot, name in zip(below, ("jvm_memory", "driver_memory"), strict=True):
        for contender in dict.fromkeys(row["contender"] for row in mine):
            looks = [row for row in rows if _is_look(row) and row["contender"] == contender]
            plot.plot([row["since the start, s"] for row in looks], [row[name] for row in looks], label=contender)
        plot.set_xlabel("since the start, s")
        plot.set_ylabel(f"{name.replace('_', ' ')}, MB")


BENCHMARK = Benchmark(
    name="overload",
    figure="Overload",
    claim="24 tables at three times what is possible: all within their patience, nothing grows, and then all is fresh.",
    takes="55 min",
    run=run,
    draw=draw,
    reps=1,
    parts=(SOAK,),
)
