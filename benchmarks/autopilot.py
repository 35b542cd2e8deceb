"""The policy `auto` against the settings that a run begins with, and against the best of six in hindsight.

Parts:

    figures    figures 4 to 11 of Golab et al. and 24 tables as on Spark: the simulator replays each window as a process
               beside a real run does, and changes its settings by the same rule
    random     100 warehouses drawn by chance that played no part in finding the rule
    cost       what that process takes of a core beside a real scheduler of 48 tables that are never fresh
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._warehouses import lasting, random_load, random_warehouse
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.priced import cases
from benchmarks.watched.idle_tables import declared, header_of, idle_runtime
from headgate.core import placement_from, policy_from
from headgate.core.autopilot import PLACEMENTS_TRIED
from headgate.core.policies import Autopilot
from headgate.core.trace import TraceHeader
from headgate.sim import TableScenario, simulate_tables
from headgate.sim.tables.autopilot import simulate_autopilot
from headgate.warehouse.run.autopilot import AutopilotWatch
from headgate.warehouse.run.autopilot_process import AutopilotProcess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT = ("max-benefit", "proportional")
#: what the best in hindsight is chosen from, with each placement that is tried
POLICIES = ("max-benefit", "priced-benefit")
#: `--times` is the number of events of a point, in thousands
EVENTS, SMOKE_EVENTS = 240_000, 2_000
WINDOWS = 24
#: of warehouses drawn by chance: how many, and the events of each. Their number is their seed
WAREHOUSES, RANDOM_EVENTS = 100, 60_000
DRAWN = "random, held out"
#: how much worse than the default it may be, and how much of a core its process may take
WORSE, MOST_SHARE = 1.02, 0.02
WANTED = "a target of this project"
SMOKE_LOADS = {"fig. 5": (1.1,), "24 as on Spark, 2 tracks": (3.0,)}
#: of the run that is watched
TABLES, PER_SECOND, COST_SECONDS, COST_WINDOW = 48, 20.0, 600.0, 60.0


def measure(setting: str, load: float, scenario: TableScenario, events: int, seed: int) -> Row:
    """One job set under the default, under the best in hindsight, and under the autopilot."""
    lasts = lasting(scenario, events)
    found = {
        (policy, placement): simulate_tables(
            lasts, policy_from(policy), placement_from(placement), seed
        ).weighted_staleness
        for policy in POLICIES
        for placement in PLACEMENTS_TRIED
    }
    autopilot = Autopilot(policy_from(DEFAULT[0]), window=lasts.horizon / WINDOWS)
    run = simulate_autopilot(lasts, autopilot, placement_from(DEFAULT[1]), seed)
    best, staleness = min(found, key=found.__getitem__), run.result.weighted_staleness
    return {
        "setting": setting,
        "load": load,
        "seed": seed,
        "events": run.result.events,
        "default": found[DEFAULT],
        "best": found[best],
        "best settings": " with ".join(best),
        "auto": staleness,
        "to the default": staleness / found[DEFAULT],
        "to the best": staleness / found[best],
        "best to the default": found[best] / found[DEFAULT],
        "switches": "; ".join(f"{at / lasts.horizon:.0%} {verdict.settings}" for at, verdict in run.switches),
    }


# --- what it costs --------------------------------------------------------------------------------------------------


def cost(tables: int, seconds: float, window: float) -> Row:
    """The processor time of the process beside a run, as the operating system counts it."""
    said: list[Mapping[str, Any]] = []
    started: list[AutopilotProcess] = []

    def start_process(header: TraceHeader, heard: Any, failed: Any) -> AutopilotProcess:
        def note(told: Mapping[str, Any]) -> None:
            said.append(told)
            heard(told)

        started.append(AutopilotProcess(header, note, failed))
        return started[-1]

    with ExitStack() as closing:
        spec = declared(Path(closing.enter_context(tempfile.TemporaryDirectory())), tables)
        watch = AutopilotWatch(time.time, start_process)
        runtime = idle_runtime(spec, PER_SECOND, observer=watch.updated, on_change=watch.changed)
        watch.begin(header_of(spec, runtime.options))
        runtime.start()
        closing.callback(runtime.stop)
        watch.start(runtime)
        closing.callback(watch.stop)
        runtime.replace_policy(Autopilot(window=window))
        time.sleep(seconds)
        process = started[0].process
        used = 0.0 if process is None else _processor(process.pid)
        updates = sum(row.updates for row in runtime.statistics())
    windows = [each["window"] for each in said if "window" in each]
    return {
        "setting": "cost",
        "tables": tables,
        "seconds": seconds,
        "updates": updates,
        "windows": len(windows),
        "replays": sum(1 + len(each["replayed"]) for each in windows),
        "processor": used,
        "share": used / seconds,
        "share by its own account": max((each["share"] for each in said), default=None),
    }


def _processor(pid: int) -> float:
    """Seconds of a processor that a process has used, on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the benchmark --------------------------------------------------------------------------------------------------


def run(context: Context) -> Results:
    smoke = context.smoke
    rows: list[Row] = []
    if context.part in (None, "figures"):
        events = SMOKE_EVENTS if smoke else 1_000 * (context.times or EVENTS // 1_000)
        arguments = [
            {"setting": name, "load": load, "scenario": scenario, "events": events, "seed": seed}
            for name, load, scenario in cases(SMOKE_LOADS if smoke else None)
            for seed in context.seeds
        ]
        rows += context.points(measure, arguments)
    if context.part in (None, "random"):
        events = SMOKE_EVENTS if smoke else 1_000 * (context.times or RANDOM_EVENTS // 1_000)
        arguments = [
            {
                "setting": DRAWN,
                "load": random_load(number),
                "scenario": random_warehouse(number, held_out=True),
                "events": events,
                "seed": number,
            }
            for number in range(1 if smoke else WAREHOUSES)
        ]
        rows += context.points(measure, arguments)
    if context.part in (None, "cost"):
        seconds = context.seconds or (1.0 if smoke else COST_SECONDS)
        point = {"tables": TABLES, "seconds": seconds, "window": COST_WINDOW}
        rows += context.points(cost, [point], timed=True)
    return Results(rows, [] if smoke else claims(rows))


def by_point(rows: Sequence[Row], column: str) -> dict[tuple[str, float], float]:
    """{(setting, load): the geometric mean of a ratio over seeds}, of the figures"""
    found: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if row["setting"] not in ("cost", DRAWN):
            found.setdefault((row["setting"], row["load"]), []).append(math.log(row[column]))
    return {point: math.exp(sum(logs) / len(logs)) for point, logs in found.items()}


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def claims(rows: Sequence[Row]) -> list[Claim]:
    made = []
    if ratios := by_point(rows, "to the default"):
        worst = max(ratios, key=ratios.__getitem__)
        best = by_point(rows, "best to the default")
        loaded = [point for point in ratios if point[1] > 0.8]
        told = f"worst {ratios[worst]:.3f} times at {worst[0]}, load {worst[1]:g}; of {len(ratios)} points"
        made.append(Claim("never more than 2 % worse than the default", WANTED, told, ratios[worst] <= WORSE))
        if loaded:
            mean, could = _mean([ratios[point] for point in loaded]), _mean([best[point] for point in loaded])
            told = f"{mean:.3f} of the default on the mean over {len(loaded)} points; the best in hindsight {could:.3f}"
            made.append(Claim("at loads above 0.8 it is better than the default", WANTED, told, mean < 1))
    if drawn := [row["to the default"] for row in rows if row["setting"] == DRAWN]:
        worse = sum(ratio > WORSE for ratio in drawn)
        told = f"{_mean(drawn):.3f} of the default on the mean, worst {max(drawn):.3f}; of {len(drawn)}"
        made.append(Claim("random warehouses: never more than 2 % worse", WANTED, f"{worse} are; {told}", worse == 0))
    for row in rows:
        if row["setting"] == "cost":
            told = f"{row['share']:.2%} over {row['seconds']:g} s, {row['windows']} windows, {row['replays']} replays"
            made.append(Claim("it takes less than 2 % of a core", WANTED, told, row["share"] < MOST_SHARE))
    return made


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """The ratio to the default over the load: of the autopilot, and of the best in hindsight."""
    axes = figure.subplots()
    for column, label in (("to the default", "auto"), ("best to the default", "best in hindsight")):
        points = sorted((load, ratio) for (_, load), ratio in by_point(rows, column).items())
        if points:  # none if only the cost was measured
            axes.plot(*zip(*points, strict=True), "o", label=label, alpha=0.6)
    axes.set_xlabel("offered load (share of the tracks)")
    axes.set_ylabel("weighted staleness over that of the default")
    axes.axhline(1.0, color="grey", linewidth=0.5)
    if axes.has_data():
        axes.legend()


BENCHMARK = Benchmark(
    name="autopilot",
    figure="Past the papers",
    claim="Policy auto is never 2 % worse than the default, is better where there is too much to do, and costs < 2 %.",
    takes="7 h",
    run=run,
    draw=draw,
    pivot=Pivot("setting", "load", "to the default"),
    reps=3,
    parts=("figures", "random", "cost"),
)
