"""The placement by-length against the two that it chooses from: figures 4 to 11, Spark-like sets, random warehouses.

Every job set runs under Max Benefit with each placement, for the same virtual time, and by-length is compared with
whichever of `anywhere` and `proportional` is better there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks._golab import (
    JOBS,
    SPREAD,
    TRACKS,
    derived,
    heterogeneous,
    job,
    scaled,
    slowdown,
)
from benchmarks.harness import Benchmark, Claim, Context, Pivot, Results, Row
from headgate.core import derive_periods, placement_from, policy_from
from headgate.sim import Table, TableScenario, simulate_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHOICES = ("anywhere", "proportional")
CHOSEN = "by-length"
#: how much worse than the better of the two it may be
ALLOWED = 1.02
WANTED = "a target of this project"
EVENTS, SMOKE_EVENTS = 20_000, 1_500
RANDOM, SMOKE_RANDOM = 100, 2
#: offered loads, as shares of the tracks
LOADS = (0.6, 0.8, 0.95, 1.1, 1.3, 1.6)
SPARK_LOADS = (1.0, 2.0, 3.0, 5.0)


# --- job sets -------------------------------------------------------------------------------------------------------


def _set(tables: Sequence[Table], **more: object) -> TableScenario:
    return TableScenario(tuple(tables), **{"tracks": TRACKS, "spread": SPREAD, "guard": False, **more})  # type: ignore[arg-type]


def _chains(count: int, tops: Sequence[float]) -> Iterator[Table]:
    for i in range(count):
        yield job(f"base-{i}", priority=0.001)
        yield derived(f"middle-{i}", f"base-{i}", priority=1)
        yield derived(f"top-{i}", f"middle-{i}", priority=tops[i % len(tops)])


def _pairs(count: int) -> Iterator[Table]:
    for i in range(count):
        yield job(f"base-{i}", priority=1)
        yield derived(f"derived-{i}", f"base-{i}", priority=10)


def spark_like(tracks: int, seed: int) -> TableScenario:
    """24 tables as on Spark: set-up of about 0.3 s, little per row, 8 streams of a few seconds each."""
    rng = random.Random(seed)
    cost = [{"setup_time": 0.3 * rng.uniform(0.7, 1.4), "time_per_unit": rng.uniform(0.005, 0.02)} for _ in range(24)]
    streams = [
        Table(f"s{i}", period=rng.choice((2, 5, 10)), priority=rng.choice((1, 10, 100)), **cost[i]) for i in range(8)
    ]
    tables = [
        Table(f"d{i}", sources=(f"s{rng.randrange(8)}",), priority=rng.choice((1, 10, 100)), **cost[8 + i])
        for i in range(16)
    ]
    return _set([*streams, *tables], tracks=tracks)


def faster(scenario: TableScenario, load: float) -> TableScenario:
    """The same with data that comes so much more often that the offered load is `load` of the tracks.

    On Spark the set-up of an update stays what it is: a load is higher because files come more often.
    """
    data = sum(table.time_per_unit for table in scenario.tables)
    factor = (load * scenario.tracks - data) / (scenario.utilisation() - data)
    tables = tuple(replace(table, period=table.period / factor) for table in scenario.tables)
    return replace(scenario, tables=tables)


#: {setting: (the job set, its loads)}
FIGURES: dict[str, tuple[Callable[[], TableScenario], Sequence[float]]] = {
    **{
        f"figure 4, S = {factor}": (
            lambda factor=factor: _set([job(f"t{i}") for i in range(JOBS)], slowdown=slowdown(factor)),
            (0.5, 0.8, 1.0, 1.1),
        )
        for factor in (2, 3, 5, 10)
    },
    "figure 5": (
        lambda: _set([job(f"t{i}", time_per_unit=0.1 if i % 2 else 0.01) for i in range(JOBS)]),
        (0.8, 1.0, 1.1, 1.2, 1.4),
    ),
    "figure 6": (lambda: _set([job(f"t{i}") for i in range(JOBS)], tracks=5), (0.5, 0.8, 0.95, 1.0)),
    "figure 7": (
        lambda: _set([job(f"t{i}", priority=10 if i % 2 else 1) for i in range(JOBS)], slowdown=slowdown()),
        (0.5, 0.8, 1.0, 1.1),
    ),
    "figure 8": (lambda: _set(list(_chains(9, (1, 10, 100))), slowdown=slowdown()), (0.5, 0.8, 1.0, 1.1)),
    "figures 9 and 10": (lambda: _set(heterogeneous()), (0.5, 0.7, 0.8, 0.9, 1.0, 1.1)),
    "figure 11": (
        lambda: _set(list(_pairs(JOBS // 2)), slowdown=slowdown(), inheritance="none"),
        (0.5, 0.8, 1.0, 1.1),
    ),
    "Spark-like, 2 tracks": (lambda: spark_like(2, 1), SPARK_LOADS),
    "Spark-like, 4 tracks": (lambda: spark_like(4, 2), SPARK_LOADS),
}


def random_set(seed: int) -> tuple[TableScenario, float]:
    """8 to 39 tables whose periods and speeds differ by up to 300 and 30 times, and the load that they are to have."""
    rng = random.Random(seed)
    width, speeds = rng.choice((1, 3, 10, 30, 100, 300)), rng.choice((1, 3, 10, 30))
    setup, chained = rng.choice((0.03, 0.1, 0.3, 0.6, 0.9, 0.97)), rng.random() < 0.5
    tables: list[Table] = []
    periods: list[float] = []
    for i in range(rng.randint(8, 39)):
        source = rng.randrange(i) if chained and i and rng.random() < 0.5 else None
        period = periods[source] if source is not None else 100.0 * width ** rng.random()
        speed, share = speeds ** rng.random(), min(0.99, setup * rng.uniform(0.8, 1.2))
        periods.append(period)
        tables.append(
            Table(
                f"t{i}",
                sources=() if source is None else (f"t{source}",),
                period=period if source is None else 0.0,
                priority=rng.choice((1.0, 1.0, 10.0, 100.0)),
                setup_time=share * period * speed,
                time_per_unit=(1 - share) * speed,
            )
        )
    slow = slowdown(rng.choice((3.0, 5.0, 10.0)), min(periods)) if rng.random() < 1 / 3 else None
    return _set(tables, tracks=rng.randint(1, 8), slowdown=slow), rng.choice(LOADS)


# --- measuring ------------------------------------------------------------------------------------------------------


def measure(setting: str, load: float, number: int, seeds: Sequence[int], events: int) -> Row:
    """One job set under all three, each a mean over `seeds`."""
    if setting == "random":
        scenario, load = random_set(number)
    else:
        scenario = FIGURES[setting][0]()
    scenario = _for_as_long((faster if setting.startswith("Spark") else scaled)(scenario, load), events)
    policy = policy_from("max-benefit")
    found = {
        placement: fmean(
            simulate_tables(scenario, policy, placement_from(placement), seed).weighted_staleness for seed in seeds
        )
        for placement in (*CHOICES, CHOSEN)
    }
    better = min(found[placement] for placement in CHOICES)
    return {"setting": setting, "load": load, "number": number, **found, "to the better": found[CHOSEN] / better}


def _for_as_long(scenario: TableScenario, events: int) -> TableScenario:
    """For about so many arrivals and updates, in whole cycles of slow and normal speed."""
    periods = derive_periods(scenario.graph(), scenario.periods_of_streams())
    horizon = events / float((2 / periods).sum())
    slow = scenario.slowdown
    if slow is not None:
        cycle = slow.normal + slow.slow
        horizon = max(1, round(horizon / cycle)) * cycle
    return replace(scenario, horizon=horizon, events=10**9)


def claims(rows: Sequence[Row], smoke: bool) -> list[Claim]:
    found = []
    for kind, those in (
        ("figures and Spark-like sets", [row for row in rows if row["setting"] != "random"]),
        ("random warehouses", [row for row in rows if row["setting"] == "random"]),
    ):
        worst = max(those, key=lambda row: row["to the better"])
        mean = {
            placement: math.exp(fmean(math.log(row[CHOSEN] / row[placement]) for row in those)) for placement in CHOICES
        }
        share = fmean(row["to the better"] > ALLOWED for row in those)
        found.append(
            Claim(
                claim=f"{kind}: never more than 2 % worse than the better of the two",
                paper=WANTED,
                measured=(
                    f"worst {worst['to the better']:.3f} ({worst['setting']} {worst['number']} at {worst['load']:g}), "
                    f"more than 2 % worse in {share:.1%} of {len(those)}; against anywhere {mean['anywhere']:.3f}, "
                    f"against proportional {mean['proportional']:.3f} (geometric means)"
                ),
                holds=None if smoke else worst["to the better"] <= ALLOWED,
            )
        )
    return found


def run(context: Context) -> Results:
    events = SMOKE_EVENTS if context.smoke else EVENTS
    arguments: list[dict[str, object]] = []
    for setting, (_, loads) in FIGURES.items():
        for load in loads[-1:] if context.smoke else loads:
            arguments.append({"setting": setting, "load": load, "number": 0})
    first = context.seeds[0] % 1_000_000
    for number in range(SMOKE_RANDOM if context.smoke else RANDOM):
        arguments.append({"setting": "random", "load": 0.0, "number": first + number})
    rows = context.points(measure, [{**each, "seeds": context.seeds, "events": events} for each in arguments])
    return Results(rows, claims(rows, context.smoke))


def draw(figure: Figure, rows: Sequence[Row]) -> None:
    """How much worse each placement is than the better of the two, over the load."""
    axes = figure.subplots()
    for placement in (*CHOICES, CHOSEN):
        better = [min(row[choice] for choice in CHOICES) for row in rows]
        axes.plot(
            [row["load"] for row in rows],
            [row[placement] / best for row, best in zip(rows, better, strict=True)],
            "o",
            label=placement,
            alpha=0.5,
        )
    axes.set_xlabel("offered load (share of the tracks)")
    axes.set_ylabel("weighted staleness, to the better of the two")
    axes.set_yscale("log")
    axes.legend()


BENCHMARK = Benchmark(
    name="by_length",
    figure="Placement",
    claim="A placement that partitions only where jobs differ in length is as good as the better of the two.",
    takes="8 min",
    run=run,
    draw=draw,
    pivot=Pivot("setting", "load", "to the better"),
    reps=2,
)
