"""Jobs that several tables share, in the simulator: chosen by the scheduler, by all that wait, and by nobody.

The 24 tables of `spark_tables`: four streams, and five tables derived from each. An update has a set-up of about 0.1 s,
of which one in a job that another has set up saves 55 %, as five small tables on Spark did. Files come so often that
the offered load, without shared jobs, is a multiple of two tracks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks._warehouses import faster
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from benchmarks.spark import workload
from headgate.core import placement_from, policy_from
from headgate.sim import Table, TableScenario, simulate_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEVER, ALWAYS, AUTO = "never", "always", "auto"
POLICIES = ("max-benefit", "priced-benefit", "fifo")
LOADS = (0.6, 1.0, 1.5, 2.0, 3.0, 5.0)
EVENTS, SMOKE_EVENTS = 10_000, 1_500
SETUP, PER_SECOND, SHARE, DELAY = 0.1, 0.002, 0.55, 0.3
#: the set-ups of the five tables of a stream, and of the stream, as multiples
UNLIKE, LOADING = (1.0, 1.2, 0.9, 1.1, 1.3), 1.3


def scenario(load: float, events: int) -> TableScenario:
    """The tables at an offered load, as a share of the tracks."""
    tables: list[Table] = []
    for stream in workload.STREAMS:
        cost = {"setup_time": SETUP * LOADING, "time_per_unit": PER_SECOND}
        tables.append(Table(stream.name, period=stream.period, priority=stream.priority, delay=DELAY, **cost))
        mine = (table for table in workload.TABLES if table.stream == stream.name)
        for factor, table in zip(UNLIKE, mine, strict=True):
            cost = {"setup_time": SETUP * factor, "time_per_unit": PER_SECOND * factor}
            tables.append(Table(table.name, sources=(stream.name,), priority=table.priority, **cost))
    return faster(TableScenario(tuple(tables), tracks=2, shared_setup=SHARE, events=events), load)


def measure(policy: str, load: float, events: int, seed: int) -> list[Row]:
    """All three ways at one load, with the same arrivals."""
    found = {
        together: simulate_tables(
            replace(scenario(load, events), together=together), policy_from(policy), placement_from("anywhere"), seed
        ).weighted_staleness
        for together in (NEVER, ALWAYS, AUTO)
    }
    return [
        {
            "policy": policy,
            "load": load,
            "together": together,
            "jobs": f"{policy}, {together}",
            "weighted staleness": staleness,
            "against alone": staleness / found[NEVER],
            "seed": seed,
        }
        for together, staleness in found.items()
        if together != NEVER
    ]


def run(context: Context) -> Results:
    loads, events = ((2.0,), SMOKE_EVENTS) if context.smoke else (LOADS, EVENTS)
    arguments = [
        {"policy": policy, "load": load, "events": events, "seed": seed}
        for policy in POLICIES
        for load in loads
        for seed in context.seeds
    ]
    rows = context.points(measure, arguments)
    return Results(rows, [] if context.smoke else claims(rows))


def claims(rows: Sequence[Row]) -> list[Claim]:
    def mean(together: str, load: float, policy: str) -> float:
        return fmean(
            float(row["against alone"])
            for row in rows
            if (row["together"], row["load"], row["policy"]) == (together, load, policy)
        )

    wanted = "a target of this project"
    points = [(load, policy) for load in LOADS for policy in POLICIES]
    worst = max(mean(AUTO, *point) for point in points)
    behind = max(mean(AUTO, *point) / mean(ALWAYS, *point) for point in points)
    high = fmean(mean(AUTO, *point) for point in points if point[0] >= 2.0)
    return [
        Claim("never more than 2 % staler than every table alone", wanted, f"{worst:.3f} times", worst <= 1.02),
        Claim("never more than 2 % staler than all that wait", wanted, f"{behind:.3f} times", behind <= 1.02),
        Claim("from 200 % load on, less stale on the mean", wanted, f"{high:.3f} times", high < 1.0),
    ]


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    plots = figure.subplots(1, len(POLICIES), sharey=True)
    for plot, policy in zip(plots, POLICIES, strict=True):
        for together in (ALWAYS, AUTO):
            mine = [row for row in rows if row["policy"] == policy and row["together"] == together]
            loads = sorted({float(row["load"]) for row in mine})
            means = [fmean(float(row["against alone"]) for row in mine if row["load"] == load) for load in loads]
            plot.plot(loads, means, marker="o", label=together)
        plot.set_title(policy)
        plot.set_xlabel("offered load")
        plot.legend()


BENCHMARK = Benchmark(
    name="shared_jobs",
    figure="Shared jobs",
    claim="Jobs that the scheduler lets tables share are hardly ever worse than none, and better at overload.",
    takes="5 min",
    run=run,
    draw=draw,
    pivot=Pivot("jobs", "load", "against alone"),
    reps=3,
)
